use super::claims::Claims;
use super::limits::Rate;
use super::port_news::{PortMonitor, PortUpdates};
use super::shared::{NamedRouters, SharedRouter};
use super::shared_state::SharedState;
use super::slow_path::{SlowPath, SlowPathContext, SlowPathSettings};
use super::verdict::Origin;
use super::{config, handlers, port_text};
use artery_common::chance::Chance;
use artery_device::Ports;
use artery_engine::names::Names;
use artery_engine::{
    Arg, ArgError, Args, Batch, Class, Context, DropReason, Element, HandlerError, Interest, Phase,
    StartError,
};
use artery_l3::PortId;
use artery_l3::neighbor::claim::ClaimSettings;
use std::any::Any;
use std::sync::Arc;

pub static CLASS: Class = Class {
    name: "IPRouter",
    group: "router",
    summary: "holds the ports, routes and neighbors of a router",
    manual: "
Holds the ports, routes and neighbors of a router. It is the router's slow path: IPForward and IP6Forward
forward by what it holds, and pass all exceptions on to it. Ports are numbered in the order of PORT, from 0.
Input I takes whole frames that port I received: ARP, and what IPForward and IP6Forward turn aside. It handles
all other packets, too, but more slowly. Output I leads to port I. The input and the output behind them belong
to the host, if there is one. A last input, behind the host's, takes frames that elements of the router itself
send, as BFD does, each to a neighbor on the link of the port whose number is its paint: IPRouter writes the
MAC addresses.

PORT is `NAME ADDRESS/LENGTH… [ETHER ADDRESS] [MTU BYTES] [MTU_LIMIT BYTES] [RPF off|loose|strict] [PROXY_ARP
BOOL] [STATIC_ARP BOOL] [REDIRECTS BOOL] [ONLINK BOOL] [VIP ADDRESS]…`. Without ETHER, NAME is an interface of
this machine, which has an address. RPF is what is demanded of the source of packets (RFC 3704): nothing, that
a route leads there, or that it leaves by the same port. With ONLINK, gateways are believed to be on its link
whatever its addresses are. A VIP is a virtual address in one of the port's prefixes, that of a service of
FlowBalancer: the port announces it, and answers ARP and Neighbor Discovery for it. Of what is sent to it and
not balanced, pings are answered, and datagrams refused; the host does not get it. Where NAME is an interface
of this machine, the router follows it: its link that goes down and comes up, another MTU, another Ethernet
address, another name. When it is deleted or moved to another network namespace the port is absent, which
counts as down, until there is an interface NAME again. So it does with the interface of a VLAN, `eth1` for a
port `eth1.10` that is not an interface itself; there ETHER is needed, and the tags are put in and taken off
by other elements. MTU counts until the interface gets another one; MTU_LIMIT is an upper bound that stays.
NEIGHBOR is `PORT ADDRESS ETHER`: a neighbor that need not be asked for. ROUTE is `PREFIX WAY… [by METHOD]`,
where a way is the address of a gateway (with `%PORT` behind it, if that does not tell the port), the name of
a port, or one of `blackhole`, `unreachable` and `prohibited`. Behind a gateway or port may stand `mtu BYTES`
and, where several share packets, `weight N`. Methods are `hash` of the flow, `resilient` (the same, but flows
stay where they are when another gateway dies), `xor` of addresses and ports as in 2008, and `per-packet`.
TABLE is `FILE [GATEWAY…]`: routes from a file, as text or an MRT dump; those of which it does not say where
they lead are dealt out to the gateways. What ROUTE says goes before that.

Packets are checked in the order of RFC 1812 section 5.2 and RFC 8200: MAC address, header, source, route,
options, hops left, length. Each dropped packet is counted under its own reason. Where the standards require
it, its sender gets an ICMP error by the port that it sent to; no errors are sent about errors, about
fragments other than the first, or about multicast. IPv4 source routes and IPv6 routing headers are refused.
Packets that are too long are fragmented, or their sender gets the MTU in an ICMP error. A packet that leaves
by the port it came by is forwarded, and its sender redirected. One with a destination annotation, as
FlowBalancer gives it, goes where that leads instead of to its destination, and its sender is not redirected.

Packets to an unknown neighbor wait for it: up to HOLD for each neighbor, after which the oldest is dropped,
and HOLD_ALL in all. They are sent before later ones, which the fast path turns aside meanwhile. If the
neighbor never answers, their senders get ICMP errors. Neighbors are found by ARP (RFC 826) and Neighbor
Discovery (RFC 4861), and those in use are verified by the rules of RFC 4861 section 7.3 for both: a silent
one is noticed within a minute. Silent next hops are not used where a route has others; else senders get ICMP
errors. The router announces and defends its own addresses. With ACD or DAD they are not used before it is
clear that no other host has them, and an address that another host has is not used at all.

Echo requests to the router are answered, also in fragments. All other packets for the router go to HOST, the
MAC address of the host, whose frames come by the last input: its ARP requests and neighbor solicitations are
answered with the MAC address of the first port, and its packets keep their time to live. Without HOST they
end as `local`.

With HOST_PORTS each port has an interface of its own on the host, as FromHost with HOST_PORT makes it.
The outputs behind the host's lead there, that of port 0 first, and the inputs behind the one for the
router's own elements come from there. The host gets frames as they came: what is for the router's
addresses or to groups and all of the link, answers of ARP and Neighbor Discovery, advertisements of
routers, and frames of other protocols to groups and the port. IPRouter alone answers for its addresses.
What the host sends leaves by the port as it is, unless it is sent from an address that the router may
not use yet.

What the router says itself is limited by ICMP_RATE, ICMP_EACH and MESSAGE_RATE, which workers share evenly.

A router that takes the place of another takes over the neighbors that were learnt, the packets that wait for
others, the claims of its addresses, and the routes that handlers have set and of which it has not the prefix
itself; ports are the same if their names are.",
    example:
        "ip :: IPRouter(PORT eth1 10.0.1.1/24 ETHER 2:0:0:0:0:1, PORT eth2 10.0.2.1/24 ETHER 2:0:0:0:0:2,
    NEIGHBOR eth2 10.0.2.254 2:0:0:0:2:fe, ROUTE 0.0.0.0/0 10.0.2.254);
f4 :: IPForward(ip);
Idle -> f4; Idle -> [1] f4;
f4[0] -> Discard; f4[1] -> Discard;
f4[2] -> slow :: PaintSwitch; slow[0] -> ip; slow[1] -> [1] ip;
ip[0] -> Discard; ip[1] -> Discard; ip[2] -> Discard;",
    ports: "-/-",
    processing: "h/h",
    args: &[
        Arg::keyword("PORT", "name, addresses", "", "a port; any number of them"),
        Arg::keyword("ROUTE", "prefix, ways", "", "a route; any number of them"),
        Arg::keyword("NEIGHBOR", "port, IP address, Ethernet address", "", "a neighbor; any number of them"),
        Arg::keyword("TABLE", "file, gateways", "", "a file of routes; any number of them"),
        Arg::keyword(
            "NEIGHBORS",
            "own or external",
            "own",
            "whether neighbors are found on the links, or set by handlers alone (external): then the router \
             asks for none, and 169.254.0.0/16 is forwarded as any other prefix",
        ),
        Arg::keyword(
            "HOST",
            "Ethernet address",
            "",
            "the host's MAC address, for packets to the router that it does not answer itself",
        ),
        Arg::keyword(
            "HOST_PORTS",
            "bool",
            "false",
            "whether each port has an interface of its own on the host",
        ),
        Arg::keyword(
            "ACD",
            "bool",
            "false",
            "whether IPv4 addresses are used only when no other host has them (RFC 5227)",
        ),
        Arg::keyword(
            "DAD",
            "bool",
            "true",
            "whether IPv6 addresses are used only when no other host has them (RFC 4862)",
        ),
        Arg::keyword("HOLD", "packets", "16", "most packets that wait for one neighbor, on each worker"),
        Arg::keyword("HOLD_ALL", "packets", "1024", "most packets that wait for neighbors in all"),
        Arg::keyword(
            "ICMP_RATE",
            "errors per second",
            "1000",
            "most errors, redirects and echo replies in all",
        ),
        Arg::keyword("ICMP_EACH", "errors per second", "100", "most of them to one destination"),
        Arg::keyword(
            "MESSAGE_RATE",
            "messages per second",
            "10000",
            "most ARP and ND messages that are looked at, and as many of those from known neighbors, and of \
             those that packets wait for",
        ),
    ],
    handlers: handlers::HANDLERS,
    // Created before other elements, which look the router up when they are created, but after
    // its workers are assigned.
    phase: Phase::Privileged,
    per_worker: true,
    build: |args| Ok(Box::new(IpRouter::new(args)?)),
    ..Class::DEFAULT
};

/// The router on one worker.
pub(super) struct IpRouter {
    pub(super) router: Arc<SharedRouter>,
    /// For addresses that handlers write.
    pub(super) names: Names,
    pub(super) slow_path: SlowPath,
    /// Whether it is the copy that follows the interfaces behind the ports.
    is_first: bool,
    port_monitor: Option<PortMonitor>,
    /// The ports of the machine, by which frames go.
    pub(super) devices: Arc<Ports>,
}

impl IpRouter {
    fn new(args: &mut Args<'_>) -> Result<IpRouter, ArgError> {
        let names = args.names().clone();
        let router = match args.already_shared::<SharedRouter>() {
            Some(router) => router,
            None => {
                let router = SharedRouter::new(args.name(), config::build_tables(args)?, args.worker().1);
                let router = args.shared_value(|| router);
                args.resource::<NamedRouters>().insert(&router);
                router
            }
        };
        let slow = build_slow_path(args)?;
        let ports = router.port_count();
        let host_ports = if slow.settings.has_host_ports { ports } else { 0 };
        if args.inputs() > ports + 2 + host_ports || args.outputs() > ports + 1 + host_ports {
            let why = format!(
                "{ports} ports have as many inputs and outputs, the host one of each, the router's own \
                 elements an input, and {host_ports} host ports as many inputs and outputs"
            );
            return Err(ArgError::wrong(why));
        }
        let (is_first, devices) = (args.copy_index().0 == 0, args.resource::<Ports>());
        Ok(IpRouter { router, names, slow_path: slow, is_first, port_monitor: None, devices })
    }

    /// What the slow path has counted: of this name, or all, a line each.
    pub(super) fn counters_text(&self, name: &str) -> Result<String, HandlerError> {
        let counters = self.slow_path.shared.total_counters();
        if name.is_empty() {
            return Ok(counters.named().map(|(name, count)| format!("{name} {count}\n")).collect());
        }
        let found = counters.named().find(|(other, _)| *other == name);
        found
            .map(|(_, count)| count.to_string())
            .ok_or_else(|| HandlerError::refused(format!("nothing is counted as '{name}'")))
    }

    /// Does what follows from a change of the tables.
    pub(super) fn tables_changed(&mut self, cx: &mut Context<'_>) {
        self.run_slow_path(cx, |slow, job| slow.change_tables(job, |_, _, _| ()));
    }

    /// Follows the interfaces behind the ports from now on.
    fn follow_interfaces(&mut self, cx: &mut Context<'_>) {
        let ports = self.router.lock_tables().ports();
        match PortMonitor::open(self.devices.clone(), &self.names, &ports) {
            Ok(news) => self.port_monitor = news,
            Err(error) => {
                let remedy = "tell it of them by its handler 'port'";
                cx.print_message(&format!(
                    "{}: can't hear of what becomes of its interfaces: {error}; {remedy}",
                    cx.name()
                ));
            }
        }
        let down = self.port_monitor.as_ref().map(PortMonitor::down_ports).unwrap_or_default();
        self.apply_changes(&down, cx);
    }

    /// Applies changes of interfaces to ports, which can't fail.
    fn apply_changes(&self, changes: &[(PortId, port_text::PortUpdate)], cx: &mut Context<'_>) {
        let now = handlers::now(cx);
        let mut tables = self.router.lock_tables();
        for (port, change) in changes {
            // It is refused only if a table is full, which is reported elsewhere.
            let _ = port_text::apply_change(&mut tables, *port, *change, now);
        }
    }

    /// Reads changes of the interfaces and applies them.
    fn poll_interfaces(&mut self, cx: &mut Context<'_>) {
        let Some(news) = &mut self.port_monitor else { return };
        let PortUpdates { changes, log_lines: said } = news.poll_changes();
        said.iter().for_each(|said| cx.print_message(&format!("{}: {said}", cx.name())));
        if !changes.is_empty() {
            self.apply_changes(&changes, cx);
            self.warn_of_mtus(&changes, cx);
            self.tables_changed(cx);
        }
    }

    /// Warns of ports whose interface has a smaller MTU than the port.
    fn warn_of_mtus(&self, changes: &[(PortId, port_text::PortUpdate)], cx: &mut Context<'_>) {
        let warnings: Vec<String> = {
            let tables = self.router.lock_tables();
            changes
                .iter()
                .filter_map(|(port, change)| port_text::mtu_warning(&tables, *port, *change))
                .collect()
        };
        warnings.iter().for_each(|warning| cx.print_message(&format!("{}: {warning}", cx.name())));
    }

    /// Runs the slow path, and schedules its next call.
    pub(super) fn run_slow_path<T>(
        &mut self,
        cx: &mut Context<'_>,
        what: impl FnOnce(&mut SlowPath, &mut SlowPathContext<'_, '_>) -> T,
    ) -> T {
        let router = self.router.clone();
        let mut job = SlowPathContext::new(&router, cx);
        let done = what(&mut self.slow_path, &mut job);
        self.slow_path.finish_call(&mut job);
        done
    }
}

/// The slow path as the arguments describe it.
fn build_slow_path(args: &mut Args<'_>) -> Result<SlowPath, ArgError> {
    let rate = |per_second: u32, burst: u32| Rate { per_second, burst: per_second.min(burst) };
    let each = args.read("ICMP_EACH")?;
    let settings = SlowPathSettings {
        host: args.read("HOST")?,
        has_host_ports: args.read("HOST_PORTS")?,
        hold: args.read("HOLD")?,
        icmp: rate(args.read("ICMP_RATE")?, 100),
        icmp_each: rate(each, each),
        messages: rate(args.read("MESSAGE_RATE")?, 1000),
        resolutions: rate(args.read("MESSAGE_RATE")?, 1000),
    };
    let (acd, dad, hold): (bool, bool, usize) =
        (args.read("ACD")?, args.read("DAD")?, args.read("HOLD_ALL")?);
    let claimed =
        |settings: ClaimSettings, probes: bool| if probes { settings } else { settings.without_probes() };
    let seed = args.resource::<Chance>().next_u64();
    let claims = Claims::new(claimed(ClaimSettings::arp(), acd), claimed(ClaimSettings::nd(), dad), seed);
    let together = args.shared_value(|| SharedState::new(claims, hold));
    let workers = args.copy_index().1;
    Ok(SlowPath::new(settings, &together, (args.worker().0, workers), seed as u32))
}

impl Element for IpRouter {
    fn start(&mut self, cx: &mut Context<'_>) -> Result<(), StartError> {
        if self.is_first {
            self.follow_interfaces(cx);
        }
        // Other elements have not started yet, and a replaced router still has state to hand over.
        cx.schedule();
        Ok(())
    }

    fn push(&mut self, input: usize, batch: &mut Batch, cx: &mut Context<'_>) {
        let ports = self.router.port_count();
        if input == ports + 1 {
            return self.run_slow_path(cx, |slow, job| slow.receive_own(batch, job));
        }
        if input > ports {
            let port = PortId((input - ports - 2) as u16);
            return self.run_slow_path(cx, |slow, job| {
                slow.poll(job);
                batch.drain().for_each(|packet| slow.send_from_host_port(packet, port, job));
            });
        }
        let from = if input < ports { Origin::Port(PortId(input as u16)) } else { Origin::Host };
        self.run_slow_path(cx, |slow, job| {
            slow.poll(job);
            batch.drain().for_each(|packet| slow.receive(packet, from, job));
        });
    }

    fn run_task(&mut self, cx: &mut Context<'_>) -> bool {
        self.poll_interfaces(cx);
        self.run_slow_path(cx, |slow, job| slow.poll(job));
        if let Some(news) = &self.port_monitor {
            cx.watch_file(news.news_fd(), Interest::Readable);
        }
        true
    }

    fn take_state(&mut self, old: &mut dyn Any, cx: &mut Context<'_>) {
        if let Some(old) = old.downcast_mut::<IpRouter>() {
            let (router, names) = (old.router.clone(), self.names.clone());
            self.run_slow_path(cx, |slow, job| slow.restore_from(&router, &names, &mut old.slow_path, job));
            self.slow_path.schedule_now();
            cx.schedule();
        }
    }

    fn stop(&mut self, cx: &mut Context<'_>) {
        let reason = if cx.is_replacing() { DropReason::Replaced } else { DropReason::Ended };
        self.run_slow_path(cx, |slow, job| slow.discard_all(reason, job));
    }
}
