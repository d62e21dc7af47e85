//! Routes by BGP: FRR on the front router, BIRD on each balancer. BIRD announces the service, with the
//! balancer's address on the router's network as next hop, while `artery-fleet` has put its address on `lo`.

use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use artery_rig::{Daemons, Host};

use crate::network::{BALANCERS, FRONT, Network, SERVICE, balancer};

/// How long BGP and `artery-fleet` may take.
const LIMIT: Duration = Duration::from_secs(60);

/// The daemons, which end when this is dropped.
pub(crate) struct Routing {
    front: Host,
    _daemons: Vec<Daemons>,
}

impl Routing {
    pub(crate) fn start(network: &Network) -> Result<Routing> {
        let mut daemons = vec![Daemons::frr(&network.front, &[("bgpd", &front())])?];
        for (host, number) in network.balancers.iter().zip(1..) {
            daemons.push(Daemons::bird(host, &announcer(number))?);
        }
        Ok(Routing { front: network.front.clone(), _daemons: daemons })
    }

    /// Waits until the front router spreads flows over these balancers, and says how long that took.
    pub(crate) fn wait_for_spread(&self, balancers: &[u8]) -> Result<Duration> {
        let begun = Instant::now();
        while self.gateways()? != balancers {
            if begun.elapsed() > LIMIT {
                bail!("the front router sends flows to {:?}, not to {balancers:?}", self.gateways()?);
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        Ok(begun.elapsed())
    }

    /// The balancers that the kernel's route of the service leads to.
    fn gateways(&self) -> Result<Vec<u8>> {
        let routes = self.front.run(["ip", "route", "show", SERVICE])?.stdout;
        let has = |number: &u8| routes.split_whitespace().any(|word| word == balancer(*number, 1));
        Ok((1..=BALANCERS).filter(has).collect())
    }
}

fn front() -> String {
    let neighbor = |number: u8| {
        let address = balancer(number, 3);
        format!(" neighbor {address} remote-as 6500{number}\n neighbor {address} timers connect 1\n")
    };
    let neighbors: String = (1..=BALANCERS).map(neighbor).collect();
    format!(
        "router bgp 65000\n bgp router-id {FRONT}\n no bgp ebgp-requires-policy\n \
         bgp bestpath as-path multipath-relax\n timers bgp 1 3\n{neighbors} \
         address-family ipv4 unicast\n  maximum-paths 8\n exit-address-family\n"
    )
}

fn announcer(number: u8) -> String {
    let (own, next_hop) = (balancer(number, 3), balancer(number, 1));
    format!(
        "log stderr all; router id {own}; protocol device {{ scan time 1; }}
        protocol direct {{ ipv4; interface \"lo\"; }}
        protocol bgp {{ local {own} as 6500{number}; neighbor {FRONT} as 65000;
            connect delay time 1; connect retry time 1; error wait time 1, 2; hold time 3;
            ipv4 {{ import none; export filter {{
                if net = {SERVICE}/32 then {{ bgp_next_hop = {next_hop}; accept; }}
                reject;
            }}; }}; }}\n"
    )
}
