//! Any packets through one of a few dozen configurations that together hold every element that reads bytes.
#![no_main]
use artery_elements::CLASSES;
use artery_engine::Bench;
use libfuzzer_sys::fuzz_target;

const ELEMENTS: &[(&str, &str)] = &[
    ("CheckIPHeader", ""),
    ("CheckIPHeader", "14, CHECKSUM false"),
    ("MarkIPHeader", "14"),
    ("DecIPTTL", ""),
    ("SetIPChecksum", ""),
    ("Classifier", "12/0800, 12/0806 20/0001, -"),
    ("IPClassifier", "tcp port 80 and tcp opt syn, icmp type echo, src net 10.0.0.0/8, -"),
    ("ARPResponder", "10.0.0.0/8 1:2:3:4:5:6"),
    ("ARPQuerier", "10.0.0.1, 1:2:3:4:5:6"),
    ("ICMPPingResponder", ""),
    ("IPPrint", ""),
    ("Print", "x, 40"),
    ("Strip", "14"),
    ("EtherEncap", "0x0800, 1:1:1:1:1:1, 2:2:2:2:2:2"),
    ("UDPIPEncap", "1.0.0.1, 1, 2.0.0.2, 2"),
    ("DropBroadcasts", ""),
    ("GetIPAddress", "16"),
    ("StoreIPAddress", "12"),
    ("FixIPSrc", "1.0.0.1"),
];

fuzz_target!(|data: &[u8]| {
    let Some((&which, packets)) = data.split_first() else { return };
    let (name, config) = ELEMENTS[usize::from(which) % ELEMENTS.len()];
    let Some(class) = CLASSES.find(name) else { return };
    let mut bench = Bench::new(class, config);
    for packet in packets.chunks(97) {
        bench.push(0, packet);
    }
});
