//! The configurations in `conf/`, as they were when the lab was built: its programs run from anywhere.

/// The configuration that Robert Morris published on 4 May 1999, as printed.
pub const CLICK_1999: &str = include_str!("../../../conf/1999.click");
/// A first configuration, for `artery run`.
pub const HELLO: &str = include_str!("../../../conf/hello.click");
/// An IPv4 router between two Ethernets.
pub const ROUTER: &str = include_str!("../../../conf/router.click");
/// A router whose right side has servers that share a service.
pub const BALANCER: &str = include_str!("../../../conf/balancer.click");
/// A switch of two interfaces and the host.
pub const SWITCH: &str = include_str!("../../../conf/switch.click");
/// A router from one capture to another.
pub const PCAP_ROUTER: &str = include_str!("../../../conf/pcap-router.click");

/// All of them, by file name.
pub const ALL: [(&str, &str); 6] = [
    ("1999.click", CLICK_1999),
    ("hello.click", HELLO),
    ("router.click", ROUTER),
    ("balancer.click", BALANCER),
    ("pcap-router.click", PCAP_ROUTER),
    ("switch.click", SWITCH),
];
