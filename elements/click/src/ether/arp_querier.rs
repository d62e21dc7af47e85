use super::neighbor::{KnownAddress, Neighbor};
use super::neighbors::{
    ArpLimits, CAPACITY, CAPACITY_SLIM_FACTOR, ENTRY_CAPACITY, ENTRY_PACKET_CAPACITY, TIMEOUT, WaitingPacket,
};
use super::own_address::OwnAddress;
use super::shared_table::{ArrivalQueue, NamedTables, SharedTable, WaitOutcome};
use artery_common::arp_frame::{ArpEndpoint, FRAME, HEADER, arp_frame, arp_in, link_header};
use artery_engine::names::Names;
use artery_engine::{
    Arg, ArgError, ArgValue, Args, Batch, Class, Context, DropReason, Element, Field, Handler, HandlerError,
    Packet, Read, Show, StartError, Time, Write, anno, parse_value,
};
use artery_packet::NoRoom;
use artery_wire::{ArpOperation, EtherAddr, EtherType};
use std::any::Any;
use std::collections::VecDeque;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

pub static CLASS: Class = Class {
    name: "ARPQuerier",
    aliases: &["ArpQuerier"],
    group: "ether",
    summary: "puts IP packets into Ethernet frames for neighbors found by ARP",
    manual: "
Input 0 takes IP packets; their destination address annotation is the next hop, whose Ethernet address is
wanted. When it is known, the packet leaves by output 0 behind a 14-byte Ethernet header. Otherwise the packet
is kept and an ARP query is sent, by output 1 if it is connected, else by output 0. Input 1 takes ARP replies
with their Ethernet header; what they say is recorded, and packets that wait for it are sent. Replies end
here.

IP and ETH are this host's addresses on the network; one name may stand for both. Packets to 255.255.255.255
and to the network's broadcast address go to the broadcast address, packets to multicast groups to the group's
Ethernet address (RFC 1112). Packets without a next hop (0.0.0.0) are dropped.

An address is asked for at most ten times a second, and once in two seconds after ten queries without answer.
What is known expires after TIMEOUT. From POLL_TIMEOUT on, while packets are still sent there, the neighbor
itself is asked again; packets keep flowing meanwhile.

When more than CAPACITY packets wait, those that wait for the oldest entries are dropped, half of all. Several
ARPQueriers share what they know when TABLE names an ARPTable; then the table's limits apply. On several
workers up to 128 packets of each may wait beyond CAPACITY.",
    example: "Idle -> q :: ARPQuerier(10.0.0.1/24, 02:00:00:00:00:01) -> Discard;\nIdle -> [1] q;",
    ports: "2/1-2",
    processing: "h/h",
    flow: "xy/x",
    args: &[
        Arg::required(
            "IP",
            "IP address or network",
            "this host's address, with its network if that has a broadcast address",
        ),
        Arg::optional(
            "ETH",
            "Ethernet address",
            "",
            "this host's Ethernet address; by default what the name in IP stands for",
        ),
        Arg::keyword("TABLE", "element", "", "an ARPTable to use instead of a table of its own"),
        CAPACITY,
        ENTRY_CAPACITY,
        ENTRY_PACKET_CAPACITY,
        CAPACITY_SLIM_FACTOR,
        TIMEOUT,
        Arg::keyword("POLL_TIMEOUT", "time", "60", "how old an answer must be to ask again; 0 is never"),
        Arg::keyword(
            "BROADCAST",
            "IP address",
            "",
            "the network's broadcast address; by default the last of IP's network",
        ),
        Arg::keyword(
            "BROADCAST_POLL",
            "bool",
            "false",
            "whether to ask everyone again, not the neighbor alone",
        ),
    ],
    handlers: HANDLERS,
    build: |args| Ok(Box::new(ArpQuerier::new(args)?)),
    ..Class::PER_WORKER
};

static HANDLERS: &[Handler] = &[
    Handler::read(
        "table",
        "a line for each address: IP address, whether it is known, Ethernet address, age in seconds",
        &Read(|q: &mut ArpQuerier, _, cx| Ok(q.table.describe_table(cx))),
    ),
    Handler::read(
        "stats",
        "packets killed and queries sent",
        &Read(|q: &mut ArpQuerier, _, cx| Ok(q.stats(cx))),
    ),
    Handler::read(
        "count",
        "addresses in the table",
        &Read(|q: &mut ArpQuerier, _, cx| Ok(q.table.count_text(cx))),
    ),
    Handler::read(
        "length",
        "packets that wait",
        &Read(|q: &mut ArpQuerier, _, cx| Ok(q.table.length_text(cx))),
    ),
    Handler::read("queries", "queries sent", &Show(|q: &mut ArpQuerier| q.counts.queries.load(Relaxed))),
    Handler::read(
        "responses",
        "replies received",
        &Show(|q: &mut ArpQuerier| q.counts.responses.load(Relaxed)),
    ),
    Handler::read(
        "drops",
        "packets dropped that no query could help",
        &Show(|q: &mut ArpQuerier| q.counts.drops.load(Relaxed)),
    ),
    Handler::read("broadcast", "the network's broadcast address", &Show(|q: &mut ArpQuerier| q.broadcast))
        .and_write(&Write(|q: &mut ArpQuerier, text, _| {
            q.broadcast = parse_value(text)?;
            q.cache.clear();
            Ok(())
        })),
    Handler::field("ipaddr", "this host's IP address", &Field(|q: &mut ArpQuerier| &mut q.me.1)),
    Handler::write(
        "insert",
        "`IP ETH`: records an address",
        &Write(|q: &mut ArpQuerier, text, cx| q.table.write_insert(text, &q.names, cx)),
    )
    .once(),
    Handler::write(
        "delete",
        "`IP`: forgets an address",
        &Write(|q: &mut ArpQuerier, text, cx| q.table.write_delete(text, &q.names, cx)),
    )
    .once(),
    Handler::write("clear", "forgets everything and sets the counts to zero", &Write(ArpQuerier::clear))
        .button()
        .once(),
];

/// Counters that the copies on all workers share. No packet of the common case changes them.
#[derive(Default)]
struct Counts {
    queries: AtomicU64,
    responses: AtomicU64,
    drops: AtomicU64,
}

struct ArpQuerier {
    me: ArpEndpoint,
    broadcast: Ipv4Addr,
    poll_timeout: Duration,
    broadcast_poll: bool,
    table: Arc<SharedTable>,
    /// The ARPTable that was named; without, the table is this element's own.
    table_name: Option<String>,
    line: ArrivalQueue,
    counts: Arc<Counts>,
    cache: AnswerCache,
    /// For addresses that handlers write.
    names: Names,
    warned_of_zero: bool,
}

impl ArpQuerier {
    fn new(args: &mut Args<'_>) -> Result<ArpQuerier, ArgError> {
        let own: OwnAddress = args.read("IP")?;
        let ether = match args.read("ETH")? {
            Some(ether) => ether,
            None => EtherAddr::parse(&args.read::<String>("IP")?, args.names())
                .map_err(|_| ArgError::Missing("ETH"))?,
        };
        let broadcast = args.read::<Option<Ipv4Addr>>("BROADCAST")?.or(own.broadcast());
        let limits = ArpLimits::from_args(args)?;
        let domain = args.domain().clone();
        let (table, table_name) = match args.is_given("TABLE") {
            true => named_table(args).map(|(table, name)| (table, Some(name)))?,
            false => (args.shared_value(|| SharedTable::new(limits, &domain)), None),
        };
        Ok(ArpQuerier {
            me: (ether, own.ip),
            broadcast: broadcast.unwrap_or(Ipv4Addr::BROADCAST),
            poll_timeout: args.read("POLL_TIMEOUT")?,
            broadcast_poll: args.read("BROADCAST_POLL")?,
            line: ArrivalQueue::new(&table),
            table,
            table_name,
            counts: args.shared_value(Counts::default),
            cache: AnswerCache::default(),
            names: args.names().clone(),
            warned_of_zero: false,
        })
    }

    fn stats(&self, cx: &mut Context<'_>) -> String {
        let killed = self.counts.drops.load(Relaxed) + self.table.with_table(cx, |_| self.table.drop_count());
        format!("{killed} packets killed\n{} ARP queries sent\n", self.counts.queries.load(Relaxed))
    }

    fn clear(&mut self, _: &str, cx: &mut Context<'_>) -> Result<(), HandlerError> {
        for count in [&self.counts.queries, &self.counts.responses, &self.counts.drops] {
            count.store(0, Relaxed);
        }
        self.table.with_table(cx, |table| table.clear());
        Ok(())
    }

    /// Adds the link header to a packet; or holds the packet, or discards it.
    fn encapsulate(&mut self, mut packet: Packet, now: Time, cx: &mut Context<'_>) -> Option<Packet> {
        if self.cache.encapsulate(&mut packet, now) {
            return Some(packet);
        }
        self.encapsulate_after_lookup(packet, now, cx)
    }

    fn with_header(&self, mut packet: Packet, header: &[u8; HEADER], cx: &mut Context<'_>) -> Option<Packet> {
        if prepend_header(&mut packet, header).is_err() {
            self.drop_packet(packet, DropReason::NoRoom, cx);
            return None;
        }
        Some(packet)
    }

    fn encapsulate_after_lookup(
        &mut self,
        packet: Packet,
        now: Time,
        cx: &mut Context<'_>,
    ) -> Option<Packet> {
        let next_hop = packet.dst_ip();
        let turn = cx.turn();
        let neighbor = self.table.find_neighbor(next_hop, turn);
        let known =
            neighbor.and_then(|found| found.lookup_address(now, self.table.timeout(), self.poll_timeout));
        let Some(known) = known.or_else(|| self.group_address(next_hop)) else {
            let neighbor = neighbor.cloned();
            self.queue_and_query(packet, neighbor, now, cx);
            return None;
        };
        let header = link_header(known.ether, self.me.0, EtherType::IPV4);
        *self.cache.cache_line(next_hop) = CacheLine { ip: next_hop, until: known.until, header };
        if known.poll {
            let to = if self.broadcast_poll { EtherAddr::BROADCAST } else { known.ether };
            self.send_query(to, next_hop, QueryOrigin::from_packet(&packet), cx);
        }
        self.with_header(packet, &header, cx)
    }

    /// The Ethernet address of those IP addresses that are no single neighbor's.
    fn group_address(&self, ip: Ipv4Addr) -> Option<KnownAddress> {
        let ether = if ip.is_broadcast() || ip == self.broadcast {
            EtherAddr::BROADCAST
        } else if ip.is_multicast() {
            let [_, b, c, d] = ip.octets();
            EtherAddr([0x01, 0x00, 0x5e, b & 0x7f, c, d])
        } else {
            return None;
        };
        Some(KnownAddress { ether, poll: false, until: Time::NEVER })
    }

    /// Holds a packet for an unknown neighbor, and sends a query if one is due.
    fn queue_and_query(
        &mut self,
        packet: Packet,
        neighbor: Option<Arc<Neighbor>>,
        now: Time,
        cx: &mut Context<'_>,
    ) {
        let next_hop = packet.dst_ip();
        if next_hop.is_unspecified() {
            self.warn_of_zero(cx);
            return self.drop_packet(packet, DropReason::NeighborUnresolved, cx);
        }
        let neighbor = neighbor
            .unwrap_or_else(|| self.table.with_table(cx, |table| table.ensure_neighbor(next_hop, now)));
        if !neighbor.claim_place(self.table.entry_packets()) {
            self.table.count_drop();
            return cx.discard(packet, DropReason::NeighborUnresolved);
        }
        let origin = QueryOrigin::from_packet(&packet);
        let waiting = WaitingPacket { packet, since: now, neighbor: neighbor.clone() };
        let wait = self.line.push(&self.table, waiting);
        if neighbor.claim_query(now) {
            self.send_query(EtherAddr::BROADCAST, next_hop, origin, cx);
        }
        match wait {
            WaitOutcome::Begun => {}
            WaitOutcome::Crowded => self.table.with_table(cx, |_| ()),
            WaitOutcome::Answered => self.release_answered(next_hop, now, cx),
        }
    }

    fn warn_of_zero(&mut self, cx: &mut Context<'_>) {
        if !std::mem::replace(&mut self.warned_of_zero, true) {
            let name = cx.name();
            let line =
                format!("{name} :: ARPQuerier: would query for 0.0.0.0; missing dest IP addr annotation?");
            cx.print_message(&line);
        }
    }

    fn send_query(&self, to: EtherAddr, wanted: Ipv4Addr, origin: QueryOrigin, cx: &mut Context<'_>) {
        let frame = arp_frame(to, ArpOperation::REQUEST, self.me, (EtherAddr::ZERO, wanted));
        let Some(mut query) = cx.pool().packet_from(&frame) else {
            return cx.count_discarded(DropReason::PoolEmpty, 1);
        };
        query.set_mac_header(0);
        query.set_network_header(HEADER);
        origin.annotate_query(&mut query);
        self.counts.queries.fetch_add(1, Relaxed);
        cx.send(cx.outputs() - 1, query);
    }

    /// Learns from a reply, and sends the packets that waited for it.
    fn learn_reply(&mut self, reply: &Packet, now: Time, cx: &mut Context<'_>) -> Result<(), DropReason> {
        if reply.len() < FRAME {
            return Err(DropReason::TooShort);
        }
        self.counts.responses.fetch_add(1, Relaxed);
        let arp = arp_in(reply.data()).filter(|arp| arp.is_reply()).ok_or(DropReason::NotForUs)?;
        let (ether, ip) = (arp.sender_ether(), arp.sender_ip());
        if ether.is_group() {
            return Err(DropReason::Malformed);
        }
        let held = self.table.with_table(cx, |table| {
            table.insert(ip, ether, now);
            table.release_packets(ip)
        });
        self.send_held(held, ether, cx);
        Ok(())
    }

    /// Sends the packets that wait for a neighbor which has answered on another worker.
    fn release_answered(&mut self, ip: Ipv4Addr, now: Time, cx: &mut Context<'_>) {
        let answered = self
            .table
            .with_table(cx, |table| Some((table.known_address(ip, now)?, table.release_packets(ip))));
        if let Some((ether, held)) = answered {
            self.send_held(held, ether, cx);
        }
    }

    fn send_held(&self, held: VecDeque<Packet>, ether: EtherAddr, cx: &mut Context<'_>) {
        let header = link_header(ether, self.me.0, EtherType::IPV4);
        for packet in held {
            if let Some(packet) = self.with_header(packet, &header, cx) {
                cx.send(0, packet);
            }
        }
    }

    fn drop_packet(&self, packet: Packet, reason: DropReason, cx: &mut Context<'_>) {
        self.counts.drops.fetch_add(1, Relaxed);
        cx.discard(packet, reason);
    }

    /// Clears the answer cache if the table has changed, or switches to the table's successor.
    #[inline]
    fn sync_cache(&mut self) {
        let generation = self.table.generation();
        if self.cache.generation != generation {
            self.cache.clear();
            self.cache.generation = generation;
            self.follow_successor();
        }
    }
    fn follow_successor(&mut self) {
        if let Some(successor) = self.table.successor().cloned() {
            self.cache.generation = successor.generation();
            self.table = successor;
        }
    }
}

/// The table of the ARPTable that TABLE names.
fn named_table(args: &Args<'_>) -> Result<(Arc<SharedTable>, String), ArgError> {
    let name: String = args.read("TABLE")?;
    let found = args.find_element(&name).and_then(|element| args.elements().find(|(n, _)| *n == element));
    let table =
        found.and_then(|(_, name)| Some((args.resource::<NamedTables>().get(name)?, name.to_string())));
    table.ok_or_else(|| ArgError::Invalid {
        arg: "TABLE",
        value: name,
        fault: "does not name an element".into(),
        wants: "the name of an ARPTable".into(),
    })
}

impl Element for ArpQuerier {
    fn push(&mut self, input: usize, batch: &mut Batch, cx: &mut Context<'_>) {
        let now = cx.now();
        if input == 1 {
            for reply in batch.drain() {
                let end = self.learn_reply(&reply, now, cx).err().unwrap_or(DropReason::Consumed);
                cx.discard(reply, end);
            }
        } else if self.me.1.is_unspecified() {
            self.counts.drops.fetch_add(batch.len() as u64, Relaxed);
            cx.discard_all(batch, DropReason::Inactive);
        } else {
            self.sync_cache();
            let other = batch.iter_mut().position(|packet| !self.cache.encapsulate(packet, now));
            if let Some(other) = other {
                let mut done = 0..other;
                batch.filter_map(
                    |p| if done.next().is_some() { Some(p) } else { self.encapsulate(p, now, cx) },
                );
            }
            cx.send_all(0, batch);
        }
    }

    fn start(&mut self, cx: &mut Context<'_>) -> Result<(), StartError> {
        if self.table_name.is_some() { Ok(()) } else { self.table.start_timer(cx) }
    }

    fn run_task(&mut self, cx: &mut Context<'_>) -> bool {
        self.table.expire_and_rearm(cx)
    }

    fn take_state(&mut self, old: &mut dyn Any, _: &mut Context<'_>) {
        let Some(old) = old.downcast_mut::<ArpQuerier>() else { return };
        if self.me != old.me || self.broadcast != old.broadcast {
            return;
        }
        // Not only by the ARPTable, whose turn may come later than that of a worker that needs the neighbors.
        if self.table_name == old.table_name {
            self.table.restore_from(&old.table);
        }
        let pairs = [
            (&self.counts.queries, &old.counts.queries),
            (&self.counts.responses, &old.counts.responses),
            (&self.counts.drops, &old.counts.drops),
        ];
        pairs.iter().for_each(|(new, old)| {
            new.fetch_add(old.swap(0, Relaxed), Relaxed);
        });
    }

    fn stop(&mut self, cx: &mut Context<'_>) {
        if self.table_name.is_none() {
            self.table.discard_waiting(cx);
        }
    }
}

/// What a query inherits of the packet that caused it.
struct QueryOrigin {
    timestamp: Time,
    vlan_tci: [u8; 2],
}

impl QueryOrigin {
    fn from_packet(packet: &Packet) -> QueryOrigin {
        QueryOrigin { timestamp: packet.timestamp(), vlan_tci: packet.annotation(anno::VLAN_TCI) }
    }
    fn annotate_query(&self, query: &mut Packet) {
        if self.timestamp != Time::ZERO {
            query.set_timestamp(self.timestamp);
        }
        if self.vlan_tci != [0; 2] {
            query.set_annotation(anno::VLAN_TCI, self.vlan_tci);
        }
    }
}

#[inline]
fn prepend_header(packet: &mut Packet, header: &[u8; HEADER]) -> Result<(), NoRoom> {
    packet.prepend(HEADER)?.copy_from_slice(header);
    packet.set_mac_header(0);
    Ok(())
}

/// Cached answers of the table, one for each value of a few bits of the address.
struct AnswerCache {
    /// The table's generation when they were right.
    generation: u64,
    lines: [CacheLine; CACHE_LINES],
}

const CACHE_LINES: usize = 64;

#[derive(Clone, Copy)]
struct CacheLine {
    ip: Ipv4Addr,
    until: Time,
    header: [u8; HEADER],
}

impl Default for AnswerCache {
    fn default() -> AnswerCache {
        let empty = CacheLine { ip: Ipv4Addr::UNSPECIFIED, until: Time::ZERO, header: [0; HEADER] };
        AnswerCache { generation: 0, lines: [empty; CACHE_LINES] }
    }
}

impl AnswerCache {
    /// Adds the link header to a packet if its address is cached.
    #[inline]
    fn encapsulate(&mut self, packet: &mut Packet, now: Time) -> bool {
        let next_hop = packet.dst_ip();
        let line = self.cache_line(next_hop);
        line.ip == next_hop && now < line.until && prepend_header(packet, &line.header).is_ok()
    }
    #[inline]
    fn cache_line(&mut self, ip: Ipv4Addr) -> &mut CacheLine {
        let hash = ip.to_bits().wrapping_mul(0x9e37_79b1) >> 16;
        &mut self.lines[hash as usize % CACHE_LINES]
    }
    fn clear(&mut self) {
        *self = AnswerCache::default();
    }
}

#[cfg(test)]
mod tests;
