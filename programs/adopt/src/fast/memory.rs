//! Arrays that programs of the kernel and this process share.
use super::fdb::FdbTable;
use super::flows::FlowTable;
use super::layout::*;
use super::shared_arrays::SharedArrays;
use artery_device::bpf::{self, DeviceMap, Lease};
use artery_storage::Words;
use std::fmt;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64};

/// The kernel refused memory that programs could share.
#[derive(Debug)]
pub struct NoMemory(io::Error);

impl NoMemory {
    /// What the kernel answered.
    pub fn cause(&self) -> &io::Error {
        &self.0
    }
}

impl From<io::Error> for NoMemory {
    fn from(error: io::Error) -> NoMemory {
        NoMemory(error)
    }
}

impl fmt::Display for NoMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let NoMemory(error) = self;
        let remedy = match error.kind() {
            io::ErrorKind::PermissionDenied => {
                "; CAP_BPF and CAP_NET_ADMIN are needed: run as root, where no seccomp filter forbids bpf(2)"
            }
            io::ErrorKind::Unsupported => {
                "; it has no bpf(2), or a seccomp filter says so: run outside of that sandbox"
            }
            io::ErrorKind::InvalidInput => "; it needs BPF arrays that processes map (Linux 5.5)",
            _ => "",
        };
        write!(f, "the kernel gives no memory to share with programs: {error}{remedy}")
    }
}

impl std::error::Error for NoMemory {}

/// All that the program reads and counts besides the FIBs.
pub struct Memory {
    pub(super) arrays: SharedArrays,
    pub(super) devices: DeviceMap,
    pub(super) lease: Arc<Lease>,
    /// Whether programs of XDP may take frames that lie in several buffers.
    pub(super) takes_buffers: bool,
    pub(super) ports: Words<AtomicU32>,
    pub(super) vlans: Words<AtomicU16>,
    pub(super) own: Words<AtomicU8>,
    pub(super) groups: Words<AtomicU64>,
    /// By group: where sources that it leads to may come in, by bits.
    pub(super) inputs: Words<AtomicU64>,
    pub(super) members: Words<AtomicU32>,
    pub(super) hops: Words<AtomicU32>,
    pub(super) tunnels: Words<AtomicU32>,
    pub(super) tunnel_inputs: Words<AtomicU32>,
    counts: Words<AtomicU64>,
    losses: Words<AtomicU64>,
    /// Flows of established connections, once any were forwarded past the user's policy.
    pub(super) flows: Option<FlowTable>,
    /// Whether programs that are made from now on look flows up.
    pub(super) looks_up_flows: bool,
    /// Where sources are known to be, once there is a bridge.
    pub(super) fdb: Option<FdbTable>,
    /// Whether programs that are made from now on put headers of tunnels on and take them off.
    pub(super) has_tunnels: bool,
}

/// What was counted, of all processors together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Counters {
    /// By the number of the port.
    pub ports: Vec<PortCounters>,
}

/// What was counted at a port, or at a VLAN of one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PortCounters {
    /// Frames that came by it and were forwarded. Of a frame that is yet to be cut into
    /// segments, each segment counts.
    pub received: u64,
    /// Their bytes, link headers included.
    pub received_bytes: u64,
    /// Frames that were forwarded to it.
    pub sent: u64,
    /// Their bytes, as they came.
    pub sent_bytes: u64,
    /// Of those received, frames of established connections, forwarded past the user's policy.
    pub established: u64,
    /// Of those received, frames that were lost: the kernel had no room for another link header, or
    /// could not redirect them.
    pub lost: u64,
    /// Of those sent, frames that the interface's driver did not take (XDP alone).
    pub dropped: u64,
    /// Frames that came by it and went to the kernel, by [`Reason`]; those of its VLANs are counted at the
    /// interface that carries them.
    pub kernel: [u64; Reason::ALL.len()],
}

/// Frames that programs sent to an interface, and of those the ones that its driver did not take.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Deliveries {
    /// Frames that were sent to it.
    pub sent: u64,
    /// Of those sent, the ones that were lost there.
    pub dropped: u64,
}

impl Counters {
    /// Frames that went to the kernel, by [`Reason`].
    pub fn kernel(&self) -> [u64; Reason::ALL.len()] {
        std::array::from_fn(|reason| self.ports.iter().map(|port| port.kernel[reason]).sum())
    }
}

impl Memory {
    /// Makes the arrays, all zero: no port forwards anything.
    pub fn new() -> Result<Memory, NoMemory> {
        Memory::with_arrays(SharedArrays::default())
    }

    pub(super) fn with_arrays(arrays: SharedArrays) -> Result<Memory, NoMemory> {
        Ok(Memory {
            devices: DeviceMap::new(MOST_PORTS as u32)?,
            lease: Arc::new(Lease::new()?),
            takes_buffers: bpf::takes_multi_buffer(),
            ports: Words::new(&arrays, "ports", MOST_PORTS * PORT_WORDS)?,
            vlans: Words::new(&arrays, "vlans", MOST_PORTS << 12)?,
            own: Words::new(&arrays, "own", OWN_BITS / 8)?,
            groups: Words::new(&arrays, "groups", MOST_GROUPS)?,
            inputs: Words::new(&arrays, "inputs", MOST_GROUPS)?,
            members: Words::new(&arrays, "members", MOST_MEMBERS)?,
            hops: Words::new(&arrays, "hops", MOST_HOPS * HOP_WORDS)?,
            tunnels: Words::new(&arrays, "tunnels", MOST_TUNNELS * TUNNEL_WORDS)?,
            tunnel_inputs: Words::new(&arrays, "tunnel-inputs", TUNNEL_BUCKETS * TUNNEL_BUCKET_WORDS)?,
            counts: Words::new(&arrays, "counts", MOST_PROCESSORS * COUNT_WORDS)?,
            losses: Words::new(&arrays, "losses", LOSS_WORDS)?,
            flows: None,
            looks_up_flows: false,
            fdb: None,
            has_tunnels: false,
            arrays,
        })
    }

    /// Makes room for flows of established connections, which programs that are made from now on look up. The
    /// seed is mixed into hashes.
    pub(super) fn enable_flows(&mut self, seed: u32) -> Result<(), NoMemory> {
        if self.flows.is_none() {
            self.flows = Some(FlowTable::new(&self.arrays, seed)?);
        }
        self.looks_up_flows = true;
        Ok(())
    }

    /// Makes room for the forwarding databases of bridges, which programs of their members look up. The seed
    /// is mixed into hashes.
    pub(super) fn enable_fdb(&mut self, seed: u32) -> Result<(), NoMemory> {
        if self.fdb.is_none() {
            self.fdb = Some(FdbTable::new(&self.arrays, seed)?);
        }
        Ok(())
    }

    /// Says which interface carries a port, for programs that redirect frames to it, and for
    /// those that count losses.
    pub(super) fn set_device(&self, port: u32, interface: u32) -> io::Result<()> {
        self.losses[LOSS_DEVICES + port as usize].store(u64::from(interface), Release);
        self.devices.insert_interface(port, interface)
    }

    /// Losses of a port are counted no more.
    pub(super) fn unset_device(&self, port: u32) {
        self.losses[LOSS_DEVICES + port as usize].store(0, Release);
    }

    /// Says what a port is.
    pub fn set_port(&self, port: u32, record: &PortRecord) {
        let words = &self.ports[port as usize * PORT_WORDS..];
        let [a, b, c, d, e, f] = record.mac.octets();
        let address = [u32::from_ne_bytes([a, b, c, d]), u32::from_ne_bytes([e, f, 0, 0])];
        if address.iter().zip(words).any(|(new, word)| *new != word.load(Relaxed)) {
            // Nothing is forwarded by words of two records.
            words[PORT_FLAGS].store(0, Release);
            if bpf::wait_for_runs().is_err() {
                return;
            }
            address.iter().zip(words).for_each(|(new, word)| word.store(*new, Relaxed));
        }
        words[PORT_DEVICE].store(record.device, Relaxed);
        words[PORT_FLAGS].store(record.flags.to_word(port), Release);
    }

    /// Says which port frames of a VLAN that come by another are of.
    pub fn set_vlan(&self, port: u32, vlan: u16, as_port: Option<u32>) {
        let word = as_port.map_or(0, |port| port as u16 + 1);
        self.vlans[(port as usize) << 12 | usize::from(vlan & 0xfff)].store(word, Release);
    }

    /// Sets or clears the bit of one of this machine's addresses, by its number from `own_bit_*`.
    pub(super) fn set_own(&self, bit: usize, is_own: bool) {
        let byte = &self.own[bit / 8];
        let old = byte.load(Relaxed);
        let mask = 1 << (bit % 8);
        byte.store(if is_own { old | mask } else { old & !mask }, Release);
    }

    /// Puts hops into places of their own, which no group leads to yet, or that are unset since all runs that
    /// saw another have ended.
    pub(super) fn write_hop(&self, at: u32, hop: &Hop) {
        let words = &self.hops[at as usize * HOP_WORDS..];
        words.iter().zip(hop.encode_words()).for_each(|(word, new)| word.store(new, Relaxed));
        words[HOP_READY].store(READY, Release);
    }

    /// Fills the record of a tunnel's header. Programs read its words one by one, so none may read it yet: no
    /// hop has pointed to it since all runs ended that may have seen one that did.
    pub(super) fn write_tunnel(&self, number: u32, header: &TunnelHeader) {
        let words = &self.tunnels[number as usize * TUNNEL_WORDS..];
        words.iter().zip(header.encode_words()).for_each(|(word, new)| word.store(new, Relaxed));
    }

    /// Has packets with this outer header come by the port of a tunnel. The bucket must be new to programs.
    pub(super) fn set_tunnel_input(&self, bucket: usize, input: &TunnelInput) {
        let words = &self.tunnel_inputs[bucket * TUNNEL_BUCKET_WORDS..];
        let new = input.encode_words();
        for place in (0..TUNNEL_BUCKET_WORDS).filter(|place| *place != TUNNEL_STATE) {
            words[place].store(new[place], Relaxed);
        }
        words[TUNNEL_STATE].store(new[TUNNEL_STATE], Release);
    }

    /// Empties such a bucket.
    pub(super) fn unset_tunnel_input(&self, bucket: usize) {
        self.tunnel_inputs[bucket * TUNNEL_BUCKET_WORDS + TUNNEL_STATE].store(0, Release);
    }

    /// Has frames for a hop, which is not set, go to the kernel by its port's doing.
    pub(super) fn withhold_hop(&self, at: u32, why: Withheld) {
        self.hops[at as usize * HOP_WORDS + HOP_READY].store(why.to_state(), Release);
    }

    /// Has frames for a hop go to the kernel.
    pub(super) fn unset_hop(&self, at: u32) {
        self.hops[at as usize * HOP_WORDS + HOP_READY].store(0, Release);
    }

    /// Whether the program has sent by a hop since this was asked last.
    pub(super) fn clear_used(&self, at: u32) -> bool {
        self.hops[at as usize * HOP_WORDS + HOP_USED].swap(0, Relaxed) != 0
    }

    /// Says what a group is: none, one hop, or so many members from a place on.
    pub(super) fn set_group(&self, group: u32, first: u32, count: u32) {
        self.groups[group as usize].store(u64::from(count) << 32 | u64::from(first), Release);
    }

    /// Says where sources that a group leads to may come in: by ports, and whether they are
    /// routed at all ([`ROUTED`]).
    pub(super) fn set_inputs(&self, group: u32, inputs: u64) {
        self.inputs[group as usize].store(inputs, Release);
    }

    /// The port that packets of a group leave by, or nothing within if its hops have different ports; `None`
    /// if they are the kernel's, also for now.
    pub(super) fn egress(&self, group: u32) -> Option<Option<u32>> {
        let word = self.groups[group as usize % MOST_GROUPS].load(Acquire);
        let (first, count) = (word as u32, (word >> 32) as u32);
        let hop = |member: u32| match count {
            1 => first,
            _ => self.members[(first + member) as usize % MOST_MEMBERS].load(Acquire),
        };
        let port = |member: u32| {
            let words = &self.hops[hop(member) as usize % MOST_HOPS * HOP_WORDS..];
            let port = words[HOP_PORTS].load(Acquire) >> 16 & (MOST_PORTS as u32 - 1);
            (words[HOP_READY].load(Acquire) == READY).then_some(port)
        };
        let ports = (0..count).map(port).collect::<Option<Vec<u32>>>()?;
        let first = *ports.first().filter(|_| group != artery_lpm::NO_GROUP)?;
        Some(ports.iter().all(|port| *port == first).then_some(first))
    }

    /// The frames and bytes that were counted so far.
    pub fn counters(&self) -> Counters {
        Counters { ports: (0..MOST_PORTS as u32).map(|port| self.port_counters(port)).collect() }
    }

    /// The same of one port.
    pub(super) fn port_counters(&self, port: u32) -> PortCounters {
        let count = |word| self.sum_counts(port, word);
        PortCounters {
            received: count(0),
            received_bytes: count(1),
            sent: self.sent_frames(port),
            sent_bytes: count(3),
            established: count(ESTABLISHED_COUNT),
            lost: count(LOST_COUNT) + self.unredirected_frames(port),
            dropped: self.dropped_frames(port),
            kernel: Reason::ALL.map(|reason| self.kernel_frames(port, reason)),
        }
    }

    /// Frames that were forwarded to a port.
    pub(super) fn sent_frames(&self, port: u32) -> u64 {
        self.sum_counts(port, SENT_COUNT)
    }

    /// Of those, the ones that the driver did not take; of VLANs they are counted at
    /// the port that carries them.
    pub(super) fn dropped_frames(&self, port: u32) -> u64 {
        self.losses[DROPPED_COUNTS + port as usize].load(Acquire)
    }

    /// Frames that came by a port and that the kernel could not redirect.
    pub(super) fn unredirected_frames(&self, port: u32) -> u64 {
        self.losses[REDIRECT_ERRORS + port as usize].load(Acquire)
    }

    /// Forgets the losses of all ports.
    pub(super) fn reset_losses(&self) {
        for counts in [REDIRECT_ERRORS, DROPPED_COUNTS] {
            self.losses[counts..][..MOST_PORTS].iter().for_each(|count| count.store(0, Release));
        }
    }

    /// Frames that came by a port and went to the kernel for a reason.
    pub(super) fn kernel_frames(&self, port: u32, reason: Reason) -> u64 {
        self.sum_counts(port, REASON_COUNTS + reason as usize)
    }

    /// A word of a port's counts, of all processors together: a cache line for each of them.
    fn sum_counts(&self, port: u32, word: usize) -> u64 {
        let of_processors =
            self.counts.iter().skip(port as usize * WORDS_OF_PORT + word).step_by(COUNT_WORDS);
        of_processors.fold(0u64, |sum, count| sum.wrapping_add(count.load(Acquire)))
    }
}
