//! What goes with each message beside its records: which message it is. It travels as zenoh's attachment, so
//! that the payload is a stream of `ARTE` and nothing else.

use crate::owner::Owner;

const MAGIC: [u8; 4] = *b"ARTB";
const VERSION: u16 = 1;
const LENGTH: usize = 24;

/// Numbers are big-endian: magic (4), version (2), kind (1), run (8), number (8), whether the sender leaves
/// (1), and the owner of flows that are none of the sender's. Bytes after them, which later
/// versions may add, are skipped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Envelope {
    pub(crate) kind: Kind,
    /// The start of the sender's process, so that its numbers are not taken for those of an earlier one.
    pub(crate) run: u64,
    /// Of changes, one more than that of the batch before; of parts, the same within a fetch; of an end, how
    /// many parts there were; of a question and its answer, that of the last changes.
    pub(crate) number: u64,
    /// Whether the sender leaves the fleet, so that it takes nothing over any more.
    pub(crate) leaves: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Exceptions that came or changed; none, if only the number is sent.
    Changes = 1,
    /// Some of all exceptions.
    Part = 2,
    /// There are no more parts.
    End = 3,
    /// Asks whether all of a run up to a number has been taken, and says that it has.
    HasAll = 4,
}

/// Why a message is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Refusal {
    Malformed,
    OtherVersion,
    OtherFleet,
    OwnName,
    SameName,
    Replayed,
    TooManyMachines,
}

impl Refusal {
    pub(crate) const ALL: [Refusal; 7] = [
        Refusal::Malformed,
        Refusal::OtherVersion,
        Refusal::OtherFleet,
        Refusal::OwnName,
        Refusal::SameName,
        Refusal::Replayed,
        Refusal::TooManyMachines,
    ];

    /// Its name in the status.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Refusal::Malformed => "malformed",
            Refusal::OtherVersion => "other_version",
            Refusal::OtherFleet => "other_fleet",
            Refusal::OwnName => "own_name",
            Refusal::SameName => "same_name",
            Refusal::Replayed => "replayed",
            Refusal::TooManyMachines => "too_many_machines",
        }
    }

    pub(crate) fn explanation(self) -> &'static str {
        match self {
            Refusal::Malformed => "it is malformed",
            Refusal::OtherVersion => "it is of another version of the format",
            Refusal::OtherFleet => "it is of another fleet; do peers belong to this one?",
            Refusal::OwnName => "another machine has the name of this one; names must differ",
            Refusal::SameName => "a machine of this name that started later is there; names must differ",
            Refusal::Replayed => "its number, or a later one, has come before",
            Refusal::TooManyMachines => "there are more machines than peers can be",
        }
    }
}

impl Envelope {
    pub(crate) fn to_bytes(self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(LENGTH);
        bytes.extend(MAGIC);
        bytes.extend(VERSION.to_be_bytes());
        bytes.push(self.kind as u8);
        bytes.extend(self.run.to_be_bytes());
        bytes.extend(self.number.to_be_bytes());
        bytes.push(self.leaves.into());
        bytes
    }

    /// With the owner of the flows, unless that is the sender's run.
    pub(crate) fn with_owner(self, owner: Option<&Owner>) -> Vec<u8> {
        let mut bytes = self.to_bytes();
        owner.into_iter().for_each(|owner| owner.write(&mut bytes));
        bytes
    }

    /// The owner after an envelope.
    pub(crate) fn parse_owner(bytes: &[u8]) -> Result<Option<Owner>, Refusal> {
        bytes.get(LENGTH..).filter(|rest| !rest.is_empty()).map(Owner::parse).transpose()
    }

    pub(crate) fn parse(bytes: &[u8]) -> Result<Envelope, Refusal> {
        let rest = bytes.strip_prefix(&MAGIC).ok_or(Refusal::Malformed)?;
        let (version, rest) = rest.split_first_chunk().ok_or(Refusal::Malformed)?;
        if u16::from_be_bytes(*version) != VERSION {
            return Err(Refusal::OtherVersion);
        }
        let (kind, rest) = rest.split_first().ok_or(Refusal::Malformed)?;
        let kind = [Kind::Changes, Kind::Part, Kind::End, Kind::HasAll]
            .into_iter()
            .find(|known| *known as u8 == *kind);
        let (run, rest) = rest.split_first_chunk().ok_or(Refusal::Malformed)?;
        let (number, rest) = rest.split_first_chunk().ok_or(Refusal::Malformed)?;
        let (leaves, _) = rest.split_first().ok_or(Refusal::Malformed)?;
        let (run, number) = (u64::from_be_bytes(*run), u64::from_be_bytes(*number));
        Ok(Envelope { kind: kind.ok_or(Refusal::Malformed)?, run, number, leaves: *leaves != 0 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ENVELOPE: Envelope = Envelope { kind: Kind::Part, run: u64::MAX - 1, number: 7, leaves: true };

    #[test]
    fn what_is_written_is_read_again_also_with_later_additions() {
        let mut bytes = ENVELOPE.to_bytes();
        assert_eq!(bytes.len(), LENGTH);
        assert_eq!(Envelope::parse(&bytes), Ok(ENVELOPE));
        assert_eq!(Envelope::parse_owner(&bytes), Ok(None));
        bytes.extend(b"more");
        assert_eq!(Envelope::parse(&bytes), Ok(ENVELOPE));
        let owner = Owner { machine: "m1".to_string(), run: 5 };
        let bytes = ENVELOPE.with_owner(Some(&owner));
        assert_eq!((Envelope::parse(&bytes), Envelope::parse_owner(&bytes)), (Ok(ENVELOPE), Ok(Some(owner))));
        assert_eq!(Envelope::parse_owner(&bytes[..LENGTH + 3]), Err(Refusal::Malformed));
    }

    #[test]
    fn what_is_cut_or_strange_is_malformed_and_another_version_has_its_own_reason() {
        let bytes = ENVELOPE.to_bytes();
        for length in 0..bytes.len() {
            assert_eq!(Envelope::parse(&bytes[..length]), Err(Refusal::Malformed), "{length}");
        }
        for (at, byte, expected) in
            [(0, b'X', Refusal::Malformed), (5, 2, Refusal::OtherVersion), (6, 9, Refusal::Malformed)]
        {
            let mut damaged = bytes.clone();
            damaged[at] = byte;
            assert_eq!(Envelope::parse(&damaged), Err(expected));
        }
    }
}
