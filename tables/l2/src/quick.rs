//! Where frames of a batch go that meet nothing but the table, all at once.
//!
//! Both addresses of all frames are hashed first, and their lines prefetched; then the lines are read, and
//! the entries decide the target of each frame.
use super::mac::{MacEntry, MacKey, MacTable};
use super::sight::{is_group, read_header};
use super::view::View;
use artery_wire::EtherType;

/// In the target of a frame that takes the slow path.
pub const EXCEPTION: u16 = 1 << 12;
/// In the target of a frame that carries neither IPv4 nor IPv6.
pub const NOT_IP: u16 = 1 << 13;

/// What stands for a header that a frame is too short for: one of a group.
const NO_HEADER: (u64, u64, u16) = (u64::MAX >> 16, 0, 0);

/// The targets of a batch of frames, kept from batch to batch so that they need not be allocated again.
#[derive(Debug, Default)]
pub struct BatchLookup {
    /// Of each frame its source and its destination, as the table looks them up.
    keys: Vec<[u64; 2]>,
    targets: Vec<u16>,
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

    /// The target of each frame, a port number: its source is known to be at the port that it came by, and
    /// its destination to be at one that is open to it, to which [`NOT_IP`] may be added. Then
    /// [`trace_frame`](super::decide::trace_frame) gives the same result, and nothing is to be learned except
    /// that the source was seen. Otherwise [`EXCEPTION`] is in it.
    #[inline]
    pub fn targets_mut(&mut self) -> &mut [u16] {
        &mut self.targets
    }

    /// Records that sources were seen in a second, of those frames whose targets now say that they came in.
    #[inline]
    pub fn refresh_sources(&mut self, table: &MacTable, now: u32, came_in: impl Fn(u16) -> bool) {
        let BatchLookup { keys, targets: ways, stale } = self;
        for frame in stale.drain(..).filter(|frame| came_in(ways[*frame])) {
            if let Some(source) = table.find_mixed(keys[frame][0]) {
                table.refresh_entry(source, now);
            }
        }
    }

    #[inline(always)]
    fn hash_addresses<'a>(
        &mut self,
        table: &MacTable,
        vlan: u16,
        frames: impl ExactSizeIterator<Item = &'a [u8]>,
    ) {
        let BatchLookup { keys, targets: ways, .. } = self;
        keys.resize(frames.len(), [0; 2]);
        ways.resize(frames.len(), 0);
        for ((bytes, keys), way) in frames.zip(keys).zip(ways) {
            let (destination, source, ether_type) = read_header(bytes).unwrap_or(NO_HEADER);
            *keys = [source, destination].map(|address| table.prefetch_key(MacKey::new(address, vlan)));
            // Without branches: what comes next can't be foreseen.
            let is = |known: EtherType| ether_type == known.0;
            let is_odd = is(EtherType::VLAN) | is(EtherType::QINQ) | is_group(destination);
            let is_ip = is(EtherType::IPV4) | is(EtherType::IPV6);
            *way = (u16::from(is_odd) * EXCEPTION) | (u16::from(!is_ip) * NOT_IP);
        }
    }

    #[inline(always)]
    fn decide_targets(&mut self, view: &View, table: &MacTable, port: u16, now: u32) {
        let BatchLookup { keys, targets: ways, stale } = self;
        stale.clear();
        let judge = TargetClassifier { open: view.open_from(port), port, timeout: view.timeout(), now };
        let ways = &mut ways[..];
        table.find_pairs(keys, move |frame, pair, known| {
            let Some(way) = ways.get_mut(frame) else { return };
            match known {
                Some([source, destination]) => {
                    *way |= judge.target_of(source, destination);
                    if source.last_seen() == now {
                        return;
                    }
                }
                None => *way |= judge.target_slow(table, pair),
            }
            if *way & EXCEPTION == 0 {
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
    fn target_of(self, source: MacEntry, destination: MacEntry) -> u16 {
        let to = destination.port();
        let is_open = self.open.get(usize::from(to) / 64).is_some_and(|word| word >> (to % 64) & 1 != 0);
        let is_known = source.port() == self.port && !destination.is_old(self.now, self.timeout);
        if is_known && is_open { to } else { EXCEPTION }
    }

    /// The same of a frame of which something is not where it is looked for first.
    #[cold]
    #[inline(never)]
    fn target_slow(self, table: &MacTable, pair: [u64; 2]) -> u16 {
        match pair.map(|mixed| table.find_mixed(mixed)) {
            [Some(source), Some(destination)] => self.target_of(source, destination),
            _ => EXCEPTION,
        }
    }
}
