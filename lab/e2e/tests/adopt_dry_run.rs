//! `artery adopt --dry-run`: it prints one line for each thing that keeps traffic in the kernel, and changes
//! nothing. The watch reports changes of these things.

use crate::support::adopting::{Net, on_the_net};
use crate::support::{Running, SOON, artery_on};
use artery_adopt::blockers::{self, Blocker, BlockerWatch};
use artery_rig::program::artery;
use artery_rig::{Host, Result};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde_json::Value;
use std::time::Instant;

/// What a dry run says of `r`, with nothing counted.
fn look(net: &Net) -> Result<Value> {
    look_by(net, &[])
}

/// The same with further options.
fn look_by(net: &Net, options: &[&str]) -> Result<Value> {
    let command = artery_on(&net.r, ["adopt", "--dry-run", "--for", "0", "--json"])?;
    let output = command.args(options).run()?;
    assert_eq!(output.stderr, "");
    Ok(serde_json::from_str(&output.stdout).expect("it is JSON"))
}

/// What keeps traffic in the kernel: port, family, direction and what.
fn kept(net: &Net) -> Result<Vec<[String; 4]>> {
    Ok(kept_in(&look(net)?))
}

fn kept_in(found: &Value) -> Vec<[String; 4]> {
    let text = |value: &Value| value.as_str().unwrap_or("-").to_owned();
    let one = |guard: &Value| ["port", "family", "direction", "what"].map(|name| text(&guard[name]));
    found["kept"].as_array().expect("a list").iter().map(one).collect()
}

/// Skips a test where a program is missing, which a shell would not report.
fn needs(host: &Host, programs: &[&str]) -> Result<()> {
    programs.iter().try_for_each(|program| host.run([program, "-V"]).map(drop))
}

/// Commands of a host, each a line.
fn run(host: &Host, lines: &str) -> Result<()> {
    lines
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty())
        .try_for_each(|line| host.run(["sh", "-c", line]).map(drop))
}

/// Asserts what is reported, in cases with an empty line between: commands; `= PORT FAMILY DIRECTION WHAT`,
/// which must be all that is reported then; and commands that undo them.
fn told(net: &Net, cases: &str) -> Result<()> {
    for case in cases.split("\n\n") {
        let lines: Vec<&str> = case.lines().map(str::trim).collect();
        let at = lines.iter().position(|line| line.starts_with("= ")).expect("a line of what is reported");
        assert_eq!(kept(net)?, <[[String; 4]; 0]>::default(), "before: {case}");
        run(&net.r, &lines[..at].join("\n"))?;
        let kept_now: Vec<String> = kept(net)?.iter().map(|guard| guard.join(" ")).collect();
        assert_eq!(kept_now, [&lines[at][2..]], "{case}");
        run(&net.r, &lines[at + 1..].join("\n"))?;
        assert_eq!(kept(net)?, <[[String; 4]; 0]>::default(), "after: {case}");
    }
    Ok(())
}

#[test]
fn settings_by_which_the_kernel_knows_more_than_routes_are_told() {
    on_the_net("adopt-exceptions", |net| {
        for (setting, family, what) in [
            ("net.ipv4.ip_forward_use_pmtu", "IPv4", "longest packets are learned"),
            ("net.ipv4.conf.all.accept_redirects", "IPv4", "redirects are accepted"),
            ("net.ipv6.conf.all.proxy_ndp", "IPv6", "IPv6 neighbors are answered for"),
        ] {
            let set = format!("sysctl -qw {setting}");
            told(net, &format!("{set}=1\n= - {family} both {what}: {setting} = 1\n{set}=0"))?;
        }
        run(&net.r, "ip link set eth0 mtu 1200")?;
        let kept = kept(net)?;
        let expected = ["eth0", "IPv6", "both", "eth0 has no IPv6, as where its MTU is below 1280"];
        assert!(kept.contains(&expected.map(str::to_owned)), "{kept:?}");
        Ok(())
    });
}

#[test]
fn what_tunnels_leave_to_the_kernel_is_told() {
    on_the_net("adopt-tunnels", |net| {
        let add = "ip link add tun9 type gre local 10.0.2.1 remote 10.0.2.2";
        if net.r.run(["sh", "-c", add]).is_err() {
            eprintln!("skipped: this kernel has no GRE");
            return Ok(());
        }
        run(&net.r, "ip link set tun9 up")?;
        let kept = || Ok::<_, artery_rig::RigError>(kept_in(&look_by(net, &["eth0", "eth1", "tun9"])?));
        assert_eq!(kept()?, Vec::<[String; 4]>::new());
        run(&net.r, "ip link change tun9 type gre local 10.0.2.1 remote 10.0.2.2 key 7")?;
        let key = ["tun9", "-", "both", "tun9 is a tunnel with an option: key"].map(str::to_owned);
        assert!(kept()?.contains(&key));
        Ok(())
    });
}

#[test]
fn chains_of_nftables_are_told_unless_they_are_empty_and_accept() {
    on_the_net("adopt-nftables", |net| {
        needs(&net.r, &["nft"])?;
        told(
            net,
            "nft add table inet filter
             nft 'add chain inet filter forward { type filter hook forward priority 0; policy drop; }'
             = - - both nftables: table inet filter, chain forward (hook forward, policy drop)
             nft delete table inet filter

             nft add table ip nat
             nft 'add chain ip nat post { type nat hook postrouting priority 100; }'
             nft add rule ip nat post oifname eth1 masquerade
             = - IPv4 both nftables: table ip nat, chain post (type nat, hook postrouting, policy accept, \
             1 rule)
             nft delete table ip nat

             nft add table ip nat
             nft 'add chain ip nat post { type nat hook postrouting priority 100; }'
             = - IPv4 both nftables: table ip nat, chain post (type nat, hook postrouting, policy accept, \
             no rules: connections stay translated)
             nft delete table ip nat

             nft add table netdev early
             nft 'add chain netdev early in { type filter hook ingress device eth0 priority 0; }'
             nft add rule netdev early in udp dport 9 drop
             = eth0 - in nftables: table netdev early, chain in (hook ingress, policy accept, 1 rule)
             nft delete table netdev early

             # Neither what is for the host itself, nor what does nothing, nor what sleeps.
             nft add table ip6 filter
             nft 'add chain ip6 filter input { type filter hook input priority 0; policy drop; }'
             nft 'add chain ip6 filter before { type filter hook prerouting priority 0; policy accept; }'
             nft 'add table ip asleep { flags dormant; }'
             nft 'add chain ip asleep forward { type filter hook forward priority 0; policy drop; }'
             nft add rule ip6 filter before counter
             = - IPv6 both nftables: table ip6 filter, chain before (hook prerouting, policy accept, 1 rule)
             nft flush chain ip6 filter before",
        )
    });
}

#[test]
fn chains_of_the_older_iptables_are_told_if_they_do_anything() {
    on_the_net("adopt-iptables", |net| {
        needs(&net.r, &["iptables-legacy"])?;
        run(&net.r, "iptables-legacy -S")?;
        told(
            net,
            "iptables-legacy -P FORWARD DROP
             iptables-legacy -A INPUT -j ACCEPT
             = - IPv4 both iptables: table filter, chain FORWARD (policy DROP)
             iptables-legacy -P FORWARD ACCEPT

             ip6tables-legacy -t mangle -A FORWARD -j MARK --set-mark 1
             = - IPv6 both iptables: table mangle, chain FORWARD (policy ACCEPT, 1 rule)
             ip6tables-legacy -t mangle -F",
        )
    });
}

#[test]
fn filters_and_shaping_of_tc_are_told_by_port_and_side_if_they_are_gone_around() {
    on_the_net("adopt-tc", |net| {
        needs(&net.r, &["tc"])?;
        run(&net.r, "tc qdisc add dev eth0 clsact")?;
        told(
            net,
            "tc filter add dev eth0 ingress pref 7 protocol ip u32 match u32 0 0 flowid 1:1
             = eth0 - in tc: u32 filter at ingress of eth0 (pref 7)
             tc filter delete dev eth0 ingress",
        )?;
        // What tc programs send, as these links have them, passes through the filters and
        // queueing where frames leave.
        run(
            &net.r,
            "tc filter add dev eth0 egress pref 7 protocol ip u32 match u32 0 0 flowid 1:1
             tc qdisc add dev eth1 root tbf rate 100mbit burst 10k latency 10ms",
        )?;
        assert_eq!(kept(net)?, <[[String; 4]; 0]>::default());
        // By XDP it would not.
        for (path, is_met) in [("tc", true), ("graph", true), ("xdp", false), ("xdp-generic", false)] {
            let found = look_by(net, &["--path", path, "eth0", "eth1"])?;
            assert_eq!(found["ports"][1]["path"], path);
            let what: Vec<_> = kept_in(&found).into_iter().map(|[.., what]| what).collect();
            let all = [
                "tc: u32 filter at egress of eth0 (pref 7)",
                "tc: qdisc tbf shapes or orders what leaves by eth1",
            ];
            assert_eq!(what, if is_met { &[][..] } else { &all[..] }, "{path}");
            let words = if is_met { "fast" } else { "fast-in" };
            assert_eq!(found["ports"][1]["ipv4"], words, "{path}");
        }
        Ok(())
    });
}

#[test]
fn ipsec_policies_are_told_by_family() {
    on_the_net("adopt-ipsec", |net| {
        told(
            net,
            "ip xfrm policy add src 10.0.0.0/8 dst 10.1.0.0/16 dir fwd action block
             = - IPv4 both IPsec: 1 policy: fwd 10.0.0.0/8 -> 10.1.0.0/16
             ip xfrm policy flush

             ip xfrm policy add src fd00:1::/64 dst fd00:2::/64 dir out tmpl src fd00::1 dst fd00::2 \
             proto esp mode tunnel
             = - IPv6 both IPsec: 1 policy: out fd00:1::/64 -> fd00:2::/64
             ip xfrm policy flush

             ip xfrm policy setdefault fwd block
             = - - both IPsec: what no policy selects is blocked (default of fwd)
             ip xfrm policy setdefault fwd accept",
        )
    });
}

#[test]
fn settings_are_told_for_all_or_for_the_port_that_has_them() {
    on_the_net("adopt-settings", |net| {
        // By its own setting alone a port that does not forward would accept redirects.
        net.r.sysctl("net.ipv4.conf.eth0.accept_redirects", "0")?;
        told(
            net,
            "echo 0 > /proc/sys/net/ipv4/ip_forward
             = - IPv4 both forwarding of IPv4 is off: net.ipv4.ip_forward = 0
             echo 1 > /proc/sys/net/ipv4/ip_forward

             echo 0 > /proc/sys/net/ipv4/conf/eth0/forwarding
             = eth0 IPv4 in forwarding of IPv4 is off: net.ipv4.conf.eth0.forwarding = 0
             echo 1 > /proc/sys/net/ipv4/conf/eth0/forwarding

             echo 0 > /proc/sys/net/ipv6/conf/all/forwarding
             = - IPv6 both forwarding of IPv6 is off: net.ipv6.conf.all.forwarding = 0
             echo 1 > /proc/sys/net/ipv6/conf/all/forwarding",
        )?;
        // What the kernel demands of sources the fast path demands, too.
        run(&net.r, "echo 1 > /proc/sys/net/ipv4/conf/all/rp_filter")?;
        assert_eq!(kept(net)?, <[[String; 4]; 0]>::default());
        Ok(())
    });
}

#[test]
fn rules_that_ask_for_more_than_destinations_are_told() {
    on_the_net("adopt-rules", |net| {
        told(
            net,
            "ip route add 10.9.0.0/16 via 10.0.2.2 table 100
             ip rule add from 10.0.1.0/24 lookup 100 pref 100
             = - IPv4 both ip rule 100: from 10.0.1.0/24 lookup 100
             ip rule delete pref 100",
        )?;
        let notes = look(net)?["notes"].to_string();
        // A prefix of each port's; own addresses and broadcasts are the kernel's.
        assert!(notes.contains("IPv4 prefixes 2 lead to these ports, 0 to other interfaces"), "{notes}");
        Ok(())
    });
}

#[test]
fn ports_of_a_bridge_that_is_not_adopted_belong_to_it() {
    on_the_net("adopt-bridge", |net| {
        run(&net.r, "ip link add br0 type bridge")?;
        told(
            net,
            "ip link set eth1 master br0
             = eth1 - both eth1 belongs to bridge br0
             ip link set eth1 nomaster",
        )
    });
}

#[test]
fn programs_of_others_are_told() {
    on_the_net("adopt-programs", |net| {
        for (method, side) in
            [("XDP_GENERIC", "eth0 has an XDP program already"), ("LINUX", "eth0: 1 BPF program of Artery")]
        {
            let config = format!(
                "FromDevice(eth0, SNIFFER false, PROMISC true, METHOD {method}) -> Queue -> ToDevice(eth1)"
            );
            let router = crate::support::start(&net.r, &config, &[])?;
            let kept = kept(net)?;
            let told = kept.iter().find(|[_, _, _, what]| what.starts_with(side));
            let is_told = told.is_some_and(|[port, .., what]| port == "eth0" && what.contains("of Artery"));
            assert!(is_told, "{method}: {kept:?}");
            crate::support::end(router)?;
        }
        assert_eq!(kept(net)?, <[[String; 4]; 0]>::default());
        Ok(())
    });
}

#[test]
fn programs_of_artery_are_named_as_such_beside_a_running_adopt() {
    on_the_net("adopt-own-programs", |net| {
        for (path, expected) in [
            ("tc", "eth0: 1 BPF program of Artery at TCX ingress"),
            ("xdp", "eth0 has an XDP program already, number"),
        ] {
            let mut running = Running::adopt(net, path, &[])?;
            let kept = kept(net)?;
            let is_told = |[.., what]: &[String; 4]| what.starts_with(expected) && what.contains("of Artery");
            assert!(kept.iter().any(is_told), "{path}: {kept:?}");
            running.stop(SOON)?;
            assert_eq!(self::kept(net)?, <[[String; 4]; 0]>::default(), "{path}");
        }
        Ok(())
    });
}

#[test]
fn a_packet_socket_that_sees_all_frames_by_tc_is_noted_by_xdp_only() {
    on_the_net("adopt-socket", |net| {
        let tcpdump = net.r.spawn(["tcpdump", "-ni", "eth0", "-w", "/dev/null"])?;
        tcpdump.wait_for("listening", SOON)?;
        for (path, is_noted) in [("tc", false), ("xdp", true)] {
            let notes = look_by(net, &["--path", path])?["notes"].to_string();
            assert_eq!(notes.contains("A packet socket listens"), is_noted, "{path}: {notes}");
        }
        Ok(())
    });
}

/// All that a dry run might touch, in the words of other programs.
fn state(host: &Host) -> Result<String> {
    let commands = [
        "ip -d link show",
        "ip address show",
        "ip rule; ip route show table all; ip -6 route show table all",
        "ip xfrm policy; nft list ruleset; cat /proc/net/ip_tables_names /proc/net/ip6_tables_names",
        "tc qdisc show; tc filter show dev eth0 ingress; tc filter show dev eth0 egress",
        "cat /proc/sys/net/ipv4/conf/*/forwarding /proc/sys/net/ipv4/conf/*/rp_filter \
         /proc/sys/net/ipv6/conf/*/forwarding",
    ];
    commands.iter().map(|command| Ok(host.run(["sh", "-c", command])?.stdout)).collect()
}

#[test]
fn nothing_is_touched_and_the_share_of_current_traffic_is_told() {
    on_the_net("adopt-share", |net| {
        needs(&net.r, &["nft", "iptables-legacy"])?;
        run(&net.r, "nft add table inet mine\ntc qdisc add dev eth0 clsact\niptables-legacy -S")?;
        // Neighbors are known before.
        assert_eq!(net.a.ping("10.0.2.2", 1)?.received, 1);
        let before = state(&net.r)?;
        let mut process =
            artery_on(&net.r, ["adopt", "--dry-run", "eth0", "eth1", "--for", "1s"])?.spawn()?;
        while process.is_running() {
            assert_eq!(net.a.ping("10.0.2.2", 1)?.received, 1);
        }
        let output = process.wait(SOON)?;
        assert_eq!((output.code(), output.stderr.as_str()), (Some(0), ""));
        let stdout = &output.stdout;
        assert!(stdout.contains("IPv4 packets, of which about 100 % would be accelerated"), "{stdout}");
        assert!(output.stdout.contains("Nothing keeps traffic between these ports"), "{}", output.stdout);
        let row = output.stdout.lines().find(|line| line.starts_with("eth0")).unwrap_or_default();
        let cells: Vec<_> = row.split_whitespace().take(6).collect();
        assert_eq!(cells, ["eth0", "veth", "native", "tc", "fast", "fast"], "{}", output.stdout);
        assert_eq!(state(&net.r)?, before);
        assert_eq!(net.b.ping("10.0.1.2", 1)?.received, 1);
        Ok(())
    });
}

#[test]
fn who_may_not_look_is_told_what_could_not_be_read() {
    on_the_net("adopt-rights", |net| {
        let command = net.r.command(["setpriv", "--bounding-set=-all"]).arg(artery()?);
        let output = command.args(["adopt", "--dry-run", "--for", "0"]).run()?;
        for line in ["nftables can't be read: ", "the IPsec policies can't be read: ", "CAP_NET_ADMIN"] {
            assert!(output.stdout.contains(line), "{line}: {}", output.stdout);
        }
        assert!(output.stdout.lines().any(|line| line.starts_with("eth0 ") && line.contains(" kernel ")));
        Ok(())
    });
}

#[test]
fn wrong_ports_are_refused_with_those_that_there_are() {
    on_the_net("adopt-names", |net| {
        let output = artery_on(&net.r, ["adopt", "--dry-run", "eth7"])?.output()?;
        assert_eq!((output.code(), output.stdout.as_str()), (Some(1), ""));
        assert!(output.stderr.contains("eth7") && output.stderr.contains("eth1"), "{}", output.stderr);
        let output = artery_on(&net.r, ["adopt", "eth0", "lo"])?.output()?;
        assert_eq!((output.code(), output.stdout.as_str()), (Some(1), ""));
        assert!(output.stderr.contains("the loopback forwards nothing"), "{}", output.stderr);
        Ok(())
    });
}

/// Runs a line in this thread's namespace.
fn shell(line: &str) {
    let status = std::process::Command::new("sh").args(["-c", line]).status().unwrap();
    assert!(status.success(), "{line}");
}

/// Waits until the blockers are as expected. Reads them only when the watch reports a change.
fn until(watch: &mut BlockerWatch, is_expected: impl Fn(&[Blocker]) -> bool, what: &str) {
    let deadline = Instant::now() + SOON;
    loop {
        assert!(Instant::now() < deadline, "not reported: {what}");
        let files: Vec<_> = watch.files().collect();
        let mut files: Vec<_> = files.iter().map(|file| PollFd::new(file, PollFlags::IN)).collect();
        poll(&mut files, Some(&Timespec { tv_sec: 1, tv_nsec: 0 })).unwrap();
        if watch.has_changed() && is_expected(&blockers::survey(&blockers::ethernet_ports().unwrap())) {
            return;
        }
    }
}

#[test]
fn every_change_is_told_to_who_watches() {
    on_the_net("adopt-watch", |net| {
        needs(&net.r, &["nft", "iptables-legacy", "tc"])?;
        net.r.enter(|| {
            let mut watch = BlockerWatch::open(&blockers::ethernet_ports().unwrap()).unwrap();
            assert!(!watch.has_changed());
            for (come, go) in [
                (
                    "nft 'table ip t { chain c { type filter hook forward priority 0; policy drop; }; }'",
                    "nft delete table ip t",
                ),
                ("iptables-legacy -P FORWARD DROP", "iptables-legacy -P FORWARD ACCEPT"),
                (
                    "tc qdisc add dev eth1 root tbf rate 1mbit burst 10k latency 10ms",
                    "tc qdisc delete dev eth1 root",
                ),
                ("ip xfrm policy add src 10.0.0.0/8 dst 10.1.0.0/16 dir out", "ip xfrm policy flush"),
                ("ip xfrm policy setdefault fwd block", "ip xfrm policy setdefault fwd accept"),
                ("echo 0 > /proc/sys/net/ipv4/ip_forward", "echo 1 > /proc/sys/net/ipv4/ip_forward"),
                ("ip link add br0 type bridge; ip link set eth1 master br0", "ip link delete br0"),
            ] {
                shell(come);
                until(&mut watch, |guards| guards.len() == 1, come);
                shell(go);
                until(&mut watch, <[Blocker]>::is_empty, go);
            }
        })
    });
}
