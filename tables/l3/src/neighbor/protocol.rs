//! What one neighbor's entry goes through, and what a protocol is: a pure function of entry, event and time.
//!
//! ARP and Neighbor Discovery ([`ArpProtocol`](super::arp::ArpProtocol),
//! [`NdProtocol`](super::nd::NdProtocol)) are two such functions; a third needs no more than [`Protocol`].
//! They send nothing and own no clock: the work to do comes back as [`Effect`]s. What a worker sees of an
//! entry follows from the entry alone ([`NeighborEntry::usable_link`], [`NeighborEntry::wants_report`],
//! [`NeighborEntry::has_failed`]).
//!
//! "No entry" is not a state: an entry is made as [`NeighborEntry::new`] by the first packet or, where
//! [`Protocol::may_create`] says so, by a message, and is then given that event; an effect that
//! [`is_end`](Effect::is_end) it takes it away.

use artery_wire::EtherAddr;
use artery_wire::Random;
use std::time::Duration;

/// State of a neighbor entry (RFC 4861, 7.3.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum State {
    /// Solicited, not resolved yet; packets are pending.
    Incomplete,
    /// Confirmed within the reachable time.
    Reachable,
    /// Another link address was claimed: solicited at the old one, which stays in use (ARP).
    Contested,
    /// Known, but not confirmed lately; solicited only when it is used.
    Stale,
    /// Used while stale; an upper layer may confirm it before it is solicited.
    Delay,
    /// Solicited at its link address.
    Probe,
    /// No answer at its link address, which stays in use during a few multicast solicitations (RFC 7048).
    Unreachable,
    /// It did not answer; packets fail at once until it answers or the entry ends.
    Failed,
}

impl State {
    /// Returns the name for tables and logs.
    pub fn name(self) -> &'static str {
        match self {
            State::Incomplete => "incomplete",
            State::Reachable => "reachable",
            State::Contested => "doubt",
            State::Stale => "stale",
            State::Delay => "delay",
            State::Probe => "probe",
            State::Unreachable => "unreachable",
            State::Failed => "failed",
        }
    }
}

/// A neighbor entry, and when to look at it again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NeighborEntry {
    /// NUD state of the entry.
    pub state: State,
    /// The link address, once there is one. Use [`NeighborEntry::usable_link`] to send.
    pub link: Option<EtherAddr>,
    /// The link address that was claimed last, while it is contested.
    pub offered: Option<EtherAddr>,
    /// When it was last solicited because of a contested claim.
    pub last_doubted: Option<Duration>,
    /// Solicitations sent since the last message.
    pub asked: u8,
    /// When [`Event::Timer`] is due; never for a static entry.
    pub deadline: Option<Duration>,
    /// When the entry ends if no message comes; equal to or later than `deadline`.
    pub expires: Option<Duration>,
    /// When a solicitation was last sent.
    pub last_asked: Option<Duration>,
    /// When a message last changed or confirmed the entry.
    pub last_heard: Option<Duration>,
    /// Whether the neighbor says that it is a router.
    pub is_router: bool,
    /// Whether it was configured: it never ends and no message changes it.
    pub is_static: bool,
    /// Whether solicitations for this address are answered with its link address (proxy).
    pub is_published: bool,
}

impl NeighborEntry {
    /// Makes the entry of a neighbor of which nothing is known; it must be given its first event.
    #[allow(clippy::new_without_default)] // an entry without an event is none
    pub fn new() -> NeighborEntry {
        NeighborEntry {
            state: State::Incomplete,
            link: None,
            offered: None,
            last_doubted: None,
            asked: 0,
            deadline: None,
            expires: None,
            last_asked: None,
            last_heard: None,
            is_router: false,
            is_static: false,
            is_published: false,
        }
    }

    /// Makes an entry that a person has set for good.
    pub fn new_static(link: EtherAddr, is_published: bool) -> NeighborEntry {
        NeighborEntry {
            state: State::Reachable,
            link: Some(link),
            is_static: true,
            is_published,
            ..NeighborEntry::new()
        }
    }

    /// Returns the link address to send to, if packets may go.
    pub fn usable_link(&self) -> Option<EtherAddr> {
        match self.state {
            State::Incomplete | State::Failed => None,
            _ => self.link,
        }
    }

    /// Says whether the protocol wants reports of use: whether use would make it ask.
    ///
    /// Use is reported as [`Event::Packet`] when it is seen, or as [`Event::Timer`] with `used` when that is
    /// due. A stale entry waits for the former: its timer is the end of its life.
    pub fn wants_report(&self) -> bool {
        !self.is_static && matches!(self.state, State::Stale | State::Unreachable)
    }

    /// Says whether packets fail at once.
    pub fn has_failed(&self) -> bool {
        self.state == State::Failed
    }

    /// Says whether the timer is due.
    pub fn is_due(&self, now: Duration) -> bool {
        self.deadline.is_some_and(|deadline| deadline <= now)
    }
}

/// Something about a neighbor that came in a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NeighborUpdate {
    /// The link address in the message.
    pub link: Option<EtherAddr>,
    /// What sort of message it was.
    pub kind: NeighborUpdateKind,
    /// Whether the neighbor is a router, if the message says so.
    pub router: Option<bool>,
}

/// Kinds of messages, by what they prove.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NeighborUpdateKind {
    /// A message about something else that carries the sender's link address: an ARP request; a neighbor or
    /// router solicitation, a router advertisement, a redirect.
    Solicitation,
    /// The neighbor announces its link address. An ARP reply to us is `solicited` and `overrides`.
    Advertisement {
        /// It answers a solicitation of ours, so the neighbor receives our messages.
        solicited: bool,
        /// It is to replace another link address.
        overrides: bool,
    },
    /// An unsolicited announcement to all: a gratuitous ARP, request or reply.
    Unsolicited,
}

/// What happens to an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// A packet waits for the neighbor, or one was sent to it where [`NeighborEntry::wants_report`].
    Packet,
    /// [`NeighborEntry::deadline`] is reached; before that, nothing happens.
    Timer {
        /// Whether packets were sent to it since the last timer.
        used: bool,
    },
    /// A message carries news of the neighbor.
    Learned(NeighborUpdate),
    /// Something above proves that packets reach the neighbor (RFC 4861, 7.3.1).
    Confirmed,
}

/// What the table must do because of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // `kept` stays, the other one is that of the message
pub enum Effect {
    /// Send a request for the neighbor's address.
    Solicit(SolicitTarget),
    /// The neighbor has a link address now: held packets go.
    Resolved,
    /// The neighbor has another link address now.
    Moved { from: EtherAddr, to: EtherAddr },
    /// A message gives another link address, which is looked into.
    Doubted { kept: EtherAddr, offered: EtherAddr },
    /// A message did not change the link address: the entry is static, or the neighbor was
    /// heard where it was.
    Refused { kept: EtherAddr, offered: EtherAddr },
    /// The neighbor doesn't answer: held packets fail. Next hops may prefer others.
    Unreachable,
    /// The entry is over: the neighbor did not answer.
    Deleted,
    /// The entry is over: it was neither used nor confirmed.
    Expired,
    /// The neighbor was a router and says it no longer is (RFC 4861, 7.2.5).
    NoLongerRouter,
}

impl Effect {
    /// Says whether the entry is over and has to be taken away.
    pub fn is_end(self) -> bool {
        matches!(self, Effect::Deleted | Effect::Expired)
    }
}

/// Destination of a solicitation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SolicitTarget {
    /// All hosts that may have the address: by broadcast (ARP) or its solicited-node group (ND).
    Multicast,
    /// The link address that was last known.
    Unicast(EtherAddr),
}

/// Rules by which entries live: a function of (entry, event, now) that keeps nothing itself.
pub trait Protocol: Send {
    /// Returns the name for tables and logs, such as `arp`.
    fn name(&self) -> &'static str;

    /// Lets an event happen to an entry. Appends what follows from it to `effects`, in order.
    fn step(
        &self,
        entry: &mut NeighborEntry,
        event: Event,
        now: Duration,
        random: &mut Random,
        effects: &mut Vec<Effect>,
    );

    /// Says whether a message may make an entry. `for_us` tells that it was meant for this router: that it
    /// asked for one of its addresses or was sent to it.
    fn may_create(&self, heard: &NeighborUpdate, for_us: bool) -> bool;
}

/// One neighbor under a clock that the test advances.
#[cfg(test)]
pub(super) mod testing {
    use super::*;

    pub(in crate::neighbor) const A: EtherAddr = EtherAddr([2, 0, 0, 0, 0, 0xa]);
    pub(in crate::neighbor) const B: EtherAddr = EtherAddr([2, 0, 0, 0, 0, 0xb]);
    pub(in crate::neighbor) const C: EtherAddr = EtherAddr([2, 0, 0, 0, 0, 0xc]);

    pub(in crate::neighbor) fn secs(count: u64) -> Duration {
        Duration::from_secs(count)
    }

    pub(in crate::neighbor) fn ms(count: u64) -> Duration {
        Duration::from_millis(count)
    }

    /// A neighbor's entry, treated as its table would.
    pub(in crate::neighbor) struct Life<P> {
        pub(in crate::neighbor) protocol: P,
        pub(in crate::neighbor) entry: Option<NeighborEntry>,
        pub(in crate::neighbor) now: Duration,
        pub(in crate::neighbor) random: Random,
        /// Whether timer events report use.
        pub(in crate::neighbor) uses: bool,
        pub(in crate::neighbor) log: Vec<(Duration, Effect)>,
    }

    impl<P: Protocol> Life<P> {
        pub(in crate::neighbor) fn new(protocol: P) -> Life<P> {
            let random = Random::new(1);
            Life { protocol, entry: None, now: Duration::ZERO, random, uses: false, log: Vec::new() }
        }

        pub(in crate::neighbor) fn event(&mut self, event: Event) -> Vec<Effect> {
            let mut effects = Vec::new();
            let Some(entry) = &mut self.entry else { return effects };
            self.protocol.step(entry, event, self.now, &mut self.random, &mut effects);
            assert!(entry.expires.is_none() || entry.deadline <= entry.expires, "{entry:?}");
            if effects.iter().any(|effect| effect.is_end()) {
                self.entry = None;
            }
            self.log.extend(effects.iter().map(|&effect| (self.now, effect)));
            effects
        }

        pub(in crate::neighbor) fn packet(&mut self) -> Vec<Effect> {
            self.entry.get_or_insert_with(NeighborEntry::new);
            self.event(Event::Packet)
        }

        pub(in crate::neighbor) fn timer(&mut self, used: bool) -> Vec<Effect> {
            self.event(Event::Timer { used })
        }

        /// A message from the link address that the table takes if there is an entry.
        pub(in crate::neighbor) fn receive_update(
            &mut self,
            link: EtherAddr,
            kind: NeighborUpdateKind,
        ) -> Vec<Effect> {
            self.event(Event::Learned(NeighborUpdate { link: Some(link), kind, router: None }))
        }

        /// Lets time pass, and timers go off when they are due.
        pub(in crate::neighbor) fn run_to(&mut self, until: Duration) {
            while let Some(due) = self.entry.as_ref().and_then(|entry| entry.deadline)
                && due <= until
            {
                assert!(due >= self.now, "a timer that was due at {due:?} was set at {:?}", self.now);
                self.now = due;
                let before = self.entry.clone();
                self.timer(self.uses);
                assert_ne!(self.entry, before, "a timer that changed nothing comes for ever");
            }
            self.now = until;
        }

        pub(in crate::neighbor) fn entry(&self) -> &NeighborEntry {
            self.entry.as_ref().expect("an entry")
        }

        pub(in crate::neighbor) fn state(&self) -> Option<State> {
            self.entry.as_ref().map(|entry| entry.state)
        }

        pub(in crate::neighbor) fn sent_solicits(&self) -> Vec<(Duration, SolicitTarget)> {
            let ask = |&(at, effect)| match effect {
                Effect::Solicit(to) => Some((at, to)),
                _ => None,
            };
            self.log.iter().filter_map(ask).collect()
        }

        pub(in crate::neighbor) fn asked_at(&self) -> Vec<Duration> {
            self.sent_solicits().into_iter().map(|(at, _)| at).collect()
        }
    }
}
