use super::claims::Claims;
use super::limits::Rate;
use super::shared::{NamedRouters, SharedRouter};
use super::slow::{Job, Settings, Slow, Together};
use super::verdict::Origin;
use super::{config, handlers};
use crate::chance::Chance;
use artery_engine::names::Names;
use artery_engine::{
    Arg, ArgError, Args, Batch, Class, Context, DropReason, Element, HandlerError, Phase, StartError,
};
use artery_table::PortId;
use artery_table::neighbor::claim::ClaimSettings;
use std::any::Any;
use std::sync::Arc;

pub static CLASS: Class = Class {
    name: "IPRouter",
    group: "router",
    summary: "holds the ports, routes and neighbors of a router",
    manual: "
Holds what IPForward, IP6Forward, LookupNextHop and LinkHeader go by. Ports are numbered in the order of PORT, from 0.
Input I and output I belong to port I; an output behind them leads to the host.

PORT is `NAME ADDRESS/LENGTH… [ETHER ADDRESS] [MTU BYTES]`. Without ETHER, NAME is an interface of this machine, which has
an address.
NEIGHBOR is `PORT ADDRESS ETHER`: a neighbor that need not be asked for. ROUTE is `PREFIX WAY…`, where a way is the address
of a gateway, the name of a port, or one of `blackhole`, `unreachable` and `prohibited`; several gateways share packets.
TABLE is `FILE [GATEWAY…]`: routes from a file, as text or an MRT dump; those of which it does not say where they lead
are dealt out to the gateways. What ROUTE says goes before that.",
    example: "ip :: IPRouter(PORT eth1 10.0.1.1/24 ETHER 2:0:0:0:0:1, PORT eth2 10.0.2.1/24 ETHER 2:0:0:0:0:2,
    NEIGHBOR eth2 10.0.2.254 2:0:0:0:2:fe, ROUTE 0.0.0.0/0 10.0.2.254);
f4 :: IPForward(ip);
Idle -> f4; Idle -> [1] f4;
f4[0] -> Discard; f4[1] -> Discard;
f4[2] -> odd :: PaintSwitch; odd[0] -> ip; odd[1] -> [1] ip;
ip[0] -> Discard; ip[1] -> Discard; ip[2] -> Discard;",
    ports: "-/-",
    processing: "h/h",
    args: &[
        Arg::keyword("PORT", "name, addresses", "", "a port; any number of them"),
        Arg::keyword("ROUTE", "prefix, ways", "", "a route; any number of them"),
        Arg::keyword("NEIGHBOR", "port, IP address, Ethernet address", "", "a neighbor; any number of them"),
        Arg::keyword("TABLE", "file, gateways", "", "a file of routes; any number of them"),
        Arg::keyword("HOST", "Ethernet address", "", "the host's station, for packets to the router that it does not answer itself"),
        Arg::keyword("ACD", "bool", "false", "whether IPv4 addresses are used only when nobody else has them (RFC 5227)"),
        Arg::keyword("DAD", "bool", "true", "whether IPv6 addresses are used only when nobody else has them (RFC 4862)"),
        Arg::keyword("HOLD", "packets", "16", "most packets that wait for one neighbor, on each worker"),
        Arg::keyword("HOLD_ALL", "packets", "1024", "most packets that wait for neighbors in all"),
        Arg::keyword("ICMP_RATE", "errors per second", "1000", "most errors, redirects and echo replies in all"),
        Arg::keyword("ICMP_EACH", "errors per second", "100", "most of them to one destination"),
        Arg::keyword("MESSAGE_RATE", "messages per second", "10000", "most ARP and ND messages that are looked at; those that packets wait for always are"),
    ],
    handlers: handlers::HANDLERS,
    // Others look for it while they are made.
    phase: Phase::Info,
    per_worker: true,
    // What is cut, quoted or answered is a packet as it goes over a wire.
    finished: true,
    build: |args| Ok(Box::new(IpRouter::new(args)?)),
    ..Class::DEFAULT
};

/// The router on one worker.
pub(super) struct IpRouter {
    pub(super) router: Arc<SharedRouter>,
    /// For addresses that handlers write.
    pub(super) names: Names,
    pub(super) slow: Slow,
}

impl IpRouter {
    fn new(args: &mut Args<'_>) -> Result<IpRouter, ArgError> {
        let names = args.names().clone();
        let router = match args.already_shared::<SharedRouter>() {
            Some(router) => router,
            None => {
                let router = SharedRouter::new(args.name(), config::tables(args)?);
                let router = args.shared(|| router);
                args.resource::<NamedRouters>().put(&router);
                router
            }
        };
        let (least, most) = (router.ports(), router.ports() + 1);
        if args.inputs() > most || args.outputs() > most {
            let why = format!("{least} ports have as many inputs and outputs, and the host one of each");
            return Err(ArgError::wrong(why));
        }
        let slow = slow(args)?;
        Ok(IpRouter { router, names, slow })
    }

    /// What the slow path has counted: of this name, or all, a line each.
    pub(super) fn counts(&self, name: &str) -> Result<String, HandlerError> {
        let counters = self.slow.together.counters();
        if name.is_empty() {
            return Ok(counters.named().map(|(name, count)| format!("{name} {count}\n")).collect());
        }
        let found = counters.named().find(|(other, _)| *other == name);
        found.map(|(_, count)| count.to_string()).ok_or_else(|| HandlerError::refused(format!("nothing is counted as '{name}'")))
    }

    /// Does what follows from a change of the tables.
    pub(super) fn tables_changed(&mut self, cx: &mut Context<'_>) {
        self.work(cx, |slow, job| slow.change(job, |_, _, _| ()));
    }

    /// Lets the slow path do something, and says when it has more to do.
    pub(super) fn work<T>(&mut self, cx: &mut Context<'_>, what: impl FnOnce(&mut Slow, &mut Job<'_, '_>) -> T) -> T {
        let router = self.router.clone();
        let mut job = Job::new(&router, cx);
        let done = what(&mut self.slow, &mut job);
        self.slow.wake(&mut job);
        done
    }
}

/// The slow path as the arguments describe it.
fn slow(args: &mut Args<'_>) -> Result<Slow, ArgError> {
    let rate = |per_second: u32, burst: u32| Rate { per_second, burst: per_second.min(burst) };
    let each = args.read("ICMP_EACH")?;
    let settings = Settings {
        host: args.read("HOST")?,
        hold: args.read("HOLD")?,
        icmp: rate(args.read("ICMP_RATE")?, 100),
        icmp_each: rate(each, each),
        messages: rate(args.read("MESSAGE_RATE")?, 1000),
        asks: rate(args.read("MESSAGE_RATE")?, 1000),
    };
    let (acd, dad, hold): (bool, bool, usize) = (args.read("ACD")?, args.read("DAD")?, args.read("HOLD_ALL")?);
    let claimed = |settings: ClaimSettings, probes: bool| if probes { settings } else { settings.without_probes() };
    let seed = args.resource::<Chance>().bits();
    let claims = Claims::new(claimed(ClaimSettings::arp(), acd), claimed(ClaimSettings::nd(), dad), seed);
    let together = args.shared(|| Together::new(claims, hold));
    let workers = args.copy().1;
    Ok(Slow::new(settings, &together, workers, seed as u32))
}

impl Element for IpRouter {
    fn start(&mut self, cx: &mut Context<'_>) -> Result<(), StartError> {
        // A router in the place of another takes over its neighbors and addresses before it says anything.
        if !cx.is_replacing() {
            self.tables_changed(cx);
        }
        Ok(())
    }

    fn push(&mut self, input: usize, batch: &mut Batch, cx: &mut Context<'_>) {
        let ports = self.router.ports();
        let from = if input < ports { Origin::Port(PortId(input as u16)) } else { Origin::Host };
        self.work(cx, |slow, job| {
            slow.poll(job);
            batch.drain().for_each(|packet| slow.take(packet, from, job));
        });
    }

    fn run(&mut self, cx: &mut Context<'_>) -> bool {
        self.work(cx, |slow, job| slow.poll(job));
        true
    }

    fn take_state(&mut self, old: &mut dyn Any, cx: &mut Context<'_>) {
        if let Some(old) = old.downcast_mut::<IpRouter>() {
            let router = old.router.clone();
            self.work(cx, |slow, job| slow.take_over(&router, &mut old.slow, job));
            self.tables_changed(cx);
        }
    }

    fn stop(&mut self, cx: &mut Context<'_>) {
        let reason = if cx.is_replacing() { DropReason::Replaced } else { DropReason::Ended };
        self.work(cx, |slow, job| slow.discard_all(reason, job));
    }
}
