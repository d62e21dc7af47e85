//! Routes of FRR: zebra and staticd on the router's host, by zebra's module dplane_fpm_nl.

use super::fpm::source;
use super::net::{FAR, NEAR, Net, Running, on_the_net};
use crate::support::{SOON, until};
use artery_rig::{Daemons, Result, Skip};

/// Where Debian keeps zebra's modules.
const MODULES: &str = "/usr/lib/x86_64-linux-gnu/frr/modules";
/// zebra connects again three seconds after it lost its connection, and sends everything.
const RECONNECT: std::time::Duration = std::time::Duration::from_secs(30);

/// Starts zebra and staticd.
fn frr(net: &Net, groups: bool, statics: &[&str]) -> Result<Daemons> {
    let folders = std::fs::read_dir("/usr/lib").into_iter().flatten().flatten();
    let mut modules = folders.map(|folder| folder.path().join("frr/modules/dplane_fpm_nl.so"));
    if !modules.any(|module| module.exists()) && !std::path::Path::new(MODULES).exists() {
        return Err(Skip::MissingTool("dplane_fpm_nl of FRR".into()).into());
    }
    let no = if groups { "" } else { "no " };
    let zebra = format!("fpm address 127.0.0.1 port 2620\n{no}fpm use-next-hop-groups\n");
    let statics = statics.iter().map(|route| format!("{route}\n")).collect::<String>();
    Daemons::frr_with(&net.r, (&zebra, &["-M", "dplane_fpm_nl"]), &[("staticd", &statics)])
}

fn until_source(router: &Running, to: &str, gateways: Option<&[&str]>) -> Result<()> {
    let wanted = gateways.map(|gateways| {
        ("zstatic".to_string(), gateways.iter().map(ToString::to_string).collect::<Vec<String>>())
    });
    let mut last = None;
    let deadline = std::time::Instant::now() + RECONNECT;
    while source(router, to)? != wanted {
        last = source(router, to)?;
        if std::time::Instant::now() > deadline {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    let fpm = router.say(&["show", "fpm"])?;
    assert!(source(router, to)? == wanted, "{to}: {last:?}, not {wanted:?}; {fpm}");
    Ok(())
}

fn routes_of_frr(label: &str, groups: bool) {
    on_the_net(label, |net| {
        for last in 1..=2 {
            net.b
                .address("lo", &format!("10.9.{last}.1/32"))?
                .address("lo", &format!("fd09:{last}::1/128"))?;
        }
        let router = Running::start(net, &["--fpm", "--fpm-hold", "3"])?;
        let statics = ["ip route 10.9.1.0/24 10.0.2.2", "ipv6 route fd09:1::/48 fd00:2::2"];
        let frr = frr(net, groups, &statics)?;
        until_source(&router, "10.9.1.0/24", Some(&[FAR[0]]))?;
        until_source(&router, "fd09:1::/48", Some(&[FAR[1]]))?;
        for address in ["10.9.1.1", "fd09:1::1"] {
            router.assert_pings(&net.a, address)?;
        }
        // Several gateways, added one by one; replaced; removed.
        let two = ["configure", "ip route 10.9.2.0/24 10.0.2.2", "ip route 10.9.2.0/24 10.0.1.2"];
        frr.vtysh(&two)?;
        until_source(&router, "10.9.2.0/24", Some(&[NEAR[0], FAR[0]]))?;
        frr.vtysh(&["configure", "no ip route 10.9.2.0/24 10.0.1.2"])?;
        until_source(&router, "10.9.2.0/24", Some(&[FAR[0]]))?;
        router.assert_pings(&net.a, "10.9.2.1")?;
        frr.vtysh(&["configure", "ip route 10.9.2.0/24 10.0.2.3", "no ip route 10.9.2.0/24 10.0.2.2"])?;
        until_source(&router, "10.9.2.0/24", Some(&["10.0.2.3"]))?;
        frr.vtysh(&["configure", "no ip route 10.9.2.0/24 10.0.2.3", "ip route 10.9.3.0/24 blackhole"])?;
        until_source(&router, "10.9.2.0/24", None)?;
        until(SOON, || {
            let shown = super::fpm::shown(&router, "10.9.3.0/24")?;
            Ok(shown.is_some_and(|route| route["type"] == "blackhole"))
        })?;
        let fpm = router.json(&["show", "fpm"])?;
        assert_eq!(fpm["routes"]["refused"], 0, "{fpm}");
        let groups_of_frr = fpm["messages"]["next_hops"].as_u64().unwrap();
        assert_eq!(groups_of_frr > 0, groups, "{fpm}");
        // FRR ends, and comes back without one of its routes.
        drop(frr);
        router.process.wait_for("kept as stale", SOON)?;
        router.assert_pings(&net.a, "10.9.1.1")?;
        // What it left in the kernel it would read there, and send again.
        net.r.run(["ip", "route", "del", "10.9.1.0/24"])?;
        let _frr = self::frr(net, groups, &statics[1..])?;
        router.process.wait_for("removed: not sent again by the peer", RECONNECT)?;
        until_source(&router, "10.9.1.0/24", None)?;
        until_source(&router, "fd09:1::/48", Some(&[FAR[1]]))?;
        router.assert_pings(&net.a, "fd09:1::1")?;
        Ok(())
    });
}

#[test]
fn static_routes_of_frr_arrive_with_next_hop_groups_and_packets_follow_them() {
    routes_of_frr("fpm-frr-groups", true);
}

#[test]
fn static_routes_of_frr_arrive_without_next_hop_groups_and_packets_follow_them() {
    routes_of_frr("fpm-frr-plain", false);
}
