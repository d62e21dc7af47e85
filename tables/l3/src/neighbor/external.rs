//! Neighbors that another program resolves, such as the kernel by netlink: no solicitation is sent on the
//! link, and no message is believed.
use super::protocol::{Effect, Event, NeighborEntry, NeighborUpdate, Protocol, State};
use artery_wire::Random;
use std::time::Duration;

/// How long a failed entry is kept for an address that packets were sent to but that is not known.
const FORGOTTEN: Duration = Duration::from_secs(1);

/// The protocol of external neighbors: an unknown one has failed, so that next hops prefer others. A known
/// one is set as [`Kind::Static`](super::Kind::Static) and stays until it is deleted.
#[derive(Clone, Copy, Debug, Default)]
pub struct External;

impl Protocol for External {
    fn name(&self) -> &'static str {
        "told"
    }

    fn step(
        &self,
        entry: &mut NeighborEntry,
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

    fn may_create(&self, _: &NeighborUpdate, _: bool) -> bool {
        false
    }
}

#[cfg(test)]
mod tests {
    use super::super::protocol::NeighborUpdateKind;
    use super::super::protocol::testing::{A, B, Life};
    use super::*;

    #[test]
    fn who_is_not_told_of_fails_at_once_and_nobody_is_asked() {
        let mut life = Life::new(External);
        assert_eq!(life.packet(), [Effect::Unreachable]);
        assert_eq!(life.packet(), []);
        assert_eq!((life.state(), life.sent_solicits()), (Some(State::Failed), Vec::new()));
        life.run_to(FORGOTTEN);
        assert_eq!(life.state(), None);
    }

    #[test]
    fn messages_change_nothing_of_what_was_told() {
        let mut life = Life::new(External);
        life.entry = Some(NeighborEntry::new_static(A, false));
        assert_eq!(life.receive_update(B, NeighborUpdateKind::Unsolicited), []);
        assert_eq!(life.packet(), []);
        assert_eq!((life.entry().usable_link(), life.entry().deadline), (Some(A), None));
        assert!(!External.may_create(
            &NeighborUpdate { link: Some(B), kind: NeighborUpdateKind::Solicitation, router: None },
            true
        ));
    }
}
