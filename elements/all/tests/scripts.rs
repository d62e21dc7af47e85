//! Scripts in whole routers: what they print, when they go on, and when the router ends.

use crate::whole::simulate as run;
use artery_elements::CLASSES;
use artery_engine::router::{Router, RouterSettings};
use artery_lang::{Options, Sources, check, compile};

#[track_caller]
fn prints(text: &str, printed: &str) {
    assert_eq!(run(text), (printed.to_string(), String::new()));
}

#[test]
fn a_driver_goes_on_when_a_source_asks_the_router_to_stop() {
    let source = "s :: InfiniteSource(LIMIT 1000, STOP true) -> c :: Counter -> Discard;";
    prints(&format!("{source} DriverManager(wait, print c.count, stop)"), "1000\n");
}

#[test]
fn one_request_to_stop_is_one_step_and_the_next_wait_is_kept() {
    let driver = "DriverManager(pause, print $(now), wait 1s, print $(now), stop)";
    prints(&format!("Script(wait 0.5s, write stop); {driver}"), "1000000000.500000\n1000000001.500000\n");
    let source = "InfiniteSource(LIMIT 5, STOP true) -> Discard;";
    prints(&format!("{source} {driver}"), "1000000000.000000\n1000000001.000000\n");
}

#[test]
fn a_driver_goes_on_when_nothing_can_happen_any_more() {
    let source = "InfiniteSource(LIMIT 1000) -> c :: Counter -> Discard;";
    prints(&format!("{source} DriverManager(wait, print c.count, stop)"), "1000\n");
}

#[test]
fn a_stop_of_another_script_is_the_drivers_step() {
    prints("Script(wait 1s, print 1, stop); DriverManager(pause, print 2, wait 5s, print 3)", "1\n2\n3\n");
}

#[test]
fn without_a_driver_a_stop_ends_the_router() {
    prints("Script(print 1, wait 2s, print $(now), stop, print 3)", "1\n1000000002.000000\n");
}

#[test]
fn handlers_of_other_elements_are_read_and_written() {
    let config = "InfiniteSource(LIMIT 5) -> c :: Counter -> Discard;
        Script(wait 1s, print \"$(c.count) $(c.byte_count)\", write c.reset, print $?, print c.count, read \
        c.class, stop)";
    assert_eq!(run(config), ("5 345\n0\n0\n".to_string(), "c.class:\nCounter\n".to_string()));
}

#[test]
fn a_passive_script_makes_a_handler_of_handlers() {
    let config = "InfiniteSource(LIMIT 3) -> a :: Counter -> b :: Counter -> Discard;
        sum :: Script(TYPE PASSIVE, return $(add $(a.count) $(b.count) $1));
        Script(wait 1, print $(sum.run 10), print sum.run, stop)";
    prints(config, "16\n6\n");
}

#[test]
fn exported_variables_and_proxies_are_handlers_to_others() {
    let config = "v :: Script(TYPE PASSIVE, export speed 7);
        p :: Script(TYPE PROXY, returnq \"$0 $1 $write\");
        Script(print v.speed, print $(p.any thing), write p.any x, print $?, print $(readable v.speed \
        v.none), stop)";
    assert_eq!(run(config).0, "7\nany thing false\n0\nfalse\n");
}

#[test]
fn names_are_looked_up_from_the_compound_outwards() {
    let config = "elementclass C { c :: Counter; input -> c -> output; \
        s :: Script(TYPE PASSIVE, return $(c.count)/$(d.count)) }
        InfiniteSource(LIMIT 2) -> x :: C -> d :: Counter -> Discard;
        Script(wait 1, print $(x/s.run), stop)";
    prints(config, "2/2\n");
}

#[test]
fn a_packet_script_sorts_packets() {
    let config = "InfiniteSource(LIMIT 4) -> s :: Script(TYPE PACKET, init n 0, set n $(add $n 1), return \
        $(mod $n 2));
        s[0] -> even :: Counter -> Discard; s[1] -> odd :: Counter -> Discard;
        DriverManager(pause, print $(even.count)$(odd.count))";
    prints(config, "22\n");
}

#[test]
fn a_call_back_into_a_running_script_fails_with_its_name() {
    let config = "a :: Script(write b.run, stop); b :: Script(TYPE PASSIVE, write a.set x 1)";
    let (_, said) = run(config);
    assert!(said.contains("'a.set' called itself"), "{said}");
}

#[test]
fn two_drivers_are_refused() {
    let mut sources = Sources::default();
    let file = sources.add_file("test", "DriverManager(); Script(TYPE DRIVER, pause)");
    let (ir, _) = compile(&mut sources, file, &Options::default(), &CLASSES);
    let (processing, _) = check(&ir, &CLASSES);
    let settings = RouterSettings { frames: (64, 1), ..RouterSettings::default() };
    let problems = Router::build(&ir, &processing, CLASSES, settings).err().expect("a refusal");
    assert_eq!(problems[0].message, "router has more than one driver script");
}

#[test]
fn a_random_seed_makes_what_elements_choose_repeatable() {
    let chosen = |seed: u32| {
        let config = format!(
            "InfiniteSource(LIMIT 64, BURST 1, STOP true) -> n :: RandomSample(0.5) -> SetRandIPAddress(0/0)
                -> IPPrint(TIMESTAMP false, CONTENTS NONE) -> Discard;
             RandomSeed({seed}); DriverManager(wait, print n.drops, print $(random 1000000), stop)"
        );
        run(&config)
    };
    assert_eq!(chosen(7), chosen(7));
    assert_ne!(chosen(7), chosen(8));
}

#[test]
fn parameters_are_refused_where_a_handler_takes_none() {
    let config = "Idle -> c :: Counter -> Discard; Script(read c.count 3, read c.class x, print list x, \
        print \"$(list x)\", stop)";
    let said = "While executing 'Script@4 :: Script':\n  \
                read handler 'c.count' does not take parameters\n  \
                read handler 'c.class' does not take parameters\n  \
                read handler 'list' does not take parameters\n  \
                read handler 'list' does not take parameters\n";
    // What can't be called so stays as it is written, and ends no line.
    assert_eq!(run(config), ("$(list x)".to_string(), said.to_string()));
}
