use super::announce::Announcements;
use super::handlers::HANDLERS;
use super::host_addresses::HostAddresses;
use super::links::Links;
use super::shared::{SharedSwitch, to_handler_error};
use super::speak::send_all;
use super::worker::BatchSwitch;
use artery_common::frame_filter::{FilterCommands, FilterFactories, FrameFilter, RulesMaker, SharedRules};
use artery_device::Ports;
use artery_engine::{
    Arg, ArgError, Args, Batch, Class, Context, Element, HandlerError, Interest, StartError, Time,
};
use artery_l2::Question;
use artery_l2::counts::Counts;
use artery_l2::quick::BatchLookup;
use artery_l2::stp::Outgoing;
use artery_wire::EtherType;
use std::any::Any;
use std::sync::Arc;
use std::time::Duration;

/// The class Veb, whose switches have a filter with rules of `M`.
pub const fn class_with_rules<M: RulesMaker>() -> Class {
    Class { build: |args| Ok(Box::new(Veb::new::<M>(args)?)), ..WITHOUT_RULES }
}

const WITHOUT_RULES: Class = Class {
    name: "Veb",
    group: "switch",
    summary: "switches Ethernet frames between ports by their addresses, as veb(4) does",
    manual: "
Expects Ethernet frames. Frames that port I receives come by input I, and what it is to send leaves by output
I; ports are numbered in the order of the PORT arguments, and those of SPAN arguments come behind. A frame
goes to the port that its destination was last seen at, and to all others where that isn't known, or is a
group; it never goes back to the port it came from. Every frame belongs to a VLAN: that of its tag, if the
port is in it (`tagged`), or else the port's own (`untagged`, which is VNETID if nothing else was said).
Addresses are known by VLAN.

The packet filter has the rules of PF, or those that `artery pfctl` loads; their names for interfaces are
those of the switch and its ports. Packets of rules with `log` are added to PFLOG, as pflog(4) shows them, by
a thread of its own. Files that rules name are looked for in PFETC if they are in /etc or have no folder.

What can be said of ports and of the switch are the words of ifconfig(8) for veb(4): by IFCONFIG at the start,
and by the handler of that name while it runs (see `artery ifconfig`). A PORT is `NAME [ADDRESS/LENGTH…]
[vport] [detached] [sticky] [FLAG…]`. Its addresses are what rules mean by its name, until the host has an
interface of that name: then they mean what that has, `(NAME)` also what it gets later. A `vport` is the
host's own port of the switch, such as a FromHost with its ToHost: filters see `in` and `out` reversed there.
Its addresses are announced at the start, so that others learn where they are now. A `detached` port becomes
part of the switch when `add` names it; addresses that were learned at a `sticky` one don't move until they
are forgotten. FLAG is `learn`, `discover`, `locked`, `blocknonip` or one of those with a `-`. Without PORT
and SPAN there are as many ports as inputs or outputs are connected, called p0, p1 and so on.

With LINK0 tags of VLANs that the port is not in pass untouched, as part of a frame of the port's own VLAN,
and so do frames to those reserved addresses (01:80:c2:00:00:00 to 0f) that a bridge of providers passes on;
RESERVED names further ones by their last two digits. With LINK1 a packet filter sees IPv4 and IPv6 of
untagged frames as they come in and as they go out. At vports it sees them without LINK1, too. What no host
would take is dropped before rules are asked: a bad checksum of the header, a length that is not there,
loopback addresses, a group as source.

With as many outputs again as there are ports, output N + I takes what came by port I and is the host's:
everything while the switch is down, frames of a port that is detached, and untagged ones of a port that says
`passthrough`. Without them such frames are dropped.

Ports of which IFCONFIG says `stp` take part in a spanning tree (RSTP, and STP to neighbors that speak nothing
else), which holds those back that would close a circle. The switch is known to others by ETHER; else by the
lowest address of the interfaces that its ports are called after; else by one that is made of its own name.
Links of interfaces are followed: what is down gets no frames.

With `snoop` frames for groups of IP go to their members and to routers only, by what these say by IGMP and
MLD (RFC 4541), where hosts are asked for their groups: a router that is heard, or the switch itself with
`querier ADDRESS`. Until hosts have had 10 s to answer, and for groups of the link itself (224.0.0.0/24,
ff02::/16), frames go to all. A port that says `mcastrouter` gets all groups; one that says `fastleave` is
left as soon as one host behind it leaves. One that says `nobroadcast` or `nomulticast` gets no broadcasts, or
no groups that it isn't known to want; by one that says `hairpin` frames may leave that came by it.

Addresses are forgotten TIMEOUT after they were last seen as a source. When MAXADDR are known no more are
learned, and frames to others go to all ports; with EVICT an old one makes room, for at most 50,000 new ones a
second and port. Of an address that moves between ports more than five times in DAMPING no move is believed
for as long again.",
    example: "
veb0 :: Veb(PORT em0, PORT em1, PORT vport0 vport, IFCONFIG \"protected em0 1,2\");
Idle -> veb0 -> Discard; Idle -> [1] veb0; veb0[1] -> Discard; Idle -> [2] veb0; veb0[2] -> Discard;",
    ports: "1-/1-",
    processing: "h/h",
    args: &[
        Arg::keyword(
            "PORT",
            "NAME [ADDRESS/LENGTH…] [vport] [detached] [sticky] [FLAG…]",
            "",
            "a port; any number of them",
        ),
        Arg::keyword(
            "SPAN",
            "NAME",
            "",
            "a port that gets a copy of every frame and takes none; any number of them",
        ),
        Arg::keyword("VNETID", "VLAN", "1", "the VLAN of untagged frames, where the port says nothing else"),
        Arg::keyword("MAXADDR", "addresses", "100", "most addresses that are known"),
        Arg::keyword("TIMEOUT", "seconds", "240", "after how long addresses are forgotten; 0 for never"),
        Arg::keyword("UP", "bool", "true", "whether it switches from the start"),
        Arg::keyword(
            "LINK0",
            "bool",
            "false",
            "whether tags that no port list names pass, and reserved addresses",
        ),
        Arg::keyword("LINK1", "bool", "false", "whether a packet filter sees IP"),
        Arg::keyword("LINK2", "bool", "false", "accepted; IPsec is not looked into"),
        Arg::keyword(
            "RESERVED",
            "hex digits",
            "",
            "reserved addresses that are forwarded, as `0e`; any number of them",
        ),
        Arg::keyword(
            "ETHER",
            "EtherAddress",
            "",
            "by which the spanning tree knows it; the lowest of its ports' if not given",
        ),
        Arg::keyword(
            "EVICT",
            "bool",
            "false",
            "whether a new address takes the place of an old one when the table is full",
        ),
        Arg::keyword("LEARN_RATE", "addresses", "0", "most new addresses and moves a second; 0 for no limit"),
        Arg::keyword("DAMPING", "time", "10s", "in what time an address may move five times; 0 for no limit"),
        Arg::keyword(
            "PF",
            "filename",
            "",
            "the rules of the packet filter, a pf.conf; without it all passes until rules are loaded",
        ),
        Arg::keyword("PFLOG", "filename", "", "where packets of rules with `log` are written"),
        Arg::keyword(
            "PFLOG_MAX",
            "bytes",
            "1G",
            "most bytes of that file, after which it is renamed to FILE.old and a new one is started; 0 for \
             no limit",
        ),
        Arg::keyword("PFETC", "folder", "", "what rules mean by /etc where they name files"),
        Arg::keyword(
            "IFCONFIG",
            "words",
            "",
            "what ifconfig would say of the switch, as `\"rule block in on em0\"`; any number of them, done \
             in order",
        ),
    ],
    handlers: HANDLERS,
    ..Class::PER_WORKER
};

/// How often the MAC table is searched for expired entries.
const SWEEP: Duration = Duration::from_secs(1);
/// How often a filter that is not idle searches for expired states, in steps large enough to
/// keep up with floods.
const FILTER_SWEEP: Duration = Duration::from_millis(100);

/// A switch on one worker.
pub(super) struct Veb {
    shared: Arc<SharedSwitch>,
    counts: Arc<Counts>,
    filter: Option<Box<dyn FrameFilter>>,
    filters: Arc<FilterFactories>,
    /// The rules of its own filter.
    rules: Arc<dyn SharedRules>,
    /// Whether these are those of a file; otherwise those that were loaded last.
    has_rules_of_file: bool,
    /// Kept from batch to batch, so that its memory is reused.
    lookup: BatchLookup,
    /// Index of this copy; the first one follows addresses and links for all.
    copy: usize,
    ports: Arc<Ports>,
    /// The links of all ports, at the first copy.
    links: Option<Links>,
    /// What the host has at these, at the first copy.
    addresses: Option<HostAddresses>,
    /// Announcements of the host's addresses, which the first copy sends.
    announcements: Option<Announcements>,
    /// Frames to be sent when the element first runs.
    initial_frames: Outgoing,
    /// When expired entries are next removed, and when expired states of its filter are.
    next_sweep: Time,
    next_filter_sweep: Time,
}

impl Veb {
    fn new<M: RulesMaker>(args: &mut Args<'_>) -> Result<Veb, ArgError> {
        let shared = match args.already_shared::<SharedSwitch>() {
            Some(shared) => shared,
            None => {
                let shared = SharedSwitch::new(args)?;
                args.shared_value(|| shared)
            }
        };
        let rules = M::shared_rules(args, &shared.name, &shared.interfaces, &shared.devices)?;
        Ok(Veb {
            rules,
            has_rules_of_file: args.read::<Option<String>>("PF")?.is_some(),
            counts: shared.switch().new_counts(),
            shared,
            filter: None,
            filters: args.resource(),
            lookup: BatchLookup::default(),
            copy: args.copy_index().0,
            ports: args.resource(),
            links: None,
            addresses: None,
            announcements: None,
            initial_frames: Outgoing::new(),
            next_sweep: Time::ZERO,
            next_filter_sweep: Time::ZERO,
        })
    }

    /// What can be asked of its filter, if that is its own.
    pub(super) fn filter_commands(&mut self) -> Result<&mut dyn FilterCommands, HandlerError> {
        let commands = self.filter.as_mut().and_then(|filter| filter.commands());
        commands.ok_or_else(|| to_handler_error("the switch has a filter of another kind"))
    }

    pub(super) fn ifconfig(&mut self, words: &str, cx: &mut Context<'_>) -> Result<(), HandlerError> {
        let mut outgoing = Outgoing::new();
        let told = self.shared.apply_ifconfig(words, now(cx), &mut outgoing);
        self.send_outgoing(&outgoing, cx);
        told
    }

    /// Sends the frames of the switch itself, and wakes it when the next is due.
    fn send_outgoing(&mut self, outgoing: &Outgoing, cx: &mut Context<'_>) {
        send_all(outgoing, &self.counts, cx);
        let (spanning, switch) = (&self.shared.spanning, self.shared.switch());
        let groups = switch.next_group_deadline(switch.view(cx.turn()));
        let announcement = self.announcements.as_ref().and_then(Announcements::next_deadline);
        let deadlines = [spanning.next_deadline(now(cx)), groups, announcement];
        let deadlines = deadlines.into_iter().flatten().map(|next| Time::ZERO + next);
        let own = self.next_sweep.min(self.next_filter_sweep);
        cx.wake_at(deadlines.fold(own, Time::min));
    }

    /// Starts to follow the interfaces behind ports. Frames that the spanning tree sends for that wait until
    /// all elements have started: before that they would be lost.
    fn open_links(&mut self, cx: &mut Context<'_>) {
        let links = Links::open(self.ports.clone(), &self.shared.devices);
        if let Some(error) = &links.trouble {
            let name = cx.name().to_string();
            cx.print_message(&format!(
                "{name}: can't hear of its ports' links: {error}; they count as they are now"
            ));
        }
        self.shared.set_links(&links, now(cx), &mut self.initial_frames);
        self.links = Some(links);
    }

    /// Starts to follow the host's addresses, for rules.
    fn open_addresses(&mut self, cx: &mut Context<'_>) {
        match HostAddresses::open() {
            Ok(addresses) => self.addresses = Some(addresses),
            Err(error) => self.report_stale_addresses(&error, cx),
        }
    }

    fn report_stale_addresses(&self, error: &std::io::Error, cx: &mut Context<'_>) {
        let name = cx.name().to_string();
        cx.print_message(&format!(
            "{name}: can't follow its ports' addresses: {error}; for rules they stay what PORT says"
        ));
    }

    /// Has rules follow the host's addresses.
    fn follow_addresses(&mut self, cx: &mut Context<'_>) {
        let Some(mut addresses) = self.addresses.take() else { return };
        let Ok(filter) = self.filter_commands() else { return };
        match addresses.sync_rules(filter) {
            Ok(()) => {
                cx.watch_file(addresses.news_fd(), Interest::Readable);
                self.addresses = Some(addresses);
            }
            Err(error) => self.report_stale_addresses(&error, cx),
        }
    }

    /// Starts to announce the host's addresses.
    fn begin_announcements(&mut self, cx: &mut Context<'_>) {
        let view = self.shared.switch().view(cx.turn());
        let is_vport = |port| view.is_vport(port);
        self.announcements =
            Some(Announcements::new(&self.shared.interfaces, &self.shared.devices, is_vport, now(cx)));
    }

    /// Switches announcements that are due, as frames of the host.
    fn send_announcements(&mut self, cx: &mut Context<'_>) {
        let due = self.announcements.as_mut().map(|all| all.pop_due_frames(now(cx))).unwrap_or_default();
        for (port, frame) in due {
            let Some(packet) = cx.pool().packet_from(&frame) else { continue };
            let mut batch = cx.scratch_batch();
            batch.push(packet);
            self.push(port.into(), &mut batch, cx);
            cx.recycle_batch(batch);
        }
    }

    /// Reads changes of links.
    fn follow_links(&mut self, outgoing: &mut Outgoing, cx: &mut Context<'_>) {
        let Some(links) = &mut self.links else { return };
        if let Some(said) = links.poll_changes() {
            said.iter().for_each(|said| cx.print_message(&format!("{}: {said}", cx.name())));
            self.shared.set_links(links, now(cx), outgoing);
        }
        if let Some(file) = links.news_fd() {
            cx.watch_file(file, Interest::Readable);
        }
    }

    fn sweep_table(&mut self, cx: &mut Context<'_>) {
        self.next_sweep = cx.now() + SWEEP;
        if self.copy == 0 {
            self.shared.switch().sweep_addresses(now(cx));
        }
    }

    /// Removes expired states of the filter.
    fn sweep_filter(&mut self, cx: &mut Context<'_>) {
        let mut interval = SWEEP;
        if let Some(filter) = &mut self.filter {
            filter.expire_idle(cx);
            interval = if filter.is_idle() { SWEEP } else { FILTER_SWEEP };
        }
        self.next_filter_sweep = cx.now() + interval;
    }

    pub(super) fn show(&mut self, cx: &mut Context<'_>) -> Result<String, HandlerError> {
        Ok(self.shared.spanning.show(now(cx)))
    }

    pub(super) fn list_addresses(&mut self, cx: &mut Context<'_>) -> Result<String, HandlerError> {
        Ok(self.shared.switch().show_addresses(now(cx)))
    }

    pub(super) fn list_groups(&mut self, cx: &mut Context<'_>) -> Result<String, HandlerError> {
        Ok(self.shared.switch().list_groups(now(cx)))
    }

    pub(super) fn list_rules(&mut self, port: &str) -> Result<String, HandlerError> {
        let port = Some(port.trim()).filter(|port| !port.is_empty());
        self.shared.switch().show_rules(port).map_err(to_handler_error)
    }

    pub(super) fn list_commands(&mut self, cx: &mut Context<'_>) -> Result<String, HandlerError> {
        let commands = self.shared.spanning.dump_commands(now(cx));
        Ok(commands.iter().map(|command| format!("{command}\n")).collect())
    }

    pub(super) fn list_drops(&mut self) -> Result<String, HandlerError> {
        Ok(self.shared.switch().show_drops())
    }

    pub(super) fn stats(&mut self) -> Result<String, HandlerError> {
        Ok(self.shared.switch().show_stats())
    }

    pub(super) fn list_moves(&mut self, cx: &mut Context<'_>) -> Result<String, HandlerError> {
        Ok(self.shared.switch().show_moves(now(cx)))
    }

    /// The result for a frame `IF DST SRC [VID] [TYPE]`.
    pub(super) fn explain_frame(
        &mut self,
        frame: &str,
        cx: &mut Context<'_>,
    ) -> Result<String, HandlerError> {
        let question = self.parse_question(frame).ok_or_else(|| {
            let wanted =
                "wanted is IF DST SRC [VID] [TYPE], such as em0 02:00:00:00:00:01 02:00:00:00:00:02 7 0x0806";
            to_handler_error(format!("'{frame}' is not a frame; {wanted}"))
        })?;
        Ok(self.shared.switch().explain_frame(&question, now(cx), cx.turn()))
    }

    fn parse_question(&self, frame: &str) -> Option<Question> {
        let words: Vec<&str> = frame.split_whitespace().collect();
        let (port, [destination, source, rest @ ..]) = words.split_first()? else { return None };
        let hex = |word: &str| u16::from_str_radix(word.strip_prefix("0x")?, 16).ok();
        let (vlan, ether_type) = match rest {
            [] => (None, None),
            [word] if hex(word).is_some() => (None, hex(word)),
            [vlan] => (Some(vlan.parse::<u16>().ok()?), None),
            [vlan, word] => (Some(vlan.parse::<u16>().ok()?), Some(hex(word)?)),
            _ => return None,
        };
        if vlan.is_some_and(|vlan| vlan > 4095) {
            return None;
        }
        Some(Question {
            port: self.shared.port_number(port)?,
            destination: destination.parse().ok()?,
            source: source.parse().ok()?,
            vlan,
            ether_type: ether_type.map_or(EtherType::IPV4, EtherType),
        })
    }
}

fn now(cx: &mut Context<'_>) -> Duration {
    cx.now().since_epoch()
}

impl Element for Veb {
    fn start(&mut self, cx: &mut Context<'_>) -> Result<(), StartError> {
        self.filter = match self.filters.make_filter(&self.shared.name, &self.shared.names) {
            Some(filter) => Some(filter),
            None => Some(self.rules.clone().worker_filter(self.copy, cx)?),
        };
        self.next_sweep = cx.now() + SWEEP;
        self.next_filter_sweep = self.next_sweep;
        cx.wake_at(self.next_sweep);
        if self.copy == 0 {
            self.open_links(cx);
            self.open_addresses(cx);
            self.begin_announcements(cx);
            cx.schedule();
        }
        Ok(())
    }

    fn push(&mut self, input: usize, batch: &mut Batch, cx: &mut Context<'_>) {
        let Veb { shared, counts, filter, lookup, .. } = self;
        let (switch, turn, now) = (shared.switch(), cx.turn(), now(cx));
        let (all, vports) = (switch.view(turn).has_filter(), switch.view(turn).has_vports());
        let mut is_asked = all;
        if let Some(filter) = filter.as_mut().filter(|_| all || vports) {
            filter.begin_batch(cx);
            is_asked |= !filter.is_idle();
            if is_asked && filter.needs_offloads_applied() {
                cx.apply_offloads(batch);
            }
        }
        let mut batches = BatchSwitch {
            spanning: &shared.spanning,
            view: switch.view(turn),
            table: switch.table(turn),
            groups: switch.groups(turn),
            counts,
            filter: filter.as_deref_mut().filter(|_| is_asked),
            port: input as u16,
            now,
            needs_wake: false,
        };
        batches.switch_batch(batch, lookup, cx);
        if batches.needs_wake {
            self.send_outgoing(&Outgoing::new(), cx);
        }
    }

    fn run_task(&mut self, cx: &mut Context<'_>) -> bool {
        let mut outgoing = std::mem::take(&mut self.initial_frames);
        self.follow_links(&mut outgoing, cx);
        self.follow_addresses(cx);
        let (spanning, at) = (&self.shared.spanning, now(cx));
        spanning.tick(at, &mut outgoing);
        let questions = spanning.tick_groups(spanning.switch().view(cx.turn()), at);
        send_all(&questions, &self.counts, cx);
        self.send_announcements(cx);
        if cx.now() >= self.next_sweep {
            self.sweep_table(cx);
        }
        if cx.now() >= self.next_filter_sweep {
            self.sweep_filter(cx);
        }
        self.send_outgoing(&outgoing, cx);
        true
    }

    /// Restores the MAC table of a switch of the same name, and its spanning tree.
    fn take_state(&mut self, old: &mut dyn Any, cx: &mut Context<'_>) {
        let Some(old) = old.downcast_mut::<Veb>() else { return };
        if self.copy == 0 {
            let (ours, before) = (&self.shared.spanning, &old.shared.spanning);
            ours.adopt_state(before, now(cx), &mut self.initial_frames);
            if self.shared.interfaces == old.shared.interfaces {
                // Neighbors already know these addresses.
                self.announcements = old.announcements.take();
            }
            cx.schedule();
        }
        if let (Some(filter), Some(old)) = (&mut self.filter, &mut old.filter) {
            filter.restore_from(&mut **old, !self.has_rules_of_file, cx);
        }
    }
}

#[cfg(test)]
mod group_tests;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod tree_tests;
