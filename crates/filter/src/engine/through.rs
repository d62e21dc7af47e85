//! A batch of packets on the quick way, by less than a [`Look`](super::Look): at one interface, or at two at once, as through
//! a switch.
//!
//! Where a packet comes in its state is found; that leads to the state where it leaves, and to no second search. What does not
//! go the quick way is left to be tested as anywhere, and nothing has changed then.
use super::quick::{Known, Quick};
use super::{Filter, Passed};
use crate::dissect::{At, dissect};
use crate::evaluate::Compiled;
use crate::facts::{Direction, Tag};
use crate::states::{NONE, StateId};

/// What became of a packet that was to go through.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Through {
    /// It has passed at both interfaces.
    Passed,
    /// It has passed where it came in, and is to be tested where it leaves.
    Entered(Passed),
    /// It is to be tested.
    Unknown,
}

/// What is seen of a packet at a glance.
#[derive(Clone, Copy, Debug)]
pub struct Glance {
    hash: u64,
    quick: Quick,
    /// The line of the index, and then the state that it may have.
    place: u32,
}

impl Filter {
    /// Looks at a packet that begins with its header of IP.
    #[inline(always)]
    pub fn glance(&self, bytes: &[u8], direction: Direction) -> Glance {
        let quick = Quick::of(bytes, direction);
        let hash = match quick.length {
            0 => self.hash_of_odd(bytes, direction),
            _ => self.states.hash_narrow(quick.narrow, quick.protocol),
        };
        Glance { hash, quick, place: self.states.begin(hash) }
    }

    /// The hash of a packet that will go another way, for the memory that it needs then.
    #[cold]
    #[inline(never)]
    fn hash_of_odd(&self, bytes: &[u8], direction: Direction) -> u64 {
        dissect(bytes).map_or(0, |seen| self.states.hash(&seen.key(direction)))
    }

    /// Asks for the state that a packet may have, and for that beside it.
    #[inline(always)]
    pub fn approach_likely(&self, glance: &mut Glance) {
        glance.place = self.states.approach(glance.hash, glance.place);
    }

    /// Lets a packet pass, if that is quickly done, at an interface where [the quick way may be gone](Filter::is_plain_at). It
    /// is not changed.
    #[inline(always)]
    pub fn pass_quickly(&mut self, bytes: &[u8], glance: &Glance, at: At) -> Option<Passed> {
        let Glance { quick, place, .. } = glance;
        if quick.length == 0 {
            return None;
        }
        let (number, Known { link, record }) = match self.know_quickly(bytes, quick, *place, at.direction) {
            Some(known) => (*place, known),
            None => self.know_elsewhere(bytes, *place, at)?,
        };
        // What is beside it has come with it. Whatever else it leads to is wanted where the packet leaves.
        if link != number ^ 1 {
            self.states.prefetch(link);
        }
        self.tally(record, at.direction, quick.length);
        Some(Passed { state: Some(StateId { number }), tag: at.tag, ..Passed::default() })
    }

    /// The same for one that leaves and had a state where it came in, which mostly leads to the state here. No glance was
    /// needed for it.
    #[inline(always)]
    pub fn pass_behind(&mut self, bytes: &[u8], came: StateId, at: At) -> Option<Passed> {
        let quick = Quick::of(bytes, Direction::Out);
        if quick.length == 0 {
            return None;
        }
        let linked = self.states.hot.get(came.number).map_or(NONE, |hot| hot.link);
        let (number, Known { link, record }) = match self.know_quickly(bytes, &quick, linked, Direction::Out)
        {
            Some(known) => (linked, known),
            None => self.know_elsewhere(bytes, linked, at)?,
        };
        self.tally(record, Direction::Out, quick.length);
        if link != came.number {
            self.states.link(came.number, number);
        }
        Some(Passed { state: Some(StateId { number }), tag: at.tag, ..Passed::default() })
    }

    /// Lets a packet pass through, as far as that is quickly done: from an interface to another, where [the quick way may be
    /// gone](Filter::is_plain_at). It is not changed.
    #[inline(always)]
    pub fn pass_through(&mut self, bytes: &[u8], glance: &Glance, from: At) -> Through {
        let Glance { quick, place, .. } = glance;
        if quick.length == 0 {
            return Through::Unknown;
        }
        match self.know_both(bytes, quick, *place) {
            Some([record, behind]) => {
                self.tally(record, Direction::In, quick.length);
                self.tally(behind, Direction::Out, quick.length);
                Through::Passed
            }
            None => self.pass_each(bytes, glance, from),
        }
    }

    /// Lets a packet pass at one interface, and then at the other.
    #[cold]
    #[inline(never)]
    fn pass_each(&mut self, bytes: &[u8], glance: &Glance, from: At) -> Through {
        let Glance { quick, place, .. } = glance;
        let (number, Known { link, record }) = match self.know_quickly(bytes, quick, *place, Direction::In) {
            Some(known) => (*place, known),
            None => match self.know_elsewhere(bytes, *place, from) {
                Some(found) => found,
                None => return Through::Unknown,
            },
        };
        self.tally(record, Direction::In, quick.length);
        let turned = Quick { narrow: quick.turned(), ..*quick };
        match self.know_quickly(bytes, &turned, link, Direction::Out) {
            Some(known) => {
                self.tally(known.record, Direction::Out, quick.length);
                Through::Passed
            }
            None => {
                let state = Some(StateId { number });
                Through::Entered(Passed { state, tag: Tag(0), ..Passed::default() })
            }
        }
    }

    /// Takes a packet into account by its state where another was more likely. It is looked at again, so that what was seen of
    /// it stays in registers where this is not needed.
    #[cold]
    #[inline(never)]
    fn know_elsewhere(&mut self, bytes: &[u8], likely: u32, at: At) -> Option<(u32, Known)> {
        let quick = Quick::of(bytes, at.direction);
        let hash = self.states.hash_narrow(quick.narrow, quick.protocol);
        let number = self.find_quickly(&quick, hash, likely, at)?;
        Some((number, self.know_quickly(bytes, &quick, number, at.direction)?))
    }

    /// Whether the quick way may be gone at an interface.
    #[inline]
    pub fn is_plain_at(&self, at: At, compiled: &Compiled) -> bool {
        self.settings.is_enabled
            && self.settings.log_interface != Some(at.interface)
            && !compiled.skips(at.interface)
    }
}
