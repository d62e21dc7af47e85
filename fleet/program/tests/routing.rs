//! The network by FRR and BIRD: a front router learns the service by BGP from each machine that is announced,
//! and spreads flows over these (ECMP). Machine m1 has FRR (`redistribute connected`), m2 BIRD
//! (`protocol direct`). It needs root, both of them, and the program of the router: `$ARTERY`, or
//! `target/debug/artery`.
#![allow(unreachable_pub, missing_docs, dead_code, reason = "of a test program")]

#[path = "support/lab.rs"]
mod lab;
mod support;

use artery_rig::{Daemons, Host, Result, Signal};
use lab::{Lab, SERVICE, address, await_withdrawal, is_announced, time_until};
use support::{artery, skip, wait_for};

/// The front router, as a machine of its network.
const FRONT: usize = 254;

/// The daemons of the front router.
fn front(host: &Host) -> Result<Daemons> {
    let neighbor = |number: usize| {
        let address = address(number);
        format!(" neighbor {address} remote-as 6500{number}\n neighbor {address} timers connect 1\n")
    };
    let config = format!(
        "router bgp 65000\n bgp router-id {}\n no bgp ebgp-requires-policy\n \
         bgp bestpath as-path multipath-relax\n timers bgp 1 3\n{}{} address-family ipv4 unicast\n  \
         maximum-paths 8\n exit-address-family\n",
        address(FRONT),
        neighbor(1),
        neighbor(2),
    );
    Daemons::frr(host, &[("bgpd", &config)])
}

/// FRR of docs/fleet.md: addresses of interfaces, and of these the service's alone. BIRD's routes have the
/// origin IGP, too; without it the front router would use them alone.
fn machine_by_frr(host: &Host, number: usize) -> Result<Daemons> {
    let front = address(FRONT);
    let config = format!(
        "ip prefix-list service permit {SERVICE}/32\n\
         route-map service permit 10\n match ip address prefix-list service\n \
         set origin igp\n\
         router bgp 6500{number}\n bgp router-id {}\n no bgp ebgp-requires-policy\n timers bgp 1 3\n \
         neighbor {front} remote-as 65000\n neighbor {front} timers connect 1\n \
         address-family ipv4 unicast\n  redistribute connected route-map service\n exit-address-family\n",
        address(number),
    );
    Daemons::frr(host, &[("bgpd", &config)])
}

/// A machine with BIRD as docs/fleet.md has it.
fn machine_by_bird(host: &Host, number: usize) -> Result<Daemons> {
    let (own, front) = (address(number), address(FRONT));
    let config = format!(
        "log stderr all; router id {own}; protocol device {{ scan time 1; }}
        protocol direct {{ ipv4; interface \"lo\"; }}
        protocol bgp {{ local {own} as 6500{number}; neighbor {front} as 65000;
            connect delay time 1; connect retry time 1; error wait time 1, 2; hold time 3;
            ipv4 {{ import none; export where net = {SERVICE}/32; }}; }}\n"
    );
    Daemons::bird(host, &config)
}

/// Numbers of the machines that the front router sends the service's packets to, by its kernel.
fn gateways(front: &Host) -> Result<Vec<usize>> {
    let routes = front.run(["ip", "route", "show", SERVICE])?.stdout;
    let has = |number: &usize| {
        let gateway = address(*number);
        routes.split_whitespace().any(|word| word == gateway)
    };
    Ok([1, 2].into_iter().filter(has).collect())
}

#[test]
fn a_front_router_learns_the_service_from_machines_that_are_announced_alone() {
    let Some(program) = artery() else { return skip("no router; set ARTERY to its program") };
    artery_rig::test("fleet-routing", |rig| {
        let lab = Lab::new(rig, &program, 2)?;
        let front_host = rig.host("front")?;
        rig.plug(&front_host, "eth0", &lab.switch)?;
        front_host.address("eth0", &format!("{}/24", address(FRONT)))?;
        let _front = front(&front_host)?;
        let settings = format!("addresses = [\"{SERVICE}/32\"]\nsettle_seconds = 1");
        let mut machines = [lab.machine(1, &settings)?, lab.machine(2, &settings)?];
        let _daemons = (machine_by_frr(&machines[0].host, 1)?, machine_by_bird(&machines[1].host, 2)?);
        let becomes = |what: &str, wanted: &[usize]| {
            time_until(what, || Ok(gateways(&front_host)? == wanted)).map(drop)
        };
        becomes("both machines", &[1, 2])?;

        for (at, daemon) in ["FRR", "BIRD"].iter().enumerate() {
            let (number, others) = (at + 1, [2 - at]);
            machines[at].router.stop();
            let what = format!("router of m{number} killed, front router's route by {daemon} gone");
            await_withdrawal(&what, || Ok(gateways(&front_host)? == others))?;
            machines[at].router = lab.router(number);
            becomes("the return", &[1, 2])?;
            machines[at].router.signal(Signal::STOP);
            let what =
                format!("router of m{number} stopped (SIGSTOP), front router's route by {daemon} gone");
            await_withdrawal(&what, || Ok(gateways(&front_host)? == others))?;
            machines[at].router.signal(Signal::CONT);
            becomes("the return", &[1, 2])?;
            // Without artery-fleet nothing changes; another one takes over.
            machines[at].fleet.stop();
            std::thread::sleep(std::time::Duration::from_secs(1));
            assert_eq!(gateways(&front_host)?, [1, 2]);
            machines[at].fleet = lab.fleet(number, &machines[at].router, &settings);
            wait_for("the take-over", || machines[at].fleet.announcement(), |state| state == "announced");
        }
        for at in [0, 1] {
            let number = at + 1;
            let (fleet, others) = (&mut machines[at].fleet, [2 - at]);
            fleet.await_peer(&lab::name(others[0]));
            assert!(fleet.leave(&[]).status.success());
            assert_eq!(gateways(&front_host)?, others, "it left when the network had heard of it");
            machines[at].fleet = lab.fleet(number, &machines[at].router, &settings);
            becomes("the return of the leaver", &[1, 2])?;
            assert!(is_announced(&machines[at].host)?);
        }
        Ok(())
    });
}
