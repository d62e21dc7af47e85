//! Runs that can't do all they were asked to: what they say, and their exit status.
mod support;

use support::{Folder, artery_into, artery_unheard, closed_pipe};

/// Prints a hundred lines, one a second.
const TALK: &str =
    "Script(set n 0, label more, print $n, set n $(add $n 1), wait 1s, goto more $(lt $n 100), stop);";

#[test]
fn a_script_that_nobody_reads_any_more_ends_the_run_quietly_with_the_status_of_a_filter() {
    let folder = Folder::new();
    let dump = folder.path("t.pcap");
    let text = format!("{TALK} InfiniteSource(LIMIT 1, STOP false) -> ToDump({dump}); DriverManager(pause)");
    let outcome = artery_into(closed_pipe(), &["run", "--simtime", "-e", &text]);
    assert_eq!((outcome.status, outcome.err.as_str()), (141, ""));
    assert!(std::fs::metadata(&dump).unwrap().len() >= 24, "elements were stopped in order");
}

#[test]
fn a_script_that_can_not_print_ends_the_run_with_a_message() {
    let full = std::fs::File::create("/dev/full").unwrap();
    let outcome = artery_into(full, &["run", "--simtime", "-e", TALK]);
    assert_eq!(outcome.status, 1);
    assert!(outcome.err.starts_with("standard output: No space left on device"), "{}", outcome.err);
    assert_eq!(outcome.err.lines().count(), 1, "{}", outcome.err);
}

#[test]
fn messages_that_nobody_reads_change_nothing() {
    let text = "Message(heard); Idle -> c :: Counter -> Discard; Script(print \"done\", stop)";
    let outcome = artery_unheard(&["run", "-e", text, "-h", "c.count"]);
    assert_eq!((outcome.status, outcome.out.as_str()), (0, "done\n0\n"), "{outcome:?}");
}
