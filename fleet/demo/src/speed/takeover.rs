//! Three balancers under connections, long and short: members change, one balancer's router is killed and
//! comes back, another one leaves and comes back, and all three are replaced one after the other.
//!
//! Resets and losses are those of connections to members that live; `unmirrored` are counted apart.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::Result;
use artery_rig::{Host, Process, Rig};

use super::usage::Processors;
use super::{Figure, figure, least, most};
use crate::balancers::{Balancers, Client, Programs, Setup};
use crate::clients::{ShortConnections, open_all};
use crate::long::{LongConnections, Tally};
use crate::network::Network;
use crate::routing::Routing;

/// Servers that are members after the changes: 1 is drained, 4 has failed, 5 was removed, 6 was added.
const LIVING: [u8; 4] = [1, 2, 3, 6];
const GONE: [u8; 2] = [4, 5];
/// Threads of short connections for each of 20 addresses, and how often each begins one: 1,200 a second.
const THREADS: usize = 3;
const PERIOD: Duration = Duration::from_millis(50);

pub(super) fn measure(programs: &Programs, connections: usize, runs: usize) -> Result<Vec<Vec<Figure>>> {
    (0..runs).map(|_| run(programs, connections)).collect()
}

/// What stands while a run lasts.
struct Scene {
    network: Network,
    servers: Vec<Option<Process>>,
    balancers: Balancers,
    routing: Routing,
    long: LongConnections,
    short: ShortConnections,
}

fn run(programs: &Programs, connections: usize) -> Result<Vec<Figure>> {
    let rig = Rig::new("fleet-takeover")?;
    let mut scene = Scene::open(&rig, programs, connections)?;
    let mut figures = scene.change_members(connections)?;
    figures.extend(scene.kill_and_return()?);
    figures.extend(scene.leave_and_return()?);
    figures.extend(scene.upgrade()?);
    Ok(figures)
}

impl Scene {
    fn open(rig: &Rig, programs: &Programs, connections: usize) -> Result<Scene> {
        let network = Network::create(rig)?;
        let program = std::env::current_exe()?;
        // Each is a process, since one may not have enough files for both ends of all connections.
        let serve = |(host, number): (&Host, u8)| {
            let command = host.command([program.as_os_str(), "serve".as_ref()]);
            Ok(Some(command.arg(number.to_string()).spawn()?))
        };
        let servers = network.servers.iter().zip(1..).map(serve).collect::<Result<Vec<_>>>()?;
        let members = (1..=5).map(|member| (member, 1)).collect();
        let setup = Setup { method: "maglev", is_mirrored: true, is_checked: true, members };
        let balancers = Balancers::start(&network, programs, setup)?;
        let routing = Routing::start(&network)?;
        routing.wait_for_spread(&[1, 2, 3])?;
        balancers.wait_for_peers()?;
        let long = LongConnections::start()?;
        long.add(open_all(&network.client, connections)?);
        let short = ShortConnections::start(&network.client, THREADS, PERIOD);
        Ok(Scene { network, servers, balancers, routing, long, short })
    }

    /// One member is added, one removed, one set to weight 0, and one fails. Connections to those that are
    /// gone end, and others take their place.
    fn change_members(&mut self, connections: usize) -> Result<Vec<Figure>> {
        self.balancers.add_member(6)?;
        self.balancers.remove_member(5)?;
        self.balancers.drain_member(1)?;
        self.servers[3] = None;
        self.balancers.wait_until_down(4)?;
        let tally = self.long.settle();
        let ended = tally.harmed(&GONE);
        self.long.add(open_all(&self.network.client, connections.saturating_sub(self.long.open()))?);
        let exceptions = self.balancers.wait_for_exceptions()?;
        self.long.settle();
        self.short.report();
        let share = |count: usize, of: f64| 100.0 * count as f64 / of;
        let open = self.long.open() as f64;
        Ok(vec![
            least("open connections", open, connections as f64),
            least("exceptions of all open connections, %", share(exceptions.iter().sum(), open), 5.0),
            figure("exceptions at the machine that is killed", exceptions[1] as f64),
            figure(
                "changes: ended with their member, gone or failed",
                (ended[0].len() + ended[1].len()) as f64,
            ),
            most("changes: resets and losses, living members", harmed(&tally), 0.0),
        ])
    }

    fn kill_and_return(&mut self) -> Result<Vec<Figure>> {
        let unmirrored = self.balancers.unmirrored(2)?;
        let processors = Processors::begin()?;
        self.balancers.kill(2);
        let blackout = self.routing.wait_for_spread(&[1, 3])?;
        let tally = self.long.settle();
        let (busy, seconds, short) = (processors.busy()?, processors.elapsed(), self.short.report());
        let [resets, lost] = tally.harmed(&LIVING);
        let is_unmirrored = |clients: &BTreeSet<Client>| clients.intersection(&unmirrored).count() as f64;
        let mut figures = vec![
            most("kill -9: until the front router sends nothing there, s", blackout.as_secs_f64(), 1.0),
            most(
                "kill -9: resets, living members, mirrored",
                resets.len() as f64 - is_unmirrored(&resets),
                0.0,
            ),
            most("kill -9: lost, living members, mirrored", lost.len() as f64 - is_unmirrored(&lost), 0.0),
            figure("kill -9: unmirrored exceptions just before", unmirrored.len() as f64),
            figure("kill -9: resets and losses of unmirrored", is_unmirrored(&resets) + is_unmirrored(&lost)),
            figure("kill -9: longest wait for an answer, s", tally.longest.as_secs_f64()),
            least("kill -9: new connections a second", short.all as f64 / seconds.as_secs_f64(), 1000.0),
            figure("kill -9: of them failed", short.failed as f64),
            figure("kill -9: longest new connection, s", short.longest.as_secs_f64()),
            figure("kill -9: processors busy", busy),
        ];
        self.balancers.start_router(2)?;
        self.routing.wait_for_spread(&[1, 2, 3])?;
        self.balancers.wait_for_peers()?;
        figures
            .extend(self.figures_of("failback: resets and losses", "failback: new connections that failed"));
        Ok(figures)
    }

    fn leave_and_return(&mut self) -> Result<Vec<Figure>> {
        self.replace(3)?;
        Ok(self
            .figures_of("planned leave and return: resets and losses", "planned leave: new ones that failed"))
    }

    fn upgrade(&mut self) -> Result<Vec<Figure>> {
        (1..=3).try_for_each(|number| self.replace(number))?;
        Ok(self.figures_of("upgrade of all three: resets and losses", "upgrade: new ones that failed"))
    }

    /// Has a balancer leave, and starts both of its programs again.
    fn replace(&mut self, number: u8) -> Result<()> {
        self.balancers.leave(number)?;
        let others: Vec<u8> = (1..=3).filter(|other| *other != number).collect();
        self.routing.wait_for_spread(&others)?;
        self.balancers.kill(number);
        self.balancers.start_router(number)?;
        self.balancers.start_fleet(number)?;
        self.routing.wait_for_spread(&[1, 2, 3])?;
        self.balancers.wait_for_peers()
    }

    fn figures_of(&self, name: &'static str, short: &'static str) -> Vec<Figure> {
        let tally = self.long.settle();
        vec![most(name, harmed(&tally), 0.0), most(short, self.short.report().failed as f64, 0.0)]
    }
}

fn harmed(tally: &Tally) -> f64 {
    let [resets, lost] = tally.harmed(&LIVING);
    (resets.len() + lost.len()) as f64
}
