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
use crate::states::StateId;

/// By how many packets memory is asked for again before it is looked at: of what is asked for a whole batch at once processors
/// forget a part, since they wait for no more than some dozen lines at a time.
const AHEAD: usize = 12;
/// Fewer states than these are near enough to be asked for once.
const NEAR: u32 = 16_384;

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
    pub(super) quick: Quick,
    /// The line of the index, and then the state that it may have.
    pub(super) place: u32,
}

impl Filter {
    /// Looks at a packet that begins with its header of IP.
    #[inline(always)]
    pub fn glance(&self, bytes: &[u8], direction: Direction) -> Glance {
        let (quick, hash) = match Quick::plain(bytes, direction) {
            Some(quick) => (quick, self.states.hash_narrow(quick.narrow, quick.protocol)),
            None => (Quick::NONE, self.hash_of_odd(bytes, direction)),
        };
        Glance { hash, quick, place: self.states.begin(hash) }
    }

    /// The hash of a packet that will go another way, for the memory that it needs then.
    #[cold]
    #[inline(never)]
    fn hash_of_odd(&self, bytes: &[u8], direction: Direction) -> u64 {
        dissect(bytes).map_or(0, |seen| self.states.hash(&seen.key(direction)))
    }

    /// Asks for the states that packets may have. Returns by how many packets these are to be [asked for
    /// again](Filter::approach_again) before they are looked at.
    #[inline(always)]
    pub fn approach_all(&self, glances: &mut [Glance]) -> usize {
        if self.states.len() < NEAR {
            glances.iter_mut().for_each(|glance| self.approach_likely(glance));
            return glances.len();
        }
        for n in 0..glances.len() {
            if let Some(soon) = glances.get(n + AHEAD) {
                self.states.begin_again(soon.place);
            }
            self.approach_likely(&mut glances[n]);
        }
        AHEAD
    }

    /// Asks again for the state that a packet may have, if there is one.
    #[inline(always)]
    pub fn approach_again(&self, glance: Option<&Glance>) {
        if let Some(glance) = glance {
            self.states.prefetch_first(glance.place);
        }
    }

    #[inline(always)]
    pub(super) fn approach_likely(&self, glance: &mut Glance) {
        glance.place = self.states.approach_first(glance.hash, glance.place);
    }

    /// Lets a packet pass, if that is quickly done, at an interface where [the quick way may be gone](Filter::is_plain_at);
    /// returns its state. It is not changed, and has no tag from here.
    #[inline(always)]
    pub fn pass_quickly<'p>(
        &mut self,
        bytes: impl Fn() -> &'p [u8],
        glance: &Glance,
        at: At,
    ) -> Option<StateId> {
        let Glance { quick, place, .. } = glance;
        if at.direction == Direction::In
            && let Some([record, _]) = self.know_joined(&bytes, quick, *place)
        {
            self.tally(record, at, quick.length);
            return Some(StateId { number: *place });
        }
        self.pass_alone(bytes(), glance, at)
    }

    /// The same by a state that is not joined, or is another than was likely.
    #[inline(never)]
    fn pass_alone(&mut self, bytes: &[u8], glance: &Glance, at: At) -> Option<StateId> {
        let Glance { quick, place, .. } = glance;
        if quick.length == 0 {
            return None;
        }
        let (number, Known { link, record }) = match self.enter(bytes, quick, *place, at.direction) {
            Some(known) => (*place, known),
            None => self.enter_elsewhere(bytes, *place, at)?,
        };
        // What is beside it has come with it. Whatever else it leads to is wanted where the packet leaves.
        if link != number ^ 1 {
            self.states.prefetch(link);
        }
        self.tally(record, at, quick.length);
        Some(StateId { number })
    }

    /// Asks for the state of a packet that will leave and had this one where it came in.
    #[inline(always)]
    pub fn approach_behind(&self, came: Option<StateId>) {
        if let Some(StateId { number }) = came {
            self.states.prefetch_first(number);
        }
    }

    /// The same for one that leaves and had a state where it came in, which mostly leads to the state here. No glance was
    /// needed for it.
    #[inline(always)]
    pub fn pass_behind(&mut self, bytes: &[u8], came: StateId, at: At) -> Option<StateId> {
        if let Some((record, length)) = self.leave_joined(bytes, came) {
            self.tally(record, at, length);
            return Some(StateId { number: came.number ^ 1 });
        }
        self.pass_alone_behind(bytes, came, at)
    }

    /// The same by a state that is not joined.
    #[inline(never)]
    fn pass_alone_behind(&mut self, bytes: &[u8], came: StateId, at: At) -> Option<StateId> {
        let quick = Quick::plain(bytes, Direction::Out)?;
        let linked = self.states.link_of(came.number);
        let (number, Known { link, record }) =
            match self.know_quickly(&|| bytes, &quick, linked, Direction::Out) {
                Some(known) => (linked, known),
                None => self.enter_elsewhere(bytes, linked, at)?,
            };
        self.tally(record, at, quick.length);
        match link == came.number {
            true => self.states.join_if_even(number),
            false => self.states.link(came.number, number),
        }
        Some(StateId { number })
    }

    /// Lets a packet pass through, as far as that is quickly done: from an interface to another, where [the quick way may be
    /// gone](Filter::is_plain_at). It is not changed.
    #[inline(always)]
    pub fn pass_through<'p>(
        &mut self,
        bytes: impl Fn() -> &'p [u8],
        glance: &Glance,
        (from, to): (At, At),
    ) -> Through {
        let Glance { quick, place, .. } = glance;
        match self.know_joined(&bytes, quick, *place) {
            Some(records) => self.tally_both(records, (from, to), quick.length),
            None => self.pass_each(bytes(), glance, (from, to)),
        }
    }

    #[inline(always)]
    fn tally_both(&mut self, [record, behind]: [u32; 2], (from, to): (At, At), length: u16) -> Through {
        self.tally(record, from, length);
        self.tally(behind, to, length);
        Through::Passed
    }

    /// Takes a packet into account by a state and that beside it; returns their records.
    fn know_pair(&mut self, bytes: &[u8], quick: &Quick, number: u32) -> Option<[u32; 2]> {
        match self.states.is_joined(number) {
            true => self.know_joined(&|| bytes, quick, number),
            false => self.know_both(&|| bytes, quick, number),
        }
    }

    /// The same by states that are not joined, or are others than were likely, or at one interface and then at the other.
    #[inline(never)]
    fn pass_each(&mut self, bytes: &[u8], glance: &Glance, (from, to): (At, At)) -> Through {
        let Glance { quick, place, hash } = glance;
        if quick.length == 0 {
            return Through::Unknown;
        }
        if let Some(records) = self.know_pair(bytes, quick, *place) {
            return self.tally_both(records, (from, to), quick.length);
        }
        let number = self.find_quickly(quick, *hash, *place, from).unwrap_or(*place);
        if number != *place
            && let Some(records) = self.know_pair(bytes, quick, number)
        {
            return self.tally_both(records, (from, to), quick.length);
        }
        let Some(Known { link, record }) = self.know_quickly(&|| bytes, quick, number, Direction::In) else {
            return Through::Unknown;
        };
        self.tally(record, from, quick.length);
        let turned = Quick { narrow: quick.narrow.turned(), ..*quick };
        match self.know_quickly(&|| bytes, &turned, link, Direction::Out) {
            Some(known) => {
                self.tally(known.record, to, quick.length);
                Through::Passed
            }
            None => {
                let state = Some(StateId { number });
                Through::Entered(Passed { state, tag: Tag(0), ..Passed::default() })
            }
        }
    }

    /// Takes a packet into account by a state: for that beside it as well, if it comes in and they are joined.
    #[inline(always)]
    fn enter(&mut self, bytes: &[u8], quick: &Quick, number: u32, direction: Direction) -> Option<Known> {
        if direction == Direction::In && self.states.is_joined(number) {
            let [record, _] = self.know_joined(&|| bytes, quick, number)?;
            return Some(Known { link: number ^ 1, record });
        }
        self.know_quickly(&|| bytes, quick, number, direction)
    }

    /// Takes a packet into account by its state where another was more likely. It is looked at again, so that what was seen of
    /// it stays in registers where this is not needed.
    #[cold]
    #[inline(never)]
    fn enter_elsewhere(&mut self, bytes: &[u8], likely: u32, at: At) -> Option<(u32, Known)> {
        let quick = Quick::of(bytes, at.direction);
        let hash = self.states.hash_narrow(quick.narrow, quick.protocol);
        let number = self.find_quickly(&quick, hash, likely, at)?;
        Some((number, self.enter(bytes, &quick, number, at.direction)?))
    }

    /// Whether the quick way may be gone at an interface.
    #[inline]
    pub fn is_plain_at(&self, at: At, compiled: &Compiled) -> bool {
        self.settings.is_enabled && !self.settings.is_thorough && !compiled.skips(at.interface)
    }
}
