use super::bfd_frames::{Datagram, build_frame};
use super::bfd_peers::{Outgoing, Peer, Peers, find_peer, local_address, parse_gateway};
use super::show_bfd;
use artery_common::chance::Chance;
use artery_engine::{
    Arg, ArgError, Args, Batch, Class, Context, DropReason, Element, Handler, HandlerError, Read, StartError,
    Time, Write, anno,
};
use artery_forward::shared::{self, SharedRouter};
use artery_l3::PortId;
use artery_l3::router::PortView;
use artery_wire::BfdControl;
use std::any::Any;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

pub static CLASS: Class = Class {
    name: "BFD",
    group: "router",
    summary: "watches the paths to gateways by Bidirectional Forwarding Detection",
    manual: "
Watches the paths to gateways of ROUTER, an IPRouter, by BFD over a single hop (RFC 5880, RFC 5881), in
asynchronous mode. While the path to a gateway is down, no route of the router uses the gateway: packets take
the route's other gateways, and those of a route that has no other are answered with ICMP errors.

It stands in front of the inputs of IPRouter. Input I takes frames for input I of the router. Frames with a
UDP datagram to port 3784 of one of the router's addresses end here, and all others leave by output I
unchanged. The output behind those, with the number of the router's ports, leads to the input of IPRouter that
is behind the host's: BFD's own packets leave by it, painted with the port that they are for.

SESSION is `GATEWAY[%PORT] [INTERVAL TIME] [MULTIPLIER NUMBER]`: a gateway on the link of a port, which must
be named if the address is link-local, and how often packets are to be exchanged: every 300ms, if nothing is
said, and 50ms at least. The longer interval of both ends counts. After so many intervals as MULTIPLIER
without a packet, 3 if nothing is said, the path is down. It is up again once the session is, which begins
with packets a second apart.

A session that was never up says nothing about the path, and so does a neighbor that is administratively down.
Packets that are authenticated are refused. The echo function is not supported, nor does the router ask for
demand mode; that of a neighbor is respected.

An element that takes the place of another goes on with its sessions, if ports have the same names. It sends
neighbors its own intervals.",
    example:
        "ip :: IPRouter(PORT eth1 10.0.1.1/24 ETHER 2:0:0:0:0:1, PORT eth2 10.0.2.1/24 ETHER 2:0:0:0:0:2,
    ROUTE 0.0.0.0/0 10.0.2.254 10.0.2.253);
bfd :: BFD(ip, SESSION 10.0.2.254 INTERVAL 50ms, SESSION 10.0.2.253 INTERVAL 100ms MULTIPLIER 5);
Idle -> bfd; Idle -> [1] bfd;
bfd[0] -> ip; bfd[1] -> [1] ip;
Idle -> [2] ip;
bfd[2] -> [3] ip;
ip[0] -> Discard; ip[1] -> Discard; ip[2] -> Discard;",
    ports: "-/-",
    processing: "h/h",
    args: &[
        Arg::required("ROUTER", "element", "the IPRouter that has the ports and routes"),
        Arg::keyword(
            "SESSION",
            "gateway, interval, multiplier",
            "",
            "a gateway to be watched; any number of them",
        ),
    ],
    handlers: HANDLERS,
    build: |args| Ok(Box::new(Bfd::new(args)?)),
    ..Class::PER_WORKER
};

static HANDLERS: &[Handler] = &[
    Handler::read(
        "sessions_json",
        "the sessions as JSON, in the order of SESSION, with the state at both ends, intervals and counts",
        &Read(|bfd: &mut Bfd, _, cx| {
            let now = cx.now().since_epoch();
            Ok(show_bfd::sessions_json(&bfd.router, &bfd.peers, now))
        }),
    ),
    Handler::write(
        "admin_down",
        "`GATEWAY[%PORT] BOOL`: holds a session down and reports that to the neighbor, or lets it come up \
         again",
        &Write(|bfd: &mut Bfd, text, cx| bfd.set_admin_down(text, cx).map_err(HandlerError::refused)),
    )
    .once(),
];

/// The sessions on one worker. Timers go off on the first one, and on those that get packets of sessions.
struct Bfd {
    router: Arc<SharedRouter>,
    peers: Arc<Peers>,
    /// Whether timers are set here.
    drives_timers: bool,
    outgoing: Vec<Outgoing>,
}

impl Bfd {
    fn new(args: &mut Args<'_>) -> Result<Bfd, ArgError> {
        let router = shared::find_router(args)?;
        let ports = router.port_count();
        if args.inputs() > ports || args.outputs() > ports + 1 {
            let name = router.name();
            let message = format!("{name} has {ports} ports: BFD has as many inputs, and one output more");
            return Err(ArgError::wrong(message));
        }
        if ports > MOST_PORTS {
            let message = format!("{} has {ports} ports; BFD works with {MOST_PORTS} at most", router.name());
            return Err(ArgError::wrong(message));
        }
        let peers = match args.already_shared::<Peers>() {
            Some(peers) => peers,
            None => {
                let chance = args.resource::<Chance>();
                let peers = Peers::new(args.rest("SESSION"), &router.lock_tables(), args.names(), || {
                    chance.next_u64()
                })
                .map_err(|(text, why)| ArgError::wrong_at(&text, format!("SESSION {text}: {why}")))?;
                args.shared_value(|| peers)
            }
        };
        Ok(Bfd { router, peers, drives_timers: args.copy_index().0 == 0, outgoing: Vec::new() })
    }

    /// Passes a control packet to the session with its sender.
    fn receive_control(
        &self,
        control: &BfdControl,
        from: IpAddr,
        port: PortId,
        now: Duration,
    ) -> Result<(), DropReason> {
        let mut peers = self.peers.lock();
        let peer = find_peer(&mut peers, port, from, control)?;
        peer.session.receive_packet(control, now);
        peer.publish_state(&self.router, now);
        Ok(())
    }

    /// Polls all sessions, sends their control packets, and wakes the element when the next one is due.
    fn poll_sessions(&mut self, cx: &mut Context<'_>) {
        let now = cx.now().since_epoch();
        let due = {
            let mut peers = self.peers.lock();
            for peer in peers.iter_mut() {
                peer.poll(now, &mut self.outgoing);
                peer.publish_state(&self.router, now);
            }
            peers.iter().filter_map(|peer| peer.session.poll_at()).min()
        };
        let mut outgoing = std::mem::take(&mut self.outgoing);
        outgoing.drain(..).for_each(|packet| self.send_control(&packet, cx));
        self.outgoing = outgoing;
        if self.drives_timers {
            cx.wake_at(due.map_or(Time::NEVER, |due| Time::ZERO + due));
        }
    }

    /// Hands a packet to the router, which finds the neighbor's link address.
    fn send_control(&self, packet: &Outgoing, cx: &mut Context<'_>) {
        let (ports, number) = (self.router.readers().ports.read(cx.turn()), usize::from(packet.port.0));
        let from = ports.get(number).and_then(|port| local_address(port, packet.to));
        let Some(frame) =
            from.and_then(|from| build_frame(from, packet.to, packet.source_port, &packet.control))
        else {
            // The port has lost its address.
            return cx.count_discarded(DropReason::Unclaimed, 1);
        };
        match cx.pool().packet_from(&frame) {
            Some(mut frame) => {
                frame.set_annotation(anno::PAINT, [number as u8]);
                cx.send_or_discard(self.router.port_count(), frame, DropReason::NoOutput);
            }
            None => cx.count_discarded(DropReason::PoolEmpty, 1),
        }
    }

    /// Serves the handler `admin_down`.
    fn set_admin_down(&mut self, text: &str, cx: &mut Context<'_>) -> Result<(), String> {
        let words: Vec<&str> = text.split_whitespace().collect();
        let [word, is_down] = words[..] else { return Err("expected 'GATEWAY[%PORT] BOOL'".into()) };
        let is_down = match is_down {
            "true" | "yes" | "1" => true,
            "false" | "no" | "0" => false,
            _ => return Err(format!("'{is_down}' is neither true nor false")),
        };
        let (port, address) = parse_gateway(word, &self.router.lock_tables())?;
        {
            let mut peers = self.peers.lock();
            let peer = peers.iter_mut().find(|peer| (peer.port, peer.address) == (port, address));
            let peer =
                peer.ok_or_else(|| format!("no BFD session with {word}; 'artery show bfd' lists them"))?;
            peer.session.set_admin_down(is_down, cx.now().since_epoch());
        }
        self.poll_sessions(cx);
        Ok(())
    }

    /// Restores the sessions of the element that this one replaces.
    fn restore_sessions(&mut self, old: &Bfd, now: Duration) {
        let (old_ports, ports) = (old.router.lock_tables().ports(), self.router.lock_tables().ports());
        let name =
            |ports: &[PortView], port: PortId| ports.get(usize::from(port.0)).map(|port| port.name.clone());
        let (mut before, mut peers) = (old.peers.lock(), self.peers.lock());
        for peer in peers.iter_mut() {
            let is_same = |old: &Peer| {
                old.address == peer.address && name(&old_ports, old.port) == name(&ports, peer.port)
            };
            if let Some(at) = before.iter().position(is_same) {
                peer.restore_session(before.swap_remove(at));
                // Before packets flow by the new tables.
                peer.publish_state(&self.router, now);
            }
        }
    }
}

/// As a packet's paint has a byte.
const MOST_PORTS: usize = 256;

impl Element for Bfd {
    fn start(&mut self, cx: &mut Context<'_>) -> Result<(), StartError> {
        // Other elements have not started yet, and a replaced element still has its sessions.
        cx.schedule();
        Ok(())
    }

    fn push(&mut self, input: usize, batch: &mut Batch, cx: &mut Context<'_>) {
        let (now, mut has_received) = (cx.now().since_epoch(), false);
        let ports = self.router.readers().ports.read(cx.turn());
        for packet in batch.drain() {
            let own = ports.get(input);
            let Some(datagram) = own.and_then(|own| Datagram::parse_frame(packet.data(), own, ports)) else {
                cx.send(input, packet);
                continue;
            };
            let control = datagram.parse_control(!packet.has_offload());
            let receive = |control| self.receive_control(&control, datagram.from, PortId(input as u16), now);
            let received = control.and_then(receive);
            has_received |= received.is_ok();
            cx.discard(packet, received.err().unwrap_or(DropReason::Consumed));
        }
        if has_received {
            self.drives_timers = true;
            self.poll_sessions(cx);
        }
    }

    fn run_task(&mut self, cx: &mut Context<'_>) -> bool {
        self.poll_sessions(cx);
        true
    }

    fn take_state(&mut self, old: &mut dyn Any, cx: &mut Context<'_>) {
        if let Some(old) = old.downcast_ref::<Bfd>() {
            if !self.peers.is_successor.swap(true, Relaxed) {
                self.restore_sessions(old, cx.now().since_epoch());
            }
            self.drives_timers |= old.drives_timers;
            cx.schedule();
        }
    }
}
