//! Gateways that are watched by BFD: FRR and BIRD at the other end, whose path fails and comes back.

use super::gateways::{ALONE, FLOWS, Flows, GATEWAYS, Net, SHARED, with_gateways};
use super::net::{PORTS, Running, start_on};
use crate::support::until;
use artery_l3::router::link_local;
use artery_rig::{Daemons, Host, Process, Result, Signal};
use serde_json::Value;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// What a dead path takes at most: the sessions exchange packets every 50 ms, three of which may be missing.
const BOUND: Duration = Duration::from_millis(3 * 50 + 50);
/// How long anything may take on a machine that has other things to do.
const PATIENCE: Duration = Duration::from_secs(20);
/// The errors that senders get for a route without another gateway, by family.
const NO_WAY: [&str; 2] = ["Destination Net Unreachable", "No route"];

/// A router with routes by both gateways, and by the one that is to fail alone,
/// whose sessions have these neighbors.
struct Watched {
    router: Running,
    events: Process,
    family: usize,
    failing: usize,
}

impl Watched {
    fn start(net: &Net, family: usize, failing: usize, neighbors: &[String]) -> Result<Watched> {
        let len = if family == 0 { 32 } else { 128 };
        let routes = [
            format!("{}/{len}={}", SHARED[family], GATEWAYS[family].join(",")),
            format!("{}/{len}={}", ALONE[family], GATEWAYS[family][failing]),
        ];
        let sessions: Vec<String> = neighbors.iter().map(|neighbor| format!("{neighbor}=50ms*3")).collect();
        let routes = routes.iter().flat_map(|route| ["--route", route]);
        let sessions = sessions.iter().flat_map(|session| ["--bfd", session]);
        let options: Vec<&str> = PORTS.into_iter().chain(routes).chain(sessions).collect();
        let router = start_on(&net.r, &options)?;
        until(PATIENCE, || Ok(net.a.ping(ALONE[family], 1)?.received == 1))?;
        let events = router.command(&["watch", "--since", "0", "--json"])?.spawn()?;
        Ok(Watched { router, events, family, failing })
    }

    fn session(&self, peer: &str) -> Result<Value> {
        let document = self.router.json(&["show", "bfd"])?;
        let sessions = document["sessions"].as_array().unwrap();
        let one = sessions.iter().find(|session| session["peer"] == peer);
        Ok(one.unwrap_or_else(|| panic!("{peer}: {document:#}")).clone())
    }

    fn until_up(&self, peer: &str) -> Result<()> {
        until(PATIENCE, || {
            let session = self.session(peer)?;
            Ok(["state", "remote_state"].iter().all(|key| session[key] == "up")
                && session["detection_time_ms"] == 150.0)
        })?;
        let session = self.session(peer)?;
        for key in ["state", "remote_state", "path"] {
            assert_eq!(session[key], "up", "{session:#}");
        }
        assert_eq!(session["tx_interval_ms"], 50.0, "{session:#}");
        Ok(())
    }

    /// When a session was last reported as down, since midnight.
    fn went_down(&self, peer: &str) -> Option<Duration> {
        let said = self.events.stdout_so_far();
        let mut events = said.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        let is_it = |event: &Value| event["kind"] == "bfd" && event["what"] == "down" && event["dst"] == peer;
        events.rfind(is_it).and_then(|event| event["time"].as_str().map(since_midnight))
    }

    /// The path fails under load; routes leave it, and those that have no other gateway say so.
    fn fails(&self, net: &Net, flows: &mut Flows, fail: impl FnOnce() -> Result<()>) -> Result<()> {
        let (peer, lives) = (GATEWAYS[self.family][self.failing], 1 - self.failing);
        while flows.shares().iter().sum::<usize>() < FLOWS {
            assert!(flows.round < 100, "{:?}", flows.shares());
            flows.send();
        }
        let (before, kept) = (flows.round, flows.by(lives, flows.round));
        assert!(kept.len() > 2 && kept.len() < FLOWS - 2, "{kept:?}");
        let begun = now();
        fail()?;
        let died = now();
        let deadline = Instant::now() + PATIENCE;
        let down = loop {
            flows.send();
            if let Some(down) = self.went_down(peer) {
                break down;
            }
            assert!(Instant::now() < deadline, "{:#}", self.session(peer)?);
        };
        let took = [begun, died].map(|from| down.saturating_sub(from));
        println!(
            "family {}: down after {:?} to {:?}, where {BOUND:?} are allowed: {}",
            self.family,
            took[1],
            took[0],
            if took[1] <= BOUND { "kept" } else { "missed" },
        );
        flows.send();
        flows.send();
        let shares = flows.shares();
        assert_eq!((shares[lives], shares[self.failing]), (FLOWS, 0), "the others have taken over");
        for flow in &kept {
            let lost =
                (before..flows.round).filter(|round| !flows.arrived[flow][lives].contains(round)).count();
            assert_eq!(lost, 0, "flow {flow} goes by the gateway that lives");
        }
        let report = net.a.ping_with(ALONE[self.family], 1, &["-W", "1"])?;
        assert!(report.errors > 0 && report.text.contains(NO_WAY[self.family]), "{}", report.text);
        let drops = self.router.json(&["show", "drops"])?.to_string();
        assert!(drops.contains("next-hop-down"), "{drops}");
        let session = self.session(peer)?;
        assert_eq!((&session["path"], &session["flaps"]), (&"down".into(), &1.into()), "{session:#}");
        Ok(())
    }

    fn returns(&self, net: &Net, flows: &mut Flows) -> Result<()> {
        self.until_up(GATEWAYS[self.family][self.failing])?;
        until(PATIENCE, || Ok(net.a.ping(ALONE[self.family], 1)?.received == 1))?;
        until(PATIENCE, || {
            flows.send();
            let shares = flows.shares();
            Ok(shares[self.failing] > 2 && shares.iter().sum::<usize>() == FLOWS)
        })
    }
}

/// The time of day, in UTC.
fn now() -> Duration {
    let time = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    Duration::new(time.as_secs() % 86_400, time.subsec_nanos())
}

/// Of a time such as `2026-01-02T03:04:05.678901Z`.
fn since_midnight(time: &str) -> Duration {
    let (_, clock) = time.trim_end_matches('Z').split_once('T').unwrap();
    let seconds = clock.split(':').fold(0.0, |sum, part| sum * 60.0 + part.parse::<f64>().unwrap());
    Duration::from_secs_f64(seconds)
}

/// The link-local address of an interface.
fn local(host: &Host, interface: &str) -> Result<String> {
    Ok(link_local(host.mac(interface)?.parse().unwrap()).to_string())
}

/// FRR on the first gateway, with a session by each of these addresses: the router's, and its own.
fn frr(host: &Host, sessions: &[[&str; 2]]) -> Result<Daemons> {
    let peer = |[to, from]: &[&str; 2]| {
        format!(
            " peer {to} local-address {from} interface eth0\n  detect-multiplier 3\n  receive-interval 50\n  \
             transmit-interval 50\n  no shutdown\n !\n"
        )
    };
    let config: String = sessions.iter().map(peer).collect();
    Daemons::frr(host, &[("bfdd", &format!("bfd\n{config}!\n"))])
}

/// BIRD on the second gateway.
fn bird(host: &Host) -> Result<Daemons> {
    Daemons::bird(
        host,
        "router id 10.0.2.12;\nprotocol device { }\nprotocol bfd {\
         \n interface \"eth0\" { interval 50 ms; multiplier 3; };\
         \n neighbor 10.0.2.1 dev \"eth0\" local 10.0.2.12;\
         \n neighbor fd00:2::1 dev \"eth0\" local fd00:2::12;\n}\n",
    )
}

#[test]
fn a_path_to_frr_that_is_cut_is_left_and_taken_again() {
    with_gateways("command-bfd-frr", |net| {
        let [own, theirs] = [local(&net.r, "eth1")?, local(&net.gateways[0], "eth0")?];
        let _frr = frr(
            &net.gateways[0],
            &[["10.0.2.1", "10.0.2.11"], ["fd00:2::1", "fd00:2::11"], [&own, &theirs]],
        )?;
        let neighbors = ["10.0.2.11".to_string(), "fd00:2::11".to_string(), format!("{theirs}%eth1")];
        let mut watched = Watched::start(net, 0, 0, &neighbors)?;
        for peer in ["10.0.2.11", "fd00:2::11", &theirs] {
            watched.until_up(peer)?;
        }
        let table = watched.router.say(&["show", "bfd"])?;
        assert!(table.starts_with("PEER ") && table.lines().count() == 4, "{table}");
        println!("{table}");
        let mut flows = Flows::new(net, 0)?;
        // The first port of the switch, number 1, is the router's: its carrier stays.
        watched.fails(net, &mut flows, || net.switch.host().down("port2").map(drop))?;
        // A reload neither forgets that the path is down, nor takes it for up.
        let before = watched.session("10.0.2.11")?;
        watched.router.process.signal(Signal::HUP);
        std::thread::sleep(Duration::from_secs(1));
        let after = watched.session("10.0.2.11")?;
        for key in ["discriminator", "flaps", "path"] {
            assert_eq!(before[key], after[key], "{after:#}");
        }
        assert!(net.a.ping_with(ALONE[0], 1, &["-W", "1"])?.errors > 0);
        net.switch.host().up("port2")?;
        watched.returns(net, &mut flows)
    });
}

#[test]
fn a_path_whose_bird_is_killed_is_left_and_taken_again() {
    with_gateways("command-bfd-bird", |net| {
        let mut daemons = bird(&net.gateways[1])?;
        let neighbors = ["10.0.2.12", "fd00:2::12"].map(str::to_string);
        let watched = Watched::start(net, 1, 1, &neighbors)?;
        neighbors.iter().try_for_each(|peer| watched.until_up(peer))?;
        let mut flows = Flows::new(net, 1)?;
        watched.fails(net, &mut flows, || {
            daemons.kill();
            Ok(())
        })?;
        let _again = bird(&net.gateways[1])?;
        watched.returns(net, &mut flows)
    });
}

#[test]
fn a_neighbor_that_is_shut_down_or_was_never_up_keeps_its_routes() {
    with_gateways("command-bfd-admin", |net| {
        let frr = frr(&net.gateways[0], &[["10.0.2.1", "10.0.2.11"]])?;
        // The second gateway doesn't run BFD.
        let neighbors = ["10.0.2.11", "10.0.2.12"].map(str::to_string);
        let watched = Watched::start(net, 0, 0, &neighbors)?;
        watched.until_up("10.0.2.11")?;
        let peer = "peer 10.0.2.1 local-address 10.0.2.11 interface eth0";
        frr.vtysh(&["configure terminal", "bfd", peer, "shutdown"])?;
        until(PATIENCE, || Ok(watched.session("10.0.2.11")?["remote_state"] == "admin-down"))?;
        let session = watched.session("10.0.2.11")?;
        assert_eq!((&session["state"], &session["path"]), (&"down".into(), &"unknown".into()), "{session:#}");
        assert_eq!(net.a.ping(ALONE[0], 3)?.received, 3);
        assert_eq!(watched.session("10.0.2.12")?["path"], "unknown");
        let hops = watched.router.json(&["show", "nexthops"])?.to_string();
        assert!(!hops.contains("\"down\""), "{hops}");
        frr.vtysh(&["configure terminal", "bfd", peer, "no shutdown"])?;
        watched.until_up("10.0.2.11")
    });
}
