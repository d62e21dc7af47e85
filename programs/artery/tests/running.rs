//! Routers that run until a signal or a client stops them.
use crate::support::{Folder, Router, artery};
use rustix::process::Signal;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixStream;
use std::process::Stdio;
use std::time::{Duration, Instant};

const FLOOD: &str = "InfiniteSource -> c :: Counter -> d :: Discard;";

/// Packets that `c` has counted, once they are more than `before`. A worker may be kept from running between
/// two reads, but not between thousands.
fn count_beyond(router: &Router, before: u64) -> u64 {
    let mut counts = (0..10_000).map(|_| router.read("c.count").parse::<u64>().unwrap());
    counts.find(|count| *count > before).expect("the router goes on")
}

#[test]
fn handlers_are_read_and_written_while_packets_flow() {
    let folder = Folder::new();
    let text = format!("{FLOOD} s :: Script(TYPE PASSIVE, return 5);");
    let router = Router::start(&folder.path("s"), &["-e", &text]);
    let mode = std::fs::metadata(router.socket()).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    assert_eq!(router.read("c.class"), "Counter");
    assert_eq!(router.read("list"), "4\nInfiniteSource@1\nc\nd\ns");
    assert_eq!(router.read("s.run"), "5");
    assert_eq!(router.call(&["InfiniteSource@1.active", "false"]).status, 0);
    assert_eq!(router.call(&["c.reset", "--write"]).status, 0);
    assert_eq!(router.read("c.count"), "0");
    for (args, message) in [
        (&["nope.x"] as &[&str], "No element named 'nope'"),
        (&["c.x"], "No handler named 'c.x'; 'c.handlers' tells which there are"),
        (&["c.cuont"], "No handler named 'c.cuont'; did you mean 'count'?"),
        (&["c.rest", "--write"], "No handler named 'c.rest'; did you mean 'reset'?"),
        (&["cc.count"], "No element named 'cc'; did you mean 'c'?"),
        (&["c"], "No handler named 'c'; its handlers are in 'c.handlers'"),
        (&["c.reset"], "Handler 'c.reset' write-only"),
        (&["c.count", "5"], "Handler 'c.count' read-only"),
        (&["InfiniteSource@1.active", "perhaps"], "Write handler 'InfiniteSource@1.active' error:"),
        (&["hotconfig", "Idle"], "No handler named 'hotconfig'"),
        (&["hotconfig", "Idle"], "the router was started without -R"),
        (&["stop"], "write-only"),
        (&["version", "2"], "Handler 'version' read-only"),
        (&["timewarp", "2"], "start with --simtime"),
        (&["InfiniteSource@1.tickets", "0"], "tickets: an integer from 1 to 32768 is wanted"),
        (&["InfiniteSource@1.tickets", "32769"], "tickets: an integer from 1 to 32768 is wanted"),
        (&["InfiniteSource@1.tickets", "many"], "tickets: an integer from 1 to 32768 is wanted"),
        (&["s.cat", "/etc/hostname"], "Permission denied for 's.cat'"),
        (&["s.kill", "0"], "Permission denied for 's.kill'"),
        (&["s.cat", "--write"], "Permission denied for 's.cat'"),
    ] {
        let outcome = router.call(args);
        assert!(outcome.status == 1 && outcome.err.contains(message), "{args:?}: {outcome:?}");
    }
    for tickets in ["1", "32768", "512"] {
        assert_eq!(router.call(&["InfiniteSource@1.tickets", tickets]).status, 0);
    }
    assert_eq!(router.read("InfiniteSource@1.tickets"), "512");
    let socket = router.socket().to_path_buf();
    assert_eq!(router.call(&["stop", "--write"]).status, 0);
    assert_eq!(router.finish().status, 0);
    assert!(!socket.exists());
}

#[test]
fn the_protocol_is_that_of_control_socket_1_3() {
    let folder = Folder::new();
    let router = Router::start(&folder.path("s"), &["-e", "Idle -> c :: Counter -> Discard"]);
    let mut stream = UnixStream::connect(router.socket()).unwrap();
    let request = b"READ c.name\r\nCHECKREAD c.count\nCHECKWRITE c.count\rWRITEDATA c.reset 2\nxx\
        read c\nfrob\nllrpc c#1\nwrite c.reset\nQUIT\n";
    stream.write_all(request).unwrap();
    let mut reply = String::new();
    stream.read_to_string(&mut reply).unwrap();
    let expected = "Click::ControlSocket/1.3\r\n\
        200 Read handler 'c.name' OK\r\nDATA 1\r\nc\
        200 Read handler 'c.count' OK\r\n\
        511 Handler 'c.count' not writable\r\n\
        200 Write handler 'c.reset' OK\r\n\
        511 No handler named 'c'\r\n\
        501 Command 'FROB' unimplemented\r\n\
        501 Cannot call LLRPC 'c#1' remotely\r\n\
        200 Write handler 'c.reset' OK\r\n\
        200 Goodbye!\r\n";
    assert_eq!(reply, expected);
}

#[test]
fn more_connections_than_32_are_turned_away() {
    let folder = Folder::new();
    let router = Router::start(&folder.path("s"), &["-e", "Idle -> Discard"]);
    let ask = |_| {
        let mut stream = UnixStream::connect(router.socket()).unwrap();
        // A client that is turned away may get the reply before it could send a request.
        let _ = stream.write_all(b"CHECKREAD list\n");
        let mut reply = [0; "Click::ControlSocket/1.3\r\n200".len()];
        stream.read_exact(&mut reply).unwrap();
        (stream, String::from_utf8(reply[26..].to_vec()).unwrap())
    };
    let asked: Vec<(UnixStream, String)> = (0..40).map(ask).collect();
    let admitted = asked.iter().filter(|(_, code)| code == "200").count();
    // The call that waited for the start may count as open still.
    assert!((31..=32).contains(&admitted), "{admitted}");
    assert!(asked.iter().all(|(_, code)| ["200", "590"].contains(&code.as_str())));
}

#[test]
fn sigint_ends_the_run_and_prints_counters() {
    let folder = Folder::new();
    let router = Router::start(&folder.path("s"), &["-e", FLOOD, "-h", "c.count", "--json"]);
    count_beyond(&router, 0);
    router.signal(Signal::INT);
    let outcome = router.finish();
    assert_eq!(outcome.status, 0, "{outcome:?}");
    let count: u64 = outcome.out.lines().last().unwrap().parse().unwrap();
    let report: serde_json::Value = serde_json::from_str(&outcome.err).unwrap();
    assert!(count > 0);
    assert_eq!(report["elements"][1]["packets"], count);
    assert_eq!(report["elements"][2]["drops"]["discarded"], count);
}

#[test]
fn the_live_table_shows_counters_while_packets_flow() {
    let folder = Folder::new();
    let mut router = Router::start(&folder.path("s"), &["--stats=0.05", "-e", FLOOD]);
    assert!(router.complaint().starts_with("element "));
    assert!(router.complaint().starts_with("InfiniteSource@1 :: InfiniteSource"));
    let line = router.complaint();
    let fields: Vec<&str> = line.split_whitespace().collect();
    assert_eq!(fields[..3], ["c", "::", "Counter"]);
    assert!(fields[3].parse::<u64>().is_ok() && fields[4].parse::<f64>().is_ok(), "{line}");
}

#[test]
fn a_driver_may_delay_the_first_signal_but_not_the_second() {
    let folder = Folder::new();
    let text = "s :: Script(TYPE PASSIVE, set x 0); DriverManager(wait_stop, wait_time 1000s)";
    let router = Router::start(&folder.path("s"), &["-e", text]);
    router.signal(Signal::INT);
    assert_eq!(router.read("s.class"), "Script");
    router.signal(Signal::TERM);
    assert_eq!(router.finish().status, 0);
}

#[test]
fn a_signal_that_a_script_waits_for_stops_nothing() {
    let folder = Folder::new();
    let text = "s :: Script(TYPE SIGNAL INT, export n 0, set n $(add $n 1));";
    let router = Router::start(&folder.path("s"), &["-e", text]);
    for n in 1..=3 {
        router.signal(Signal::INT);
        let caught = (0..1000).map(|_| router.call(&["s.n"]).out).find(|out| out.trim_end() == n.to_string());
        assert!(caught.is_some(), "{n}");
    }
    router.signal(Signal::TERM);
    assert_eq!(router.finish().status, 0);
}

#[test]
fn a_file_read_again_unchanged_loses_nothing_that_waits_in_a_queue() {
    let folder = Folder::new();
    let text = "InfiniteSource(LIMIT 10000, STOP false) -> c :: Counter -> q :: Queue(10000) \
        -> RatedUnqueue(RATE 1000) -> d :: Discard;";
    let file = folder.file("r.click", text);
    let mut router = Router::start(
        &folder.path("s"),
        &["-R", &file, "-h", "c.count", "-h", "d.count", "-h", "q.length", "--json"],
    );
    for _ in 0..5 {
        count_beyond(&router, 0);
        router.signal(Signal::HUP);
        assert_eq!(router.complaint(), "artery: the configuration was replaced");
    }
    let waited = router.read("q.length").parse::<u64>().unwrap();
    router.signal(Signal::INT);
    let outcome = router.finish();
    let values: Vec<u64> = outcome.out.lines().filter_map(|line| line.parse().ok()).collect();
    let [made, left, waits] = values[..] else { panic!("{outcome:?}") };
    assert_eq!(made, left + waits, "{outcome:?}");
    assert!(waited > 0 && left > 0, "{waited} waited, {left} left");
    let report: serde_json::Value = serde_json::from_str(&outcome.err).unwrap();
    let drops: Vec<&serde_json::Value> =
        report["elements"].as_array().unwrap().iter().map(|element| &element["drops"]).collect();
    assert!(
        drops.iter().all(|drops| drops.as_object().unwrap().keys().all(|why| why == "discarded")),
        "{drops:?}"
    );
}

#[test]
fn a_replaced_configuration_counts_on_and_loses_nothing() {
    let folder = Folder::new();
    let args = ["-R", "-e", FLOOD, "-h", "c.count", "--json"];
    let router = Router::start(&folder.path("s"), &args);
    let mut before = count_beyond(&router, 0);
    let longer = "InfiniteSource -> c :: Counter -> Null -> d :: Discard; s :: Idle;";
    for text in [longer, FLOOD, longer] {
        let replaced = router.call(&["hotconfig", text]);
        assert_eq!(replaced.status, 0, "{replaced:?}");
        let after = router.read("c.count").parse::<u64>().unwrap();
        assert!(after >= before, "{after} after {before}");
        before = count_beyond(&router, after);
    }
    assert_eq!(router.read("s.class"), "Idle");
    router.signal(Signal::INT);
    let outcome = router.finish();
    let count: u64 = outcome.out.lines().last().unwrap().parse().unwrap();
    let report: serde_json::Value = serde_json::from_str(&outcome.err).unwrap();
    let elements = report["elements"].as_array().unwrap();
    let named = |name: &str| elements.iter().find(|element| element["name"] == name).unwrap();
    assert_eq!(named("c")["packets"], count);
    assert_eq!(named("d")["drops"]["discarded"], count);
}

#[test]
fn a_wrong_replacement_leaves_the_old_configuration_running() {
    let folder = Folder::new();
    let router = Router::start(&folder.path("s"), &["-R", "-e", FLOOD]);
    for (text, message) in [
        ("x :: Nonsuch;", "unknown element class 'Nonsuch'"),
        ("Idle -> Counter(5) -> Discard;", "too many arguments"),
        ("Idle -> Counter;", "output 0 unused"),
        ("", "configuration has no elements"),
    ] {
        let outcome = router.call(&["hotconfig", text]);
        assert_eq!(outcome.status, 1);
        assert!(outcome.err.contains("Write handler 'hotconfig' error:"), "{outcome:?}");
        assert!(outcome.err.contains(message), "{outcome:?}");
    }
    count_beyond(&router, count_beyond(&router, 0));
}

#[test]
fn sighup_reads_the_file_again_with_or_without_r() {
    for options in [&[][..], &["-R"]] {
        let folder = Folder::new();
        let file = folder.file("r.click", FLOOD);
        let mut router = Router::start(&folder.path("s"), &[options, &[file.as_str()]].concat());
        folder.file("r.click", "Idle -> renamed :: Counter -> Discard;");
        router.signal(Signal::HUP);
        assert_eq!(router.complaint(), "artery: the configuration was replaced");
        assert_eq!(router.read("renamed.count"), "0");
        folder.file("r.click", "x :: Nonsuch;");
        router.signal(Signal::HUP);
        assert_eq!(router.complaint(), "error: unknown element class 'Nonsuch'");
        assert_eq!(router.read("renamed.count"), "0");
        router.signal(Signal::TERM);
        let outcome = router.finish();
        assert_eq!(outcome.status, 0, "{outcome:?}");
        let last: Vec<&str> = outcome.err.lines().rev().skip(1).take(2).collect();
        let stopping = "artery: stopping: SIGTERM was received; a second signal ends the router at once";
        assert_eq!(last, [stopping, "artery: the configuration was not replaced; the running one stays"]);
    }
}

#[test]
fn sighup_makes_a_text_of_the_command_line_run_anew_and_counters_count_on() {
    let folder = Folder::new();
    let mut router = Router::start(&folder.path("s"), &["-e", FLOOD]);
    let before = count_beyond(&router, 0);
    router.signal(Signal::HUP);
    assert_eq!(router.complaint(), "artery: the configuration was replaced");
    count_beyond(&router, before);
    router.signal(Signal::TERM);
    assert_eq!(router.finish().status, 0);
}

#[test]
fn sighup_that_a_script_waits_for_is_the_scripts() {
    let folder = Folder::new();
    let text = "s :: Script(TYPE SIGNAL HUP, export n 0, set n $(add $n 1));";
    let router = Router::start(&folder.path("s"), &["-R", "-e", text]);
    for n in 1..=3 {
        router.signal(Signal::HUP);
        let caught = (0..1000).map(|_| router.call(&["s.n"]).out).find(|out| out.trim_end() == n.to_string());
        assert!(caught.is_some(), "{n}");
    }
    router.signal(Signal::TERM);
    let outcome = router.finish();
    // That it stops, and that it has ended.
    assert_eq!((outcome.status, outcome.err.lines().count()), (0, 2), "{outcome:?}");
}

#[test]
fn a_log_of_json_says_which_signal_ends_a_router() {
    let folder = Folder::new();
    let text = "DriverManager(wait_stop, wait_time 1000s)";
    let router = Router::start(&folder.path("s"), &["--log", "json", "-e", text]);
    router.signal(Signal::INT);
    assert!(!router.read("list").is_empty(), "the driver delays the first signal");
    router.signal(Signal::TERM);
    let outcome = router.finish();
    let lines = outcome.err.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
    let said: Vec<_> = lines.map(|line| (line["event"].clone(), line["signal"].clone())).collect();
    let stopping = |signal: &str| ("stopping".into(), signal.into());
    let ended = ("ended".into(), serde_json::Value::Null);
    assert_eq!(said, [stopping("SIGINT"), stopping("SIGTERM"), ended]);
}

#[test]
fn sighup_before_the_router_runs_does_not_end_it_and_standard_input_is_not_read_twice() {
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_artery"));
    command.args(["run", "-"]).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    // The first signal is in the lowest bit.
    let catches_hangup = || {
        let status = std::fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap();
        let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:")).unwrap().trim().to_string();
        u64::from_str_radix(&caught, 16).unwrap() & 1 == 1
    };
    let deadline = Instant::now() + Duration::from_secs(10);
    while !catches_hangup() {
        assert!(Instant::now() < deadline, "SIGHUP is caught from the start on");
    }
    let signal =
        |signal| rustix::process::kill_process(rustix::process::Pid::from_child(&child), signal).unwrap();
    // It waits for its configuration.
    signal(Signal::HUP);
    std::thread::sleep(Duration::from_millis(50));
    let mut input = child.stdin.take().unwrap();
    input.write_all(FLOOD.as_bytes()).unwrap();
    drop(input);
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines().map(Result::unwrap);
    let why = lines.next().unwrap();
    let expected = "error: the configuration came from standard input, which can't be read again";
    assert!(why.starts_with(expected), "{why}");
    let last = lines.next().unwrap();
    assert_eq!(last, "artery: the configuration was not replaced; the running one stays");
    rustix::process::kill_process(rustix::process::Pid::from_child(&child), Signal::TERM).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(0));
}

#[test]
fn a_router_that_is_told_to_end_sends_what_it_holds_and_takes_in_nothing_more() {
    let text = "src :: InfiniteSource(LIMIT 400, STOP false) -> q :: Queue(500) -> RatedUnqueue(1000) -> c \
        :: Counter
        -> Discard; RatedSource(RATE 100) -> late :: Counter -> Discard;";
    for (signals, drained) in [(&[Signal::TERM][..], true), (&[Signal::TERM, Signal::INT], false)] {
        let folder = Folder::new();
        let router = Router::start(&folder.path("s"), &["-e", text, "-h", "c.count", "-h", "q.length"]);
        count_beyond(&router, 0);
        signals.iter().for_each(|signal| router.signal(*signal));
        let outcome = router.finish();
        let count = |name: &str| -> u64 {
            let mut lines = outcome.out.lines().skip_while(|line| !line.starts_with(name));
            lines.nth(1).unwrap().parse().unwrap()
        };
        let expected = if drained { (400, 0) } else { (count("c.count"), 400 - count("c.count")) };
        assert_eq!((count("c.count"), count("q.length")), expected, "{signals:?}: {outcome:?}");
        assert!(drained || count("c.count") < 400, "the second signal ends it at once");
    }
}

#[test]
fn every_kind_of_element_counts_its_packets() {
    let text = "src :: InfiniteSource(LIMIT 100, STOP true) -> n :: Null -> q :: Queue(200) -> p :: Null \
        -> u :: Unqueue -> q2 :: Queue(200) -> d :: Discard;";
    let outcome = artery(&["run", "--json", "-e", text, "-h", "d.count"]);
    let report: serde_json::Value = serde_json::from_str(&outcome.err).unwrap();
    let left: u64 = outcome.out.trim().parse().unwrap();
    for element in report["elements"].as_array().unwrap() {
        let packets = element["packets"].as_u64().unwrap();
        match element["name"].as_str().unwrap() {
            "src" | "n" | "q" => assert_eq!(packets, 100, "{element}"),
            "d" => assert_eq!(packets, left, "{element}"),
            _ => assert!((left..=100).contains(&packets) && packets > 0, "{element}"),
        }
    }
}

#[test]
fn a_socket_nobody_listens_on_is_replaced_and_a_live_one_is_not() {
    let folder = Folder::new();
    let path = folder.path("s");
    drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
    let router = Router::start(&path, &["-e", FLOOD]);
    let second = artery(&["run", "-u", &path, "-e", FLOOD]);
    assert!(second.status == 1 && second.err.contains("a router listens there already"), "{second:?}");
    assert_eq!(router.read("c.class"), "Counter");
    let file = folder.file("file", "no socket");
    let third = artery(&["run", "-u", &file, "-e", FLOOD]);
    assert!(third.status == 1 && third.err.contains("there is something else of that name"), "{third:?}");
    let long = artery(&["run", "-u", &folder.path(&"x".repeat(100)), "-e", FLOOD]);
    assert!(long.status == 1 && long.err.contains("a socket's path has at most 107 bytes"), "{long:?}");
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "no socket");
}

#[test]
fn a_port_that_is_taken_is_an_error_unless_the_next_will_do() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    let exact = artery(&["run", "-p", &port, "-e", FLOOD]);
    assert!(exact.status == 1 && exact.err.contains("can't listen on TCP port"), "{exact:?}");
    let folder = Folder::new();
    let router = Router::start(&folder.path("s"), &["-p", &format!("{port}+"), "-e", FLOOD]);
    assert_eq!(router.read("c.class"), "Counter");
}
