//! The program under the name click.
mod support;

use support::{artery, click};

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
        "config:2: While configuring 'a :: Counter':\n  too many arguments\nRouter could not be initialized!\n"
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
    assert_eq!(outcome.err, format!("unrecognized option '--frob'\n{usage}"));
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
    assert_eq!(support::artery_reads(&["run", "-q", "-"], text).err, "");
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
