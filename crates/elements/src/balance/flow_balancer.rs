use super::answers::{Answers, Served};
use super::checks::Checks;
use super::exchange::{self, Exchange};
use super::follow::Follow;
use super::handlers::HANDLERS;
use super::known::{Chooser, Known, Noted, Tell};
use super::leading::{Leading, NOWHERE, ON};
use super::look::{Found, look_at, look_in, look_through, note};
use super::nat_flows::NatFlows;
use super::shared::SharedBalancer;
use super::tally::Tally;
use super::translate::{End, translate};
use crate::ip::ip_header;
use crate::router::plain::LINK;
use crate::router::shortcut::Shortcut;
use artery_engine::{
    Arg, ArgError, Args, Batch, Class, Context, DropReason, Element, Interest, Level, Packet, StartError,
    anno,
};
use artery_table::balance::{Balancer, Choice, Local, Member, MemberId};
use artery_table::flow::{Flow4, Flow6, FlowKey, FlowLimits, FlowSettings, FlowTable, IdleTimes, Seed};
use artery_table::{HugePages, Pages, Storage};
use artery_wire::{Ipv4, Ipv6};
use std::any::Any;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

pub static CLASS: Class = Class {
    name: "FlowBalancer",
    group: "balance",
    summary: "shares the flows of a service out among servers, and keeps each with its server",
    manual: "
Expects IPv4 or IPv6 packets, data starting at the IP header or the header marked by an earlier element. A packet to a
SERVICE goes to one of the members, by output 0: to the one that has its flow, as long as that lives, and a new flow to one
that METHOD chooses. With FORWARD `direct` the packet stays as it is and gets the member's address as destination
annotation, which ARPQuerier sends it to and IPEncap takes as `DST_ANNO`; members answer by themselves, with the service's
address. With `nat` the member's address and port (or the packet's) take the place of the service's, and answers come
back by input 1, to leave by output 2 in the service's name; there is one SERVICE then. An answer belongs to a flow that was
translated. All else that members send passes as it is: answers to health checks, and to clients that use a member's own
address (from another address or port than those from which they use the service).

With FRAMES true it stands in front of the IPForward and IP6Forward of a router: whole frames come by input I and leave by
output I, those of the service with the member's address as destination annotation, which leads them to the member. So the
router's routes and neighbors serve members, too, and ICMP errors are sent by it. With `nat` answers are translated at whatever
input they come by. Those that it sends itself about answers don't
reach members: let no port that leads to clients have a smaller MTU than members have.

With ROUTER, the IPRouter that frames are on their way through, plain frames of a service take a shortcut: each is checked
and rewritten as IPForward or IP6Forward does it, in the pass that finds its member, and leaves at once, by output N + P for
port P of ROUTER where N inputs are connected. Input I takes frames of its port I then. All that these two would turn aside
goes on to them by output I as before, led by annotation, and so do frames to members behind several next hops, frames that
came by a port with RPF, and for a moment after a neighbor became known all. Frames of a port that is monitored (see
FromDevice) end here at l3 where they would take the shortcut. There is none with `nat`.

Without FRAMES all other packets leave by output 1 as they are: those to something else, and those that no member can take.
Without output 1 they are dropped, and so are frames that no member can take.

An ICMP error about an answer (unreachable, too big, time exceeded, parameter problem) goes to the member that has the flow
which it quotes, so that members find the MTU of paths to clients (RFC 7690); one about a flow that is not known to the worker
goes where its hash says. With `nat` what it quotes is translated too (RFC 5508, 4.2), and errors about packets to members
come from the service. Fragments follow the first of their datagram for 2 s, of 1024 datagrams at most; those that come before
it pass as packets to something else do (put IPReassembler before where that happens).

Flows are remembered by each worker for itself: at most FLOWS of each family, YOUNG of which may be unproven (TCP by a
packet without SYN after its SYN, others by a third packet), so that attempts never push out flows that live. With STATE
false nothing is remembered, and a flow goes where its hash says. Members are chosen by a hash whose SEED and members'
names are all that machines must share to agree.

METHOD is `maglev[=SLOTS]`, `resilient[=BUCKETS]`, `hash`, `xor`, `per-packet`, `flowlet[=GAP]` or `least-loaded`. A member
of weight 0 is drained: it keeps its flows and takes no new ones. What CHECK says is asked of every member,
`tcp`, `http PATH [STATUS|FIRST-LAST]` or `ping`, then any of `every TIME`, `timeout TIME`, `fall N` and `rise N`; the host's own
stack does the asking. A member that fails has its flows given to others until it is back; when all fail, all are taken for
well.",
    example: "Idle -> b :: FlowBalancer(SERVICE 192.0.2.1:80 tcp, MEMBER web1 10.0.2.11, MEMBER web2 10.0.2.12 weight 2);
b -> Discard; b[1] -> Discard;",
    ports: "1-/1-",
    processing: "h/h",
    args: &[
        Arg::keyword("SERVICE", "ADDRESS[:PORT] [tcp|udp]", "", "what packets are sent to; any number of them"),
        Arg::keyword("MEMBER", "NAME ADDRESS[:PORT] [weight N]", "", "a server; any number of them"),
        Arg::keyword("METHOD", "method", "maglev", "how a new flow's member is chosen"),
        Arg::keyword("FORWARD", "direct or nat", "direct", "how packets get to members"),
        Arg::keyword("FRAMES", "bool", "false", "whether packets are whole frames, on their way to IPForward and IP6Forward"),
        Arg::keyword("ROUTER", "element", "", "the IPRouter that frames are on their way through; plain ones leave at once then"),
        Arg::keyword("CHECK", "check", "", "what is asked of members, such as `tcp`, `http /health 200 every 5s` or `ping fall 2`; nothing if not given"),
        Arg::keyword("STATE", "bool", "true", "whether flows are remembered"),
        Arg::keyword("SEED", "number", "0", "of the hash that members are chosen by"),
        Arg::keyword("FLOWS", "flows", "1048576", "most flows that are remembered, of a family and worker"),
        Arg::keyword("YOUNG", "flows", "65536", "most of them that are not proven"),
        Arg::keyword("RESERVE", "flows", "0", "of how many of them the memory is taken at the start, in huge pages where the system has some"),
        Arg::keyword("PRESET", "default or paper", "default", "after what time a flow is idle: by its state, or always 30 s"),
    ],
    handlers: HANDLERS,
    per_worker: true,
    build: |args| Ok(Box::new(FlowBalancer::new(args)?)),
    ..Class::DEFAULT
};

/// The outputs, where packets are no frames.
const MEMBERS: usize = 0;
const OTHERS: usize = 1;
const ANSWERS: usize = 2;

/// How often flows are looked after while no packet comes.
const PERIOD: Duration = Duration::from_millis(100);
/// How often at most while packets come.
const PAUSE: Duration = Duration::from_micros(500);

/// A balancer on one worker.
pub(super) struct FlowBalancer {
    pub(super) shared: Arc<SharedBalancer>,
    /// The way to the choice; none only while a batch is at work.
    balancer: Option<Balancer>,
    is_nat: bool,
    takes_frames: bool,
    /// When flows were looked after.
    maintained: Duration,
    answers: Answers,
    pub(super) local: Local,
    pub(super) follow: Follow,
    pub(super) exchange: Exchange,
    pub(super) v4: Known<Flow4>,
    pub(super) v6: Known<Flow6>,
    /// Of a batch: whose each packet is.
    whose: Vec<Whose>,
    /// Of one of frames: where each goes.
    exits: Vec<u16>,
    shortcut: Option<Shortcut>,
    /// The output of the router's first port.
    first_port: usize,
    pub(super) tally: Tally,
    has_others: bool,
    /// Of the one copy of all workers that checks members.
    checks: Option<Checks>,
    is_first: bool,
}

/// Whose a packet is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Whose {
    /// It is not for a service.
    Others,
    /// It is for a service, and no member can take it.
    Nobody,
    Member(MemberId),
}

impl FlowBalancer {
    fn new(args: &mut Args<'_>) -> Result<FlowBalancer, ArgError> {
        let (is_nat, takes_frames) = (is_nat(args)?, args.read("FRAMES")?);
        let shared = match args.already_shared::<SharedBalancer>() {
            Some(shared) => shared,
            None => {
                let nat = if is_nat { Some(nat_flows(args)?) } else { None };
                let shared = SharedBalancer::new(args, nat)?;
                args.shared(|| shared)
            }
        };
        if is_nat && shared.services.len() > 1 {
            return Err(ArgError::wrong("with FORWARD nat there is one SERVICE: answers could be of any"));
        }
        let balancer = FlowBalancer {
            balancer: Some(shared.balancer()),
            v4: Known::new(|has_service| table(args, has_service), &shared.services)?,
            v6: Known::new(|has_service| table(args, has_service), &shared.services)?,
            shared,
            is_nat,
            takes_frames,
            maintained: Duration::ZERO,
            answers: Answers::default(),
            local: Local::new(args.worker().0),
            follow: Follow::default(),
            exchange: Exchange::default(),
            whose: Vec::new(),
            exits: Vec::new(),
            shortcut: shortcut(args, takes_frames, is_nat)?,
            first_port: args.inputs(),
            tally: Tally::default(),
            has_others: args.outputs() > OTHERS,
            checks: None,
            is_first: args.copy().0 == 0,
        };
        check_ports(args, takes_frames, balancer.shortcut.as_ref())?;
        Ok(balancer)
    }

    /// Leads frames to their members: by the shortcut, or by annotation.
    fn lead(&mut self, input: usize, batch: &mut Batch, choice: &Choice, cx: &mut Context<'_>) {
        let FlowBalancer { v4, v6, local, follow, shared, tally, exits, shortcut, .. } = self;
        let addresses = (choice.generation(), choice.places());
        let open = shortcut.as_mut().and_then(|shortcut| shortcut.open(input, addresses, cx.turn()));
        match &open {
            Some(open) => note(v4, v6, batch, |frame| look_through(frame, &open.gate), |_| ()),
            None => note(v4, v6, batch, look_in, |_| ()),
        }
        let (lane4, lane6) = open.map(|open| (open.v4, open.v6)).unzip();
        exits.clear();
        exits.resize(batch.len(), ON);
        let now = cx.now().since_epoch();
        let mut by = Chooser { choice, local, follow, seed: &shared.seed, now };
        let frames = batch.iter_mut().into_slice();
        let mut leading = Leading { lane: lane4, frames, exits, choice };
        v4.assign(&mut by, tally, &mut leading);
        v4.assign_others(&mut by, tally, &mut leading);
        let mut leading = Leading { lane: lane6, frames: leading.frames, exits: leading.exits, choice };
        v6.assign(&mut by, tally, &mut leading);
        v6.assign_others(&mut by, tally, &mut leading);
        let ours = v4.noted() + v6.noted();
        tally.balanced += ours as u64;
        tally.others += (batch.len() - ours) as u64;
    }

    /// Sends frames where they are led.
    fn send(&mut self, input: usize, batch: &mut Batch, cx: &mut Context<'_>) {
        let first = self.exits.first().copied().unwrap_or(ON);
        let are_alike = self.exits.iter().fold(0, |unlike, exit| unlike | exit ^ first) == 0;
        match first {
            ON if are_alike => cx.send_all(input, batch),
            port if are_alike && port != NOWHERE => {
                cx.exit(Level::L3, batch);
                cx.send_all(self.first_port + usize::from(port), batch);
            }
            _ => self.send_each(input, batch, cx),
        }
    }
    fn send_each(&mut self, input: usize, batch: &mut Batch, cx: &mut Context<'_>) {
        let exits = std::mem::take(&mut self.exits);
        for (frame, exit) in batch.drain().zip(&exits) {
            match *exit {
                ON => cx.send(input, frame),
                NOWHERE => {
                    self.tally.balanced -= 1;
                    self.leave_out(frame, cx);
                }
                _ if cx.exits(Level::L3, &frame) => cx.discard(frame, DropReason::Monitored),
                port => cx.send(self.first_port + usize::from(port), frame),
            }
        }
        self.exits = exits;
    }

    /// A packet of the service, on its way to its member.
    #[inline]
    fn directed(&mut self, mut packet: Packet, member: &Member, cx: &mut Context<'_>) -> Option<Packet> {
        if self.is_nat {
            if self.takes_frames {
                mark_packet(&mut packet);
            }
            if !translate(&mut packet, End::Destination, member.address, member.port) {
                cx.discard(packet, DropReason::Malformed);
                return None;
            }
        }
        if let Some(nat) = &self.shared.nat {
            nat.record_packet(ip_header::bytes(&packet), cx.now().since_epoch());
        }
        match member.address {
            IpAddr::V4(address) => packet.set_dst_ip(address),
            IpAddr::V6(address) => packet.set_annotation(anno::DST_IP6, address.octets()),
        }
        self.tally.balanced += 1;
        Some(packet)
    }

    /// Lets a packet pass that no member gets, or ends it.
    #[cold]
    fn leave_out(&mut self, packet: Packet, cx: &mut Context<'_>) {
        self.tally.nobody += 1;
        match self.takes_frames {
            true => cx.discard(packet, DropReason::NoMember),
            false => self.let_pass(packet, DropReason::NoMember, cx),
        }
    }

    fn let_pass(&mut self, packet: Packet, reason: DropReason, cx: &mut Context<'_>) {
        match self.has_others {
            true => cx.send(OTHERS, packet),
            false => cx.discard(packet, reason),
        }
    }

    /// A packet that is not for a service. Frames go on as they are, but for answers of members.
    #[inline]
    fn not_ours(&mut self, mut packet: Packet, choice: &Choice, cx: &mut Context<'_>) -> Option<Packet> {
        if self.takes_frames {
            let is_answer = self.is_nat && self.turn_answer(&mut packet, choice, cx);
            self.tally.answers += u64::from(is_answer);
            self.tally.others += u64::from(!is_answer);
            return Some(packet);
        }
        self.tally.others += 1;
        self.let_pass(packet, DropReason::NoMatch, cx);
        None
    }

    /// Gives an answer of a member the service's name. Says whether it is one.
    fn turn_answer(&mut self, packet: &mut Packet, choice: &Choice, cx: &mut Context<'_>) -> bool {
        if self.takes_frames {
            if look_in(packet).version == 0 {
                return false;
            }
            mark_packet(packet);
        }
        let Some(flows) = &self.shared.nat else { return false };
        let service = &self.shared.services[0];
        self.answers.has(ip_header::bytes(packet), Served { service, choice, flows }, cx.now().since_epoch())
            && translate(packet, End::Source, service.address, service.port)
    }

    /// Sends answers of members on in the service's name.
    fn answer(&mut self, batch: &mut Batch, choice: &Choice, cx: &mut Context<'_>) {
        for mut packet in batch.drain() {
            if self.is_nat && self.turn_answer(&mut packet, choice, cx) {
                self.tally.answers += 1;
                cx.send(ANSWERS, packet);
            } else {
                self.tally.others += 1;
                self.let_pass(packet, DropReason::NoMatch, cx);
            }
        }
    }

    /// Gives each packet to whom it is for.
    fn deal(&mut self, batch: &mut Batch, choice: &Choice, cx: &mut Context<'_>) {
        let mut whose = std::mem::take(&mut self.whose);
        whose.clear();
        let tell = |is_ours| whose.push(if is_ours { Whose::Nobody } else { Whose::Others });
        let FlowBalancer { v4, v6, local, follow, shared, tally, takes_frames, .. } = self;
        match takes_frames {
            true => note(v4, v6, batch, look_in, tell),
            false => note(v4, v6, batch, look_at, tell),
        }
        let now = cx.now().since_epoch();
        let mut by = Chooser { choice, local, follow, seed: &shared.seed, now };
        v4.assign(&mut by, tally, &mut whose);
        v6.assign(&mut by, tally, &mut whose);
        v4.assign_others(&mut by, tally, &mut whose);
        v6.assign_others(&mut by, tally, &mut whose);
        let mut of_packets = whose.iter();
        batch.filter_map(|packet| match of_packets.next() {
            Some(Whose::Others) => self.not_ours(packet, choice, cx),
            Some(Whose::Member(id)) if let Some(member) = choice.member(id.action()) => {
                self.directed(packet, member, cx)
            }
            _ => {
                self.leave_out(packet, cx);
                None
            }
        });
        self.whose = whose;
    }

    /// Does what is to be done with a batch.
    fn balance(&mut self, input: usize, batch: &mut Batch, choice: &Choice, cx: &mut Context<'_>) {
        let now = cx.now().since_epoch();
        match (self.takes_frames, self.is_nat) {
            (true, false) => {
                self.lead(input, batch, choice, cx);
                self.send(input, batch, cx);
            }
            (false, _) if input == 1 => return self.answer(batch, choice, cx),
            (takes_frames, _) => {
                self.deal(batch, choice, cx);
                cx.send_all(if takes_frames { input } else { MEMBERS }, batch);
            }
        }
        if now.saturating_sub(self.maintained) >= PAUSE {
            self.maintain(choice, now);
        } else if self.follow.is_on() {
            // Who follows hears of a flow's end before it comes again.
            self.settle(choice);
        }
    }

    /// Looks after some flows: those whose turn it is after this time.
    #[cold]
    fn maintain(&mut self, choice: &Choice, now: Duration) {
        let since = now.saturating_sub(self.maintained);
        self.maintained = now;
        self.settle(choice);
        self.v4.maintain(now, since);
        self.v6.maintain(now, since);
        self.settle(choice);
        self.follow.rest(now);
    }

    /// Tells of flows that have ended.
    pub(super) fn settle(&mut self, choice: &Choice) {
        let nat = self.shared.nat.as_ref();
        self.v4.settle(&mut self.local, &mut self.follow, nat, choice);
        self.v6.settle(&mut self.local, &mut self.follow, nat, choice);
    }
}

/// Notes whose packets are.
impl Tell for Vec<Whose> {
    fn tell(&mut self, packet: Noted, member: Option<MemberId>) {
        if let Some(whose) = self.get_mut(packet.at()) {
            *whose = member.map_or(Whose::Nobody, Whose::Member);
        }
    }
}

/// Says of a frame where its packet begins.
fn mark_packet(frame: &mut Packet) {
    let header_len = match look_in(frame) {
        Found { version: 6, .. } => Ipv6::<&[u8]>::LEN,
        Found { bytes, .. } => Ipv4::new(bytes).map_or(0, |ip| ip.header_len()),
    };
    ip_header::mark(frame, LINK, header_len);
}

fn is_nat(args: &Args<'_>) -> Result<bool, ArgError> {
    match args.read::<String>("FORWARD")?.as_str() {
        "direct" => Ok(false),
        "nat" => Ok(true),
        other => Err(ArgError::wrong_at(other, format!("FORWARD is 'direct' or 'nat', not '{other}'"))),
    }
}

/// The shortcut past the forwarders of ROUTER, if that is given.
fn shortcut(args: &Args<'_>, takes_frames: bool, is_nat: bool) -> Result<Option<Shortcut>, ArgError> {
    match (args.is_given("ROUTER"), takes_frames, is_nat) {
        (false, ..) => Ok(None),
        (true, true, false) => Shortcut::new(args).map(Some),
        (true, false, _) => Err(ArgError::wrong("ROUTER is for whole frames; write FRAMES true, too")),
        (true, true, true) => {
            Err(ArgError::wrong("frames that are translated go by the forwarders alone; leave ROUTER out"))
        }
    }
}

/// Refuses inputs and outputs that nothing comes by.
fn check_ports(args: &Args<'_>, takes_frames: bool, shortcut: Option<&Shortcut>) -> Result<(), ArgError> {
    let (inputs, outputs) = (args.inputs(), args.outputs());
    let wanted = match shortcut.map(Shortcut::ports) {
        Some(ports) if inputs > ports || outputs != inputs + ports => {
            format!(
                "a ROUTER with {ports} ports takes {ports} inputs at most, and {ports} outputs more than inputs"
            )
        }
        None if takes_frames && inputs != outputs => {
            "with FRAMES there are as many outputs as inputs".to_string()
        }
        None if !takes_frames && (inputs > 2 || outputs > 3) => {
            "without FRAMES there are 2 inputs and 3 outputs at most".to_string()
        }
        _ => return Ok(()),
    };
    Err(ArgError::wrong(format!("{inputs} inputs and {outputs} outputs are connected; {wanted}")))
}

/// The set of translated flows that all copies share.
fn nat_flows(args: &Args<'_>) -> Result<NatFlows, ArgError> {
    let flows = (args.read::<u32>("FLOWS")? as usize).saturating_mul(args.copy().1);
    NatFlows::new(flows, &idle_times(args)?)
        .map_err(|error| ArgError::wrong(format!("no memory for FLOWS {flows} with FORWARD nat: {error}")))
}

fn idle_times(args: &Args<'_>) -> Result<IdleTimes, ArgError> {
    match args.read::<String>("PRESET")?.as_str() {
        "default" => Ok(IdleTimes::default()),
        "paper" => Ok(IdleTimes::PAPER),
        other => Err(ArgError::wrong_at(other, format!("PRESET is 'default' or 'paper', not '{other}'"))),
    }
}

/// The table of flows that the arguments describe; none without STATE.
fn table<K: FlowKey>(args: &Args<'_>, has_service: bool) -> Result<Option<FlowTable<K>>, ArgError> {
    let limits = FlowLimits { flows: args.read("FLOWS")?, young: args.read("YOUNG")? };
    let idle = idle_times(args)?;
    if !args.read::<bool>("STATE")? {
        return Ok(None);
    }
    let settings = FlowSettings { idle, ..FlowSettings::default() };
    let reserve: u32 = args.read("RESERVE")?;
    // Taken piece by piece while packets flow, huge pages would hold them up.
    let storage: &dyn Storage = if reserve > 0 { &HugePages } else { &Pages };
    let table = FlowTable::new(limits, settings, Seed::random(), storage);
    let mut table =
        table.map_err(|error| ArgError::wrong(format!("no memory for FLOWS {}: {error}", limits.flows)))?;
    if has_service {
        table.populate(reserve);
    }
    Ok(Some(table))
}

impl Element for FlowBalancer {
    fn start(&mut self, cx: &mut Context<'_>) -> Result<(), StartError> {
        if let Some(check) = self.shared.check.clone().filter(|_| self.is_first) {
            let checks = Checks::new(check);
            self.checks =
                Some(checks.map_err(|why| StartError::new(format!("members can't be checked: {why}")))?);
            cx.schedule();
        }
        let then = cx.now() + PERIOD;
        cx.wake_at(then);
        Ok(())
    }

    fn push(&mut self, input: usize, batch: &mut Batch, cx: &mut Context<'_>) {
        // Taken and put back: a clone would write a count that all workers share, with every batch.
        let Some(balancer) = self.balancer.take() else {
            return cx.discard_all(batch, DropReason::NoMember);
        };
        self.balance(input, batch, balancer.at(cx.turn()), cx);
        self.balancer = Some(balancer);
    }

    fn run(&mut self, cx: &mut Context<'_>) -> bool {
        let time = cx.now();
        let now = time.since_epoch();
        let balancer = self.shared.balancer();
        let choice = balancer.at(cx.turn());
        self.maintain(choice, now);
        if exchange::flush(self) {
            cx.schedule();
        }
        self.settle(choice);
        self.shared.members().poll(now);
        let mut next = time + PERIOD;
        if let Some(checks) = &mut self.checks {
            let (due, said) = checks.run(&self.shared, now);
            next = next.min(time + due.saturating_sub(now));
            let name = cx.name().to_string();
            said.iter().for_each(|line| cx.say(&format!("{name}: {line}")));
            cx.watch(checks.file(), Interest::Readable);
        }
        cx.wake_at(next);
        true
    }

    /// Takes over the flows of a balancer of the same members.
    fn take_state(&mut self, old: &mut dyn Any, cx: &mut Context<'_>) {
        if let Some(old) = old.downcast_mut::<FlowBalancer>() {
            let now = cx.now().since_epoch();
            let (ours, theirs) = (self.shared.balancer(), old.shared.balancer());
            let both = (ours.at(cx.turn()), theirs.at(cx.turn()));
            let nat = self.shared.nat.as_ref();
            self.v4.take_over(&mut old.v4, &mut self.local, nat, both, now);
            self.v6.take_over(&mut old.v6, &mut self.local, nat, both, now);
            self.follow = std::mem::take(&mut old.follow);
            self.tally = old.tally;
        }
    }
}

#[cfg(test)]
mod tests;
