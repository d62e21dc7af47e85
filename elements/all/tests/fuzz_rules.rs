//! The rules that the fuzz target `whole_router` starts with: a refusal would end it at its first input.
use artery_elements::CLASSES;
use artery_engine::Bench;

#[test]
fn a_switch_and_a_packet_filter_take_the_rules_of_the_fuzz_target() {
    let conf = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/conf");
    for (class, config, ports) in [
        ("Veb", format!("PORT em0, PORT em1, PORT em2, LINK1 true, PF {conf}/switch.conf"), 3),
        ("PacketFilter", format!("PORT em0 192.0.2.1/24, PORT em1 10.0.0.1/8, FILE {conf}/pf.conf"), 2),
    ] {
        let class = CLASSES.find_class(class).expect("it is a class");
        let setup = Bench::setup(class, &config).inputs(ports).outputs(ports);
        let built = setup.build();
        assert!(built.is_ok(), "{config}: {:?}", built.err());
    }
}
