//! What becomes of packets that are under way when a router gets another configuration by its control socket,
//! or is asked to end: on real interfaces, to the last datagram.

use crate::support::{FAR, Hosts, METHODS, Running, end, meanwhile, until_answered, wire, with_hosts};
use artery_rig::{Result, Traffic, TrafficReport};

/// Numbered datagrams in four flows from `a` to `b`, of which nothing but the router can lose any; at the
/// same time does something that gets to know whether they are still being sent.
fn stream<T>(
    hosts: &Hosts,
    frames: u64,
    rate: u64,
    what: impl FnOnce(&dyn Fn() -> bool) -> Result<T>,
) -> Result<(TrafficReport, T)> {
    let traffic = Traffic::between(&hosts.a, &hosts.b, FAR).frames(frames).rate(rate).flows(4);
    let (report, done) = meanwhile(traffic, what)?;
    assert_eq!((report.sent, report.refused, report.overrun), (frames, 0, 0), "{report}");
    assert_eq!((report.reordered, report.duplicated, report.strays), (0, 0, 0), "{report}");
    Ok((report, done))
}

/// Replaces a configuration by `texts` in turn while datagrams pass; none may be lost.
fn loses_nothing(hosts: &Hosts, method: &str, texts: &[String]) -> Result<()> {
    let mut router = Running::run(&hosts.r, &texts[0], &["-R"])?;
    until_answered(&hosts.a, FAR, &mut router.process)?;
    let (report, times) = stream(hosts, 4000, 4000, |more| {
        let mut times = 0;
        while more() {
            times += 1;
            assert_eq!(router.replace(&texts[times % texts.len()])?, 0, "{method}");
        }
        Ok(times)
    })?;
    assert!(times >= 4, "{times} replacements");
    assert_eq!(report.received, report.sent, "{method}, {times} replacements: {report}");
    let said = end(router.process)?.stderr;
    assert_eq!(said.matches("eth0: ").count(), 1, "nothing but each interface's way, once: {said}");
    Ok(())
}

#[test]
fn the_same_text_again_loses_none_of_the_datagrams_on_their_way() {
    with_hosts("replace-same", |hosts| {
        METHODS.iter().try_for_each(|method| loses_nothing(hosts, method, &[wire(method)]))
    });
}

#[test]
fn another_text_in_which_elements_have_heirs_loses_none_either() {
    with_hosts("replace-changed", |hosts| {
        for method in METHODS {
            let short =
                wire(method).replacen("Queue", "p :: Queue", 1).replacen("-> Queue", "-> q :: Queue", 1);
            let long = short.replace("q :: Queue", "Counter -> Paint(1) -> q :: Queue -> Null");
            let long = format!("{long} Idle -> Discard;");
            loses_nothing(hosts, method, &[short, long])?;
        }
        Ok(())
    });
}

/// A wire on which datagrams from the left wait in the queue of this name, which so many a second leave. All
/// else, such as what hosts ask about neighbors, goes another way.
fn slow_wire(method: &str, queue: &str, rate: u32) -> String {
    format!(
        "left :: FromDevice(eth0, PROMISC true, SNIFFER false, METHOD {method}) -> c :: Classifier(12/0800 \
         23/11, -);
        c[0] -> seen :: Counter -> {queue} :: Queue(5000) -> pace :: Shaper({rate}) -> [0] order :: \
         RoundRobinSched;
        c[1] -> rest :: Queue -> [1] order -> right_out :: ToDevice(eth1);
        right :: FromDevice(eth1, PROMISC true, SNIFFER false, METHOD {method}) -> back :: Queue -> left_out \
         :: ToDevice(eth0);"
    )
}

#[test]
fn what_is_lost_with_a_queue_that_has_no_heir_is_what_is_said_to_be_replaced() {
    with_hosts("replace-lost", |hosts| {
        for method in METHODS {
            let mut router = Running::run(&hosts.r, &slow_wire(method, "q", 500), &["-R"])?;
            until_answered(&hosts.a, FAR, &mut router.process)?;
            let (report, replaced) = stream(hosts, 1000, 1000, |_| {
                router.until_number("q.length", 100)?;
                let lost = router.replace(&slow_wire(method, "q", 500))?;
                assert_eq!(lost, 0, "{method}: it goes to its successor");
                router.replace(&slow_wire(method, "other", 500))
            })?;
            assert!(replaced >= 100, "{method}: {replaced}");
            assert_eq!(report.received + replaced, report.sent, "{method}: {report}");
            end(router.process)?;
        }
        Ok(())
    });
}

#[test]
fn a_router_that_is_told_to_end_sends_what_waits_in_its_queues_first() {
    with_hosts("replace-drain", |hosts| {
        for method in METHODS {
            let mut router = Running::run(&hosts.r, &slow_wire(method, "q", 20), &["-R"])?;
            until_answered(&hosts.a, FAR, &mut router.process)?;
            let (report, (waited, output)) = stream(hosts, 120, 4000, |_| {
                // One is sent ahead.
                router.until_number("seen.count", 121)?;
                let waited = router.number("q.length")?;
                // All leave in the second that a router has for that, but not before the signal to end.
                router.handler(&["pace.rate", "300"])?;
                Ok((waited, end(router.process)?))
            })?;
            assert!(waited >= 30, "{method}: {waited}");
            assert_eq!(report.received, report.sent, "{method}: {report}");
            assert!(!output.stderr.contains("warning"), "{method}: {}", output.stderr);
        }
        Ok(())
    });
}
