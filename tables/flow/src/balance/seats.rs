//! Member places: members by name, each with a place and a number of its own.
use super::{BalanceError, MOST_MEMBERS, Member, MemberId};
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

/// A member and what is known of it.
#[derive(Clone, Debug)]
pub(crate) struct Seat {
    pub(crate) id: MemberId,
    pub(crate) member: Arc<Member>,
    /// Whether its checks pass; None before the first result.
    pub(crate) checked: Option<bool>,
    /// Whether it takes flows.
    pub(crate) is_up: bool,
}

/// Places from 0 on, as few as there ever were members at a time.
#[derive(Clone, Default)]
pub(crate) struct Seats {
    /// Indexed by member place.
    seats: Vec<Option<Seat>>,
    /// Places that are free, and the number that the next to sit there gets.
    free: BTreeMap<usize, MemberId>,
    by_name: BTreeMap<Arc<str>, u16>,
}

impl Seats {
    /// Gives a member a free index.
    pub(crate) fn add_member(&mut self, member: Member, is_up: bool) -> Result<MemberId, BalanceError> {
        check_member(&member)?;
        if self.by_name.contains_key(&member.name) {
            return Err(BalanceError::Exists(member.name.to_string()));
        }
        let too_many = BalanceError::TooMany(self.len() + 1);
        if self.len() >= MOST_MEMBERS {
            return Err(too_many);
        }
        let id = self.next_id().ok_or(too_many)?;
        self.by_name.insert(member.name.clone(), id.place() as u16);
        self.seats[id.place()] = Some(Seat { id, member: Arc::new(member), checked: None, is_up });
        Ok(id)
    }

    fn next_id(&mut self) -> Option<MemberId> {
        if let Some((_, id)) = self.free.pop_first() {
            return Some(id);
        }
        let place = u16::try_from(self.seats.len()).ok().filter(|place| *place < u16::MAX)?;
        self.seats.push(None);
        Some(MemberId::first_at(place))
    }

    /// Frees a member's seat. Its index is used again, its id is not.
    pub(crate) fn remove(&mut self, name: &str) -> Result<Seat, BalanceError> {
        let place = self.by_name.remove(name).map(usize::from);
        let seat = place.and_then(|place| self.seats[place].take()).ok_or_else(|| no_such(name))?;
        self.free.extend(seat.id.successor().map(|id| (id.place(), id)));
        Ok(seat)
    }

    /// A member by name.
    pub(crate) fn get(&self, name: &str) -> Result<&Seat, BalanceError> {
        let place = self.by_name.get(name).map(|place| usize::from(*place));
        place.and_then(|place| self.seats[place].as_ref()).ok_or_else(|| no_such(name))
    }
    /// A member by name, to be changed.
    pub(crate) fn get_mut(&mut self, name: &str) -> Result<&mut Seat, BalanceError> {
        let place = self.by_name.get(name).map(|place| usize::from(*place));
        place.and_then(|place| self.seats[place].as_mut()).ok_or_else(|| no_such(name))
    }
    /// All members in the order of their names.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Seat> {
        self.by_name.values().filter_map(|place| self.seats[usize::from(*place)].as_ref())
    }
    /// All members, to be changed.
    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Seat> {
        self.seats.iter_mut().flatten()
    }
    /// Seats by member index.
    pub(crate) fn places(&self) -> &[Option<Seat>] {
        &self.seats
    }
    /// How many members there are.
    pub(crate) fn len(&self) -> usize {
        self.by_name.len()
    }
}

fn no_such(name: &str) -> BalanceError {
    BalanceError::NoSuchMember(name.to_string())
}

/// Whether this can be a member.
pub(crate) fn check_member(member: &Member) -> Result<(), BalanceError> {
    if !Member::is_name(&member.name) {
        return Err(BalanceError::Name(member.name.to_string()));
    }
    if !is_host(member.address) {
        return Err(BalanceError::NoHost { name: member.name.to_string(), address: member.address });
    }
    Ok(())
}

/// Whether one host can have the address.
pub(crate) fn is_host(address: IpAddr) -> bool {
    let is_broadcast = matches!(address, IpAddr::V4(address) if address.is_broadcast());
    !address.is_unspecified() && !address.is_multicast() && !is_broadcast
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    fn member(name: &str) -> Member {
        Member::new(name, IpAddr::from([10, 0, 0, 1]))
    }

    #[test]
    fn places_are_taken_again_and_numbers_never() {
        let mut seats = Seats::default();
        let mut seen = BTreeSet::new();
        for round in 0..70_000 {
            let id = seats.add_member(member("a"), true).unwrap();
            assert!(seen.insert(id) && id.action() != 0 && MemberId::from_action(id.action()) == Some(id));
            assert_eq!(id.place(), round / 0xffff, "a place has 65,535 numbers");
            seats.remove("a").unwrap();
        }
        assert_eq!(seats.places().len(), 2);
    }

    #[test]
    fn an_action_that_nobody_ever_had_is_no_member() {
        for action in [0, 1, 0xffff] {
            assert_eq!(MemberId::from_action(action), None);
        }
    }

    #[test]
    fn who_cannot_be_a_member_takes_no_seat() {
        let mut seats = Seats::default();
        for name in ["", "a b", "a/b", "ä", &"x".repeat(65)] {
            assert_eq!(seats.add_member(member(name), true), Err(BalanceError::Name(name.to_string())));
        }
        for address in ["0.0.0.0", "224.0.0.1", "255.255.255.255", "::", "ff02::1"] {
            let member = Member::new("a", address.parse().unwrap());
            assert!(matches!(seats.add_member(member, true), Err(BalanceError::NoHost { .. })), "{address}");
        }
        seats.add_member(member("a"), true).unwrap();
        assert_eq!(seats.add_member(member("a"), true), Err(BalanceError::Exists("a".to_string())));
        assert_eq!((seats.len(), seats.places().len()), (1, 1));
    }

    #[test]
    fn there_is_a_last_seat_and_a_refusal_takes_none() {
        let mut seats = Seats::default();
        assert!((0..MOST_MEMBERS).all(|n| seats.add_member(member(&format!("m{n}")), true).is_ok()));
        assert_eq!(seats.add_member(member("more"), true), Err(BalanceError::TooMany(MOST_MEMBERS + 1)));
        seats.remove("m7").unwrap();
        assert_eq!(seats.add_member(member("more"), true).unwrap().place(), 7);
        assert_eq!(seats.places().len(), MOST_MEMBERS);
    }
}
