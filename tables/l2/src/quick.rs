//! Where frames of a batch go that meet nothing but the table, all at once.
//!
//! Both addresses of all frames are hashed first, and their lines prefetched; then the lines are read, and
//! the entries decide the target of each frame.
use super::mac::{MacEntry, MacKey, MacTable};
use super::sight::{is_group, read_header};
use super::view::View;
use artery_wire::EtherType;

/// What becomes of a frame of a batch: the number of the port that it leaves by, or that it takes the slow
/// path; besides, whether it carries IP, and whether a filter blocks it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Target(u16);

impl Target {
    const EXCEPTION_BIT: u16 = 1 << 12;
    const NOT_IP_BIT: u16 = 1 << 13;
    const BLOCKED_OUT_BIT: u16 = 1 << 14;
    const BLOCKED_IN_BIT: u16 = 1 << 15;
    /// The bits of a port's number, or of the slow path.
    const PLACE: u16 = Target::NOT_IP_BIT - 1;

    /// Of a frame that takes the slow path.
    pub const EXCEPTION: Target = Target(Target::EXCEPTION_BIT);
    /// What a filter adds that passes a frame.
    pub const PASSED: Target = Target(0);
    /// What a filter adds that blocks a frame on ingress.
    pub const BLOCKED_IN: Target = Target(Target::BLOCKED_IN_BIT);
    /// What a filter adds that blocks a frame on egress.
    pub const BLOCKED_OUT: Target = Target(Target::BLOCKED_OUT_BIT);

    /// What is known by a frame's addresses and EtherType.
    #[inline(always)]
    fn of_header(is_exception: bool, is_ip: bool) -> Target {
        let exception = u16::from(is_exception) * Target::EXCEPTION_BIT;
        Target(exception | (u16::from(!is_ip) * Target::NOT_IP_BIT))
    }

    /// Adds what else is known.
    #[inline(always)]
    pub fn merge(&mut self, more: Target) {
        self.0 |= more.0;
    }

    /// Whether the frame takes the slow path.
    #[inline(always)]
    fn is_exception(self) -> bool {
        self.0 & Target::EXCEPTION_BIT != 0
    }

    /// The port that the frame leaves by; None on the slow path.
    #[inline(always)]
    pub fn port(self) -> Option<u16> {
        (!self.is_exception()).then_some(self.0 & Target::PLACE)
    }

    /// The same for a frame that a filter tests, which carries IP and is not blocked yet.
    #[inline(always)]
    pub fn filtered_port(self) -> Option<u16> {
        (self.0 < Target::EXCEPTION_BIT).then_some(self.0)
    }

    /// Whether the frame carries IPv4 or IPv6.
    pub fn is_ip(self) -> bool {
        self.0 & Target::NOT_IP_BIT == 0
    }

    /// Whether a filter blocks the frame on ingress.
    #[inline(always)]
    pub fn is_blocked_in(self) -> bool {
        self.0 & Target::BLOCKED_IN_BIT != 0
    }

    /// Whether a filter blocks the frame.
    #[inline(always)]
    pub fn is_blocked(self) -> bool {
        self.0 & (Target::BLOCKED_IN_BIT | Target::BLOCKED_OUT_BIT) != 0
    }

    /// Whether a filter blocks any of the frames. All are looked at, as that is quicker than to stop.
    #[inline]
    pub fn is_any_blocked(targets: &[Target]) -> bool {
        Target(targets.iter().fold(0, |all, target| all | target.0)).is_blocked()
    }

    /// The port that all of the frames leave by, if they leave by one. All are compared, as that is quicker
    /// than to stop at the first that differs.
    #[inline]
    pub fn common_port(targets: &[Target]) -> Option<u16> {
        let first = targets.first()?;
        let differ = targets.iter().fold(0, |differ, target| differ | (target.0 ^ first.0));
        first.port().filter(|_| differ & Target::PLACE == 0)
    }
}

/// What stands for a header that a frame is too short for: one of a group.
const NO_HEADER: (u64, u64, u16) = (u64::MAX >> 16, 0, 0);

/// The targets of a batch of frames, kept from batch to batch so that they need not be allocated again.
#[derive(Debug, Default)]
pub struct BatchLookup {
    /// Of each frame its source and its destination, as the table looks them up.
    keys: Vec<[u64; 2]>,
    targets: Vec<Target>,
    /// Frames whose source was not seen in this second.
    stale: Vec<usize>,
}

impl BatchLookup {
    /// Finds the targets of frames that came by a [fast-path](View::is_fast_path) port, `now` in seconds.
    #[inline]
    pub fn lookup_batch<'a>(
        &mut self,
        (view, table): (&View, &MacTable),
        port: u16,
        now: u32,
        frames: impl ExactSizeIterator<Item = &'a [u8]>,
    ) {
        self.hash_addresses(table, view.vlan(port).unwrap_or(0), frames);
        self.decide_targets(view, table, port, now);
    }

    /// The target of each frame. If it has a port, its source is known to be at the port that it came by, and
    /// its destination to be at one that is open to it: then [`trace_frame`](super::decide::trace_frame)
    /// gives the same result, and nothing is to be learned except that the source was seen.
    #[inline]
    pub fn targets_mut(&mut self) -> &mut [Target] {
        &mut self.targets
    }

    /// Records that sources were seen in a second, of those frames whose targets now say that they came in.
    #[inline]
    pub fn refresh_sources(&mut self, table: &MacTable, now: u32, came_in: impl Fn(Target) -> bool) {
        let BatchLookup { keys, targets, stale } = self;
        for frame in stale.drain(..).filter(|frame| came_in(targets[*frame])) {
            if let Some(source) = table.find_mixed(keys[frame][0]) {
                table.refresh_entry(source, now);
            }
        }
    }

    /// By itself, so that the loop has all registers: amid the switch's own code it loads words that were
    /// spilled, for each frame.
    #[inline(never)]
    fn hash_addresses<'a>(
        &mut self,
        table: &MacTable,
        vlan: u16,
        frames: impl ExactSizeIterator<Item = &'a [u8]>,
    ) {
        let BatchLookup { keys, targets, .. } = self;
        keys.resize(frames.len(), [0; 2]);
        targets.resize(frames.len(), Target::default());
        for ((bytes, keys), target) in frames.zip(keys).zip(targets) {
            let (destination, source, ether_type) = read_header(bytes).unwrap_or(NO_HEADER);
            *keys = [source, destination].map(|address| table.prefetch_key(MacKey::new(address, vlan)));
            // Without branches: what comes next can't be foreseen.
            let is = |known: EtherType| ether_type == known.0;
            let is_exception = is(EtherType::VLAN) | is(EtherType::QINQ) | is_group(destination);
            let is_ip = is(EtherType::IPV4) | is(EtherType::IPV6);
            *target = Target::of_header(is_exception, is_ip);
        }
    }

    #[inline(always)]
    fn decide_targets(&mut self, view: &View, table: &MacTable, port: u16, now: u32) {
        let BatchLookup { keys, targets, stale } = self;
        stale.clear();
        let classifier = TargetClassifier { open: view.open_from(port), port, timeout: view.timeout(), now };
        let targets = &mut targets[..];
        table.find_pairs(keys, move |frame, pair, known| {
            let Some(target) = targets.get_mut(frame) else { return };
            match known {
                Some([source, destination]) => {
                    target.merge(classifier.target_of(source, destination));
                    if source.last_seen() == now {
                        return;
                    }
                }
                None => target.merge(classifier.target_slow(table, pair)),
            }
            if !target.is_exception() {
                stale.push(frame);
            }
        });
    }
}

/// What decides the targets of frames besides the MAC table.
#[derive(Clone, Copy)]
struct TargetClassifier<'a> {
    /// Ports that frames may go to on the fast path, a bit for each.
    open: &'a [u64],
    port: u16,
    timeout: u32,
    now: u32,
}

impl TargetClassifier<'_> {
    #[inline(always)]
    fn target_of(self, source: MacEntry, destination: MacEntry) -> Target {
        let to = destination.port();
        let is_open = self.open.get(usize::from(to) / 64).is_some_and(|word| word >> (to % 64) & 1 != 0);
        let is_known = source.port() == self.port && !destination.is_old(self.now, self.timeout);
        if is_known && is_open { Target(to) } else { Target::EXCEPTION }
    }

    /// The same of a frame of which something is not where it is looked for first.
    #[cold]
    #[inline(never)]
    fn target_slow(self, table: &MacTable, pair: [u64; 2]) -> Target {
        match pair.map(|mixed| table.find_mixed(mixed)) {
            [Some(source), Some(destination)] => self.target_of(source, destination),
            _ => Target::EXCEPTION,
        }
    }
}
