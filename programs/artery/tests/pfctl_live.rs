//! `artery pfctl` with a router that runs: its states in parts, in files and at interfaces, counters,
//! levels, files of rules.
use crate::support::{Folder, Outcome, Router, artery, artery_reads};
use artery_wire::build::{ether, ip4};
use std::collections::BTreeSet;

/// More than one query returns.
const STATES: u16 = 3000;

/// A capture of a datagram from each of some ports to the same service.
fn capture(folder: &Folder) -> String {
    let frame = |port: u16| {
        let source = if port.is_multiple_of(3) { "192.0.2.3" } else { "192.0.2.9" };
        let packet = ip4().src(source).dst("10.0.0.9").ttl(64).udp(port, 53).payload([7; 18]);
        ether("02:00:00:00:00:01", "02:00:00:00:00:0a").ip4(packet).bytes()
    };
    folder.capture(1, (1..=STATES).map(frame))
}

/// A router whose filter has these rules and arguments, and has received the packets of the capture.
fn full(folder: &Folder, rules: &str, arguments: &str) -> Router {
    let (capture, rules) = (capture(folder), folder.file("pf.conf", rules));
    let config = format!(
        "f :: FromDump({capture}) -> c :: Counter -> pf :: PacketFilter(PORT em0 192.0.2.1/24, FILE \
         {rules}{arguments});
         pf[0], pf[1] -> Discard; Idle -> [1] pf;"
    );
    let router = Router::start(&folder.path("full"), &["-e", &config]);
    for _ in 0..2000 {
        if router.read("c.count").parse() == Ok(STATES) {
            return router;
        }
    }
    panic!("{} packets came", router.read("c.count"));
}

/// A router of some workers whose filter receives no packets.
fn empty(folder: &Folder, rules: &str, workers: &str) -> Router {
    let rules = folder.file("empty.conf", rules);
    let config = format!("Idle -> pf :: PacketFilter(PORT em0 192.0.2.1/24, FILE {rules}) -> Discard;");
    Router::start(&folder.path("empty"), &["-j", workers, "-e", &config])
}

fn pfctl(router: &Router, args: &[&str]) -> Outcome {
    artery(&[&["pfctl", "-u", router.socket().to_str().unwrap()], args].concat())
}

fn done(router: &Router, args: &[&str]) -> Outcome {
    let outcome = pfctl(router, args);
    assert_eq!(outcome.status, 0, "{args:?}: {outcome:?}");
    outcome
}

/// The states of a router, a line each.
fn states(router: &Router) -> BTreeSet<String> {
    let listed = done(router, &["-s", "states"]).out;
    let all: BTreeSet<String> = listed.lines().map(str::to_string).collect();
    assert_eq!(all.len(), listed.lines().count(), "each is listed once");
    all
}

#[test]
fn states_are_shown_and_ended_part_by_part() {
    let folder = Folder::new();
    let router = full(&folder, "pass", "");
    let all = states(&router);
    assert_eq!(all.len(), usize::from(STATES));
    assert!(all.contains("all udp 10.0.0.9:53 <- 192.0.2.9:1       NO_TRAFFIC:SINGLE"), "{:?}", all.first());
    assert_eq!(done(&router, &["-vv", "-s", "states"]).out.lines().count(), 3 * usize::from(STATES));
    let killed = done(&router, &["-k", "192.0.2.3"]);
    assert_eq!(killed.err, "killed 1000 states from 1 sources and 0 destinations\n");
    assert_eq!(states(&router).len(), 2000);
    assert_eq!(
        done(&router, &["-k", "key", "-k", "udp 10.0.0.9:53 <- 192.0.2.9:2000"]).err,
        "killed 1 states\n"
    );
    assert_eq!(done(&router, &["-F", "states"]).err, "1999 states cleared\n");
    assert!(states(&router).is_empty());
}

#[test]
fn states_of_a_file_are_those_that_were_kept() {
    let folder = Folder::new();
    let first = full(&folder, "pass tag inside", "");
    let (all, file) = (states(&first), folder.path("states"));
    assert_eq!(done(&first, &["-S", &file]).out, "");
    let piped = std::fs::read(&file).unwrap();
    for workers in [1, 2] {
        let second = empty(&folder, "pass tag inside", &workers.to_string());
        let told = format!("{STATES} of {STATES} states loaded\n");
        assert_eq!(done(&second, &["-L", &file]).err, told);
        // Each worker has all states, as the one that will receive a state's packets is not known.
        let listed = done(&second, &["-s", "states"]).out;
        assert_eq!(listed.lines().map(str::to_string).collect::<BTreeSet<_>>(), all);
        assert_eq!(listed.lines().count(), workers * usize::from(STATES));
        let again = done(&second, &["-L", &file]).err;
        assert!(again.starts_with("0 of 3000 states loaded; 3000 were there already"), "{again}");
        let rules = done(&second, &["-v", "-s", "rules"]).out;
        assert!(rules.contains(&format!("States: {:<6}", workers * usize::from(STATES))), "{rules}");
    }
    assert!(!std::path::Path::new(&format!("{file}.unfinished")).exists());
    assert_eq!(&piped[..8], b"pfstate2");
}

#[test]
fn of_a_file_that_is_not_whole_no_state_is_loaded() {
    let folder = Folder::new();
    let first = full(&folder, "pass", "");
    let file = folder.path("states");
    done(&first, &["-S", &file]);
    let (whole, second) = (std::fs::read(&file).unwrap(), empty(&folder, "pass", "1"));
    let mut wrong: Vec<(Vec<u8>, &str)> =
        (0..24).map(|n| (whole[..whole.len() * n / 24].to_vec(), "not whole")).collect();
    wrong[0].1 = "not a file of states";
    wrong.push((whole[..whole.len() - 1].to_vec(), "not whole"));
    let mut changed = whole.clone();
    changed[whole.len() / 2] ^= 4;
    wrong.push((changed, ""));
    wrong.push((b"pfstate9".repeat(9), "version '9'"));
    wrong.push((vec![0xff; 5000], "not a file of states"));
    for (bytes, said) in wrong {
        std::fs::write(&file, &bytes).unwrap();
        let outcome = pfctl(&second, &["-L", &file]);
        assert_eq!((outcome.status, outcome.err.contains(said)), (1, true), "{}: {outcome:?}", bytes.len());
        assert!(outcome.err.contains("no state was loaded"), "{}", outcome.err);
        assert_eq!(states(&second).len(), 0);
    }
    let missing = pfctl(&second, &["-L", "/nonexistent/states"]);
    assert!(missing.status == 1 && missing.err.contains("/nonexistent/states: No such file"), "{missing:?}");
    let unwritable = pfctl(&second, &["-S", "/nonexistent/states"]);
    assert!(unwritable.err.contains("/nonexistent/states: No such file"), "{unwritable:?}");
}

#[test]
fn what_is_asked_is_limited_to_an_interface_or_refused() {
    let folder = Folder::new();
    let router = full(&folder, "set state-policy if-bound\npass", "");
    let count = |name: &str| done(&router, &["-i", name, "-s", "states"]).out.lines().count();
    assert_eq!([count("em0"), count("all"), count("em7")], [3000, 0, 0]);
    assert_eq!(done(&router, &["-i", "em0", "-s", "Interfaces"]).out, "em0\n");
    assert_eq!(done(&router, &["-s", "Interfaces"]).out, "lo0\nem0\n");
    assert!(done(&router, &["-i", "lo0", "-k", "192.0.2.3"]).err.starts_with("killed 0 states"));
    assert!(done(&router, &["-i", "em0", "-k", "192.0.2.3"]).err.starts_with("killed 1000 states"));
    assert_eq!(done(&router, &["-i", "em0", "-F", "st"]).err, "2000 states cleared\n");
    for args in [["-s", "rules"], ["-F", "all"], ["-s", "all"]] {
        let refused = pfctl(&router, &[&["-i", "em0"][..], &args].concat());
        assert_eq!(refused.status, 1, "{refused:?}");
        assert!(refused.err.contains("can't be limited to em0"), "{refused:?}");
    }
    assert_ne!(pfctl(&router, &["-i", "em 0", "-s", "states"]).status, 0);
}

#[test]
fn counters_of_rules_begin_anew_and_states_go_on() {
    let folder = Folder::new();
    let router = full(&folder, "pass label every", "");
    let rules = || done(&router, &["-v", "-s", "rules"]).out;
    assert!(rules().contains("Packets: 3000 ") && rules().contains("State Creations: 3000"), "{}", rules());
    assert_eq!(done(&router, &["-z"]).err, "pf: rule counters cleared\n");
    let cleared = rules();
    assert!(cleared.contains("[ Evaluations: 0         Packets: 0 "), "{cleared}");
    assert!(cleared.contains("States: 3000 ") && cleared.contains("State Creations: 0 "), "{cleared}");
    assert_eq!(done(&router, &["-qz"]).err, "");
    done(&router, &["-F", "states"]);
    assert!(rules().contains("States: 0 "), "{}", rules());
}

#[test]
fn levels_options_and_words_that_are_cut_short_are_understood() {
    let folder = Folder::new();
    let rules = "set debug notice\nset timeout udp.first 77\nset skip on em0\ntable <t> persist\npass";
    let router = empty(&folder, rules, "1");
    assert!(done(&router, &["-s", "i"]).out.contains("Debug: notice"));
    assert_eq!(done(&router, &["-x", "warn"]).err, "debug level set to 'warning'\n");
    assert!(done(&router, &["-s", "info"]).out.contains("Debug: warning"));
    let wrong = pfctl(&router, &["-x", "loudest"]);
    assert!(wrong.status == 1 && wrong.err.contains("'loudest' is none of emerg, alert"), "{wrong:?}");

    assert_eq!(done(&router, &["-t", "t", "-T", "a", "10.0.0.1"]).err, "1/1 addresses added.\n");
    assert_eq!(done(&router, &["-t", "t", "-T", "sh"]).out, "   10.0.0.1\n");
    let wrong = pfctl(&router, &["-t", "t", "-T", "sing"]);
    assert!(wrong.status == 1 && wrong.err.contains("'sing' is none of add, delete"), "{wrong:?}");

    assert!(done(&router, &["-v", "-s", "Interfaces"]).out.contains("em0 (skip)"));
    assert_eq!(done(&router, &["-F", "Reset"]).err, "pf: options reset\n");
    assert!(done(&router, &["-s", "timeouts"]).out.contains("udp.first                    60s"));
    assert!(!done(&router, &["-v", "-s", "Interfaces"]).out.contains("(skip)"));
    assert_eq!(done(&router, &["-s", "rules"]).out, "pass all flags S/SA\n");
    for (option, what) in [("-s", "queue"), ("-s", "osfp"), ("-F", "osfp")] {
        let refused = pfctl(&router, &[option, what]);
        assert!(refused.status == 1 && refused.err.contains(&format!("{option} {what}: ")), "{refused:?}");
    }
    let all = done(&router, &["-s", "all"]).out;
    let headings: Vec<&str> = all.lines().filter(|line| line.ends_with(':')).collect();
    assert_eq!(
        headings,
        ["FILTER RULES:", "INFO:", "TIMEOUTS:", "LIMITS:", "TABLES:"],
        "what is empty has none"
    );
    assert!(all.contains("pass all flags S/SA\n\nINFO:\n"), "{all}");
    assert_eq!(done(&router, &["-F", "all"]).err.lines().count(), 6);
}

#[test]
fn what_is_asked_of_an_anchor_is_asked_of_no_other() {
    let folder = Folder::new();
    let router =
        full(&folder, "anchor foo\nanchor \"bar/*\"\npass label main\nset timeout udp.first 77\n", "");
    let load = |anchor: &str, text: &str| {
        done(&router, &["-a", anchor, "-f", &folder.file("anchor.conf", text)]);
    };
    load("foo", "block in proto tcp to port 22 label inner\n");
    load("bar/one/deep", "pass out quick\n");
    load("bar/two", "match in\n");
    let listed = |args: &[&str]| done(&router, args).out;
    assert_eq!(listed(&["-s", "Anchors"]), "  bar\n  foo\n");
    assert_eq!(listed(&["-v", "-s", "Anchors"]), "  bar\n  bar/one\n  bar/one/deep\n  bar/two\n  foo\n");
    let deep = "anchor \"foo\" all {\n  block drop in proto tcp from any to any port = 22 label \"inner\"\n\
        }\n\
        anchor \"bar/*\" all {\n  anchor \"one\" all {\n    anchor \"deep\" all {\n      \
        pass out quick all flags S/SA\n    }\n  }\n  anchor \"two\" all {\n    match in all\n  }\n}\n\
        pass all flags S/SA label \"main\"\n";
    assert_eq!(listed(&["-a", "*", "-s", "rules"]), deep);
    assert_eq!(listed(&["-a", "bar/two/*", "-s", "rules"]), "match in all\n");
    let found = listed(&["-P", "-a", "foo", "-s", "rules"]);
    assert_eq!(found, "block drop in proto tcp from any to any port = ssh label \"inner\"\n");
    assert!(
        listed(&["-s", "labels"]).starts_with("main ")
            && listed(&["-a", "foo", "-s", "labels"]).starts_with("inner ")
    );
    assert_eq!(done(&router, &["-a", "foo", "-F", "all"]).err, "rules cleared\n0 tables deleted.\n");
    assert!(
        listed(&["-s", "timeouts"]).contains("udp.first                    77s"),
        "others keep their options"
    );
    assert_eq!(listed(&["-s", "states"]).lines().count(), usize::from(STATES), "and their states");
    assert!(listed(&["-v", "-s", "rules"]).contains("all flags S/SA label \"main\"\n  [ Evaluations: 3000 "));
    assert!(
        listed(&["-s", "info"]).contains("  match                               3000"),
        "what passes counts"
    );
}

#[test]
fn tables_are_asked_for_single_addresses() {
    let folder = Folder::new();
    let router = empty(&folder, "table <t> { \"10.0.0.0/8\" !10.1.0.0/16 }\npass from <t>", "1");
    for word in ["10.0.0.0/24", "!10.0.0.1"] {
        let refused = pfctl(&router, &["-t", "t", "-T", "test", word]);
        assert!(refused.status == 1, "{refused:?}");
        assert!(refused.err.contains(&format!("cannot decode {word}: Invalid")), "{refused:?}");
    }
    let tested = pfctl(&router, &["-vv", "-t", "t", "-T", "test", "10.2.3.4", "11.0.0.1"]);
    assert_eq!(tested.status, 2);
    assert_eq!(tested.out.as_str(), "M  10.2.3.4\t 10.0.0.0/8\n   11.0.0.1\t nomatch\n");
    let shown = done(&router, &["-v", "-t", "t", "-T", "show"]).out;
    let cleared = shown.lines().find_map(|line| line.strip_prefix("\tCleared:     ")).unwrap();
    let words: Vec<&str> = cleared.split_whitespace().collect();
    assert!(words.len() == 5 && words[3].split(':').count() == 3 && words[4].starts_with("20"), "{cleared}");
}

#[test]
fn what_can_not_be_done_is_refused_by_name() {
    let folder = Folder::new();
    let router = empty(&folder, "pass", "1");
    let load = |rules: &str| {
        artery_reads(&["pfctl", "-u", router.socket().to_str().unwrap(), "-f", "-"], &format!("{rules}\n"))
    };
    for (rules, named) in [
        ("set syncookies always", "not supported: syncookies"),
        ("set syncookies adaptive", "not supported: syncookies"),
        ("block from no-route", "not supported: no-route and urpf-failed"),
        ("block in from urpf-failed", "not supported: no-route and urpf-failed"),
        ("block from route home", "not supported: route"),
    ] {
        let refused = load(&format!("{rules}\nblock"));
        assert!(refused.status == 1 && refused.err.contains(named), "{rules}: {refused:?}");
    }
    assert_eq!(done(&router, &["-s", "rules"]).out, "pass all flags S/SA\n");
    assert_eq!(load("set syncookies never\nblock").status, 0);
    let warned = load("block log");
    assert!(warned.status == 0 && warned.err.contains("no file for what rules with 'log' log"), "{warned:?}");
}

#[test]
fn rules_ask_for_the_routes_of_a_router() {
    let folder = Folder::new();
    let (capture, rules) =
        (capture(&folder), folder.file("pf.conf", "block\npass in from urpf-failed to no-route"));
    // Two thirds of the packets come from where a route leads elsewhere; to where they go there is none.
    let config = |port: &str| {
        format!(
            "ip :: IPRouter(PORT em0 192.0.2.1/24 ETHER 2:0:0:0:0:1, ROUTE 192.0.2.8/29 blackhole);
             Idle -> ip -> Discard; ip[1] -> Discard;
             f :: FromDump({capture}) -> c :: Counter -> pf :: PacketFilter(PORT {port}, ROUTER ip, FILE \
             {rules}) -> Discard;"
        )
    };
    let router = Router::start(&folder.path("routes"), &["-e", &config("em0")]);
    let has_come = |router: &Router| router.read("c.count").parse() == Ok(STATES);
    assert!((0..2000).any(|_| has_come(&router)));
    assert_eq!(states(&router).len(), 2000);
    let refused = artery(&["run", "-q", "-e", &config("em7")]);
    assert!(refused.status == 1 && refused.err.contains("PORT em7 is not a port of ip"), "{refused:?}");
}

#[test]
fn what_rules_log_is_in_a_file_that_is_gone_on_with() {
    let folder = Folder::new();
    let log = folder.path("pflog");
    for times in 1..=2 {
        let router = full(&folder, "block log", &format!(", LOG {log}"));
        // A thread writes: what waits is written, or was lost and counted.
        let counts = || {
            let info = done(&router, &["-v", "-s", "info"]).out;
            let count = |name: &str| -> u64 {
                let line = info.lines().find(|line| line.trim().starts_with(name)).unwrap();
                line.split_whitespace().last().unwrap().parse().unwrap()
            };
            [count("packets written"), count("packets lost")]
        };
        while counts().iter().sum::<u64>() < STATES.into() {}
        let length = std::fs::metadata(&log).unwrap().len();
        let record = 16 + 64 + 46;
        assert_eq!((length - 24) % record, 0);
        assert!((length - 24) / record >= times * counts()[0].min(1024), "{length}");
    }
    let bytes = std::fs::read(&log).unwrap();
    assert_eq!((&bytes[..4], bytes[20]), (&0xa1b2_c3d4_u32.to_le_bytes()[..], 117));
}

#[test]
fn rules_mean_by_etc_what_the_filter_was_told() {
    let folder = Folder::new();
    folder.file("spam", "192.0.2.66\n");
    folder.file("inner.conf", "block from <local>\n");
    folder.file("more.conf", "table <spam> persist file \"/etc/spam\"\n");
    let text = "include \"/etc/more.conf\"\nanchor a\nload anchor a from \"/etc/inner.conf\"\npass\n";
    let rules = folder.file("pf.conf", text);
    let etc = folder.path(".");
    let config = format!("Idle -> pf :: PacketFilter(PORT em0, FILE {rules}, ETC {etc}) -> Discard;");
    let router = Router::start(&folder.path("etc"), &["-e", &config]);
    let holds = || {
        assert_eq!(done(&router, &["-t", "spam", "-T", "show"]).out, "   192.0.2.66\n");
        assert_eq!(done(&router, &["-a", "a", "-s", "rules"]).out, "block drop from <local> to any\n");
    };
    holds();
    folder.file("spam", "192.0.2.66\n192.0.2.67\n");
    done(&router, &["-f", &rules]);
    assert_eq!(done(&router, &["-t", "spam", "-T", "show"]).out.lines().count(), 2);
    folder.file("spam", "192.0.2.66\n");
    done(&router, &["-f", &rules, "--etc", &etc]);
    holds();
    let checked = artery(&["pfctl", "-nf", &rules, "--etc", &etc]);
    assert_eq!((checked.status, checked.err.as_str()), (0, ""));
    let elsewhere = artery(&["pfctl", "-nf", &rules, "--etc", "/nonexistent"]);
    assert!(elsewhere.status == 1 && elsewhere.err.contains("pf.conf:1: "), "{elsewhere:?}");
    std::fs::remove_file(folder.path("inner.conf")).unwrap();
    let missing = pfctl(&router, &["-f", &rules]);
    assert!(missing.err.contains("pf.conf:3: cannot load anchor a from \"/etc/inner.conf\""), "{missing:?}");
    holds();
}

#[test]
fn rules_are_shown_with_how_they_could_be_skipped() {
    let folder = Folder::new();
    let rules = "table <t> { 10.0.0.1 10.0.0.2 }
block in on em0 proto tcp from <t> to any
block in on em0 proto udp all
anchor \"named\" {
\tpass
}
anchor out {
\ttable <inner> { 10.0.0.3 }
\tpass from <inner> no state
\tpass out from 10.0.0.1 nat-to 192.0.2.0/24
}
";
    let router = empty(&folder, "pass", "1");
    let file = folder.file("loaded.conf", rules);
    done(&router, &["-f", &file]);
    let shown = done(&router, &["-gvvsr"]).out;
    let nothing = "  [ Evaluations: 0         Packets: 0         Bytes: 0           States: 0     ]\n";
    let queue = "  [ queue: qname= qid=0 pqname= pqid=0 ]\n";
    let first = "@0 block drop in on em0 proto tcp from <t:2> to any\
        \n  [ Skip steps: i=2 d=2 r=end f=end da=end sp=end dp=end ]\n";
    assert!(shown.starts_with(&format!("{first}{queue}{nothing}@1 block")), "{shown}");
    assert!(shown.contains("@0 pass from <inner:1> to any no state\n"), "{shown}");
    assert!(shown.contains(" nat-to 192.0.2.0/24\n"), "{shown}");
    let dumped = done(&router, &["-s", "rules"]).out;
    let named = "anchor \"named\" all\nanchor out all {\n  pass from <inner> to any no state\n";
    assert!(dumped.contains(named), "{dumped}");
    assert_eq!(done(&router, &["-a", "named", "-s", "rules"]).out, "pass all flags S/SA\n");
}

#[test]
fn what_a_filter_refuses_is_told_by_the_lines_of_the_file() {
    let folder = Folder::new();
    let router = empty(&folder, "pass", "1");
    let inner = folder.file("inner.conf", "pass\n\npass proto tcp user root\n");
    let rules = format!(
        "# a comment\nset skip on lo0\npass in proto {{ tcp udp }} divert-to 127.0.0.1 port 99\n\n\
         anchor \"a\" {{\n\
         block\npass proto tcp group daemon\n}}\nanchor spam\nload anchor spam from \"{inner}\"\n"
    );
    let file = folder.file("outer.conf", &rules);
    let refused = pfctl(&router, &["-f", &file]);
    let at = |line: &str| {
        refused.err.lines().filter(|told| told.starts_with(&format!("{line}: not supported: "))).count()
    };
    let lines = [&format!("{file}:3"), &format!("{file}:7")].map(|line| at(line));
    assert_eq!(refused.status, 1, "{refused:?}");
    assert_eq!(lines, [1; 2], "{refused:?}");
    assert_eq!(refused.err.matches("not supported").count(), 2, "{refused:?}");
    // Rules that are valid but that no filter loads are reported even if nothing is loaded.
    let read = pfctl(&router, &["-nf", &file]);
    let told: Vec<&str> =
        read.err.lines().map(|line| line.split(" warning: not supported").next().unwrap()).collect();
    assert_eq!(read.status, 0);
    assert_eq!(told, vec![&*format!("{file}:3:"), &format!("{file}:7:"), &format!("{inner}:3:")]);
    let alone = folder.file("alone.conf", &format!("pass\nload anchor spam from \"{inner}\"\n"));
    let refused = pfctl(&router, &["-f", &alone]);
    assert!(refused.err.starts_with(&format!("{inner}:3: not supported: user")), "{refused:?}");
}

#[test]
fn addresses_of_tables_are_resolved_and_what_is_none_says_why() {
    let folder = Folder::new();
    let router = empty(&folder, "table <t> persist\npass", "1");
    let table = |args: &[&str]| pfctl(&router, &[&["-t", "t", "-T"], args].concat());
    assert_eq!(table(&["add", "localhost", "10.1/16", "!", "10.1.2.3"]).status, 0);
    let shown = table(&["show"]).out;
    assert!(shown.contains("127.0.0.1\n"), "{shown}");
    assert!(shown.contains(" 10.1.0.0/16\n"), "{shown}");
    assert!(shown.contains("!10.1.2.3\n"), "{shown}");
    for (wrong, why) in [
        (
            "1.2.3",
            "an address of IPv4 has four numbers, unless a length follows, as in 10.1/16; the table is as it \
             was",
        ),
        (
            "nowhere.invalid",
            "no address found for nowhere.invalid, which is neither an interface nor a known host",
        ),
        ("10.0.0.0/33", "too long a length"),
    ] {
        let refused = table(&["add", wrong]);
        assert_eq!((refused.status, refused.err.contains(why)), (1, true), "{refused:?}");
        assert!(!refused.err.contains("line 1"), "{refused:?}");
    }
    let file = folder.file("addresses", "10.9.0.1 # one\n\n1.2.3\n");
    let refused = table(&["replace", "-f", &file]);
    assert!(refused.err.contains(&format!("{file}: line 3: ")), "{refused:?}");
    assert_eq!(table(&["show"]).out, shown);
}

#[test]
fn words_that_say_nothing_are_refused_before_a_router_is_looked_for() {
    for (args, word) in [(["-s", "foo"], "'foo' is none of"), (["-F", "bar"], "'bar' is none of")] {
        let refused = artery(&[&["pfctl", "-u", "/nonexistent/socket"], &args[..]].concat());
        assert_eq!((refused.status, refused.err.contains(word)), (1, true), "{refused:?}");
    }
    let folder = Folder::new();
    let refused = pfctl(&empty(&folder, "pass", "1"), &["-i", "em7", "-s", "Interfaces"]);
    assert!(refused.status == 1, "{refused:?}");
    assert!(refused.err.contains("no interface named em7; the router has lo0, em0"), "{refused:?}");
}
