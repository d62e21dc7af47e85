//! Any packets through one of a few dozen configurations that together hold every element that reads bytes.
#![no_main]
use artery_elements::CLASSES;
use artery_engine::Bench;
use libfuzzer_sys::fuzz_target;

/// Class, configuration, number of outputs; none for as many as the class allows.
const ELEMENTS: &[(&str, &str, Option<usize>)] = &[
    ("CheckIPHeader", "", None),
    ("CheckIPHeader", "14, CHECKSUM false", None),
    ("MarkIPHeader", "14", None),
    ("DecIPTTL", "", None),
    ("SetIPChecksum", "", None),
    ("Classifier", "12/0800, 12/0806 20/0001, -", Some(3)),
    ("IPClassifier", "tcp port 80 and tcp opt syn, icmp type echo, src net 10.0.0.0/8, -", Some(4)),
    ("ARPResponder", "10.0.0.0/8 1:2:3:4:5:6", None),
    ("ARPQuerier", "10.0.0.1, 1:2:3:4:5:6", None),
    ("ICMPPingResponder", "", None),
    ("IPPrint", "", None),
    ("Print", "x, 40", None),
    ("Strip", "14", None),
    ("EtherEncap", "0x0800, 1:1:1:1:1:1, 2:2:2:2:2:2", None),
    ("UDPIPEncap", "1.0.0.1, 1, 2.0.0.2, 2", None),
    ("DropBroadcasts", "", None),
    ("GetIPAddress", "16", None),
    ("StoreIPAddress", "12", None),
    ("FixIPSrc", "1.0.0.1", None),
];

fuzz_target!(|data: &[u8]| {
    let Some((&which, packets)) = data.split_first() else { return };
    let (name, config, outputs) = ELEMENTS[usize::from(which) % ELEMENTS.len()];
    let class = CLASSES.find(name).expect("the list names classes that exist");
    let setup = Bench::setup(class, config);
    let setup = if let Some(outputs) = outputs { setup.outputs(outputs) } else { setup };
    let mut bench = setup.build().expect("the configurations are right");
    for packet in packets.chunks(97) {
        bench.push(0, packet);
    }
});
