//! The program under the name click.
use crate::support::{artery, click};

#[test]
fn without_a_file_standard_input_is_read() {
    let outcome = click(&["-qh", "c.class"], "Idle -> c :: Counter -> Discard;");
    assert_eq!((outcome.status, outcome.out.as_str()), (0, "Counter\n"), "{outcome:?}");
    let empty = click(&[], "");
    assert_eq!(empty.status, 0);
    assert_eq!(empty.err, "warning: <stdin>: configuration has no elements, exiting\n");
    assert_eq!(click(&["-w"], "").err, "");
}

#[test]
fn the_subcommand_is_the_same_program() {
    let outcome = artery(&["click", "-qo-", "-e", "Idle -> Discard"]);
    assert_eq!(outcome.out, click(&["-qo-", "-e", "Idle -> Discard"], "").out);
    assert!(outcome.out.contains("Idle@1 -> Discard@2;"), "{outcome:?}");
}

#[test]
fn wrong_arguments_are_reported_under_the_element() {
    let outcome = click(&["-e", "\na :: Counter(5);\nIdle -> a -> Discard"], "");
    assert_eq!(outcome.status, 1);
    assert_eq!(
        outcome.err,
        "config:2: While configuring 'a :: Counter':\n  too many arguments\n\
         Router could not be initialized!\n"
    );
}

#[test]
fn warnings_are_reported_under_the_element_unless_nobody_wants_them() {
    let text = "Idle -> c :: IPClassifier(udp, udp port 53) -> Discard; c[1] -> Discard;";
    let outcome = click(&["-q", "-e", text], "");
    let expected =
        "config:1: While configuring 'c :: IPClassifier':\n  warning: output 1 matches no packets\n";
    assert_eq!((outcome.status, outcome.err.as_str()), (0, expected));
    assert_eq!(click(&["-q", "--no-warnings", "-e", text], "").err, "");
}

#[test]
fn mistakes_of_the_graph_and_of_the_text_end_differently() {
    let graph = click(&["-e", "c :: Counter; Idle -> c"], "");
    assert_eq!(graph.status, 1);
    assert!(graph.err.ends_with("Router could not be initialized!\n"), "{graph:?}");
    let text = click(&["-e", "c :: Nonsuch"], "");
    assert_eq!((text.status, text.err.as_str()), (1, "config:1: unknown element class 'Nonsuch'\n"));
}

#[test]
fn wrong_options_show_how_to_get_help() {
    let outcome = click(&["--frob"], "");
    assert_eq!(outcome.status, 1);
    let usage = "Usage: click [OPTION]... [ROUTERFILE]\nTry 'click --help' for more information.\n";
    assert_eq!(outcome.err, format!("click: unrecognized option '--frob'\n{usage}"));
    let twice = click(&["-e", "Idle", "file"], "");
    assert_eq!(twice.err, format!("router configuration specified twice\n{usage}"));
}

#[test]
fn handlers_that_do_not_exist_are_named() {
    let outcome = click(&["-qe", "c :: Idle", "-h", "d.x", "-h", "c.nope", "-h", "c.name"], "");
    assert_eq!((outcome.status, outcome.out.as_str()), (1, "c.name:\nc\n\n"));
    assert_eq!(outcome.err, "no element 'd'\nno 'c.nope' handler\n");
}

#[test]
fn comments_of_1999_are_errors_here_and_not_in_artery() {
    let text = "# an old comment\nIdle -> Discard;\n";
    assert_ne!(click(&["-q"], text).err, "");
    assert_eq!(crate::support::artery_reads(&["run", "-q", "-"], text).err, "");
}

#[test]
fn the_time_is_printed_as_click_prints_it() {
    let outcome = click(&["-qte", "Idle"], "");
    let words: Vec<&str> = outcome.out.split_whitespace().collect();
    assert!(
        matches!(words[..], [user, system, _] if user.ends_with('u') && system.ends_with('s')),
        "{outcome:?}"
    );
}

#[test]
fn an_element_tells_its_ports_and_handlers_as_click_does() {
    let text = "a :: Idle -> c :: Null -> q :: Queue -> d :: Discard; b :: Idle -> c;";
    let outcome = click(&["-q", "-e", text, "-h", "c.ports", "-h", "q.ports"], "");
    let ports = "c.ports:\n1 input\npush~\t-\ta [0], b [0]\n1 output\npush~\t-\t[0] q\n\n\
                 q.ports:\n1 input\npush\t-\tc [0]\n1 output\npull\t-\t[0] d\n\n";
    assert_eq!(outcome.out, ports, "{outcome:?}");
    let outcome = click(&["-q", "-e", text, "-h", "q.handlers"], "");
    assert!(outcome.out.starts_with("reset\twb\n"), "{outcome:?}");
    let expected = "handlers\tr.\nports\tr.\nconfig\trw.\nclass\tr.\nname\tr.\n";
    assert!(outcome.out.ends_with(expected), "{outcome:?}");
}

#[test]
fn the_router_tells_its_text_its_driver_and_its_time() {
    let text = "Idle\n  -> Discard;\n";
    let read = |args: &[&str]| click(&[&["-q", "-e", text], args].concat(), "").out;
    assert_eq!(read(&["-h", "config"]), text);
    let found = read(&["-h", "flatconfig"]);
    assert_eq!(found, "Idle@1 :: Idle;\nDiscard@2 :: Discard;\n\nIdle@1 -> Discard@2;\n");
    assert_eq!(read(&["-h", "driver"]), "userlevel\n");
    assert_eq!(read(&["-h", "timewarp"]), "1\n");
    assert_eq!(read(&["--simtime", "-h", "timewarp"]), "simulation\n");
    assert!(read(&["-h", "classes"]).contains("\nQueue\nFullNoteQueue\n"));
    assert!(!read(&["-h", "handlers"]).contains("hotconfig"));
    assert!(read(&["-R", "-h", "handlers"]).contains("\nhotconfig\tw%\n"));
}

#[test]
fn a_script_can_replace_its_configuration_where_that_is_allowed() {
    let text = r#"Script(writeq hotconfig "Script(print 5, stop)", wait 5s, stop)"#;
    let allowed = click(&["-R", "-e", text], "");
    assert_eq!((allowed.status, allowed.out.as_str()), (0, "5\n"), "{allowed:?}");
    let refused = click(&["-e", "Script(write hotconfig Idle, stop)"], "");
    assert!(refused.err.contains("no 'hotconfig' write handler"), "{refused:?}");
}

#[test]
fn mistakes_in_options_are_reported_with_the_name_of_the_program() {
    let outcome = click(&["--frob"], "");
    assert!(outcome.err.starts_with("click: unrecognized option '--frob'\nUsage: click "), "{outcome:?}");
    let outcome = click(&["-e", "Idle", "x"], "");
    assert!(outcome.err.starts_with("router configuration specified twice\nUsage: "), "{outcome:?}");
    let outcome = click(&["-q", "-e", "c :: Idle", "-x", "c.nope"], "");
    assert_eq!(outcome.err, "no 'c.nope' read handler\n");
}
