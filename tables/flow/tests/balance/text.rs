//! Texts that mean members, methods and checks, and what is said of those that don't.
use artery_flow::balance::{Check, Member, Method, Probe, Slots, TextError, parse_duration};
use proptest::prelude::*;
use std::fmt::{Debug, Display};
use std::net::IpAddr;
use std::str::FromStr;
use std::time::Duration;

fn said<T: FromStr<Err = TextError> + Debug>(text: &str) -> String {
    text.parse::<T>().expect_err(text).to_string()
}

fn round_trip<T: FromStr<Err = TextError> + Display + Debug + PartialEq>(value: T) {
    assert_eq!(value.to_string().parse::<T>().as_ref(), Ok(&value));
}

#[test]
fn a_member_is_a_name_and_an_address_with_or_without_port_and_weight() {
    let member: Member = " web1\t10.0.0.1:80   weight 3 ".parse().unwrap();
    assert_eq!((&*member.name, member.port, member.weight), ("web1", Some(80), 3));
    let member: Member = "a 2001:db8::1".parse().unwrap();
    assert_eq!((member.address, member.port, member.weight), ("2001:db8::1".parse().unwrap(), None, 1));
    let member: Member = "a [2001:db8::1]:443 weight 0".parse().unwrap();
    assert_eq!((member.port, member.weight), (Some(443), 0));
}

#[test]
fn what_is_no_member_is_refused_with_word_and_remedy() {
    let found = said::<Member>("");
    assert_eq!(found, "member \"\": word 1 is missing; take 1 to 64 letters, digits, '.', '-' and '_'");
    assert_eq!(
        said::<Member>("web1"),
        "member \"web1\": word 2 is missing; write 10.0.0.1, 10.0.0.1:80, 2001:db8::1 or [2001:db8::1]:80"
    );
    for address in
        ["10.0.0.300", "10.0.0.1:0", "10.0.0.1:65536", "[::1]", "[fe80::1%3]:80", "host", "10.0.0.1:"]
    {
        let said = said::<Member>(&format!("a {address}"));
        assert!(said.contains(&format!("word 2, {address:?}: not an address; write 10.0.0.1")), "{said}");
    }
    let word = |text: &str| text.parse::<Member>().unwrap_err().word;
    assert_eq!((word("a/b 1.2.3.4"), word("a 1.2.3.4 80"), word("a 1.2.3.4 weight")), (1, 3, 4));
    for weight in ["-1", "+1", "4294967296", "1.5", "x"] {
        let said = said::<Member>(&format!("a 1.2.3.4 weight {weight}"));
        assert!(said.contains("not a weight; take 1, or more"), "{said}");
    }
    assert!(said::<Member>("a 1.2.3.4 weight 1 weight 2").ends_with("it is set already; leave one out"));
    let expected = "\"heavy\": not a setting of a member; there is weight";
    assert!(said::<Member>("a 1.2.3.4 heavy").ends_with(expected));
}

#[test]
fn methods_go_by_their_names() {
    for method in Method::ALL {
        assert_eq!(method.to_string(), method.name());
        round_trip(method);
    }
    assert_eq!("maglev=251".parse(), Ok(Method::Maglev(Slots::new(251).unwrap())));
    assert_eq!("flowlet=2ms".parse(), Ok(Method::Flowlet { gap: Duration::from_millis(2) }));
    let Ok(Method::Resilient { buckets: 1024, idle, force }) = "resilient=1024 force 1h".parse() else {
        panic!("it is resilient");
    };
    assert_eq!((idle, force), (Duration::from_secs(120), Some(Duration::from_secs(3600))));
}

#[test]
fn what_is_no_method_is_refused_with_word_and_remedy() {
    for text in ["", "quick", "Maglev", "maglev:3", "=3", "least_loaded"] {
        assert!(
            said::<Method>(text)
                .ends_with("there are maglev, resilient, hash, xor, per-packet, flowlet and least-loaded")
        );
    }
    assert!(said::<Method>("maglev=65536").ends_with("not a prime number; take 65537, the next that is one"));
    for text in ["maglev=", "maglev=1048576", "maglev=x", "maglev=9999999"] {
        assert!(
            said::<Method>(text).contains("take a prime number up to 1048576"),
            "{}",
            said::<Method>(text)
        );
    }
    for text in ["resilient=0", "resilient=65537", "resilient="] {
        assert!(said::<Method>(text).ends_with("not a number of buckets; take 1 to 65536, such as 4096"));
    }
    for text in ["flowlet=", "flowlet=0", "flowlet=61s", "flowlet=fast"] {
        assert!(said::<Method>(text).ends_with("not a gap; take a time such as 500us, up to 60s"));
    }
    for text in ["hash=3", "xor=", "per-packet=1", "least-loaded=x"] {
        assert!(said::<Method>(text).ends_with("this method takes nothing after '='; leave that out"));
    }
    for text in ["maglev idle 3s", "resilient often"] {
        assert!(said::<Method>(text).contains("word 2"));
    }
    assert!(said::<Method>("resilient force 0").contains("word 3, \"0\": not a time"));
}

#[test]
fn a_check_is_a_probe_and_its_times() {
    assert_eq!("tcp".parse(), Ok(Check::new(Probe::Tcp)));
    assert_eq!("ping".parse(), Ok(Check::new(Probe::Ping)));
    let check: Check = "http /health?a=b 204 every 500ms timeout 0.2s fall 5 rise 1".parse().unwrap();
    let probe = Probe::Http { path: "/health?a=b".to_string(), status: (204, 204) };
    let (every, timeout) = (Duration::from_millis(500), Duration::from_millis(200));
    assert_eq!(check, Check { probe, every, timeout, fall: 5, rise: 1 });
    let check: Check = "http / every 1min".parse().unwrap();
    assert_eq!(check.probe, Probe::Http { path: "/".to_string(), status: Probe::GOOD });
    let check: Check = "http / 200-299".parse().unwrap();
    assert_eq!(check.probe, Probe::Http { path: "/".to_string(), status: (200, 299) });
}

#[test]
fn what_is_no_check_is_refused_with_word_and_remedy() {
    for text in ["", "https /", "TCP"] {
        assert!(said::<Check>(text).ends_with("there are tcp, http and ping"));
    }
    let found = said::<Check>("http");
    assert_eq!(found, "check \"http\": word 2 is missing; write one from / on, such as /health");
    for text in ["http health", "http every 3s", "http /\u{7f}", "http /ä"] {
        assert!(said::<Check>(text).contains("not a path to request"), "{}", said::<Check>(text));
    }
    for text in ["http / 99", "http / 600", "http / 299-200", "http / 2xx", "http / 200-", "http / 1-2-3"] {
        assert!(said::<Check>(text).contains("word 3"));
        assert!(said::<Check>(text).contains("not a status; write"));
    }
    for text in ["tcp every", "tcp every 0", "ping timeout soon", "tcp every -1s", "tcp every 1 s x"] {
        assert!(said::<Check>(text).starts_with("check "), "{}", said::<Check>(text));
    }
    for text in ["tcp fall 0", "tcp rise 65536", "tcp rise x"] {
        assert!(said::<Check>(text).ends_with("not a number of probes; take 1 or more"));
    }
    assert!(said::<Check>("tcp 80").ends_with("there are every, timeout, fall and rise"));
    assert!(said::<Check>("tcp fall 2 fall 3").contains("word 4, \"fall\": it is set already"));
}

#[test]
fn times_have_a_unit_or_are_seconds() {
    let nanos = |text: &str| parse_duration(text).map(|time| time.as_nanos());
    for (text, expected) in [
        ("7ns", 7),
        ("500us", 500_000),
        ("2ms", 2_000_000),
        ("1.5", 1_500_000_000),
        ("3s", 3_000_000_000),
        ("0.5min", 30_000_000_000),
        ("2h", 7_200_000_000_000),
        ("0", 0),
        ("0.000000001", 1),
    ] {
        assert_eq!(nanos(text), Some(expected), "{text}");
    }
    for text in [
        "",
        "s",
        ".",
        "1.",
        ".5",
        "1..2",
        "-1",
        "+1",
        "1 s",
        "1d",
        "1e3",
        "99999999999h",
        "1.5.5s",
        "1S",
        "0.0000000015s",
    ] {
        assert_eq!(parse_duration(text), None, "{text}");
    }
}

fn time() -> impl Strategy<Value = Duration> {
    prop_oneof![
        1..1_000_000_000u64,
        (1..10_000u64).prop_map(|ms| ms * 1_000_000),
        (1..1000u64).prop_map(|s| s * 1_000_000_000)
    ]
    .prop_map(Duration::from_nanos)
}

proptest! {
    #[test]
    fn members_are_read_as_they_are_written(
        name in "[a-zA-Z0-9._-]{1,64}",
        address: IpAddr,
        port in prop::option::of(1u16..),
        weight: u32,
    ) {
        round_trip(Member { name: name.as_str().into(), address, port, weight });
    }

    #[test]
    fn methods_are_read_as_they_are_written(
        slots in 2..Slots::MOST / 2,
        buckets in 1..=Method::MOST_BUCKETS,
        time in time(),
        force in prop::option::of(time()),
    ) {
        round_trip(Method::Maglev(Slots::at_least(slots).unwrap()));
        round_trip(Method::Resilient { buckets, idle: time, force });
        round_trip(Method::Flowlet { gap: time.min(Method::LONGEST_GAP) });
    }

    #[test]
    fn checks_are_read_as_they_are_written(
        probe in prop_oneof![
            Just(Probe::Tcp),
            Just(Probe::Ping),
            ("/[!-~]{0,20}", 100..600u16, 0..100u16).prop_map(|(path, first, more)| Probe::Http {
                path,
                status: (first, (first + more).min(599)),
            }),
        ],
        every in time(),
        timeout in time(),
        fall in 1..u16::MAX,
        rise in 1..u16::MAX,
    ) {
        round_trip(Check { probe, every, timeout, fall, rise });
    }

    #[test]
    fn any_text_is_read_or_refused_with_a_word_of_it(text in "\\PC{0,40}|([a-z/=0-9.:]{0,9} ){0,6}") {
        let words = text.split_ascii_whitespace().count();
        let errors =
            [text.parse::<Member>().err(), text.parse::<Method>().err(), text.parse::<Check>().err()];
        for error in errors.into_iter().flatten() {
            prop_assert!((1..=words + 1).contains(&error.word), "{}", error);
        }
        let _ = parse_duration(&text);
    }
}
