//! Files that the program writes: who can read them, their length limits, and a full disk; and which bytes of
//! files and names reach a terminal.
use crate::support::{Folder, Outcome, Router, artery, click};
use std::os::unix::fs::{MetadataExt as _, symlink};
use std::process::Command;
use std::time::Duration;

/// A UDP packet of IPv4 in a frame.
const FRAME: &str =
    r"\<020000000001 020000000002 0800 4500001c 00000000 4011f97f 0a000001 0a000002 00010002 00080000>";
/// The same without the frame's header.
const PACKET: &str = r"\<4500001c 00000000 4011f97f 0a000001 0a000002 00010002 00080000>";

/// Between two looks at what changes soon.
const SHORTLY: Duration = Duration::from_millis(5);

fn mode(path: &str) -> u32 {
    std::fs::metadata(path).unwrap().mode() & 0o7777
}

/// Packets that a rule logs, one for each of `limit`.
fn logging(folder: &Folder, log: &str, more: &str, limit: u32) -> String {
    let rules = folder.file("pf.conf", "block log all\n");
    format!(
        "InfiniteSource(DATA {FRAME}, LIMIT {limit}, STOP false) -> pf :: PacketFilter(PORT eth0 \
         10.0.0.9/24, FILE {rules}, LOG {log}{more}); pf[0] -> Discard;"
    )
}

#[test]
fn captures_and_logs_of_packets_are_for_their_owner_alone() {
    let folder = Folder::new();
    let at = |name: &str| folder.path(name);
    let [printed, dump, summary] = ["printed", "dump", "summary"].map(at);
    let text = format!(
        "InfiniteSource(DATA {PACKET}, LIMIT 3, STOP true) -> MarkIPHeader -> IPPrint(OUTFILE {printed}) -> \
         ToDump({dump}, ENCAP IP)
             -> ToIPSummaryDump({summary}) -> Discard;"
    );
    let outcome = artery(&["run", "-e", &text]);
    assert_eq!(outcome.status, 0, "{outcome:?}");
    for path in [printed, dump, summary] {
        assert_eq!(mode(&path), 0o600, "{path}");
    }
    let router = Router::start(&at("s"), &["-e", &logging(&folder, &at("log"), "", 1)]);
    assert_eq!(mode(&at("log")), 0o600);
    assert_eq!(router.call(&["stop", "--write"]).status, 0);
    assert_eq!(router.finish().status, 0);
}

#[test]
fn a_new_configuration_goes_on_with_its_files_and_is_refused_if_one_can_not_be_written() {
    let folder = Folder::new();
    let at = |name: &str| folder.path(name);
    let text = |limit: u32, more: &str| {
        format!(
            "InfiniteSource(DATA {PACKET}, LIMIT {limit}, STOP false) -> MarkIPHeader \
             -> print :: IPPrint(P, TIMESTAMP false, OUTFILE {}) -> dump :: ToDump({}, ENCAP IP) \
             -> lines :: ToIPSummaryDump({}, HEADER false) -> done :: Counter -> Discard; {more}",
            at("printed"),
            at("dump"),
            at("lines")
        )
    };
    let router = Router::start(&at("s"), &["-R", "--allow-path", &at("."), "-e", &text(3, "")]);
    let passed = |count: &str| {
        let all = (0..1000).map(|_| router.read("done.count"));
        assert!(all.inspect(|_| std::thread::sleep(SHORTLY)).any(|now| now == count), "{count}");
    };
    passed("3");
    std::fs::create_dir(at("folder")).unwrap();
    for (class, more) in [("ToDump", ""), ("ToIPSummaryDump", ""), ("IPPrint", "OUTFILE ")] {
        let wrong = format!("Idle -> wrong :: {class}({more}{}) -> Discard", at("folder"));
        let refused = router.call(&["hotconfig", &text(4, &wrong)]);
        assert_eq!(refused.status, 1, "{class}: {refused:?}");
        assert!(refused.err.contains("wrong") && refused.err.contains("Is a directory"), "{refused:?}");
    }
    // The count goes on from 3 to 3 + 2, and so do the files.
    let replaced = router.call(&["hotconfig", &text(2, "")]);
    assert_eq!(replaced.status, 0, "{replaced:?}");
    passed("5");
    assert_eq!(router.call(&["stop", "--write"]).status, 0);
    assert_eq!(router.finish().status, 0);
    let count = |name: &str| std::fs::read_to_string(at(name)).unwrap().lines().count();
    assert_eq!((count("printed"), count("lines")), (5, 5));
    let dump = std::fs::read(at("dump")).unwrap();
    assert_eq!(dump.len(), 24 + 5 * (16 + 28), "a file header and five packets");
}

#[test]
fn a_log_of_packets_has_a_bound() {
    let folder = Folder::new();
    let log = folder.path("log");
    // All of a second's burst, and a second's more, so that what waits to be written has room.
    let text = logging(&folder, &log, ", LOG_MAX 20000", 1000);
    let router = Router::start(&folder.path("s"), &["-e", &text]);
    let written = |out: &str| {
        let line = out.lines().find_map(|line| line.trim().strip_prefix("packets written"));
        line.map_or(0, |count| count.trim().parse::<u64>().unwrap())
    };
    let all = (0..10_000).map(|_| artery(&["pfctl", "-u", &folder.path("s"), "-v", "-s", "info"]));
    assert!(all.map(|said| written(&said.out)).any(|count| count == 1000), "all packets are logged");
    let length = |path: &str| std::fs::metadata(path).unwrap().len();
    let lengths = [length(&log), length(&format!("{log}.old"))];
    assert!(lengths.iter().all(|length| *length <= 20_000) && lengths[1] > 10_000, "{lengths:?}");
    assert_eq!(router.call(&["stop", "--write"]).status, 0);
    let wrong = artery(&["run", "-e", &logging(&folder, &log, ", LOG_MAX much", 1)]);
    assert!(wrong.err.contains("a number of bytes, such as 1000000, 64K, 100M or 1G"), "{wrong:?}");
    let wrong = artery(&["router", "--port", "a=10.0.0.1/24", "--pf", "x", "--pflog-max", "much"]);
    assert!(wrong.status == 2 && wrong.err.contains("such as 1000000, 64K, 100M or 1G"), "{wrong:?}");
}

/// Runs a configuration while `folder` is a small disk of its own.
fn on_a_small_disk(folder: &Folder, text: &str) -> Outcome {
    let disk = folder.path("disk");
    std::fs::create_dir(&disk).unwrap();
    let script = format!(
        "mount -t tmpfs -o size=16k none {disk} && exec {} run -u {} -e \"$0\"",
        env!("CARGO_BIN_EXE_artery"),
        folder.path("s")
    );
    let output = Command::new("unshare").args(["-m", "sh", "-c", &script, text]).output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    Outcome { status: output.status.code().unwrap_or(-1), out: text(output.stdout), err: text(output.stderr) }
}

#[test]
fn a_full_disk_is_told_once_with_what_was_lost_and_packets_go_on() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: only root can make a small disk");
        return;
    }
    let folder = Folder::new();
    let text = logging(&folder, &folder.path("disk/log"), "", 100_000)
        + " Script(wait 2s, read pf.class, print $(pf.pf info), stop)";
    let outcome = on_a_small_disk(&folder, &text);
    let said = format!("{}: can't write: No space left on device; ", folder.path("disk/log"));
    assert_eq!(outcome.err.matches(&said).count(), 1, "{outcome:?}");
    assert!(outcome.err.contains(" lost since this was last said"), "{outcome:?}");
    assert_eq!(outcome.status, 0, "{outcome:?}");
}

#[test]
fn prints_to_a_full_disk_end_in_an_error() {
    let text = format!(
        "InfiniteSource(DATA {PACKET}, LIMIT 5000, STOP true) -> MarkIPHeader -> p :: IPPrint(OUTFILE \
         /dev/full) -> c :: Counter -> Discard;"
    );
    let outcome = artery(&["run", "-e", &text, "-h", "c.count"]);
    assert_eq!((outcome.status, outcome.out.as_str()), (1, "5000\n"), "{outcome:?}");
    assert_eq!(outcome.err, "p :: IPPrint: /dev/full: No space left on device\n");
}

#[test]
fn a_state_dump_is_private_complete_and_follows_no_link() {
    let folder = Folder::new();
    let rules = folder.file("pf.conf", "pass\n");
    let text = format!(
        "InfiniteSource(DATA {FRAME}, LIMIT 1, STOP false) -> pf :: PacketFilter(PORT eth0 10.0.0.9/24, FILE \
         {rules}); pf[0] -> Discard;"
    );
    let socket = folder.path("s");
    let _router = Router::start(&socket, &["-e", &text]);
    let dumps = folder.path("dumps");
    std::fs::create_dir(&dumps).unwrap();
    let file = format!("{dumps}/states");
    let store = |file: &str| artery(&["pfctl", "-u", &socket, "-S", file]);
    // Twice: the second takes the place of the first.
    for _ in 0..2 {
        let stored = store(&file);
        assert_eq!(stored.status, 0, "{stored:?}");
        assert_eq!(mode(&file), 0o600);
    }
    let taken = artery(&["pfctl", "-u", &socket, "-L", &file]);
    assert!(taken.status == 0 && taken.err.contains("1 states loaded"), "{taken:?}");
    let victim = folder.file("victim", "precious");
    let link = format!("{dumps}/link");
    symlink(&victim, &link).unwrap();
    // The name that was predictable once.
    symlink(&victim, format!("{dumps}/other.unfinished")).unwrap();
    let refused = store(&link);
    assert!(refused.status == 1 && refused.err.contains("link: it is not a regular file"), "{refused:?}");
    assert_eq!(store(&format!("{dumps}/other")).status, 0);
    assert_eq!(std::fs::read_to_string(&victim).unwrap(), "precious");
    let names = std::fs::read_dir(&dumps).unwrap().count();
    assert_eq!(names, 4, "nothing unfinished is left");
}

#[test]
fn what_files_and_names_hold_reaches_no_terminal_as_a_command() {
    let folder = Folder::new();
    let evil = "x\x1b]0;owned\x07\u{9b}31m";
    let file = folder.file(
        "\x1b[2J.click",
        &format!("a :: Nonsuch{evil};\n// \x1b[31m\nb -> \"{evil}\";\nCounter(NO {evil}) -> Idle;"),
    );
    let rules = folder.file("\x1b[3J.conf", &format!("pass on {evil}\nblok {evil}\n"));
    let missing = folder.path("no\x1b[2J");
    for outcome in [
        artery(&["check", &file]),
        artery(&["run", &file]),
        artery(&["fmt", &file]),
        artery(&["run", "--log", "json", &file]),
        artery(&["run", &missing]),
        artery(&["pfctl", "-n", "-f", &rules]),
        artery(&["run", "-e", &format!("Idle -> ToDump({missing}/x) -> Discard")]),
        artery(&[
            "run",
            "-e",
            &format!("RatedSource(DATA y, LIMIT 1, STOP true) -> Print(\"{evil}\") -> Discard"),
        ]),
        artery(&["doctor", evil]),
        artery(&["trace", evil]),
        click(&[&file], ""),
        click(&[&missing], ""),
    ] {
        let is_command = |c: char| c.is_control() && c != '\n' && c != '\t';
        assert!(!outcome.err.is_empty() && !outcome.err.contains(is_command), "{outcome:?}");
    }
    // Output that is not for a terminal stays as it is.
    let printed = artery(&["run", "-e", "Script(print \"\x1b[1m\", stop)"]);
    assert_eq!(printed.out, "\x1b[1m\n");
}
