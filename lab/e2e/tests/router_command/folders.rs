//! `artery up` from folders whose files make a router: addresses at interfaces of no switch, mygate(5),
//! pf.conf. `a` is a client in a local network, and `b` a server outside, without a route to it.

use super::mirror::{Line, Mirror, Said, ask_tcp, ask_udp};
use super::net::{FAR, NEAR, Net, OWN, Running, on_the_net};
use crate::support::switching::folder_with;
use crate::support::{SOON, end, until, until_answered};
use artery_rig::program::artery;
use artery_rig::{Result, Rig};
use std::io::ErrorKind;
use std::path::Path;
use tempfile::TempDir;

/// The router's addresses outside, by family.
const OUTSIDE: [&str; 2] = ["10.0.2.1", "fd00:2::1"];
const MAP: [&str; 2] = ["--map", "em0=eth0,em1=eth1"];

const EM0: &str =
    "inet 10.0.1.1 255.255.255.0 NONE\ninet6 alias fd00:1::1 64\ndescription \"the office\"\nup\n";
const EM1: &str =
    "inet 10.0.2.1/24\ninet6 fd00:2::1 prefixlen 64\nmtu 1400\n!route add -net 10.9/16 10.0.2.2\n";
const MYGATE: &str = "# b has the way to all others\n10.0.2.2\nfd00:2::2\n";
/// What a small office has.
const OFFICE: &str = "table <bad> file \"/etc/bad\"
set skip on lo
block return log
match out on egress inet from em0:network nat-to (em1)
match out on egress inet6 from em0:network nat-to (em1)
pass in on em0
pass out
block return in on em0 proto tcp to port 81
block return in on em0 from any to <bad>
pass in on em1 inet proto tcp to (em1) port 8080 rdr-to 10.0.1.2 port 80
";

/// The folder of a firewall with these rules.
fn office(rules: &str) -> TempDir {
    folder_with(&[
        ("hostname.em0", EM0),
        ("hostname.em1", EM1),
        ("hostname.lo0", "inet 127.0.0.1/8\n"),
        ("mygate", MYGATE),
        ("pf.conf", rules),
        ("bad", "10.8.8.8\n"),
    ])
}

/// Starts a router, and waits until `a` reaches `b` through it.
fn start(net: &Net, folder: &Path, options: &[&str]) -> Result<Running> {
    let (etc, log) = (folder.display().to_string(), folder.join("pflog").display().to_string());
    let words = [&["up", "--etc", &etc, "--pflog", &log][..], &MAP, options].concat();
    Running::spawn(&net.r, words)?.answering(net)
}

/// Only who translates gets answers from outside, and interfaces are brought up by their addresses.
fn make_outside(net: &Net) -> Result<()> {
    for family in ["-4", "-6"] {
        net.b.run(["ip", family, "route", "del", "default"])?;
    }
    for port in ["eth0", "eth1"] {
        net.r.down(port)?;
    }
    Ok(())
}

fn write(folder: &TempDir, name: &str, text: &str) {
    std::fs::write(folder.path().join(name), text).unwrap();
}

#[test]
fn a_folder_of_addresses_and_rules_is_a_firewall() {
    on_the_net("folder-firewall", |net| {
        make_outside(net)?;
        let (_outside, _closed) = (Mirror::start(&net.b, 80)?, Mirror::start(&net.b, 81)?);
        let _inside = Mirror::start(&net.a, 80)?;
        let folder = office(OFFICE);
        let router = start(net, folder.path(), &[])?;
        let said = router.process.stderr_so_far();
        assert_eq!(said.matches("warning").count(), 1, "{said}");
        assert!(said.contains("hostname.lo0:1: inet 127.0.0.1/8: lo0 is the host's own"), "{said}");
        for (far, outside) in FAR.into_iter().zip(OUTSIDE) {
            assert_eq!(net.a.ping(far, 3)?.received, 3, "{far}");
            assert_eq!(ask_tcp(&net.a, far, 80)?, Said::You(outside.parse().unwrap()), "{far}");
            assert_eq!(ask_udp(&net.a, far, 80)?, Said::You(outside.parse().unwrap()), "{far}");
            assert_eq!(ask_tcp(&net.a, far, 81)?, Said::Error(ErrorKind::ConnectionRefused), "{far}");
            let tcp = net.a.iperf3(&net.b, far, &["-t", "1"])?;
            assert!(tcp.bits_per_second > 1e6, "{far}: {tcp:?}");
            assert_eq!(net.b.ping(outside, 1)?.received, 0, "{outside}");
        }
        assert_eq!(ask_tcp(&net.b, OUTSIDE[0], 8080)?, Said::You(FAR[0].parse().unwrap()));
        for own in OWN {
            assert_eq!(net.a.ping(own, 2)?.received, 2, "{own}");
        }
        let states = router.say(&["pfctl", "-s", "states"])?;
        assert!(states.contains("10.0.2.1") && states.contains("(10.0.1.2:"), "{states}");
        let rules = router.say(&["pfctl", "-s", "rules"])?;
        let expected = "match out on egress inet from 10.0.1.0/24 to any nat-to (em1) round-robin";
        assert!(rules.contains(expected), "{rules}");
        assert_eq!(router.say(&["pfctl", "-t", "bad", "-T", "show"])?.trim(), "10.8.8.8");
        let routes = router.say(&["show", "routes", "-4"])?;
        assert!(routes.contains("10.9.0.0/16") && routes.contains("0.0.0.0/0"), "{routes}");
        let interfaces = net.r.run(["ip", "link", "show", "eth1"])?.stdout;
        assert!(interfaces.contains("mtu 1400") && interfaces.contains("UP"), "{interfaces}");
        let host = net.r.run(["ip", "address", "show", "artery0"])?.stdout;
        assert!(host.contains("10.0.1.1/24") && host.contains("fd00:2::1/64"), "{host}");
        end(router.process).map(drop)
    });
}

#[test]
fn a_reload_rereads_addresses_routes_and_rules_and_a_mistake_changes_nothing() {
    on_the_net("folder-reload", |net| {
        make_outside(net)?;
        let _outside = Mirror::start(&net.b, 80)?;
        let folder = office(OFFICE);
        let mut router = start(net, folder.path(), &[])?;
        let mut line = Line::open(&net.a, FAR[0], 80)?;
        line.echo()?;
        let refused = || ask_tcp(&net.a, FAR[0], 80);
        // Each mistake is named by its file and line.
        for (name, text, expected) in [
            ("pf.conf", "block return\npass in on em9\n", "2: on em9: no interface here"),
            ("mygate", "10.7.7.7\n", "1: 0.0.0.0/0: gateway 10.7.7.7: no port has an address"),
            ("hostname.em1", "inet 10.0.1.9/24\n", "1: em1: 10.0.1.0/24 is the network of port em0"),
        ] {
            let before = std::fs::read_to_string(folder.path().join(name)).unwrap();
            write(&folder, name, text);
            assert!(router.reload(&format!("{name}:{expected}"))?.contains("the running one stays"));
            write(&folder, name, &before);
            assert_eq!(refused()?, Said::You(OUTSIDE[0].parse().unwrap()), "{name}");
            line.echo()?;
        }
        // Rules, an address and a route.
        let stricter = OFFICE.replace("to port 81", "to port 80");
        write(&folder, "pf.conf", &stricter);
        write(
            &folder,
            "hostname.em0",
            &format!("{EM0}inet alias 10.0.5.1/24\n!route add 10.6/16 10.0.5.2\n"),
        );
        router.reload("the configuration was replaced")?;
        assert_eq!(refused()?, Said::Error(ErrorKind::ConnectionRefused));
        line.echo()?;
        assert_eq!(net.a.ping("10.0.5.1", 1)?.received, 1);
        let routes = router.say(&["show", "routes", "-4"])?;
        assert!(routes.contains("10.6.0.0/16  10.0.5.2"), "{routes}");
        until(SOON, || Ok(net.r.run(["ip", "address", "show", "artery0"])?.stdout.contains("10.0.5.1/24")))?;
        // What can't be reread is said.
        write(&folder, "hostname.em1", &EM1.replace("mtu 1400\n", ""));
        router.reload("port em1 keeps its MTU")?;
        line.echo()?;
        // The same file by pfctl, which finds its tables in the folder.
        write(&folder, "pf.conf", OFFICE);
        let file = folder.path().join("pf.conf").display().to_string();
        let checked = router.call(&["pfctl", "-nvf", &file])?;
        assert!(checked.stdout.contains("from 10.0.1.0/24 to any nat-to (em1)"), "{}", checked.stderr);
        assert_eq!(refused()?, Said::Error(ErrorKind::ConnectionRefused));
        router.say(&["pfctl", "-f", &file])?;
        assert_eq!(refused()?, Said::You(OUTSIDE[0].parse().unwrap()));
        line.echo()?;
        end(router.process).map(drop)
    });
}

#[test]
fn ports_get_their_first_ipv6_addresses_by_a_reload() {
    on_the_net("folder-first-ipv6", |net| {
        let ipv4_only = |text: &str| -> String {
            text.lines().filter(|line| !line.contains("inet6")).map(|line| format!("{line}\n")).collect()
        };
        let (em0, em1) = (ipv4_only(EM0), ipv4_only(EM1));
        let folder = folder_with(&[
            ("hostname.em0", em0.as_str()),
            ("hostname.em1", em1.as_str()),
            ("mygate", "10.0.2.2\n"),
            ("pf.conf", "pass\n"),
        ]);
        let (etc, log) = (folder.path().display().to_string(), folder.path().join("pflog"));
        let log = log.display().to_string();
        let words = [&["up", "--etc", &etc, "--pflog", &log][..], &MAP].concat();
        let mut router = Running::spawn(&net.r, words)?;
        until_answered(&net.a, FAR[0], &mut router.process)?;
        assert_eq!(net.a.ping(FAR[1], 1)?.received, 0);
        for (name, text) in [("hostname.em0", EM0), ("hostname.em1", EM1), ("mygate", MYGATE)] {
            write(&folder, name, text);
        }
        router.reload("the configuration was replaced")?;
        FAR.iter().try_for_each(|far| until(SOON, || Ok(net.a.ping(far, 1)?.received == 1)))?;
        end(router.process).map(drop)
    });
}

#[test]
fn a_folder_makes_a_router_if_and_only_if_import_and_dry_run_refuse_nothing() {
    let em1 = "hostname.em1";
    on_the_net("folder-judged", |net| {
        for (name, text, expected) in [
            ("hostname.em2", "up\n", None),
            ("mygate", "10.0.2.2\n10.0.2.3\n", None),
            (em1, "dhcp\n", Some("1: 'dhcp' asks others for an address")),
            (em1, "inet6 autoconf\n", Some("1: 'inet6 autoconf' asks others")),
            (em1, "inet 10.0.2.1\n", Some("1: how long is the prefix of 10.0.2.1?")),
            (em1, "inet 10.0.1.7/24\n", Some("1: em1: 10.0.1.0/24 is the network of port em0")),
            (em1, "inet 10.0.2.1/24\ninet6 fd00::1 64\nmtu 1000\n", Some("3: em1 carries 1000 bytes")),
            (em1, "inet 10.0.2.1/24\nvlan 5\n", Some("2: 'parent' and 'vnetid' make a vlan(4)")),
            (em1, "inet 10.0.2.1/24\nmedia auto\n", Some("2: 'media' is nothing that is known")),
            (
                em1,
                "inet 10.0.2.1/24\n!route add 10.9/16 10.8.8.8\n",
                Some("2: 10.9.0.0/16: gateway 10.8.8.8"),
            ),
            (em1, "inet 10.0.2.1/24\n!route delete default\n", Some("2: only 'route add'")),
            ("hostname.em*", "inet 10.0.3.1/24\n", Some("1: an address is that of one interface")),
            ("hostname.vport0", "inet 10.0.3.1/24\n", Some("1: vport0 is not a port of a switch")),
            ("mygate", "the.gate\n", Some("1: 'the.gate' is not a gateway; write its address")),
            ("mygate", "10.7.7.7\n", Some("1: 0.0.0.0/0: gateway 10.7.7.7")),
            ("pf.conf", "pass\nblock in on eth0\n", Some("2: on eth0: no interface here")),
            ("pf.conf", "pass in on veb0\n", Some("1: on veb0: no interface here")),
            ("pf.conf", "pas\n", Some("1: syntax error")),
        ] {
            let folder = office("pass\n");
            write(&folder, name, text);
            let etc = folder.path().display().to_string();
            let call = |words: &[&str]| net.r.command([artery()?]).args(words).output();
            let explained = call(&["import", "--explain", &etc])?;
            let dry = call(&[&["up", "--dry-run", "--etc", &etc][..], &MAP].concat())?;
            let refusals = |said: &str| -> Vec<String> {
                said.lines().filter(|line| line.contains(": refused: ")).map(str::to_string).collect()
            };
            assert_eq!(explained.code(), dry.code(), "{name}: {text}{}", dry.stderr);
            assert_eq!(refusals(&explained.stdout), refusals(&dry.stdout), "{name}: {text}");
            let Some(expected) = expected else {
                assert_eq!(dry.code(), Some(0), "{name}: {text}{}{}", dry.stdout, dry.stderr);
                end(start(net, folder.path(), &[])?.process)?;
                continue;
            };
            let up = call(&[&["up", "--etc", &etc][..], &MAP].concat())?;
            assert_eq!((dry.code(), up.code()), (Some(1), Some(1)), "{name}: {text}{}", up.stderr);
            assert!(up.stderr.contains(&format!("{etc}/{name}:{expected}")), "{name}: {text}{}", up.stderr);
            assert!(up.stderr.contains("nothing was started"), "{}", up.stderr);
            let errors = up.stderr.lines().filter(|line| line.starts_with("error: ")).count();
            assert_eq!(errors, refusals(&dry.stdout).len(), "{}", up.stderr);
            assert_eq!(net.r.interfaces()?, ["lo", "eth0", "eth1"]);
        }
        Ok(())
    });
}

#[test]
fn what_the_machine_lacks_is_named_before_anything_starts() {
    on_the_net("folder-machine", |net| {
        let folder = office("pass\n");
        let etc = folder.path().display().to_string();
        net.r.address("eth1", "10.0.2.1/24")?;
        net.r.run(["ip", "link", "add", "artery0", "type", "veth", "peer", "name", "end0"])?;
        for (options, expected) in [
            (&["--map", "em0=eth0"][..], "port em1: em1: no such interface"),
            (&["--map", "em0=eth0,em1=eth0"], "em0 and em1 are both eth0"),
            (&MAP, "there is an interface artery0, which is to be the host's to the router"),
            (&[MAP[0], MAP[1], "--workers", "2"], "each worker has states of its own"),
            (&[MAP[0], MAP[1], "--switch", "veb0"], "has no switch 'veb0'; it has none"),
        ] {
            for dry in [&["--dry-run"][..], &[]] {
                let words = [&["up", "--etc", &etc][..], options, dry].concat();
                let refused = net.r.command([artery()?]).args(&words).output()?;
                assert_eq!(refused.code(), Some(1), "{options:?}");
                let said = refused.stdout + &refused.stderr;
                assert!(said.contains(expected), "{options:?}: {said}");
            }
        }
        let options = [&["up", "--dry-run", "--host", "router0", "--etc", &etc][..], &MAP].concat();
        let dry = net.r.command([artery()?]).args(&options).output()?;
        let warned = "'ip address del 10.0.2.1/24 dev eth1' helps";
        assert!(dry.code() == Some(0) && dry.stderr.contains(warned), "{}{}", dry.stdout, dry.stderr);
        net.r.run(["ip", "address", "del", "10.0.2.1/24", "dev", "eth1"])?;
        let router = start(net, folder.path(), &["--host", "router0"])?;
        let host = net.r.run(["ip", "address", "show", "router0"])?.stdout;
        assert!(host.contains("10.0.1.1/24"), "{host}");
        assert_eq!(net.b.ping(NEAR[0], 1)?.received, 1, "rules let all pass");
        end(router.process).map(drop)
    });
}

/// A router whose local network is a switch: em0 and em2 of veb0, and vport0.
const JOINED: [(&str, &str); 7] = [
    ("hostname.veb0", "add em0\nadd em2\nadd vport0\nup\n"),
    ("hostname.em0", "up\n"),
    ("hostname.em2", "up\n"),
    ("hostname.vport0", "inet 10.0.1.1 255.255.255.0\ninet6 fd00:1::1 64\n"),
    ("hostname.em1", "inet 10.0.2.1/24\ninet6 fd00:2::1 64\n"),
    ("mygate", "10.0.2.2\n"),
    (
        "pf.conf",
        "block return\nmatch out on em1 inet from vport0:network nat-to (em1)\npass in on vport0\npass out\n",
    ),
];

#[test]
fn the_vport_of_a_switch_is_a_port_of_the_router() {
    artery_rig::test("folder-joined", |rig: &Rig| {
        artery()?;
        let (a, b, c, r) = (rig.host("a")?, rig.host("b")?, rig.host("c")?, rig.host("r")?);
        for (host, port) in [(&a, "eth0"), (&b, "eth1"), (&c, "eth2")] {
            rig.link(host, "eth0", &r, port)?;
        }
        for (host, address, gateway) in [
            (&a, "10.0.1.2/24", Some("10.0.1.1")),
            (&c, "10.0.1.3/24", Some("10.0.1.1")),
            (&b, "10.0.2.2/24", None),
        ] {
            host.address("eth0", address)?;
            gateway.map(|gateway| host.route("default", gateway)).transpose()?;
        }
        let _outside = Mirror::start(&b, 80)?;
        let folder = folder_with(&JOINED);
        let etc = folder.path().display().to_string();
        let map = ["--map", "em0=eth0,em1=eth1,em2=eth2"];
        let words = [&["up", "--etc", &etc][..], &map].concat();
        let mut router = Running::spawn(&r, &words)?;
        until_answered(&a, FAR[0], &mut router.process)?;
        for host in [&a, &c] {
            assert_eq!(host.ping("10.0.1.1", 2)?.received, 2);
            assert_eq!(ask_tcp(host, FAR[0], 80)?, Said::You(OUTSIDE[0].parse().unwrap()));
        }
        // Within the switch no rule is asked, and from outside nothing comes in.
        assert_eq!(a.ping("10.0.1.3", 2)?.received, 2);
        assert_eq!(b.ping("10.0.2.1", 1)?.received, 0);
        let table = router.say(&["ifconfig", "veb0"])?;
        assert!(table.contains("vport0"), "{table}");
        let tcp = c.iperf3(&b, FAR[0], &["-t", "1"])?;
        assert!(tcp.bits_per_second > 1e6, "{tcp:?}");
        router.reload("the configuration was replaced")?;
        assert_eq!(ask_tcp(&c, FAR[0], 80)?, Said::You(OUTSIDE[0].parse().unwrap()));
        // Without an address outside it is a switch alone, with the host at its vport, and with one a router
        // again.
        let rules = folder.path().join("pf.conf");
        std::fs::write(&rules, "pass\n").unwrap();
        let outside = folder.path().join("hostname.em1");
        std::fs::write(&outside, "up\n").unwrap();
        router.reload("the configuration was replaced")?;
        until(SOON, || Ok(r.interfaces()?.contains(&"vport0".to_string())))?;
        assert_eq!(a.ping("10.0.1.3", 2)?.received, 2);
        for (name, text) in &JOINED[4..] {
            std::fs::write(folder.path().join(name), text).unwrap();
        }
        router.reload("the configuration was replaced")?;
        until(SOON, || Ok(ask_tcp(&a, FAR[0], 80)? == Said::You(OUTSIDE[0].parse().unwrap())))?;
        until(SOON, || Ok(!r.interfaces()?.contains(&"vport0".to_string())))?;
        end(router.process)?;

        // Rules can't be those of the router and of all that the switch passes.
        let veb = folder.path().join("hostname.veb0");
        std::fs::write(&veb, format!("{}link1\n", JOINED[0].1)).unwrap();
        for dry in [&["--dry-run"][..], &[]] {
            let refused = r.command([artery()?]).args(&words).args(dry).output()?;
            assert_eq!(refused.code(), Some(1));
            let said = refused.stdout + &refused.stderr;
            assert!(said.contains("hostname.veb0: "), "{said}");
            assert!(said.contains("hostname.em1 makes a router"), "{said}");
            assert!(said.contains("--switch veb0"), "{said}");
        }
        std::fs::write(&veb, JOINED[0].1).unwrap();
        // The remedy that it names: the switch alone, with the host at vport0, and em1 left to the host.
        let alone =
            [&["up", "--etc", &etc, "--switch", "veb0", "--lenient"][..], &["--map", "em0=eth0,em2=eth2"]]
                .concat();
        let mut switch = Running::spawn(&r, &alone)?;
        until_answered(&a, "10.0.1.3", &mut switch.process)?;
        assert!(r.interfaces()?.contains(&"vport0".to_string()));
        end(switch.process).map(drop)
    });
}

#[test]
fn the_example_of_the_documents_filters_as_a_folder_and_by_options_with_a_service() {
    artery_rig::test("folder-example", |rig: &Rig| {
        artery()?;
        let (a, b, r) = (rig.host("a")?, rig.host("b")?, rig.host("r")?);
        rig.link(&a, "eth0", &r, "eth0")?;
        rig.link(&b, "eth0", &r, "eth1")?;
        a.address("eth0", "192.168.7.2/24")?.route("default", "192.168.7.1")?;
        b.address("eth0", "198.51.100.1/24")?;
        let example = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../conf/firewall");
        let (etc, rules) = (example.display().to_string(), example.join("pf.conf").display().to_string());
        let log = tempfile::tempdir().unwrap();
        let log = log.path().join("pflog").display().to_string();
        let ports = [
            "--port",
            "eth0=192.168.7.1/24,2001:db8:7::1/64",
            "--port",
            "eth1=198.51.100.2/24,2001:db8::2/64",
        ];
        let routes = ["default=198.51.100.1", "::/0=2001:db8::1", "192.168.8.0/24=198.51.100.8"];
        let routes: Vec<&str> = routes.iter().flat_map(|route| ["--route", route]).collect();
        let service = ["--nat", "--service", "198.51.100.80:80/tcp=web1=192.168.7.2"];
        let by_options =
            [&["router"][..], &ports, &routes, &["--pf", &rules, "--pflog", &log], &service].concat();
        let as_folder = vec!["up", "--etc", &etc, "--pflog", &log];
        let (_inside, _outside) = (Mirror::start(&a, 80)?, Mirror::start(&b, 80)?);
        let (own, far) = ("198.51.100.2", "198.51.100.1");
        for words in [as_folder, by_options] {
            let mut router = Running::spawn(&r, &words)?;
            until_answered(&a, far, &mut router.process)?;
            assert_eq!(ask_tcp(&a, far, 80)?, Said::You(own.parse().unwrap()), "{words:?}");
            assert_eq!(ask_tcp(&b, own, 8080)?, Said::You(far.parse().unwrap()), "{words:?}");
            assert_eq!(ask_tcp(&b, own, 22)?, Said::Error(ErrorKind::ConnectionRefused), "{words:?}");
            assert_eq!(b.ping(own, 1)?.received, 1, "{words:?}");
            if words[0] == "router" {
                assert_eq!(ask_tcp(&b, "198.51.100.80", 80)?, Said::You(far.parse().unwrap()));
            }
            end(router.process)?;
        }
        Ok(())
    });
}
