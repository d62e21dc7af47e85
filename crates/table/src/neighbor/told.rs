//! Neighbors that somebody else finds and tells of, as the kernel does by netlink: nobody is asked on the link, and no
//! message is believed.
use super::protocol::{Effect, Entry, Event, Heard, Protocol, State};
use crate::synthetic::Random;
use std::time::Duration;

/// After how long nobody remembers that packets were sent to somebody who was not told of.
const FORGOTTEN: Duration = Duration::from_secs(1);

/// Its rules: who was not told of has failed, so that next hops prefer others. What is told is set as
/// [`Kind::Static`](super::Kind::Static) and stays until it is deleted.
#[derive(Clone, Copy, Debug, Default)]
pub struct Told;

impl Protocol for Told {
    fn name(&self) -> &'static str {
        "told"
    }

    fn step(
        &self,
        entry: &mut Entry,
        event: Event,
        now: Duration,
        _: &mut Random,
        effects: &mut Vec<Effect>,
    ) {
        match (event, entry.state) {
            (Event::Packet, State::Incomplete) => {
                (entry.state, entry.deadline) = (State::Failed, Some(now + FORGOTTEN));
                effects.push(Effect::Unreachable);
            }
            (Event::Timer { .. }, State::Failed) => effects.push(Effect::Deleted),
            _ => {}
        }
    }

    fn may_create(&self, _: &Heard, _: bool) -> bool {
        false
    }
}

#[cfg(test)]
mod tests {
    use super::super::protocol::HeardKind;
    use super::super::protocol::testing::{A, B, Life};
    use super::*;

    #[test]
    fn who_is_not_told_of_fails_at_once_and_nobody_is_asked() {
        let mut life = Life::new(Told);
        assert_eq!(life.packet(), [Effect::Unreachable]);
        assert_eq!(life.packet(), []);
        assert_eq!((life.state(), life.asks()), (Some(State::Failed), Vec::new()));
        life.run_to(FORGOTTEN);
        assert_eq!(life.state(), None);
    }

    #[test]
    fn messages_change_nothing_of_what_was_told() {
        let mut life = Life::new(Told);
        life.entry = Some(Entry::fixed(A, false));
        assert_eq!(life.hear(B, HeardKind::Unsolicited), []);
        assert_eq!(life.packet(), []);
        assert_eq!((life.entry().usable(), life.entry().deadline), (Some(A), None));
        assert!(
            !Told.may_create(&Heard { link: Some(B), kind: HeardKind::Solicitation, router: None }, true)
        );
    }
}
