//! Where frames of a batch go that meet nothing but the table, all at once.
//!
//! Both addresses of all frames are mixed first, and the lines that they lead to asked for; then the lines are looked at, and what
//! becomes of each frame is decided by what is there.
use super::mac::{Entry, MacKey, MacTable};
use super::sight::{header, is_group};
use super::view::View;
use artery_wire::EtherType;

/// In the way of a frame that is to be looked at step by step.
pub const ODD: u16 = 1 << 12;
/// In the way of a frame that carries neither IPv4 nor IPv6.
pub const NOT_IP: u16 = 1 << 13;

/// What stands for a header that a frame is too short for: one of a group.
const NO_HEADER: (u64, u64, u16) = (u64::MAX >> 16, 0, 0);

/// The ways of a batch of frames, kept from batch to batch so that they need not be made anew.
#[derive(Debug, Default)]
pub struct Ways {
    /// Of each frame its source and its destination, as the table looks them up.
    keys: Vec<[u64; 2]>,
    ways: Vec<u16>,
    /// Frames whose source was not seen in this second.
    stale: Vec<usize>,
}

impl Ways {
    /// Finds the ways of frames that came by a [plain](View::is_plain) port, `now` in seconds.
    #[inline]
    pub fn find<'a>(
        &mut self,
        (view, table): (&View, &MacTable),
        port: u16,
        now: u32,
        frames: impl ExactSizeIterator<Item = &'a [u8]>,
    ) {
        self.look(table, view.vlan(port).unwrap_or(0), frames);
        self.decide(view, table, port, now);
    }

    /// The way of each frame, as the number of a port: its source is known to be at the port that it came by, and its
    /// destination to be at one that is open to it, to which [`NOT_IP`] may be added. Then [`decide`](super::decide::decide) says
    /// the same, and nothing is to be learned but that the source was seen. Otherwise [`ODD`] is in it.
    #[inline]
    pub fn each(&mut self) -> &mut [u16] {
        &mut self.ways
    }

    /// Notes that sources were seen in a second, of those frames whose ways now say that they came in.
    #[inline]
    pub fn refresh(&mut self, table: &MacTable, now: u32, came_in: impl Fn(u16) -> bool) {
        let Ways { keys, ways, stale } = self;
        for frame in stale.drain(..).filter(|frame| came_in(ways[*frame])) {
            if let Some(source) = table.find_mixed(keys[frame][0]) {
                table.refresh(source, now);
            }
        }
    }

    #[inline(always)]
    fn look<'a>(&mut self, table: &MacTable, vlan: u16, frames: impl ExactSizeIterator<Item = &'a [u8]>) {
        let Ways { keys, ways, .. } = self;
        keys.resize(frames.len(), [0; 2]);
        ways.resize(frames.len(), 0);
        for ((bytes, keys), way) in frames.zip(keys).zip(ways) {
            let (destination, source, ether_type) = header(bytes).unwrap_or(NO_HEADER);
            *keys = [source, destination].map(|address| table.approach(MacKey::new(address, vlan)));
            // Without branches: what comes next can't be foreseen.
            let is = |known: EtherType| ether_type == known.0;
            let is_odd = is(EtherType::VLAN) | is(EtherType::QINQ) | is_group(destination);
            let is_ip = is(EtherType::IPV4) | is(EtherType::IPV6);
            *way = (u16::from(is_odd) * ODD) | (u16::from(!is_ip) * NOT_IP);
        }
    }

    #[inline(always)]
    fn decide(&mut self, view: &View, table: &MacTable, port: u16, now: u32) {
        let Ways { keys, ways, stale } = self;
        stale.clear();
        let judge = Judge { open: view.open_from(port), port, timeout: view.timeout(), now };
        let ways = &mut ways[..];
        table.find_pairs(keys, move |frame, pair, known| {
            let Some(way) = ways.get_mut(frame) else { return };
            match known {
                Some([source, destination]) => {
                    *way |= judge.way(source, destination);
                    if source.seen() == now {
                        return;
                    }
                }
                None => *way |= judge.way_again(table, pair),
            }
            if *way & ODD == 0 {
                stale.push(frame);
            }
        });
    }
}

/// What decides the ways of frames besides what is known of stations.
#[derive(Clone, Copy)]
struct Judge<'a> {
    /// Ports that frames may go to without further questions, a bit for each.
    open: &'a [u64],
    port: u16,
    timeout: u32,
    now: u32,
}

impl Judge<'_> {
    #[inline(always)]
    fn way(self, source: Entry, destination: Entry) -> u16 {
        let to = destination.port();
        let is_open = self.open.get(usize::from(to) / 64).is_some_and(|word| word >> (to % 64) & 1 != 0);
        let is_known = source.port() == self.port && !destination.is_old(self.now, self.timeout);
        if is_known && is_open { to } else { ODD }
    }

    /// The same of a frame of which something is not where it is looked for first.
    #[cold]
    #[inline(never)]
    fn way_again(self, table: &MacTable, pair: [u64; 2]) -> u16 {
        match pair.map(|mixed| table.find_mixed(mixed)) {
            [Some(source), Some(destination)] => self.way(source, destination),
            _ => ODD,
        }
    }
}
