//! A router dies while connections are in use, and another takes its place.

use super::load::Load;
use super::net::SERVICE;
use super::plain::{Plain, graph};
use super::server::echo;
use crate::support::{Running, until_seen};
use artery_rig::{Result, Rig};
use std::sync::Arc;
use std::sync::atomic::AtomicU16;

/// Connections that are in use.
const OPEN: usize = 300;
/// Those of them that are there before the flows of the first router are exported.
const EARLY: usize = 200;
const FIRST_PORT: u16 = 20_000;

const FIRST: &str =
    "SERVICE 192.0.2.1:80 tcp, MEMBER web1 10.0.2.11, MEMBER web2 10.0.2.12, MEMBER web3 10.0.2.13,
    MEMBER web4 10.0.2.14";
/// A member more, in another order, and another method: where a flow would go by its hash is another place.
const SECOND: &str =
    "SERVICE 192.0.2.1:80 tcp, MEMBER web5 10.0.2.15, MEMBER web4 10.0.2.14, MEMBER web3 10.0.2.13,
    MEMBER web2 10.0.2.12, MEMBER web1 10.0.2.11, METHOD xor";

fn import(router: &Running, flows: &str) -> Result<String> {
    Ok(router.command(&["flow", "import"])?.input(flows).run()?.stdout)
}

/// Copies the flows of the first router to the second: those that exist at the start by an export, later ones
/// by the events that a follower receives.
fn mirrored(first: &Running, second: &Running, load: &mut Load) -> Result<()> {
    let follower = first.command(&["flow", "follow"])?.spawn()?;
    // Events are sent from the moment at which the router has accepted a follower.
    for open in 1.. {
        load.fill(open)?;
        if !follower.stdout_so_far().is_empty() {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    load.fill(EARLY)?;
    import(second, &first.flow(&["export"])?)?;
    load.fill(OPEN)?;
    let last = format!("\"sport\":{}", usize::from(FIRST_PORT) + OPEN - 1);
    let proven = |told: &str| {
        let is_proven = |line: &&str| line.contains("\"event\":\"proven\"");
        told.lines().filter(is_proven).map(|line| format!("{line}\n")).collect::<String>()
    };
    until_seen(&follower, "that the last flow is sent", || {
        Ok(proven(&follower.stdout_so_far()).contains(&last))
    })?;
    let said = import(second, &proven(&follower.stdout_so_far()))?;
    assert!(said.contains(&format!("{} new", OPEN - EARLY)), "{said}");
    Ok(())
}

/// Connections that go by their hashes to the fifth of five members, or to another of them than of four: give
/// or take four standard deviations.
const ONE_OF_FIVE: std::ops::RangeInclusive<usize> = 30..=95;

/// Four of the members of a router whose fifth comes when connections are in use.
const FOUR: &str = FIRST;
/// The same members in another order, so that flows go by their hashes to the same places.
const FIVE: &str =
    "SERVICE 192.0.2.1:80 tcp, MEMBER web5 10.0.2.15, MEMBER web2 10.0.2.12, MEMBER web4 10.0.2.14,
    MEMBER web1 10.0.2.11, MEMBER web3 10.0.2.13";

/// The digest of the table by which a router chooses members.
fn digest(router: &Running) -> Result<String> {
    let status = router.json_of("balancer.status_json")?;
    Ok(status["digest"].as_str().expect("the method is pure").to_string())
}

/// Copies those flows of the first router to the second that are not where they would go by their hashes
/// since it has another member; returns how many these are.
fn mirrored_exceptions(first: &Running, second: &Running) -> Result<usize> {
    let follower = first.command(&["flow", "follow", "--exceptions"])?.spawn()?;
    until_seen(&follower, "that the follower has begun", || {
        Ok(first.read("exchange")?.lines().all(|line| !line.contains("\"next_exception\":0")))
    })?;
    first.write("add_member", "web5 10.0.2.15")?;
    assert_eq!(digest(first)?, digest(second)?);
    // A line before the flows, and one after them.
    let count = first.flow(&["export", "--exceptions"])?.lines().count() - 2;
    let mirrored = || follower.stdout_so_far().lines().filter(|line| line.ends_with('}')).count();
    until_seen(&follower, "that all exceptions are mirrored", || Ok(mirrored() >= count))?;
    let mirrored = follower.stdout_so_far();
    assert!(mirrored.lines().all(|line| line.contains("\"event\":\"insert\"")), "{mirrored}");
    let said = import(second, &mirrored)?;
    assert!(said.contains(&format!("{count} new")), "{said}");
    Ok(count)
}

/// How many connections were harmed when the second router, which has the same members, took the place of the
/// first, and how many flows were exceptions.
fn harmed_of_exceptions(rig: &Rig, knows_flows: bool) -> Result<(usize, usize)> {
    let net = Plain::new(rig, 5)?;
    let (a, b) = (net.router(rig, "a")?, net.router(rig, "b")?);
    b.cut(true)?;
    let _servers = net.serve(echo)?;
    let mut first = Running::run(&a.host, &graph(FOUR), &[])?;
    let mut load = Load::new(&net.client, SERVICE, Arc::new(AtomicU16::new(FIRST_PORT)));
    load.fill(OPEN)?;
    let second = Running::run(&b.host, &graph(FIVE), &[])?;
    let exceptions = if knows_flows { mirrored_exceptions(&first, &second)? } else { 0 };
    assert_eq!(load.settle().harmed(|_| true), 0);
    first.kill();
    a.cut(true)?;
    b.cut(false)?;
    let fates = load.settle();
    println!("{} of {OPEN}, {exceptions} exceptions: {fates:?}", fates.harmed(|_| true));
    drop(load);
    second.end()?;
    Ok((fates.harmed(|_| true), exceptions))
}

#[test]
fn who_chooses_alike_and_knows_the_exceptions_resets_no_connection() {
    artery_rig::test("balancer-exceptions", |rig| {
        let (harmed, exceptions) = harmed_of_exceptions(rig, true)?;
        assert_eq!(harmed, 0);
        assert!(ONE_OF_FIVE.contains(&exceptions), "{exceptions} of {OPEN}");
        Ok(())
    });
}

#[test]
fn who_chooses_alike_and_knows_no_exceptions_resets_them() {
    artery_rig::test("balancer-no-exceptions", |rig| {
        let (harmed, _) = harmed_of_exceptions(rig, false)?;
        assert!(ONE_OF_FIVE.contains(&harmed), "{harmed} of {OPEN}");
        Ok(())
    });
}

/// How many connections were harmed when the second router took the place of the first, and how many
/// flows it has then.
fn harmed(rig: &Rig, knows_flows: bool) -> Result<(usize, usize)> {
    let net = Plain::new(rig, 5)?;
    let (a, b) = (net.router(rig, "a")?, net.router(rig, "b")?);
    b.cut(true)?;
    let _servers = net.serve(echo)?;
    let mut first = Running::run(&a.host, &graph(FIRST), &[])?;
    let second = Running::run(&b.host, &graph(SECOND), &[])?;
    let mut load = Load::new(&net.client, SERVICE, Arc::new(AtomicU16::new(FIRST_PORT)));
    if knows_flows {
        mirrored(&first, &second, &mut load)?
    } else {
        load.fill(OPEN)?
    }
    assert_eq!(load.settle().harmed(|_| true), 0);
    assert_eq!(load.shares().len(), 4, "{:?}", load.shares());
    first.kill();
    a.cut(true)?;
    b.cut(false)?;
    let fates = load.settle();
    println!("{} of {OPEN}: {fates:?}", fates.harmed(|_| true));
    let known: usize = second.shares()?.values().sum();
    drop(load);
    second.end()?;
    Ok((fates.harmed(|_| true), known))
}

#[test]
fn who_takes_over_with_the_flows_of_a_router_that_died_resets_no_connection() {
    artery_rig::test("balancer-takeover", |rig| {
        assert_eq!(harmed(rig, true)?, (0, OPEN));
        Ok(())
    });
}

#[test]
fn who_takes_over_without_them_resets_most() {
    artery_rig::test("balancer-untold", |rig| {
        let (harmed, _) = harmed(rig, false)?;
        // Four of five would go to another, give or take four standard deviations.
        assert!(harmed > OPEN * 7 / 10, "{harmed} of {OPEN}");
        Ok(())
    });
}
