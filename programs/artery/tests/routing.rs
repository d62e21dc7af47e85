//! Routing tables that change while workers on threads of their own forward by them.
use crate::support::{Folder, Router, artery};
use rustix::process::Signal;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::net::UnixStream;

/// Packets to three addresses that differ in their first two bytes. The arguments of `rt` cover all;
/// what changes is whether those to 10.1.2.3 leave by output 0 or 1.
const CONFIG: &str = r"
rt :: IPLookup(10/8 0, 11/8 2);
InfiniteSource(DATA \<0a010203>) -> sent1 :: Counter -> GetIPAddress(0) -> rt;
InfiniteSource(DATA \<0a020203>) -> sent2 :: Counter -> GetIPAddress(0) -> rt;
InfiniteSource(DATA \<0b010203>) -> sent3 :: Counter -> GetIPAddress(0) -> rt;
rt[0] -> by0 :: Classifier(0/0a01, 0/0a02, -);
rt[1] -> by1 :: Classifier(0/0a01, -);
rt[2] -> by2 :: Classifier(0/0b01, -);
by0[0] -> stayed :: Counter -> Discard;
by1[0] -> moved :: Counter -> Discard;
by0[1] -> constant2 :: Counter -> Discard;
by2[0] -> constant3 :: Counter -> Discard;
wrong :: Counter -> Discard;
by0[2], by1[1], by2[1] -> wrong;
";

/// A connection to a router's control socket.
struct Caller(BufReader<UnixStream>);

impl Caller {
    fn new(router: &Router) -> Caller {
        let mut caller = Caller(BufReader::new(UnixStream::connect(router.socket()).unwrap()));
        assert_eq!(caller.line(), "Click::ControlSocket/1.3");
        caller
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.0.read_line(&mut line).unwrap();
        line.trim_end().to_string()
    }

    fn write(&mut self, handler: &str, value: &str) -> String {
        let call = format!("WRITEDATA {handler} {}\n{value}", value.len());
        self.0.get_mut().write_all(call.as_bytes()).unwrap();
        let mut answer = self.line();
        // All lines but the last have a dash after their code.
        while answer.lines().last().unwrap().as_bytes()[3] == b'-' {
            answer = answer + "\n" + &self.line();
        }
        answer
    }

    /// Writes what the router must not refuse.
    fn change(&mut self, handler: &str, value: &str) {
        let answer = self.write(handler, value);
        assert!(answer.starts_with("200"), "{handler} {value}: {answer}");
    }

    fn count(&mut self, counter: &str) -> u64 {
        self.0.get_mut().write_all(format!("READ {counter}.count\n").as_bytes()).unwrap();
        assert!(self.line().starts_with("200"));
        let length = self.line().strip_prefix("DATA ").unwrap().parse().unwrap();
        let mut value = vec![0; length];
        self.0.read_exact(&mut value).unwrap();
        String::from_utf8(value).unwrap().parse().unwrap()
    }

    /// Waits until packets have reached a counter. A worker may be kept from running between two reads,
    /// but not between thousands.
    fn see_packets_at(&mut self, counter: &str) {
        let before = self.count(counter);
        assert!((0..10_000).any(|_| self.count(counter) > before), "no packet came to {counter}");
    }
}

/// What the elements of a report have counted, by name. Only Discard may have dropped anything.
fn packets(report: &str) -> impl Fn(&str) -> u64 {
    let report: serde_json::Value = serde_json::from_str(report).unwrap();
    let elements = report["elements"].as_array().unwrap().clone();
    for element in &elements {
        let drops = element["drops"].as_object().unwrap();
        assert!(drops.is_empty() || element["class"] == "Discard", "{element}");
    }
    move |name| elements.iter().find(|element| element["name"] == name).unwrap()["packets"].as_u64().unwrap()
}

#[test]
fn no_packet_is_lost_or_led_astray_while_routes_and_fibs_change() {
    let folder = Folder::new();
    let config = folder.file("r.click", CONFIG);
    let placement = artery(&["check", "--workers", "2", &config]).out;
    assert!(placement.contains("every worker: rt, "), "{placement}");
    // So many routes that `auto` takes another layout for them.
    let host = |n: u32| format!("13.{}.{}.{}/32 2\n", n >> 16, n >> 8 & 255, n & 255);
    let tables = [
        folder.file("many", &(0..70_000).map(host).collect::<String>()),
        folder.file("few", "10.1.0.0/16 2\n"),
        folder.file("via", "10.1.2.0/24 10.9.9.9\n11.1.0.0/16 11.9.9.9\n"),
    ];
    let damaged = folder.file("damaged", "10.1.0.0/16 2\n11.0.0.0/8 1\n10.2.0.0/16 zebra\n");
    let router = Router::start(
        &folder.path("s"),
        &["--workers", "2", "--json", "--allow-path", &folder.path(""), &config],
    );
    let mut caller = Caller::new(&router);
    for round in 0..30 {
        caller.change("rt.load", &tables[round % 3]);
        caller.change("rt.fib", ["fast", "small", "art", "art:8/8/8/8", "auto"][round % 5]);
        caller.change("rt.set", &format!("10.1/16 10.9.9.{round} 1"));
        caller.change("rt.set", "10.1.2/24 1");
        caller.see_packets_at("moved");
        // Next hops are added and removed, so that their numbers are soon reused.
        for n in 0..20 {
            caller.change("rt.add", &format!("11.1.{n}/24 11.9.9.{n} 2"));
            caller.change("rt.set", &format!("10.1.2.3 10.9.8.{n} {}", n % 2));
            caller.change("rt.remove", &format!("11.1.{n}/24"));
        }
        let refusal = caller.write("rt.load", &damaged);
        assert!(refusal.contains("damaged:3: \"zebra\""), "{refusal}");
        caller.change("rt.ctrl", "remove 10.1.2.3\nremove 10.1.2/24\nset 10.1/16 0");
        caller.see_packets_at("stayed");
    }
    router.signal(Signal::INT);
    let outcome = router.finish();
    assert_eq!(outcome.status, 0, "{outcome:?}");
    let packets = packets(&outcome.err);
    assert_eq!(packets("wrong"), 0, "{}", outcome.err);
    assert_eq!(packets("stayed") + packets("moved"), packets("sent1"), "{}", outcome.err);
    assert_eq!(packets("constant2"), packets("sent2"));
    assert_eq!(packets("constant3"), packets("sent3"));
}
