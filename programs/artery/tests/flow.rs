//! `artery flow`: flows of one router go to another, what is malformed is refused whole,
//! and events are followed.
use crate::support::{Folder, Outcome, Router, artery, artery_into, artery_reads, closed_pipe};
use artery_flow::stream::{EventItem, EventReader, StreamError};
use artery_wire::TcpFlags;
use artery_wire::build::ip4;
use rustix::process::{Pid, Signal, kill_process};
use std::collections::HashMap;
use std::fmt::Debug;
use std::io::Read as _;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// How many flows the first router knows.
const FLOWS: u16 = 1500;

/// A capture of connections: a SYN of each, and then a packet that proves it.
fn capture(folder: &Folder) -> String {
    let packets = [TcpFlags::SYN, TcpFlags::ACK].into_iter().flat_map(|flags| {
        let packet = move |client| ip4().src("198.51.100.7").dst("192.0.2.1").tcp(client, 80).flags(flags);
        (1..=FLOWS).map(move |client| packet(client).bytes())
    });
    folder.capture(101, packets)
}

const MEMBERS: &str = "MEMBER a 10.0.0.1, MEMBER b 10.0.0.2, MEMBER c 10.0.0.3";

/// A router that has received the flows of the capture.
fn full(folder: &Folder) -> Router {
    let config = format!(
        "f :: FromDump({}) -> MarkIPHeader(0) -> b :: FlowBalancer(SERVICE 192.0.2.1:80 tcp, {MEMBERS});
         b -> c :: Counter -> Discard; b[1] -> Discard;",
        capture(folder)
    );
    let router = Router::start(&folder.path("full"), &["-e", &config]);
    await_count(&router, "c.count", (2 * FLOWS).into());
    router
}

/// A balancer that plays the second packets of the capture once its source is activated.
fn empty(folder: &Folder, members: &str, more: &[&str]) -> Router {
    let config = format!(
        "f :: FromDump({}, ACTIVE false) -> MarkIPHeader(0) -> b :: FlowBalancer(SERVICE 192.0.2.1:80 tcp, \
         {members});
         b -> c :: Counter -> Discard; b[1] -> Discard;",
        folder.path("in.pcap")
    );
    Router::start(&folder.path("empty"), &[&["-e", &config], more].concat())
}

/// Waits until a value is as wanted, which is returned; one that never is fails the test.
#[track_caller]
fn wait_for<T: Debug>(what: &str, mut value: impl FnMut() -> T, is_wanted: impl Fn(&T) -> bool) -> T {
    let deadline = Instant::now() + Duration::from_secs(30);
    loop {
        let found = value();
        if is_wanted(&found) {
            return found;
        }
        assert!(Instant::now() < deadline, "{what} is {found:?}");
        std::thread::sleep(Duration::from_millis(10));
    }
}
/// Waits until a count is there.
#[track_caller]
fn await_count(router: &Router, handler: &str, expected: u64) {
    wait_for(handler, || router.read(handler), |count| count.parse() == Ok(expected));
}
/// Waits until a command follows events; the number of the first one.
#[track_caller]
fn await_follower(router: &Router, field: &str) -> u64 {
    let next = || {
        let progress: serde_json::Value = serde_json::from_str(&router.read("b.exchange")).unwrap();
        progress[field].as_u64().unwrap()
    };
    wait_for(field, next, |next| *next > 0)
}

fn flow(router: &Router, args: &[&str]) -> Outcome {
    artery(&[&["flow", "-u", router.socket().to_str().unwrap()], args].concat())
}
fn import(router: &Router, text: &str) -> Outcome {
    artery_reads(&["flow", "-u", router.socket().to_str().unwrap(), "import"], text)
}
/// The member of each client's flow, of those that a command exports.
fn export_of(router: &Router, command: &[&str]) -> HashMap<u64, String> {
    let outcome = flow(router, command);
    assert_eq!((outcome.status, outcome.err.as_str()), (0, ""));
    let lines = outcome.out.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
    let flows =
        lines.filter_map(|line| Some((line["sport"].as_u64()?, line["member"].as_str()?.to_string())));
    flows.collect()
}
/// The member of each client's flow.
fn members(router: &Router) -> HashMap<u64, String> {
    export_of(router, &["export"])
}
fn counts(router: &Router) -> HashMap<String, u64> {
    let text = router.read("b.counts");
    let pair =
        |line: &str| line.split_once(' ').map(|(name, count)| (name.to_string(), count.parse().unwrap()));
    text.lines().filter_map(pair).collect()
}

#[test]
fn flows_keep_their_members_at_another_router_whatever_its_method_and_the_form_of_the_export() {
    let folder = Folder::new();
    let first = full(&folder);
    let before = members(&first);
    assert_eq!(before.len(), usize::from(FLOWS));
    for form in [&["export"][..], &["export", "--binary"]] {
        let file = folder.path("flows");
        assert_eq!(flow(&first, &[form, &[&file]].concat()).status, 0);
        let second = empty(
            &folder,
            "MEMBER c 10.9.0.3, MEMBER d 10.9.0.4, MEMBER b 10.9.0.2, MEMBER a 10.9.0.1, METHOD xor",
            &[],
        );
        let outcome = flow(&second, &["import", &file]);
        assert_eq!(outcome.status, 0, "{outcome:?}");
        assert!(outcome.out.contains("worker 0: 1500 new, 0 newer, 0 known before"), "{}", outcome.out);
        assert_eq!(members(&second), before);
        // Their packets find them: no flow is inserted, none moves.
        assert_eq!(second.call(&["f.active", "true"]).status, 0);
        await_count(&second, "c.count", (2 * FLOWS).into());
        let counts = counts(&second);
        assert_eq!((counts["flows-moved"], counts["hits"]), (0, u64::from(2 * FLOWS)));
        assert_eq!(members(&second), before);
        let again = flow(&second, &["import", &file]);
        assert!(again.out.contains("worker 0: 0 new, 0 newer, 1500 known before"), "{}", again.out);
    }
}

#[test]
fn all_workers_get_all_flows_and_strangers_are_told_of_and_left_out() {
    let folder = Folder::new();
    let first = full(&folder);
    let mut left = members(&first);
    left.retain(|_, member| member != "b");
    let file = folder.path("flows");
    assert_eq!(flow(&first, &["export", "--binary", &file]).status, 0);
    let config = "Idle -> b :: FlowBalancer(SERVICE 192.0.2.1:80 tcp, MEMBER a 10.0.0.1, MEMBER c 10.0.0.3);
        b -> Discard; b[1] -> Discard";
    let second = Router::start(&folder.path("two"), &["-j", "2", "-e", config]);
    let outcome = flow(&second, &["import", &file]);
    let strangers = usize::from(FLOWS) - left.len();
    assert_eq!(outcome.status, 0);
    let err = &outcome.err;
    assert!(err.contains(&format!("no member 'b': its {strangers} flows are left out")), "{err}");
    for worker in 0..2 {
        let line = format!(
            "worker {worker}: {} new, 0 newer, 0 known before, 0 without room, {strangers} of",
            left.len()
        );
        assert!(outcome.out.contains(&line), "{}", outcome.out);
    }
    assert_eq!(second.read("b.flows"), (2 * left.len()).to_string());
    assert_eq!(members(&second), left);
}

#[test]
fn of_what_is_malformed_nothing_is_imported_and_the_record_is_named() {
    let folder = Folder::new();
    let first = full(&folder);
    let second = empty(&folder, MEMBERS, &[]);
    let text = flow(&first, &["export"]).out;
    let lines: Vec<&str> = text.lines().collect();
    let with = |at: usize, line: String| {
        let mut lines: Vec<String> = lines.iter().map(|line| line.to_string()).collect();
        lines[at] = line;
        lines.join("\n")
    };
    // Far behind the first chunk that would go to the router.
    for (text, expected) in [
        (
            with(1400, lines[1400].replace("\"sport\":1400", "\"sport\":0")),
            "record 1400, on line 1401: port 0",
        ),
        (with(1400, lines[1400].replace("tcp", "icmp")), "record 1400, on line 1401: protocol 'icmp'"),
        (with(1400, "{".into()), "record 1400, on line 1401: EOF"),
        (with(1400, "\u{0}".into()), "record 1400, on line 1401: expected value"),
        (with(1400, String::new()), "1499 flows came, and 1500"),
        (lines[..1400].join("\n"), "the export is cut off here"),
        (with(0, lines[0].replace(":1}", ":2}")), "this is of version 2"),
        (String::new(), "the export is cut off here"),
        ("nonsense".into(), "record 1, on line 1: expected"),
    ] {
        let outcome = import(&second, &text);
        assert_eq!(outcome.status, 1, "{expected}: {outcome:?}");
        let err = &outcome.err;
        assert!(err.contains(expected) && err.contains("nothing was imported"), "{err}");
        assert_eq!(second.read("b.flows"), "0", "{expected}");
    }
    let refused = second.call(&["b.import_flows", "QVJURg=="]);
    assert!(refused.status == 1 && refused.err.contains("cut off"), "{refused:?}");
    assert_eq!(second.call(&["b.import_flows", "*"]).status, 1);
    assert_eq!(second.read("b.flows"), "0");
}

#[test]
fn a_binary_export_that_is_cut_anywhere_is_refused() {
    let folder = Folder::new();
    let _ = capture(&folder);
    let router = empty(&folder, MEMBERS, &[]);
    let line = |port: u16| {
        let rest = "\"dst\":\"192.0.2.1\",\"dport\":80,\"member\":\"a\"}\n";
        format!("{{\"protocol\":\"tcp\",\"src\":\"198.51.100.7\",\"sport\":{port},{rest}")
    };
    assert_eq!(import(&router, &(line(1) + &line(2))).status, 0);
    let file = folder.path("whole");
    assert_eq!(flow(&router, &["export", "--binary", &file]).status, 0);
    assert_eq!(flow(&router, &["flush", "all"]).out, "2 flows flushed\n");
    let (whole, cut) = (std::fs::read(&file).unwrap(), folder.path("cut"));
    for len in 0..whole.len() {
        std::fs::write(&cut, &whole[..len]).unwrap();
        let outcome = flow(&router, &["import", &cut]);
        assert_eq!(outcome.status, 1, "{len}: {outcome:?}");
        assert!(outcome.err.contains("nothing was imported"), "{len}: {}", outcome.err);
    }
    assert_eq!(router.read("b.flows"), "0");
    assert_eq!(flow(&router, &["import", &file]).status, 0);
    assert_eq!(router.read("b.flows"), "2");
}

#[test]
fn flows_are_shown_and_flushed_by_member() {
    let folder = Folder::new();
    let router = full(&folder);
    let before = members(&router);
    let of_a = before.values().filter(|member| *member == "a").count();
    let shown = flow(&router, &["show", "--member", "a"]).out;
    assert_eq!(shown.lines().count(), of_a + 1);
    assert!(shown.starts_with("WORKER  PROTOCOL  CLIENT") && shown.contains("198.51.100.7:"), "{shown}");
    assert_eq!(flow(&router, &["show", "--limit", "3", "--json"]).out.lines().count(), 3);
    assert_eq!(flow(&router, &["show", "--client", "198.51.100.8"]).out.lines().count(), 1);
    assert_eq!(flow(&router, &["flush", "--member", "a"]).out, format!("{of_a} flows flushed\n"));
    assert!(members(&router).values().all(|member| member != "a"));
    assert_eq!(router.read("b.flows"), (before.len() - of_a).to_string());
    let stranger = flow(&router, &["flush", "--member", "x"]);
    assert!(stranger.status == 1 && stranger.err.contains("'x'"), "{stranger:?}");
    assert_eq!(flow(&router, &["flush"]).status, 2);
    let into_nothing = ["flow", "-u", router.socket().to_str().unwrap(), "export"];
    assert_eq!(artery_into(closed_pipe(), &into_nothing).status, 0, "a reader may close the pipe");
}

#[test]
fn who_follows_hears_of_all_that_happens_and_goes_on_after_a_break() {
    let folder = Folder::new();
    let _ = capture(&folder);
    let router = empty(&folder, MEMBERS, &[]);
    let mut command = Command::new(env!("CARGO_BIN_EXE_artery"));
    command.args(["flow", "-u", router.socket().to_str().unwrap(), "follow", "-c", "3000"]);
    let follower = command.stdout(Stdio::piped()).spawn().unwrap();
    let start = await_follower(&router, "next_event");
    assert_eq!(router.call(&["f.active", "true"]).status, 0);
    let output = follower.wait_with_output().unwrap();
    let at_once = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success() && at_once.lines().count() == 3000);
    let follow = |since: u64, count: &str| {
        let outcome = flow(&router, &["follow", "--since", &since.to_string(), "-c", count]);
        assert_eq!((outcome.status, outcome.err.as_str()), (0, ""));
        let lines = outcome.out.lines().map(|line| serde_json::from_str(line).unwrap());
        lines.collect::<Vec<serde_json::Value>>()
    };
    let all = follow(start, "3000");
    let parsed = |line: &str| serde_json::from_str::<serde_json::Value>(line).unwrap();
    assert!(at_once.lines().map(parsed).eq(all.iter().cloned()));
    let of = |name: &str| all.iter().filter(|event| event["event"] == name).count();
    assert_eq!((of("insert"), of("proven")), (1500, 1500));
    assert!(all.iter().enumerate().all(|(n, event)| event["seq"] == start + n as u64));
    assert_eq!(follow(start + 1000, "2000"), all[1000..]);
    assert_eq!(router.call(&["b.remove_member", "c"]).status, 0);
    let of_b = all.iter().filter(|event| event["event"] == "insert" && event["member"] == "b").count();
    assert_eq!(flow(&router, &["flush", "--member", "b"]).out, format!("{of_b} flows flushed\n"));
    let ends = follow(start + 3000, &of_b.to_string());
    let is_end = |event: &serde_json::Value| event["event"] == "end" && event["reason"] == "removed";
    assert!(ends.iter().all(|event| is_end(event) && event["member"] == "b" && event["packets"] == 2));
    let lost = flow(&router, &["follow", "--since", "7", "-c", "1"]);
    assert!(lost.out.starts_with("{\"event\":\"lost\",\"worker\":0}\n"), "{}", lost.out);
    assert!(lost.err.contains("artery flow export"), "{}", lost.err);
}

/// The member of each client's flow after so many bytes of events, and whether they end behind an item.
fn exceptions_after(bytes: &[u8], start: u64) -> (HashMap<u64, String>, bool) {
    let (mut names, mut exceptions) = (HashMap::new(), HashMap::new());
    let Ok(mut reader) = EventReader::new(bytes) else { return (exceptions, false) };
    let mut next = start;
    loop {
        match reader.next_event() {
            Ok(None) => return (exceptions, true),
            Err(StreamError::Cut) => return (exceptions, false),
            Err(wrong) => panic!("{wrong}"),
            Ok(Some(EventItem::Member(number, name))) => {
                names.insert(u32::from(number), name.to_string());
                continue;
            }
            Ok(Some(EventItem::Position { worker, seq, has_lost })) => {
                assert_eq!((worker, seq, has_lost), (0, next, false));
                continue;
            }
            Ok(Some(EventItem::Exists(_, flow))) => {
                let client = u64::from(flow.key.endpoints()[0].1);
                exceptions.insert(client, names[&flow.answer.action].clone());
            }
            Ok(Some(EventItem::Ended(end))) => panic!("{end:?}"),
        }
        next += 1;
    }
}
/// Follows exceptions in the binary form from event `start` on, until all are read, and then until a signal.
fn follow_in_binary_form(router: &Router, start: u64, expected: &HashMap<u64, String>) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_artery"));
    let options = ["flow", "-u", router.socket().to_str().unwrap(), "follow", "--exceptions", "--binary"];
    command.args(options).args(["--since", &start.to_string()]);
    let mut follower = command.stdout(Stdio::piped()).spawn().unwrap();
    let mut output = follower.stdout.take().unwrap();
    let mut bytes = vec![0; 8 + 43 * expected.len()];
    output.read_exact(&mut bytes).unwrap();
    while exceptions_after(&bytes, start).0.len() < expected.len() {
        let mut more = vec![0; 4096];
        let count = output.read(&mut more).unwrap();
        assert!(count > 0, "the follower has ended");
        bytes.extend(&more[..count]);
    }
    kill_process(Pid::from_child(&follower), Signal::TERM).unwrap();
    output.read_to_end(&mut bytes).unwrap();
    assert!(follower.wait().unwrap().success());
    assert_eq!(exceptions_after(&bytes, start), (expected.clone(), true));
}

#[test]
fn exceptions_are_exported_and_followed_alone() {
    let folder = Folder::new();
    let router = full(&folder);
    let before = members(&router);
    assert_eq!(export_of(&router, &["export", "--exceptions"]).len(), 0);
    let mut command = Command::new(env!("CARGO_BIN_EXE_artery"));
    let of_a = before.values().filter(|member| *member == "a").count();
    let count = of_a.to_string();
    let options = ["flow", "-u", router.socket().to_str().unwrap(), "follow", "--exceptions", "-c", &count];
    let follower = command.args(options).stdout(Stdio::piped()).spawn().unwrap();
    let start = await_follower(&router, "next_exception");
    assert_eq!(router.call(&["b.weight", "a 0"]).status, 0);
    let output = follower.wait_with_output().unwrap();
    assert!(output.status.success());
    let exceptions = export_of(&router, &["export", "--exceptions"]);
    // Drained members' flows, and few of the others'.
    let drained = exceptions.values().filter(|member| *member == "a").count();
    assert!(drained == of_a && exceptions.len() < of_a + 50, "{drained} of {}", exceptions.len());
    for line in String::from_utf8(output.stdout).unwrap().lines() {
        let event: serde_json::Value = serde_json::from_str(line).unwrap();
        let client = event["sport"].as_u64().unwrap();
        assert_eq!(event["event"], "insert");
        assert_eq!(event["member"].as_str(), before.get(&client).map(|m| &**m));
        assert_eq!(event["member"].as_str(), exceptions.get(&client).map(|member| &**member));
    }
    follow_in_binary_form(&router, start, &exceptions);
    // They are all that another balancer with the same members needs to know.
    let drained = MEMBERS.replace("MEMBER a 10.0.0.1", "MEMBER a 10.0.0.1 weight 0");
    let second = empty(&folder, &drained, &[]);
    let file = folder.path("exceptions");
    assert_eq!(flow(&router, &["export", "--exceptions", "--binary", &file]).status, 0);
    assert_eq!(flow(&second, &["import", &file]).status, 0);
    assert_eq!(second.read("b.flows"), exceptions.len().to_string());
    assert_eq!(second.call(&["f.active", "true"]).status, 0);
    await_count(&second, "c.count", (2 * FLOWS).into());
    assert_eq!(members(&second), before);
    assert_eq!(router.call(&["b.method", "least-loaded"]).status, 0);
    for action in ["export", "follow"] {
        let refused = flow(&router, &[action, "--exceptions"]);
        assert!(refused.status == 1 && refused.err.contains("METHOD least-loaded"), "{refused:?}");
    }
}

#[test]
fn routers_and_balancers_that_are_not_there_are_told_of() {
    let folder = Folder::new();
    let router = Router::start(&folder.path("plain"), &["-e", "Idle -> Discard"]);
    let outcome = flow(&router, &["show"]);
    assert!(outcome.status == 1 && outcome.err.contains("no FlowBalancer"), "{outcome:?}");
    drop(router);
    let two = "Idle -> x :: FlowBalancer(SERVICE 192.0.2.1) -> Discard; \
        Idle -> y :: FlowBalancer(SERVICE 192.0.2.2, STATE false) -> Discard";
    let router = Router::start(&folder.path("two"), &["-e", two]);
    let outcome = flow(&router, &["show"]);
    assert!(outcome.status == 1 && outcome.err.contains("--balancer: x, y"), "{outcome:?}");
    assert_eq!(flow(&router, &["--balancer", "y", "show"]).out.lines().count(), 1);
    let export = flow(&router, &["--balancer", "x", "export"]).out;
    let stateless =
        artery_reads(&["flow", "-u", router.socket().to_str().unwrap(), "-b", "y", "import"], &export);
    assert_eq!((stateless.status, stateless.out.lines().next()), (0, Some("0 flows read")));
}
