//! What a balancer counts.

/// Counts of one worker.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct BalancerCounters {
    /// Packets that went to members.
    pub(super) balanced: u64,
    /// Packets that are not for the service.
    pub(super) others: u64,
    /// Packets that no member could take.
    pub(super) without_member: u64,
    /// Answers of members, sent on in the name of the service.
    pub(super) answers: u64,
    /// Flows assigned to another member, since theirs was gone, or drained when they were opened again.
    pub(super) moved: u64,
    /// Packets of flows for which there was no room; the method alone chooses their member.
    pub(super) unremembered: u64,
    /// Errors about answers that went to members.
    pub(super) errors: u64,
    /// Fragments that followed the first of their datagram to a member.
    pub(super) followed: u64,
}

impl BalancerCounters {
    /// Each with its name.
    pub(super) fn named(&self) -> [(&'static str, u64); 8] {
        [
            ("packets-balanced", self.balanced),
            ("packets-of-others", self.others),
            ("packets-without-member", self.without_member),
            ("answers", self.answers),
            ("flows-moved", self.moved),
            ("packets-unremembered", self.unremembered),
            ("errors-balanced", self.errors),
            ("fragments-followed", self.followed),
        ]
    }
}
