//! Settings of ports: the longest packet, the check of sources, and gateways outside the port's networks.
use super::net::{on_the_net, start_on};
use crate::support::{SOON, end, until, until_answered};
use artery_rig::program::artery;

#[test]
fn a_port_keeps_to_its_mtu_checks_sources_and_has_gateways_outside_its_networks() {
    on_the_net("command-port-settings", |net| {
        let ports = ["--port", "eth0=10.0.1.1/24,rpf=strict", "--port", "eth1=10.0.2.1/24,mtu=1400,onlink"];
        // A gateway in no network of the port, which is `b` all the same.
        net.b.address("eth0", "10.77.0.9/32")?.address("lo", "10.9.0.1/32")?;
        let route = ["--route", "10.9.0.0/16=10.77.0.9%eth1"];
        let mut router = start_on(&net.r, &[&ports[..], &route].concat())?;
        until_answered(&net.a, "10.0.2.2", &mut router.process)?;
        assert_eq!(net.a.ping("10.0.2.2", 2)?.received, 2);
        assert_eq!(net.a.ping("10.9.0.1", 2)?.received, 2, "by the gateway");
        // 1400 bytes with both headers fit. One more is too long, and the sender gets an ICMP error.
        let ping =
            |bytes: &str| net.a.command(["ping", "-c1", "-W2", "-Mdo", "-s", bytes, "10.0.2.2"]).output();
        assert!(ping("1372")?.succeeded());
        let outcome = ping("1373")?;
        assert!(!outcome.succeeded(), "{outcome:?}");
        assert!(format!("{}{}", outcome.stdout, outcome.stderr).contains("mtu = 1400"), "{outcome:?}");
        // The interface's MTU counts where it is smaller, and never lifts the port's.
        let known = |bytes: u64| {
            until(SOON, || {
                let ports: serde_json::Value =
                    serde_json::from_str(&router.say(&["show", "ports", "--json"])?).unwrap();
                Ok(ports["ports"][1]["mtu"] == bytes)
            })
        };
        for (carried, counts) in [(1300, 1300), (1450, 1400), (1500, 1400), (1399, 1399), (1500, 1400)] {
            net.r.mtu("eth1", carried)?;
            known(counts)?;
        }
        let drops = || router.say(&["show", "drops"]);
        assert!(!drops()?.contains("reverse-path"), "{}", drops()?);
        // Its own network is not behind the port that it comes by.
        net.a.address("lo", "10.0.2.99/32")?;
        let strange = net.a.command(["ping", "-c1", "-W1", "-I", "10.0.2.99", "10.0.2.2"]).output()?;
        assert!(!strange.succeeded());
        assert!(drops()?.contains("reverse-path"), "{}", drops()?);
        end(router.process)?;
        let refused =
            net.r.command([artery()?]).args(["router", "--port", "eth1=10.0.2.1/24,mtu=1600"]).output()?;
        let expected = "mtu=1600: eth1 carries 1500 bytes; 'ip link set eth1 mtu 1600'";
        assert!(refused.stderr.contains(expected), "{refused:?}");
        Ok(())
    });
}
