//! Commands that come to their end by themselves.
use crate::support::{Folder, artery, artery_reads, click};

const MILLION: &str = "InfiniteSource(LIMIT 1000000, STOP true) -> c :: Counter -> d :: Discard;";

#[test]
fn five_mistakes_show_five_diagnostics_and_nothing_starts() {
    let folder = Folder::new();
    let text = "\
a :: Nonsuch;
InfiniteSource(LIMIT x) -> Discard;
Idle -> c :: Counter;
Idle -> d :: Discard; Idle -> [1] d;
b -> Discard;
Message(started);
";
    let file = folder.file("r.click", text);
    for command in ["run", "check"] {
        let outcome = artery(&[command, &file]);
        assert_eq!(outcome.status, 1);
        assert_eq!(outcome.out, "");
        assert!(!outcome.err.contains("started\n") || outcome.err.contains("nothing was started\n"));
        assert_eq!(outcome.err.matches("error: ").count(), 5, "{}", outcome.err);
        for line in 1..=5 {
            assert!(outcome.err.contains(&format!("r.click:{line}:")), "line {line}: {}", outcome.err);
        }
        assert!(outcome.err.contains("5 errors"), "{}", outcome.err);
        assert!(!outcome.err.contains('\x1b'), "{}", outcome.err);
    }
}

#[test]
fn all_mistakes_in_one_elements_arguments_are_shown_at_once() {
    let text = "InfiniteSource(LIMIT many, BURST no, FOO 3, DATA x) -> EtherEncap(0x0800, 1:2, y)
        -> ARPQuerier(10.0.0.300, z) -> Discard; Idle -> [1] ARPQuerier(10.0.0.1, 2:2:2:2:2:2) -> Discard;";
    let outcome = artery(&["check", "-e", text]);
    assert_eq!(outcome.status, 1);
    for mistake in
        ["LIMIT: invalid", "BURST: invalid", "FOO: unknown", "SRC: parse", "DST: parse", "IP: parse"]
    {
        assert_eq!(
            outcome.err.matches(&format!("error: {mistake}")).count(),
            1,
            "{mistake}: {}",
            outcome.err
        );
    }
    assert!(!outcome.err.contains("DATA:"), "{}", outcome.err);
}

#[test]
fn a_million_packets_are_counted_on_one_worker_and_on_two() {
    let one = artery(&["run", "-e", MILLION, "-h", "c.count"]);
    assert_eq!((one.status, one.out.as_str()), (0, "1000000\n"), "{one:?}");
    let two = artery(&["run", "--workers", "2", "-e", MILLION, "-h", "c.count"]);
    assert_eq!((two.status, two.out.as_str()), (0, "1000000\n"), "{two:?}");
}

#[test]
fn a_driver_decides_when_the_run_ends() {
    let text = "InfiniteSource(LIMIT 1000, STOP true) -> c :: Counter -> Discard;
        DriverManager(wait_stop, print c.count, stop)";
    let outcome = artery(&["run", "--simtime", "-e", text]);
    assert_eq!((outcome.status, outcome.out.as_str()), (0, "1000\n"), "{outcome:?}");
}

#[test]
fn several_handlers_and_patterns_print_names() {
    let run = |handlers: &[&str]| {
        let all: Vec<&str> = handlers.iter().flat_map(|handler| ["-h", handler]).collect();
        artery(
            &[&["run", "-q", "-e", "Idle -> c1 :: Counter -> c2 :: Counter -> Discard"], &all[..]].concat(),
        )
    };
    assert_eq!(run(&["c1.count", "c2.class"]).out, "c1.count:\n0\n\nc2.class:\nCounter\n\n");
    assert_eq!(run(&["c*.count"]).out, "c1.count:\n0\n\nc2.count:\n0\n\n");
    assert_eq!(run(&["Counter.count"]).out, "c1.count:\n0\n\nc2.count:\n0\n\n");
    assert_eq!(run(&["*.byte_count"]).out, "c1.byte_count:\n0\n\nc2.byte_count:\n0\n\n");
    let wrong = run(&["nope.count", "c1.nope", "c1.reset", "x*.count", "c1.count"]);
    assert_eq!(wrong.status, 1);
    assert_eq!(wrong.out, "c1.count:\n0\n\n");
    for message in [
        "no element 'nope'",
        "no 'c1.nope' handler",
        "'c1.reset' is a write handler",
        "no element matching 'x*'",
    ] {
        assert!(wrong.err.contains(message), "{message}: {}", wrong.err);
    }
}

#[test]
fn private_handlers_are_neither_listed_nor_read() {
    let text = "s :: Script(TYPE PASSIVE, return 5);";
    let outcome = artery(&["run", "-q", "-e", text, "-h", "s.cat", "-h", "s.run", "-h", "s.handlers"]);
    assert!(outcome.err.contains("no 's.cat' handler"), "{outcome:?}");
    assert!(outcome.out.contains("s.run:\n5\n") && outcome.out.contains("\nadd\t"), "{outcome:?}");
    assert!(!outcome.out.contains("\ncat\t") && !outcome.out.contains("\nkill\t"), "{outcome:?}");
}

#[test]
fn what_is_odd_about_arguments_is_warned_of_at_their_place() {
    let folder = Folder::new();
    let text =
        "Idle -> c :: IPClassifier(udp, udp port 53)\n  -> rt :: LinearIPLookup(10/8 0, 10/8 0) -> Discard;
c[1] -> Discard;";
    let file = folder.file("r.click", text);
    // Copies of an element on several workers say it once.
    for command in [&["run", "-q"] as &[_], &["run", "-q", "--workers", "2"], &["check", "--workers", "2"]] {
        let outcome = artery(&[command, &[&file]].concat());
        assert_eq!(outcome.status, 0, "{outcome:?}");
        for shown in [
            "warning: output 1 matches no packets",
            "r.click:1:27",
            "while configuring 'c :: IPClassifier'",
            "warning: 1 route replaced by later versions",
            "r.click:2:27",
            "the first counts",
        ] {
            assert_eq!(outcome.err.matches(shown).count(), 1, "{shown}: {}", outcome.err);
        }
    }
}

#[test]
fn a_caret_stands_under_the_argument_that_is_wrong() {
    let outcome = artery(&["check", "-e", "Idle -> Queue(CAPACITY 10) -> Shaper(RATE quick) -> Discard;"]);
    let line =
        outcome.err.lines().position(|line| line.contains("Shaper(RATE quick)")).expect("the line shows");
    let lines: Vec<&str> = outcome.err.lines().collect();
    let (text, carets) = (lines[line], lines[line + 1]);
    assert_eq!(carets.find('^'), text.find("RATE quick"), "{}", outcome.err);
    assert_eq!(carets.matches('^').count(), "RATE quick".len(), "{}", outcome.err);
}

#[test]
fn an_exit_handler_is_the_status() {
    let run = |handler: &str| {
        artery(&[
            "run",
            "-q",
            "-x",
            handler,
            "-e",
            "s :: Switch(3); Idle -> s -> Discard; s[1] -> Discard; s[2] -> Discard; s[3] -> Discard",
        ])
        .status
    };
    assert_eq!(run("s.switch"), 3);
    assert_eq!(run("s.class"), 255);
    assert_eq!(run("s.nope"), 255);
}

#[test]
fn an_exit_handler_takes_parameters_and_is_any_number_or_truth_value() {
    let run = |call: &str| {
        let outcome = artery(&["run", "-q", "-x", call, "-e", "s :: Script(TYPE PASSIVE, return $1)"]);
        (outcome.status, outcome.err.trim_start_matches("artery: ").to_string())
    };
    for (call, status) in [("s.run 5", 5), ("s.run 0x1F", 31), ("s.run no", 1), ("s.not false", 0)] {
        assert_eq!(run(call), (status, String::new()), "{call}");
    }
    assert_eq!(run("t.run"), (255, "no element named 't'\n".to_string()));
    assert_eq!(run("s.step"), (255, "no 's.step' read handler\n".to_string()));
    let error = "read handler 's.class' does not take parameters\n";
    assert_eq!(run("s.class x"), (255, error.to_string()));
}

#[test]
fn an_empty_configuration_is_a_warning() {
    let outcome = artery(&["run", "-e", ""]);
    assert_eq!((outcome.status, outcome.out.as_str()), (0, ""));
    assert_eq!(outcome.err, "warning: config: configuration has no elements, exiting\n");
}

#[test]
fn variables_and_the_flat_configuration() {
    let folder = Folder::new();
    let file = folder.file("r.click", "Idle -> c :: Strip($N) -> Discard;");
    let flat = artery(&["flatten", &file, "N=14"]);
    assert!(flat.out.contains("c :: Strip(14);"), "{flat:?}");
    let path = folder.path("flat.click");
    assert_eq!(artery(&["run", "-q", &file, "N=14", "-o", &path]).status, 0);
    assert_eq!(std::fs::read_to_string(path).unwrap(), flat.out);
    assert_eq!(artery_reads(&["flatten", "-", "N=14"], "Idle -> c :: Strip($N) -> Discard;").out, flat.out);
}

#[test]
fn a_library_lies_beside_the_file_or_along_the_path() {
    let folder = Folder::new();
    folder.file("l.click", "elementclass L { input -> Counter -> output }");
    let file = folder.file("r.click", "require(library l.click); Idle -> x :: L -> Discard;");
    let flat = artery(&["flatten", &file]);
    assert!(flat.out.contains("x/Counter@1 :: Counter;"), "{flat:?}");
    let text = "require(library l.click); Idle -> x :: L -> Discard;";
    assert_eq!(artery(&["flatten", "-C", &folder.path(""), "-e", text]).out, flat.out);
    assert!(artery(&["flatten", "-e", text]).err.contains("library 'l.click' not found"));
}

#[test]
fn wrong_usage_is_status_2_and_wrong_input_status_1() {
    for args in [
        &["run"] as &[&str],
        &["frobnicate"],
        &["run", "-e", "Idle", "file"],
        &["run", "a", "b"],
        &["run", "--workers", "0", "-e", "Idle"],
        &["run", "--workers", "2", "--simtime", "-e", "Idle"],
        &["run", "--stats=-1", "-e", "Idle"],
        &["run", "--device", "eth0", "-e", "Idle"],
        &["run", "-p", "x", "-e", "Idle"],
        &["run", "A=1", "A=2", "-e", "Idle"],
        &["handler", "-u", "/nonexistent"],
        &["netstat", "-I", "eth0", "0"],
    ] {
        let outcome = artery(args);
        assert_eq!(outcome.status, 2, "{args:?}: {outcome:?}");
        assert!(outcome.err.contains("error: "), "{outcome:?}");
    }
    for (args, message) in [
        (
            &["run", "/nonexistent/r.click"] as &[&str],
            "artery: /nonexistent/r.click: No such file or directory\n",
        ),
        (&["check", "/"], "artery: /: Is a directory\n"),
        (&["help", "Couter"], "artery: no element class 'Couter'; did you mean 'Counter'?\n"),
        (&["fmt", "/nonexistent"], "artery: /nonexistent: No such file or directory\n"),
    ] {
        let outcome = artery(args);
        assert_eq!((outcome.status, outcome.err.as_str()), (1, message), "{args:?}");
    }
    let outcome = artery(&["handler", "-u", "/nonexistent", "x.y"]);
    assert!(outcome.status == 1 && outcome.err.contains("can't reach /nonexistent"), "{outcome:?}");
}

#[test]
fn every_command_that_asks_a_router_takes_its_socket_behind_all_else() {
    let lines = [
        "handler list",
        "netstat",
        "trace 3",
        "show routes",
        "show elements",
        "route get 10.0.0.1",
        "route show",
        "route del 10.0.0.0/8",
        "neighbor del 10.0.0.1 dev eth0",
        "flow show",
        "flow export",
        "flow follow",
        "flow flush --member web1",
        "flow show -b service1",
        "watch",
        "explain 10.0.0.1>10.0.0.2 --in eth0",
        "top",
        "capture",
        "ifconfig -a",
        "arp -a",
        "ndp -a",
        "pfctl -s rules",
    ];
    let folder = Folder::new();
    let nowhere = folder.file("nowhere", "");
    for line in lines {
        let outcome = artery(&line.split(' ').chain(["-u", &nowhere]).collect::<Vec<_>>());
        assert!(outcome.err.contains(&format!("can't reach {nowhere}")), "{line}: {}", outcome.err);
    }
    // As before, flow takes it in front of what it is to do, too.
    assert!(artery(&["flow", "-u", &nowhere, "show"]).err.contains("can't reach"));
}

#[test]
fn help_leads_to_commands_and_elements() {
    assert!(artery(&["--help"]).out.contains("completions"));
    let run = artery(&["run", "--help"]).out;
    assert!(run.contains("--simtime") && run.contains("Examples:"), "{run}");
    assert_eq!(artery(&["help", "run"]).status, 0);
    let page = artery(&["help", "InfiniteSource"]).out;
    assert_eq!(artery(&["elements", "infinitesource"]).out, page);
    for part in ["LIMIT (packets, default -1)", "Ports", "Handlers", "Example"] {
        assert!(page.contains(part), "{part}: {page}");
    }
    let list = artery(&["elements"]).out;
    assert!(list.contains("basic\n") && list.contains("  Counter "), "{list}");
    let json: serde_json::Value = serde_json::from_str(&artery(&["elements", "--json"]).out).unwrap();
    assert_eq!(json["schema_version"], 1);
    assert!(json["elements"].as_array().unwrap().iter().any(|class| class["name"] == "Counter"));
}

#[test]
fn formatting_twice_changes_nothing_more() {
    let folder = Folder::new();
    let file = folder.file("r.click", "a::Idle;a->Discard // end");
    assert_eq!(artery(&["fmt", "--check", &file]).status, 1);
    let printed = artery(&["fmt", &file]);
    assert_eq!(artery(&["fmt", "-i", &file]).status, 0);
    let once = std::fs::read_to_string(&file).unwrap();
    assert_eq!(once, printed.out);
    assert_eq!(artery(&["fmt", "--check", &file]).status, 0);
    assert_eq!(artery(&["fmt", &file]).out, once);
    assert_eq!(artery_reads(&["fmt", "-"], &once).out, once);
    let broken = artery_reads(&["fmt", "-"], "a :: ;;-> {");
    assert!(broken.status == 1 && broken.err.contains("<stdin>:1:"), "{broken:?}");
}

#[test]
fn check_says_where_parts_run_and_why() {
    let text = "InfiniteSource -> Counter -> Discard; s :: Script(TYPE PASSIVE)";
    let outcome = artery(&["check", "--workers", "2", "-e", text]);
    assert_eq!(outcome.status, 0, "{outcome:?}");
    let out = &outcome.out;
    assert!(out.contains("every worker: InfiniteSource@1, Counter@2, Discard@3\n"), "{out}");
    assert!(outcome.out.contains("worker 0: s\n  no copies can be made of s :: Script\n"), "{}", outcome.out);
    assert!(artery(&["check", "-e", text]).out.contains("there is one worker"));
}

#[test]
fn check_of_a_configuration_for_another_machine_notes_what_is_missing_and_checks_the_rest() {
    let conf = |name: &str| format!("{}/../../conf/{name}", env!("CARGO_MANIFEST_DIR"));
    for file in ["router.click", "balancer.click"] {
        let devices = ["--device", "eth0=absent0", "--device", "eth1=absent1"];
        let outcome = artery(&[&["check", &conf(file)], &devices[..]].concat());
        assert_eq!(outcome.status, 0, "{file}: {outcome:?}");
        let note = "this machine has no interface absent0, absent1; what only it can tell was not checked\n";
        assert!(outcome.err.starts_with("note: ") && outcome.err.ends_with(note), "{file}: {}", outcome.err);
        assert!(outcome.out.contains("elements on 1 worker"), "{file}: {}", outcome.out);
    }
    // Other mistakes are reported as well; an interface that no element opens is not one.
    let text = "FromDevice(absent0) -> EtherEncap(0x0800, absent0:eth, absent1:eth) -> Queue(many) -> \
        ToDevice(absent0);";
    let outcome = artery(&["check", "-e", text]);
    assert_eq!(outcome.status, 1, "{outcome:?}");
    assert!(outcome.err.contains("note: config: this machine has no interface absent0;"), "{}", outcome.err);
    assert!(outcome.err.contains("absent1") && !outcome.err.contains("'absent0'"), "{}", outcome.err);
    assert!(outcome.err.ends_with("config: 2 errors\n"), "{}", outcome.err);
}

#[test]
fn check_takes_addresses_from_the_devices_it_is_told_of() {
    let text = "Idle -> ARPResponder(10.0.0.1 absent0:eth) -> Discard";
    assert_eq!(artery(&["check", "-e", text]).status, 1);
    let outcome = artery(&["check", "--device", "absent0=lo", "-e", text]);
    assert_eq!(outcome.status, 0, "{outcome:?}");
    let wrong = artery(&["check", "--device", "absent0=absent1", "-e", text]);
    assert!(wrong.err.contains("of 'absent0', which is to be 'absent1' here: name a device"), "{wrong:?}");
}

#[test]
fn a_device_that_no_element_uses_is_refused_with_those_that_are_used() {
    let text = "Idle -> ARPResponder(10.0.0.1 eth0:eth) -> Discard; Message(started);";
    let devices = ["--device", "eth0=lo", "--device", "etho=lo"];
    for (command, end) in [("run", "config: 1 error; nothing was started"), ("check", "config: 1 error")] {
        let outcome = artery(&[&[command], &devices[..], &["-e", text]].concat());
        assert_eq!(outcome.status, 1, "{outcome:?}");
        let message = "error: no element uses a device 'etho', which would be lo here\n  \
            help: the configuration uses the device eth0\n";
        assert!(outcome.err.starts_with(message) && outcome.err.contains(end), "{}", outcome.err);
    }
    // A later configuration may use it.
    let outcome = artery(&[&["run", "-R"], &devices[..], &["-e", &format!("{text} Script(stop);")]].concat());
    assert_eq!(outcome.status, 0, "{outcome:?}");
    assert!(outcome.err.contains("warning: no element uses a device 'etho'"), "{}", outcome.err);
    let twice = artery(&["run", "--device", "a=b", "--device", "a=c", "-e", "Idle"]);
    assert!(twice.status == 2 && twice.err.contains("device 'a' is given two names: b and c"), "{twice:?}");
}

#[test]
fn addresses_are_those_of_the_devices_in_the_network_namespace_of_the_process() {
    let program = env!("CARGO_BIN_EXE_artery");
    let check = format!("{program} check -e 'Idle -> ARPResponder(10.0.0.1 inside0:eth) -> Discard'");
    let make = "ip link add inside0 type veth peer name inside1";
    let inside = |script: &str| {
        // /sys still shows the devices of the namespace it was mounted in.
        std::process::Command::new("unshare").args(["-rn", "sh", "-ec", script]).output().unwrap()
    };
    let outcome = inside(&format!("{make}; {check}"));
    assert!(outcome.status.success(), "{outcome:?}");
    assert_eq!(inside(&check).status.code(), Some(1));
}

#[test]
fn a_period_has_units_and_wrong_ones_are_refused_with_a_remedy() {
    let stats = |value: &str| artery(&["run", &format!("--stats={value}"), "-e", "Script(stop)"]);
    for value in ["50ms", "1", "0.5s", "1min", "300s"] {
        let outcome = stats(value);
        assert!(outcome.status == 0 && outcome.err.starts_with("ran "), "{value}: {outcome:?}");
    }
    for value in ["0", "100us", "1000000", "nan", "100x", "-1", ""] {
        let outcome = stats(value);
        assert!(outcome.status == 2 && outcome.err.contains("write a time"), "{value}: {outcome:?}");
    }
    let outcome = stats("100");
    let doubt =
        "warning: --stats=100 shows counters every 100 seconds; write 100s if you mean that, or 100ms";
    assert!(outcome.status == 0 && outcome.err.starts_with(doubt), "{outcome:?}");
    for args in [&["run", "--stats", "100", "-e", "Idle"] as &[&str], &["run", "--stats", "100"]] {
        let outcome = artery(args);
        let joined = "file '100' does not exist; a value is joined to its option: --stats=100";
        assert!(outcome.status == 2 && outcome.err.contains(joined), "{outcome:?}");
    }
}

#[test]
fn the_time_to_wait_awake_has_units_and_a_wrong_one_is_refused_with_a_remedy() {
    // The script's timer goes off within the wait.
    let run = |value: &str| artery(&["run", &format!("--awake={value}"), "-e", "Script(wait 1ms, stop)"]);
    for value in ["0", "20ms", "0.5", "1day"] {
        let outcome = run(value);
        assert!(outcome.status == 0 && outcome.err.is_empty(), "{value}: {outcome:?}");
    }
    let never_asleep = artery(&["run", "--awake", "-e", "Script(wait 1ms, stop)"]);
    assert!(never_asleep.status == 0 && never_asleep.err.is_empty(), "{never_asleep:?}");
    for value in ["long", "20x", "-1", ""] {
        let outcome = run(value);
        let remedy = "write a time, such as 5 (seconds), 0.5 or 200ms";
        assert!(outcome.status == 2 && outcome.err.contains(remedy), "{value}: {outcome:?}");
    }
}

#[test]
fn what_is_no_text_is_refused_before_it_is_read_as_one() {
    let folder = Folder::new();
    for (bytes, why) in [
        (&b"\x1f\x8b\x08\0\0"[..], "this is compressed; a configuration is text"),
        (b"\x7fELF\x02\0", "byte 5 is zero; a configuration is text"),
    ] {
        let path = folder.path("file");
        std::fs::write(&path, bytes).unwrap();
        for command in ["run", "check", "fmt", "flatten", "graph"] {
            let outcome = artery(&[command, &path]);
            assert_eq!((outcome.status, outcome.err), (1, format!("artery: {path}: {why}\n")), "{command}");
        }
    }
}

#[test]
fn a_comment_that_is_not_utf_8_may_be_run_but_is_not_laid_out() {
    let folder = Folder::new();
    let path = folder.path("r.click");
    let latin = b"Idle -> Discard; // caf\xe9\n";
    std::fs::write(&path, latin).unwrap();
    assert_eq!(artery(&["check", &path]).status, 0);
    let outcome = artery(&["fmt", "-i", &path]);
    assert!(outcome.status == 1 && outcome.err.contains("byte 23 is not UTF-8"), "{outcome:?}");
    assert_eq!(std::fs::read(&path).unwrap(), latin);
}

#[test]
fn names_that_are_not_quite_right_are_answered_with_those_that_are() {
    let text = "Idle -> c :: Counter -> Discard; Script(stop);";
    for (handler, message) in [
        ("c.cuont", "artery: no 'c.cuont' handler; did you mean 'count'?\n"),
        ("d.count", "artery: no element 'd'; did you mean 'c'?\n"),
        ("c.elephants", "artery: no 'c.elephants' handler; 'artery help Counter' lists those it has\n"),
        ("c.reset", "artery: 'c.reset' is a write handler\n"),
    ] {
        let outcome = artery(&["run", "-e", text, "-h", handler]);
        assert_eq!((outcome.status, outcome.err.as_str()), (1, message));
    }
    let folder = Folder::new();
    let file = folder.file("r.click", text);
    let outcome = artery(&[&file]);
    let message = format!("'{file}' is not a command; to run a configuration, write: artery run {file}");
    assert!(outcome.status == 2 && outcome.err.contains(&message), "{outcome:?}");
    let outcome = artery(&["run", &file, "LIMT"]);
    let message = format!("{file} and LIMT; a variable is written VAR=VALUE");
    assert!(outcome.status == 2 && outcome.err.contains(&message), "{outcome:?}");
    let outcome = artery(&["run", &file, "LIMT=5"]);
    let message = format!("warning: {file} has no variable $LIMT; its value is not used\n");
    assert_eq!((outcome.status, outcome.err), (0, message));
    let outcome = artery(&["run", "-j", "many", &file]);
    assert!(outcome.status == 2 && outcome.err.contains("write a number from 1 to 256"), "{outcome:?}");
}

#[test]
fn a_processor_that_there_is_not_is_refused_with_those_there_are() {
    let outcome = artery(&["run", "--affinity=9999", "-e", "Idle -> Discard"]);
    assert_eq!(outcome.status, 2);
    assert!(outcome.err.contains("processors are numbered from 0 to "), "{outcome:?}");
    let outcome = click(&["--affinity=9999", "-e", "Idle -> Discard"], "");
    assert_eq!(outcome.status, 1);
    assert!(outcome.err.contains("processors are numbered from 0 to "), "{outcome:?}");
}

#[test]
fn a_command_without_configuration_shows_how_to_name_one() {
    for command in ["run", "check", "flatten", "graph"] {
        let outcome = artery(&[command]);
        assert_eq!(outcome.status, 2);
        let usage = format!("Usage: artery {command} [OPTIONS] <FILE | -e TEXT> [VAR=VALUE]...\n");
        assert!(outcome.err.contains("name a configuration") && outcome.err.contains(&usage), "{outcome:?}");
    }
}

#[test]
fn the_report_says_what_became_of_packets() {
    let outcome = artery(&["run", "--json", "--profile", "-e", MILLION]);
    let report: serde_json::Value = serde_json::from_str(&outcome.err).unwrap();
    assert_eq!(report["elements"][1]["packets"], 1_000_000);
    assert_eq!(report["elements"][2]["drops"]["discarded"], 1_000_000);
    assert!(report["elements"][1]["nanoseconds"].as_u64().unwrap() > 0);
    let table = artery(&["run", "--stats=60", "-e", MILLION]).err;
    assert!(table.contains("c :: Counter") && table.contains("discarded 1000000"), "{table}");
}

#[test]
fn graphs_and_completions_are_printed() {
    assert!(artery(&["graph", "--format", "dot", "-e", "Idle -> Discard"]).out.starts_with("digraph"));
    for shell in ["bash", "zsh", "fish"] {
        assert!(artery(&["completions", shell]).out.contains("flatten"), "{shell}");
    }
}

#[test]
fn devices_are_listed_and_one_that_is_not_there_is_told_with_those_that_are() {
    let all = artery(&["devices"]);
    assert_eq!(all.status, 0, "{all:?}");
    assert!(all.out.starts_with("NAME"), "{all:?}");
    assert!(all.out.contains("FromDevice(lo) gets packet sockets, since"), "{all:?}");
    let one = artery(&["devices", "lo", "--json"]);
    let json: serde_json::Value = serde_json::from_str(&one.out).unwrap();
    assert_eq!(json["devices"].as_array().unwrap().len(), 1);
    let none = artery(&["devices", "nosuch0"]);
    assert_eq!((none.status, none.out.as_str()), (1, ""));
    assert!(none.err.contains("nosuch0: no such interface; there are lo"), "{none:?}");
}
