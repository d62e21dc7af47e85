//! What one worker has seen of its own packets, for the methods that choose by that.
use super::{Choice, MemberId};
use std::time::Duration;

/// What one worker remembers for one balancer.
///
/// Nothing of it is shared. Memory is allocated by the first flow after the members have
/// changed, and never freed.
#[derive(Debug)]
pub struct Local {
    /// Where the rotation is.
    next: usize,
    flowlets: Vec<Flowlet>,
    /// Indexed by member place.
    counts: Vec<Count>,
    contest: Contest,
}

/// Flows that are between two silences; those of the same slot are one.
#[derive(Clone, Copy, Debug, Default)]
struct Flowlet {
    /// When its last packet came, in microseconds. A flowlet that is silent until they come round lives on.
    last: u32,
    /// The action of the flowlet's member.
    action: u32,
}

/// Number of flowlets kept apart; hashes beyond share them.
const FLOWLETS: usize = 1 << 14;

/// Flows of a member.
#[derive(Clone, Copy, Debug, Default)]
struct Count {
    action: u32,
    flows: u32,
}

impl Local {
    /// That of the worker of this number: each begins with another member.
    pub fn new(worker: usize) -> Local {
        let contest = Contest { first: worker, ..Contest::default() };
        Local { next: worker, flowlets: Vec::new(), counts: Vec::new(), contest }
    }

    /// Says that a flow has begun to go to a member. `LeastLoaded` chooses by that.
    pub fn flow_began(&mut self, id: MemberId) {
        let Some(count) = self.counts.get_mut(id.place()) else {
            self.counts.resize(id.place() + 1, Count::default());
            return self.flow_began(id);
        };
        if id.action() > count.action {
            *count = Count { action: id.action(), flows: 0 }; // whose place this was is gone
        }
        if id.action() == count.action {
            count.flows = count.flows.saturating_add(1);
            self.contest.replay_games(id.place(), &self.counts);
        }
    }

    /// Says that a flow has ended, by the number it kept of its member.
    pub fn flow_ended(&mut self, action: u32) {
        let Some(id) = MemberId::from_action(action) else { return };
        if let Some(count) = self.counts.get_mut(id.place())
            && count.action == action
        {
            count.flows = count.flows.saturating_sub(1);
            self.contest.replay_games(id.place(), &self.counts);
        }
    }

    /// How many flows of this worker a member has, as counted by its calls.
    pub fn flow_count(&self, id: MemberId) -> u32 {
        let count = self.counts.get(id.place()).filter(|count| count.action == id.action());
        count.map_or(0, |count| count.flows)
    }

    /// The next member in weighted rotation.
    #[inline]
    pub(crate) fn next_in_rotation(&mut self, choice: &Choice) -> Option<MemberId> {
        if self.next >= choice.slots.len() {
            self.next %= choice.slots.len().max(1);
        }
        let member = choice.in_slot(self.next);
        self.next += 1;
        member
    }

    /// The member of a flowlet whose last packet came a short while ago.
    #[inline]
    pub(crate) fn flowlet_under_way(
        &self,
        choice: &Choice,
        hash: u64,
        gap: Duration,
        now: Duration,
    ) -> Option<MemberId> {
        let Flowlet { last, action } = *self.flowlets.get((hash >> 32) as usize % FLOWLETS)?;
        let goes_on = wrapping_micros(now).wrapping_sub(last) < wrapping_micros(gap);
        MemberId::from_action(action).filter(|id| goes_on && choice.takes_new(*id))
    }

    /// The member of a packet's flowlet, or the next one if it is the first.
    #[inline]
    pub(crate) fn flowlet_member(
        &mut self,
        choice: &Choice,
        hash: u64,
        gap: Duration,
        now: Duration,
    ) -> Option<MemberId> {
        if self.flowlets.is_empty() {
            self.flowlets = vec![Flowlet::default(); FLOWLETS];
        }
        let at = (hash >> 32) as usize % FLOWLETS;
        let id = match self.flowlet_under_way(choice, hash, gap, now) {
            Some(id) => id,
            None => self.next_in_rotation(choice)?,
        };
        self.flowlets[at] = Flowlet { last: wrapping_micros(now), action: id.action() };
        Some(id)
    }

    /// The member with fewest flows for its weight.
    #[inline]
    pub(crate) fn least_loaded(&mut self, choice: &Choice) -> Option<MemberId> {
        if self.contest.generation != Some(choice.generation()) {
            self.counts.resize(choice.place_count().max(self.counts.len()), Count::default());
            self.contest.begin_contest(choice, &self.counts);
        }
        self.contest.winner()
    }
}

#[inline]
fn wrapping_micros(time: Duration) -> u32 {
    (time.as_secs() as u32).wrapping_mul(1_000_000).wrapping_add(time.subsec_micros())
}

/// A knockout: the member with fewest flows for its weight wins. A change of one member's plays its games
/// again and no other.
#[derive(Debug, Default)]
struct Contest {
    /// Of the choice whose members take part.
    generation: Option<u32>,
    /// Which of the members is first among equals.
    first: usize,
    players: Vec<Player>,
    /// By place: index among the players.
    player: Vec<u16>,
    /// The winner of games 2n and 2n + 1 is in n; the second half has the players.
    games: Vec<u16>,
}

#[derive(Clone, Copy, Debug)]
struct Player {
    id: MemberId,
    weight: u32,
}

const NOBODY: u16 = u16::MAX;

impl Contest {
    #[cold]
    fn begin_contest(&mut self, choice: &Choice, counts: &[Count]) {
        self.generation = Some(choice.generation());
        let player = |(id, _): (MemberId, _)| Player { id, weight: choice.weights[id.place()] };
        self.players.clear();
        self.players.extend(choice.members().map(player).filter(|player| player.weight > 0));
        let first = self.first % self.players.len().max(1);
        self.players.rotate_left(first);
        self.player.clear();
        self.player.resize(choice.place_count(), NOBODY);
        let half = self.players.len().next_power_of_two();
        self.games.clear();
        self.games.resize(2 * half, NOBODY);
        for (number, player) in self.players.iter().enumerate() {
            self.player[player.id.place()] = number as u16;
            self.games[half + number] = number as u16;
        }
        (1..half).rev().for_each(|game| self.play_game(game, counts));
    }

    #[inline]
    fn winner(&self) -> Option<MemberId> {
        Some(self.players.get(usize::from(*self.games.get(1)?))?.id)
    }

    /// Plays the games of a place again.
    fn replay_games(&mut self, place: usize, counts: &[Count]) {
        let Some(player) = self.player.get(place).filter(|player| **player != NOBODY) else { return };
        let mut game = (self.games.len() / 2 + usize::from(*player)) / 2;
        while game > 0 {
            self.play_game(game, counts);
            game /= 2;
        }
    }

    fn play_game(&mut self, game: usize, counts: &[Count]) {
        let (a, b) = (self.games[2 * game], self.games[2 * game + 1]);
        self.games[game] = if self.is_before(b, a, counts) { b } else { a };
    }

    /// Whether `a` would have less to do than `b`, each with one flow more. Never true for [`NOBODY`].
    fn is_before(&self, a: u16, b: u16, counts: &[Count]) -> bool {
        let load = |number: u16| {
            let player = self.players.get(usize::from(number))?;
            let count = counts.get(player.id.place()).filter(|count| count.action == player.id.action());
            Some((u64::from(count.map_or(0, |count| count.flows)) + 1, u64::from(player.weight)))
        };
        match (load(a), load(b)) {
            (Some((a, of_a)), Some((b, of_b))) => a * of_b < b * of_a,
            (a, b) => a.is_some() && b.is_none(),
        }
    }
}
