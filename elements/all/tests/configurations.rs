//! Every class on a bench: with which arguments and ports. Tests and fuzz targets share it.
use artery_engine::Class;
use artery_lang::flow;

/// Arguments for classes that can't do without, and for those that do different things with others.
pub(crate) const CONFIGURATIONS: &[(&str, &[&str])] = &[
    ("ARPFaker", &["10.0.0.1, 02:00:00:00:00:01, 10.0.0.2, 02:00:00:00:00:02"]),
    ("ARPQuerier", &["10.0.0.1/24, 02:00:00:00:00:01"]),
    ("ARPResponder", &["10.0.0.2 02:00:00:00:00:02"]),
    ("AggregateFilter", &["0 1-10, 1 all"]),
    ("Align", &["4, 0"]),
    ("BandwidthRatedSplitter", &["1Gbps"]),
    ("BandwidthRatedUnqueue", &["1Gbps"]),
    ("BandwidthShaper", &["1Gbps"]),
    ("CheckIPHeader", &["", "14, CHECKSUM false"]),
    ("CheckIPHeader2", &["", "14"]),
    ("CheckLength", &["60"]),
    ("CheckPaint", &["0"]),
    ("Clipboard", &["0/4, 12/2"]),
    ("Classifier", &["12/0800, 12/0806, -", "12/0806 20/0001, !0/40%f0 9/11, 12/08??"]),
    ("DelayShaper", &["1ms"]),
    ("DelayUnqueue", &["1ms"]),
    ("EtherEncap", &["0x0800, 02:00:00:00:00:01, 02:00:00:00:00:02"]),
    ("EtherRewrite", &["02:00:00:00:00:01, 02:00:00:00:00:02"]),
    ("EtherVLANEncap", &["0x0800, 02:00:00:00:00:01, 02:00:00:00:00:02, VLAN_ID 5"]),
    ("FixIPSrc", &["10.0.0.1"]),
    (
        "FlowBalancer",
        &[
            "SERVICE 192.0.2.1:80, MEMBER a 10.0.0.1, MEMBER b 10.0.0.2",
            "SERVICE 2001:db8::1, MEMBER a 2001:db8:1::1, FORWARD nat, METHOD least-loaded",
        ],
    ),
    ("GetIP6Address", &["24"]),
    ("GetIPAddress", &["16"]),
    ("HashSwitch", &["16, 4"]),
    ("HostEtherFilter", &["02:00:00:00:00:01"]),
    ("ICMPError", &["10.0.0.1, timeexceeded"]),
    ("ICMPIPEncap", &["10.0.0.1, 10.0.0.2, echo"]),
    ("ICMPPingEncap", &["10.0.0.1, 10.0.0.2"]),
    ("ICMPPingSource", &["10.0.0.1, 10.0.0.2", "10.0.0.1, 10.0.0.2, DATA abc, LIMIT 5"]),
    (
        "ICMPPingRewriter",
        &["pattern 1.0.0.1 1024-65535# - - 0 1, pass 1", "keep 0 1, pattern - - 2.0.0.2 - 0 1"],
    ),
    ("IPInputCombo", &["1, INTERFACES 10.0.0.1/24"]),
    ("IPOutputCombo", &["1, 10.0.0.1, 1500"]),
    ("IPAddrPairRewriter", &["pattern 1.0.0.1 2.0.0.2 0 1, keep 0 1"]),
    ("IPAddrRewriter", &["pattern 1.0.0.1-1.0.0.250# - 0 1, keep 0 1"]),
    (
        "IPClassifier",
        &[
            "tcp, udp port 53, -",
            "tcp port 80 and tcp opt syn, icmp type echo, src net 10.0.0.0/8 or ip frag",
        ],
    ),
    ("IPEncap", &["udp, 10.0.0.1, 10.0.0.2"]),
    ("IPFilter", &["allow tcp, 2 udp port 53, drop all"]),
    ("IPFragmenter", &["60"]),
    ("IPGWOptions", &["10.0.0.1"]),
    ("IPRewriter", &["pattern 1.0.0.1 1024-65535# - - 0 1, pass 1", "keep 0 1, pattern - - 2.0.0.2 80 0 1"]),
    (
        "IPRouter",
        &["PORT a 10.0.0.2/8 2001:db8::2/64 ETHER 02:00:00:00:00:02, PORT b 20.0.0.1/8 ETHER \
            02:00:00:00:00:03, ROUTE 0.0.0.0/0 20.0.0.9, HOST 02:00:00:00:00:09, DAD false"],
    ),
    ("LinearIPLookup", &["10.0.0.0/8 0, 0/0 10.0.0.9 2"]),
    ("MarkIPHeader", &["", "14"]),
    ("Message", &["hello"]),
    ("PacketFilter", &["PORT em0, PORT em1", "PORT em0 192.0.2.1/24, PORT em1"]),
    ("Pad", &["", "60"]),
    ("Paint", &["1"]),
    ("LinkUnqueue", &["10ms, 1Gbps"]),
    ("PaintTee", &["0"]),
    ("Print", &["", "x, 40"]),
    ("RandomSample", &["0.5"]),
    ("RatedSplitter", &["100000"]),
    ("RatedUnqueue", &["100000"]),
    ("Resize", &["-14, 4"]),
    ("RoundRobinIPMapper", &["- - 1.0.0.1 - 0 1, - - 1.0.0.2 - 0 1"]),
    ("SetAnnoByte", &["PAINT, 3"]),
    ("SetIP6Address", &["2001:db8::1"]),
    ("SetIP6DSCP", &["46"]),
    ("SetIPAddress", &["10.0.0.1"]),
    ("SetIPDSCP", &["46"]),
    ("SetIPECN", &["ce"]),
    ("SetPacketType", &["HOST"]),
    ("SetRandIPAddress", &["10.0.0.0/8"]),
    ("Shaper", &["100000"]),
    ("StaticIPLookup", &["10.0.0.0/8 0, 0/0 10.0.0.9 2"]),
    ("StaticPullSwitch", &["0"]),
    ("StaticSwitch", &["0"]),
    ("StoreData", &["12, \\<0800>"]),
    ("StoreEtherAddress", &["02:00:00:00:00:01, src"]),
    ("StoreIPAddress", &["16"]),
    ("StrideSched", &["1, 2"]),
    ("Strip", &["14"]),
    ("TCPRewriter", &["pattern 1.0.0.1 1024-65535# - - 0 1, pass 1"]),
    ("Truncate", &["60"]),
    ("UDPIPEncap", &["10.0.0.1, 1234, 10.0.0.2, 53"]),
    ("UDPRewriter", &["pattern 1.0.0.1 1024-65535# - - 0 1, keep 0 1"]),
    ("Unstrip", &["14"]),
    ("VLANEncap", &["5", "ANNO, NATIVE_VLAN 1"]),
];

/// Classes that need more of the machine than a bench has, or another element, and are tested elsewhere.
pub(crate) const ELSEWHERE: &[&str] = &[
    "BFD",
    "Error",
    "FPMServer",
    "FromDevice",
    "FromDump",
    "FromHost",
    "HostPorts",
    "HostRoutes",
    "FromIPSummaryDump",
    "ICMPRewriter",
    "IP6Forward",
    "IPForward",
    "LinkHeader",
    "LookupNextHop",
    "RED",
    "ToDevice",
    "ToDump",
    "ToIPSummaryDump",
];

/// The configurations of a class, at least one.
pub(crate) fn of(class: &Class) -> &'static [&'static str] {
    CONFIGURATIONS.iter().find(|(name, _)| *name == class.name).map_or(&[""], |(_, configs)| configs)
}

/// Two inputs and three outputs, or as near as the class comes.
pub(crate) fn ports(class: &Class) -> [usize; 2] {
    flow::port_counts(class.ports, [2, 3]).unwrap_or_else(|| panic!("{}: ports {}", class.name, class.ports))
}

/// Whether a port pulls, by the codes of its side and what agnostic ports are resolved to.
pub(crate) fn is_pull(codes: &str, port: usize, agnostic: bool) -> bool {
    let code = codes.chars().nth(port).or(codes.chars().last());
    code == Some('l') || code == Some('a') && agnostic
}
