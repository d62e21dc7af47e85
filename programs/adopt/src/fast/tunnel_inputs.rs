//! The table of tunnels that packets arrive by, which programs look outer headers up in.
//!
//! A bucket that was emptied is filled again only after all runs of programs have ended that may have seen
//! its old state, so that none compares with words of two tunnels.
use super::layout::TunnelInput;
use super::memory::Memory;
use std::collections::{BTreeMap, BTreeSet};

/// The tunnels that packets arrive by, by their interfaces.
#[derive(Debug, Default)]
pub(super) struct TunnelInputs {
    wanted: BTreeMap<u32, TunnelInput>,
    placed: BTreeMap<u32, usize>,
    /// Buckets that programs may still read.
    waiting: BTreeSet<usize>,
}

impl TunnelInputs {
    /// Notes the outer header of packets that arrive by a tunnel, or that the kernel takes off all of them.
    pub(super) fn set(&mut self, memory: &Memory, link: u32, input: Option<TunnelInput>) {
        let before = match input {
            Some(input) => self.wanted.insert(link, input),
            None => self.wanted.remove(&link),
        };
        if before == input {
            return;
        }
        if let Some(bucket) = self.placed.remove(&link) {
            memory.unset_tunnel_input(bucket);
            self.waiting.insert(bucket);
        }
        self.place(memory, link);
    }

    /// Fills a bucket. Without one the kernel takes off the tunnel's headers.
    fn place(&mut self, memory: &Memory, link: u32) {
        let Some(input) = self.wanted.get(&link) else { return };
        let is_free = |bucket: &usize| {
            !self.waiting.contains(bucket) && self.placed.values().all(|placed| placed != bucket)
        };
        let Some(bucket) = input.buckets().find(is_free) else { return };
        memory.set_tunnel_input(bucket, input);
        self.placed.insert(link, bucket);
    }

    /// Whether programs find what arrives by a tunnel.
    pub(super) fn is_placed(&self, link: u32) -> bool {
        self.placed.contains_key(&link)
    }

    /// Those that no bucket is free for, now that none waits.
    pub(super) fn unplaced(&self) -> impl Iterator<Item = u32> {
        let is_known = !self.is_waiting();
        let links = self.wanted.keys().copied();
        links.filter(move |link| is_known && !self.placed.contains_key(link))
    }

    /// Whether something waits for runs to end.
    pub(super) fn is_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// All runs have ended that had begun before the last change.
    pub(super) fn reclaim_waiting(&mut self, memory: &Memory) {
        if std::mem::take(&mut self.waiting).is_empty() {
            return;
        }
        let links: Vec<u32> =
            self.wanted.keys().copied().filter(|link| !self.placed.contains_key(link)).collect();
        links.into_iter().for_each(|link| self.place(memory, link));
    }
}

#[cfg(test)]
mod tests {
    use super::super::layout::{OuterEnds, TUNNEL_BUCKET_WORDS, TUNNEL_BUCKETS, TUNNEL_PROBES, TUNNEL_STATE};
    use super::*;
    use crate::kernel::TunnelProtocol;
    use std::sync::atomic::Ordering::Relaxed;

    fn words(memory: &Memory, bucket: usize) -> [u32; TUNNEL_BUCKET_WORDS] {
        let words = &memory.tunnel_inputs[bucket * TUNNEL_BUCKET_WORDS..];
        std::array::from_fn(|word| words[word].load(Relaxed))
    }

    #[test]
    fn a_bucket_is_filled_again_only_after_runs_have_ended() {
        let Ok(memory) = Memory::new() else {
            return eprintln!("skipped: BPF maps need CAP_BPF");
        };
        let mut inputs = TunnelInputs::default();
        let input = |source: u32| {
            let (destination, protocol) = ([192, 0, 2, 1].into(), TunnelProtocol::Gre);
            TunnelInput { outer: OuterEnds::Ipv4 { source: source.into(), destination, protocol }, port: 3 }
        };
        let first = |source: u32| input(source).buckets().next().unwrap();
        let wanted = first(1);
        // Others whose search begins at the same bucket, one more than are looked at.
        let is_alike = |source: &u32| first(*source) == wanted;
        let alike: Vec<u32> = (1..).filter(is_alike).take(TUNNEL_PROBES + 1).collect();
        for (link, source) in (1..).zip(&alike) {
            inputs.set(&memory, link, Some(input(*source)));
        }
        let at = |probe| (wanted + probe) % TUNNEL_BUCKETS;
        let expected = |n: usize| input(alike[n]).encode_words();
        (0..TUNNEL_PROBES).for_each(|n| assert_eq!(words(&memory, at(n)), expected(n)));
        assert!(!inputs.is_waiting());
        assert_eq!(inputs.unplaced().collect::<Vec<_>>(), [TUNNEL_PROBES as u32 + 1]);
        // The words stay as they were, and the state says that there is none.
        inputs.set(&memory, 1, None);
        let mut emptied = expected(0);
        emptied[TUNNEL_STATE] = 0;
        inputs.set(&memory, 2, Some(input(alike[1])));
        assert_eq!((words(&memory, at(0)), words(&memory, at(1))), (emptied, expected(1)));
        assert!(inputs.is_waiting());
        inputs.reclaim_waiting(&memory);
        assert_eq!(words(&memory, at(0)), expected(TUNNEL_PROBES));
        assert!(!inputs.is_waiting() && inputs.unplaced().next().is_none());
    }
}
