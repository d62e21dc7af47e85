//! What one neighbor's entry goes through, and what a protocol is: a pure function of entry, event and time.
//!
//! ARP and Neighbor Discovery ([`ArpProtocol`](super::arp::ArpProtocol), [`NdProtocol`](super::nd::NdProtocol)) are two
//! such functions; a third needs no more than [`Protocol`]. They send nothing and own no clock: what is to be done
//! comes back as [`Effect`]s. What a worker sees of an entry follows from the entry alone ([`Entry::usable`],
//! [`Entry::wants_report`], [`Entry::has_failed`]).
//!
//! "No entry" is no state: an entry is made as [`Entry::new`] by the first packet or, where [`Protocol::may_create`]
//! says so, by a message, and is then given that event; an effect that [`ends`](Effect::ends) it takes it away.

use crate::synthetic::Random;
use artery_wire::EtherAddr;
use std::time::Duration;

/// What is known of a neighbor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum State {
    /// Asked for, not yet heard of; packets wait.
    Incomplete,
    /// Heard of lately.
    Reachable,
    /// Another link address was claimed: asked under the one it had, which stays in use (ARP).
    Doubt,
    /// Known, but not heard of lately; nobody asks before it is used.
    Stale,
    /// Used while stale; a packet may prove that it is there before we have to ask.
    Delay,
    /// Asked under its link address.
    Probe,
    /// Silent under its link address, which stays in use for a short while in which all are asked (RFC 7048).
    Unreachable,
    /// Asked in vain; packets fail at once until it answers or the entry ends.
    Failed,
}

impl State {
    /// Returns the name for tables and logs.
    pub fn name(self) -> &'static str {
        match self {
            State::Incomplete => "incomplete",
            State::Reachable => "reachable",
            State::Doubt => "doubt",
            State::Stale => "stale",
            State::Delay => "delay",
            State::Probe => "probe",
            State::Unreachable => "unreachable",
            State::Failed => "failed",
        }
    }
}

/// What is known of one neighbor, and when to look at it again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// What is known.
    pub state: State,
    /// The link address, once there is one. Use [`Entry::usable`] to send.
    pub link: Option<EtherAddr>,
    /// The link address that was claimed last, while that is doubted.
    pub offered: Option<EtherAddr>,
    /// When it was last asked whether it is still where it was, because of a claim.
    pub last_doubted: Option<Duration>,
    /// Requests sent since something was last heard.
    pub asked: u8,
    /// When [`Event::Timer`] is due; never for a static entry.
    pub deadline: Option<Duration>,
    /// When the entry ends if nothing is heard; equal to or later than `deadline`.
    pub expires: Option<Duration>,
    /// When a request was last sent.
    pub last_asked: Option<Duration>,
    /// When something was last heard that the entry was changed by or confirmed with.
    pub last_heard: Option<Duration>,
    /// Whether the neighbor says that it is a router.
    pub is_router: bool,
    /// Whether a person set the link address: it never ends and no message changes it.
    pub is_static: bool,
    /// Whether questions for this address are answered with its link address (proxy).
    pub is_published: bool,
}

impl Entry {
    /// Makes the entry of a neighbor of which nothing is known; it must be given its first event.
    #[allow(clippy::new_without_default)] // an entry without an event is none
    pub fn new() -> Entry {
        Entry {
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
    pub fn fixed(link: EtherAddr, is_published: bool) -> Entry {
        Entry { state: State::Reachable, link: Some(link), is_static: true, is_published, ..Entry::new() }
    }

    /// Returns the link address to send to, if packets may go.
    pub fn usable(&self) -> Option<EtherAddr> {
        match self.state {
            State::Incomplete | State::Failed => None,
            _ => self.link,
        }
    }

    /// Says whether the protocol wants to hear of use: whether use would make it ask.
    ///
    /// Use is told as [`Event::Packet`] when it is seen, or as [`Event::Timer`] with `used` when that is due. A
    /// stale entry waits for the former: its timer is the end of its life.
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
pub struct Heard {
    /// The link address in the message.
    pub link: Option<EtherAddr>,
    /// What sort of message it was.
    pub kind: HeardKind,
    /// Whether the neighbor is a router, if the message says so.
    pub router: Option<bool>,
}

/// Sorts of messages, by what they prove.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeardKind {
    /// The neighbor asks or tells something else, and adds its link address: an ARP request; a neighbor or router
    /// solicitation, a router advertisement, a redirect.
    Solicitation,
    /// The neighbor says what its link address is. An ARP reply to us is `solicited` and `overrides`.
    Advertisement {
        /// It answers a question of ours, so the neighbor hears us.
        solicited: bool,
        /// It is to replace another link address.
        overrides: bool,
    },
    /// The neighbor tells everyone, unasked: a gratuitous ARP, request or reply.
    Unsolicited,
}

/// What happens to an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// A packet waits for the neighbor, or one was sent to it where [`Entry::wants_report`].
    Packet,
    /// [`Entry::deadline`] is reached; before that, nothing happens.
    Timer {
        /// Whether packets were sent to it since the last timer.
        used: bool,
    },
    /// A message tells of the neighbor.
    Heard(Heard),
    /// Something above proves that packets reach the neighbor (RFC 4861, 7.3.1).
    Confirmed,
}

/// What is to be done, or told, because of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Send a request for the neighbor's address.
    Ask(Ask),
    /// The neighbor has a link address now: held packets go.
    Resolved,
    /// The neighbor has another link address now.
    Moved {
        /// Where it was.
        from: EtherAddr,
        /// Where it is.
        to: EtherAddr,
    },
    /// A message gives another link address, which is looked into.
    Doubted {
        /// The address that stays for now.
        kept: EtherAddr,
        /// The address that the message gave.
        offered: EtherAddr,
    },
    /// A message did not change the link address: the entry is static, or the neighbor was heard where it was.
    Refused {
        /// The address that stays.
        kept: EtherAddr,
        /// The address that the message gave.
        offered: EtherAddr,
    },
    /// The neighbor doesn't answer: held packets fail. Next hops may prefer others.
    Unreachable,
    /// The entry is over, having been asked for in vain.
    Deleted,
    /// The entry is over, as nobody used or confirmed it.
    Expired,
    /// The neighbor was a router and says it no longer is (RFC 4861, 7.2.5).
    NoLongerRouter,
}

impl Effect {
    /// Says whether the entry is over and has to be taken away.
    pub fn ends(self) -> bool {
        matches!(self, Effect::Deleted | Effect::Expired)
    }
}

/// Whom to ask for a neighbor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ask {
    /// All who may have the address: by broadcast (ARP) or its solicited-node group (ND).
    Everyone,
    /// The station that had it last.
    Unicast(EtherAddr),
}

/// Rules by which entries live: a function of (entry, event, now) that keeps nothing itself.
pub trait Protocol: Send {
    /// Returns the name for tables and logs, such as `arp`.
    fn name(&self) -> &'static str;

    /// Lets an event happen to an entry. Appends what follows from it to `effects`, in order.
    fn step(
        &self,
        entry: &mut Entry,
        event: Event,
        now: Duration,
        random: &mut Random,
        effects: &mut Vec<Effect>,
    );

    /// Says whether a message may make an entry. `for_us` tells that it was meant for this router: that it asked for
    /// one of its addresses or was sent to it.
    fn may_create(&self, heard: &Heard, for_us: bool) -> bool;
}

/// One neighbor under a clock that stands still until it is told to go.
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
        pub(in crate::neighbor) entry: Option<Entry>,
        pub(in crate::neighbor) now: Duration,
        pub(in crate::neighbor) random: Random,
        /// What timers are told.
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
            if effects.iter().any(|effect| effect.ends()) {
                self.entry = None;
            }
            self.log.extend(effects.iter().map(|&effect| (self.now, effect)));
            effects
        }

        pub(in crate::neighbor) fn packet(&mut self) -> Vec<Effect> {
            self.entry.get_or_insert_with(Entry::new);
            self.event(Event::Packet)
        }

        pub(in crate::neighbor) fn timer(&mut self, used: bool) -> Vec<Effect> {
            self.event(Event::Timer { used })
        }

        /// A message from the link address that the table takes if there is an entry.
        pub(in crate::neighbor) fn hear(&mut self, link: EtherAddr, kind: HeardKind) -> Vec<Effect> {
            self.event(Event::Heard(Heard { link: Some(link), kind, router: None }))
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

        pub(in crate::neighbor) fn entry(&self) -> &Entry {
            self.entry.as_ref().expect("an entry")
        }

        pub(in crate::neighbor) fn state(&self) -> Option<State> {
            self.entry.as_ref().map(|entry| entry.state)
        }

        pub(in crate::neighbor) fn asks(&self) -> Vec<(Duration, Ask)> {
            let ask = |&(at, effect)| match effect {
                Effect::Ask(to) => Some((at, to)),
                _ => None,
            };
            self.log.iter().filter_map(ask).collect()
        }

        pub(in crate::neighbor) fn asked_at(&self) -> Vec<Duration> {
            self.asks().into_iter().map(|(at, _)| at).collect()
        }
    }
}
