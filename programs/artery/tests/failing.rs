//! Runs that can't do all that was requested: their messages and exit status.
use crate::support::{Folder, artery, artery_heard_by_nobody, artery_into, artery_unheard, closed_pipe};
use std::process::Command;

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

#[test]
fn a_run_of_which_nobody_reads_anything_ends_with_the_status_of_a_filter() {
    // As in `artery run … 2>&1 | head -1`.
    let text = "InfiniteSource -> Print -> Discard";
    assert_eq!(artery_heard_by_nobody(&["run", "-e", text]), 141);
    // A control socket keeps the run going: a client can still ask.
    let folder = Folder::new();
    let text = "TimedSource(INTERVAL 1ms) -> Print -> c :: Counter(COUNT_CALL 20 .stop) -> Discard";
    assert_eq!(artery_heard_by_nobody(&["run", "-u", &folder.path("s"), "-e", text]), 0);
}

/// A pcap file with packets of 60 bytes, written by the program itself; gives its path.
fn trace(folder: &Folder, packets: u32) -> String {
    let path = folder.path("t.pcap");
    let text = format!("InfiniteSource(LENGTH 60, LIMIT {packets}, STOP true) -> ToDump({path})");
    assert_eq!(artery(&["run", "-e", &text]).status, 0);
    path
}

#[test]
fn a_damaged_trace_fails_the_run_after_the_packets_before_the_damage() {
    let folder = Folder::new();
    let path = trace(&folder, 1000);
    let whole = std::fs::read(&path).unwrap();
    // Cut inside the last record, and with a length in the middle that no packet has.
    let mut wild = whole.clone();
    wild[24 + 500 * 76 + 8..][..4].copy_from_slice(&[0xff; 4]);
    for (bytes, packets, place) in [
        (&whole[..whole.len() - 1], "999", 24 + 999 * 76),
        (&whole[..whole.len() - 65], "999", 24 + 999 * 76),
        (&wild[..], "500", 24 + 500 * 76),
    ] {
        std::fs::write(&path, bytes).unwrap();
        for way in ["->", "-> Unqueue ->"] {
            let text = format!("FromDump({path}, STOP true) {way} c :: Counter -> Discard");
            let outcome = artery(&["run", "-e", &text, "-h", "c.count"]);
            assert_eq!((outcome.status, outcome.out.trim_end()), (1, packets), "{outcome:?}");
            assert!(outcome.err.contains(&format!("{path}: byte {place}, record ")), "{outcome:?}");
        }
    }
}

#[test]
fn a_trace_that_finds_no_room_fails_the_run() {
    for more in ["", ", UNBUFFERED true"] {
        let text = format!(
            "InfiniteSource(LIMIT 10, STOP true) -> ToDump(/dev/full{more}) -> c :: Counter -> Discard"
        );
        let outcome = artery(&["run", "-e", &text, "-h", "c.count"]);
        assert_eq!((outcome.status, outcome.out.as_str()), (1, "10\n"), "{outcome:?}");
        assert!(outcome.err.contains("/dev/full: "), "{outcome:?}");
    }
}

#[test]
fn all_devices_and_files_that_can_not_be_opened_are_told_at_once_and_nothing_is_written() {
    let folder = Folder::new();
    let (written, kept) = (folder.path("no/such/folder.pcap"), folder.file("kept.pcap", "as it was"));
    let text = format!(
        "FromDevice(nope1) -> Discard;\nFromDevice(nope2) -> Discard;\nFromDump(/none) -> Discard;\n\
         Idle -> ToDump({kept});\nScript(print \"acted\");"
    );
    let outcome = artery(&["run", "-e", &text]);
    assert_eq!((outcome.status, outcome.out.as_str()), (1, ""), "{outcome:?}");
    let places = ["nope1: no such interface", "config:1:1", "nope2: no such interface", "config:2:1"];
    for wanted in places.iter().chain(&["/none: ", "config:3:1", "config: 3 errors; nothing was started"]) {
        assert!(outcome.err.contains(wanted), "{wanted}: {}", outcome.err);
    }
    assert_eq!(std::fs::read_to_string(&kept).unwrap(), "as it was");
    let text = format!("Script(print \"acted\"); Idle -> ToDump({written}); Idle -> ToDump({written}2);");
    let outcome = artery(&["run", "-e", &text]);
    assert_eq!((outcome.status, outcome.out.as_str()), (1, ""), "{outcome:?}");
    assert!(outcome.err.contains("config: 2 errors"), "{}", outcome.err);
}

#[test]
fn a_user_who_may_not_open_the_driver_of_tap_devices_is_told_of_its_mode() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: only root can make a device that others can't open");
        return;
    }
    // With the capability that makes TAP devices, which does not open a file.
    let script = "mount -t tmpfs none /dev/net && mknod -m 600 /dev/net/tun c 10 200 && exec setpriv \
                  --reuid=65534 --regid=65534 --clear-groups --inh-caps=+net_admin --ambient-caps=+net_admin \
                  \"$0\" \"$@\"";
    let run = |args: &[&str]| {
        let mut command = Command::new("unshare");
        command.args(["--mount", "--net", "sh", "-c", script, env!("CARGO_BIN_EXE_artery")]).args(args);
        let output = command.env("NO_COLOR", "1").output().unwrap();
        String::from_utf8(output.stdout).unwrap() + &String::from_utf8(output.stderr).unwrap()
    };
    let said = run(&["run", "-e", "FromHost(tap0, 10.0.0.1/24) -> Discard; Idle -> ToHost(tap0)"]);
    let expected =
        "/dev/net/tun: opening it is not permitted; see its owner and mode with 'ls -l /dev/net/tun'";
    assert!(said.contains(expected) && !said.contains("CAP_NET_ADMIN"), "{said}");
    let said = run(&["doctor"]);
    assert!(said.contains("this user may not open /dev/net/tun: the host can't be a port"), "{said}");
}

#[test]
fn files_without_an_end_are_refused_by_their_length() {
    let folder = Folder::new();
    let port = "lo=10.0.0.1/24";
    let listing = folder.file("pf.conf", "table <t> persist file \"/dev/zero\"\npass\n");
    for (args, expected) in [
        (&["check", "/dev/zero"][..], "/dev/zero: this is longer than any configuration"),
        (&["router", "--print", "--port", port, "--pf", "/dev/zero"], "/dev/zero: file too large"),
        (
            &["router", "--print", "--port", port, "--pf", &listing],
            "cannot load \"/dev/zero\": file too large",
        ),
        (&["pfctl", "-nf", "/dev/zero"], "/dev/zero: file too large"),
        (&["pfctl", "-nf", &listing], "cannot load \"/dev/zero\": file too large"),
        (
            &["run", "-e", "FromIPSummaryDump(/dev/zero, STOP true) -> Discard"],
            "/dev/zero:1: the line is longer than 1048576 bytes",
        ),
    ] {
        let outcome = artery(args);
        assert!(outcome.status == 1 && outcome.err.contains(expected), "{args:?}: {outcome:?}");
    }
}
