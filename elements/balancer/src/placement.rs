//! Where the table of members puts flows.
use artery_flow::balance::{Choice, Flow};
use artery_flow::{FlowKey, FlowView, Seed};
use artery_forward::flow::xor_flow;

/// What members are chosen by, of a flow.
#[inline]
pub(super) fn flow_hashes<K: FlowKey>(key: &K, seed: &Seed) -> Flow {
    Flow { hash: key.hash(seed), xor: xor_flow(key.addresses(), key.ports()) }
}

/// The table of members, and the seed of the hash by which flows are looked up in it.
#[derive(Clone, Copy)]
pub(super) struct Placement<'a> {
    pub(super) choice: &'a Choice,
    pub(super) seed: &'a Seed,
}

impl Placement<'_> {
    /// Whether a flow has a member, and a table gives it another one, or none: the present one, or another
    /// one that machines may choose by and that has the member, too.
    #[inline]
    pub(super) fn is_exception<K: FlowKey>(&self, flow: &FlowView<'_, K>) -> bool {
        let Some(member) = self.choice.living_member(flow.answer().action) else { return false };
        self.choice.method().is_pure()
            && (self.choice.table_member(flow_hashes(&flow.key(), self.seed)) != Some(member)
                || self.is_exception_elsewhere(flow))
    }

    fn is_exception_elsewhere<K: FlowKey>(&self, flow: &FlowView<'_, K>) -> bool {
        self.choice.others().iter().any(|other| {
            let member = other.living_member(flow.answer().action);
            let placed = || other.table_member(flow_hashes(&flow.key(), other.seed(self.seed)));
            member.is_some_and(|member| placed() != Some(member))
        })
    }
}
