//! Who has flows: a machine, by a run of its router. Peers name it beside copies that it can't send itself.

use std::fmt::{Display, Formatter};
use std::str::FromStr;

use crate::config::is_word;
use crate::envelope::Refusal;

/// A machine whose router was started again is another owner: copies of the flows of the one
/// before are of an owner that is gone, and age.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Owner {
    pub(crate) machine: String,
    pub(crate) run: u64,
}

impl Owner {
    /// Appends run (8, big-endian), length of the name (1) and name.
    pub(crate) fn write(&self, into: &mut Vec<u8>) {
        into.extend(self.run.to_be_bytes());
        into.push(self.machine.len() as u8);
        into.extend(self.machine.as_bytes());
    }

    /// Bytes after them are skipped: later versions may add fields.
    pub(crate) fn parse(bytes: &[u8]) -> Result<Owner, Refusal> {
        let (run, rest) = bytes.split_first_chunk().ok_or(Refusal::Malformed)?;
        let (length, rest) = rest.split_first().ok_or(Refusal::Malformed)?;
        let name = rest.get(..usize::from(*length)).ok_or(Refusal::Malformed)?;
        let machine = std::str::from_utf8(name).ok().filter(|name| is_word(name));
        let machine = machine.ok_or(Refusal::Malformed)?.to_string();
        Ok(Owner { machine, run: u64::from_be_bytes(*run) })
    }
}

/// As the router knows it.
impl Display for Owner {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}@{}", self.machine, self.run)
    }
}

impl FromStr for Owner {
    type Err = Refusal;

    fn from_str(text: &str) -> Result<Owner, Refusal> {
        let (machine, run) = text.rsplit_once('@').ok_or(Refusal::Malformed)?;
        let run = run.parse().map_err(|_| Refusal::Malformed)?;
        is_word(machine).then(|| Owner { machine: machine.to_string(), run }).ok_or(Refusal::Malformed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_again_also_with_later_additions_and_nothing_that_is_cut() {
        let owner: Owner = "m-1.x@18446744073709551615".parse().unwrap();
        assert_eq!(owner, Owner { machine: "m-1.x".to_string(), run: u64::MAX });
        assert_eq!(owner.to_string().parse(), Ok(owner.clone()));
        let mut bytes = Vec::new();
        owner.write(&mut bytes);
        for length in 0..bytes.len() {
            assert_eq!(Owner::parse(&bytes[..length]), Err(Refusal::Malformed), "{length}");
        }
        assert_eq!(Owner::parse(&bytes), Ok(owner.clone()));
        bytes.push(7);
        assert_eq!(Owner::parse(&bytes), Ok(owner));
        bytes[9] = b'/';
        assert_eq!(Owner::parse(&bytes), Err(Refusal::Malformed));
    }

    #[test]
    fn names_of_the_router_that_are_no_machine_and_run_are_no_owner() {
        for text in ["", "m1", "m1@", "m1@x", "@1", "m 1@1", "m1@-1"] {
            assert_eq!(text.parse::<Owner>(), Err(Refusal::Malformed), "{text}");
        }
    }
}
