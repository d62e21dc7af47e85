//! Adopted ports never go around what the user has set up: while a stream of packets is forwarded fast, a
//! policy comes, and nothing passes any more.

use crate::support::adopting::{Net, echoes, on_the_net};
use crate::support::connections::{Datagrams, until_fast};
use crate::support::{Running, SOON, end, until_seen};
use artery_rig::{Process, Result};
use std::time::Instant;

/// Said whenever nothing keeps traffic in the kernel any more.
const FREE: &str = "nothing keeps traffic";
const FAR: [&str; 2] = ["10.0.2.2", "2001:db8:2::2"];

/// Policies that drop packets: the command that adds each, its line in the report, and the
/// command that removes it.
const POLICIES: [[&str; 3]; 7] = [
    [
        "nft 'table inet filter { chain forward { type filter hook forward priority 0; policy drop; }; }'",
        "nftables: table inet filter, chain forward (hook forward, policy drop)",
        "nft delete table inet filter",
    ],
    [
        "nft 'table netdev early { chain in { type filter hook ingress device eth0 priority 0; policy drop; \
         }; }'",
        "nftables: table netdev early, chain in (hook ingress, policy drop)",
        "nft delete table netdev early",
    ],
    [
        "nft 'table netdev late { chain out { type filter hook egress device eth1 priority 0; policy drop; \
         }; }'",
        "nftables: table netdev late, chain out (hook egress, policy drop)",
        "nft delete table netdev late",
    ],
    [
        "nft 'table inet raw { chain first { type filter hook prerouting priority -300; meta l4proto { icmp, \
         ipv6-icmp } drop; }; }'",
        "nftables: table inet raw, chain first (hook prerouting, policy accept, 1 rule)",
        "nft delete table inet raw",
    ],
    [
        "iptables-legacy -P FORWARD DROP; ip6tables-legacy -P FORWARD DROP",
        // The second of both.
        "shown by: ip6tables-legacy -t filter -S FORWARD",
        "iptables-legacy -P FORWARD ACCEPT; ip6tables-legacy -P FORWARD ACCEPT",
    ],
    [
        "ip xfrm policy setdefault fwd block",
        "IPsec: what no policy selects is blocked (default of fwd)",
        "ip xfrm policy setdefault fwd accept",
    ],
    [
        "echo 0 > /proc/sys/net/ipv4/ip_forward; echo 0 > /proc/sys/net/ipv6/conf/all/forwarding",
        "forwarding of IPv6 is off: net.ipv6.conf.all.forwarding = 0",
        "echo 1 > /proc/sys/net/ipv4/ip_forward; echo 1 > /proc/sys/net/ipv6/conf/all/forwarding",
    ],
];

/// Waits until more packets of both families come to `b`.
fn until_more(net: &Net, router: &mut Process) -> Result<()> {
    // Without it the kernel forwards.
    assert!(router.is_running(), "{}", router.stderr_so_far());
    let before = echoes(&net.b)?;
    until_seen(router, "that packets pass", || {
        Ok(echoes(&net.b)?.iter().zip(before).all(|(now, was)| *now >= was + 10))
    })
}

/// Waits until a text has been said so often. The first takes seconds of work on tables, which
/// others may hold up.
fn until_said(router: &mut Process, text: &str, times: usize) {
    let deadline = Instant::now() + 4 * SOON;
    while router.stderr_so_far().matches(text).count() < times {
        let said = router.stderr_so_far();
        assert!(router.is_running() && Instant::now() < deadline, "{text} is not said {times} times: {said}");
    }
}

#[test]
fn nothing_passes_by_tc_once_a_policy_drops_and_all_passes_when_it_is_gone() {
    nothing_passes_once_a_policy_drops("tc");
}

#[test]
fn nothing_passes_by_xdp_once_a_policy_drops_and_all_passes_when_it_is_gone() {
    nothing_passes_once_a_policy_drops("xdp");
}

fn nothing_passes_once_a_policy_drops(path: &str) {
    on_the_net(&format!("adopt-policy-{path}"), |net| {
        for program in ["nft", "iptables-legacy"] {
            net.r.run([program, "-V"])?;
        }
        // The tables are there before; empty ones keep nothing.
        net.r.run(["sh", "-c", "iptables-legacy -S; ip6tables-legacy -S"])?;
        let streams = FAR.map(|far| net.a.spawn(["ping", "-q", "-i", "0.01", far]));
        let streams: Vec<_> = streams.into_iter().collect::<Result<_>>()?;
        let mut router = Running::adopt(net, path, &[])?;
        until_said(&mut router, FREE, 1);
        for (done, [come, told, go]) in POLICIES.into_iter().enumerate() {
            until_more(net, &mut router)?;
            net.r.run(["sh", "-c", come])?;
            until_said(&mut router, told, 1);
            // What was under way arrives while this waits for an answer that doesn't come.
            assert_eq!(net.a.ping(FAR[0], 1)?.received, 0, "{come}");
            let before = echoes(&net.b)?;
            assert_eq!(net.a.ping(FAR[0], 2)?.received, 0, "{come}");
            assert_eq!(echoes(&net.b)?, before, "{come}");
            net.r.run(["sh", "-c", go])?;
            until_said(&mut router, FREE, done + 2);
        }
        until_more(net, &mut router)?;
        drop(streams);
        let output = end(router.process)?;
        // That they were forwarded fast in between, and not by the kernel only.
        let row = output.stdout.lines().find_map(|line| line.strip_prefix("eth0: ")).unwrap_or_default();
        let packets: u64 = row.split_whitespace().next().and_then(|word| word.parse().ok()).unwrap_or(0);
        assert!(packets > 100, "{}", output.stdout);
        Ok(())
    });
}

/// Hops of IPv6 neighbors were withheld where those of IPv4 were.
#[test]
fn ipv6_goes_past_the_kernel_where_ipv4_is_not_forwarded() {
    on_the_net("adopt-ipv6-alone", |net| {
        net.r.sysctl("net.ipv4.ip_forward", "0")?;
        for far in ["2001:db8:1::2", "2001:db8:2::2"] {
            net.r.ping(far, 1)?;
        }
        let adopted = Running::adopt(net, "tc", &[])?;
        let udp = Datagrams::open(&net.a, &net.b, "[2001:db8:2::2]:9001".parse().unwrap())?;
        until_fast(net, &adopted, &mut |rounds| {
            udp.exchange(rounds);
        })?;
        assert_eq!(net.a.ping("10.0.2.2", 2)?.received, 0);
        adopted.end()
    });
}
