//! Forwarding methods to servers, and connections that are used with each.

use super::net::{Forward, Net, SERVICE, with_net};
use super::server::echo;
use artery_rig::Result;
use std::net::Ipv4Addr;

const OPEN: usize = 120;

/// Connections are shared out, carry short and long messages, and stay where they are while another server
/// comes, one is drained, and one ends.
fn serves(net: &Net, forward: Forward, variables: &[&str]) -> Result<()> {
    let mut servers = net.serve(forward, echo)?;
    let balancer = net.balance(variables)?;
    let mut load = net.load();
    load.fill(OPEN)?;
    for open in load.open() {
        let own = Ipv4Addr::new(10, 0, 2, 10 + open.server);
        assert_eq!(open.reached, if forward == Forward::Nat { own } else { SERVICE });
    }
    assert_eq!(load.settle().harmed(|_| true), 0);
    let shares = load.shares();
    assert!(shares.len() == 4 && shares.values().all(|share| *share > OPEN / 20), "{shares:?}");

    balancer.write("add_member", "web5 10.0.2.15")?;
    balancer.write("weight", "web1 0")?;
    assert_eq!(load.settle().harmed(|_| true), 0);
    load.fill(2 * OPEN)?;
    let (before, after) = (shares, load.shares());
    assert_eq!(after[&1], before[&1], "a server that is drained gets no new connections");
    assert!(after[&5] > OPEN / 10, "{after:?}");

    drop(servers.remove(3));
    let fates = load.settle();
    assert_eq!((fates.harmed(|server| server != 4), fates.reset.get(&4)), (0, after.get(&4)), "{fates:?}");
    balancer.write("remove_member", "web4")?;
    load.fill(2 * OPEN)?;
    assert_eq!(load.settle().harmed(|_| true), 0);
    assert!(!load.shares().contains_key(&4));
    assert!(balancer.count("hits")? > 2 * balancer.count("flows-inserted")?);
    drop(load);
    balancer.end()
}

#[test]
fn packets_reach_servers_as_they_are_and_answers_come_in_the_name_of_the_service() {
    with_net("balancer-direct", |net| serves(net, Forward::Direct, &[]));
}

#[test]
fn packets_reach_servers_by_their_own_addresses_and_answers_come_in_the_name_of_the_service() {
    with_net("balancer-nat", |net| serves(net, Forward::Nat, &["FORWARD=nat"]));
}

#[test]
fn packets_reach_servers_in_a_tunnel_also_those_that_are_too_long_for_it() {
    with_net("balancer-tunnel", |net| {
        let _programs = net.unpack()?;
        serves(net, Forward::Tunnel, &["TUNNEL=1", "MTU=1480"])
    });
}

#[test]
fn who_asks_for_what_nobody_serves_is_told_so() {
    with_net("balancer-no-member", |net| {
        let _servers = net.serve(Forward::Direct, echo)?;
        let balancer = net.balance(&[])?;
        assert_eq!(net.client.ping(&SERVICE.to_string(), 3)?.received, 3);
        let refused = |port: u16| -> Result<bool> {
            let connected = net.client.enter(|| std::net::TcpStream::connect((SERVICE, port)))?;
            Ok(connected.is_err_and(|error| error.kind() == std::io::ErrorKind::ConnectionRefused))
        };
        assert!(refused(81)? && !refused(80)?);
        (1..5).try_for_each(|number| balancer.write("remove_member", &format!("web{number}")))?;
        assert!(refused(80)?);
        assert!(balancer.count("packets-without-member")? > 0);
        balancer.write("add_member", "web2 10.0.2.12")?;
        assert!(!refused(80)?);
        balancer.end()
    });
}
