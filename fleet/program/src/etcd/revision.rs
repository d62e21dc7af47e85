//! What is kept in etcd: JSON, with the version of its format.

use std::collections::BTreeMap;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::envelope::Refusal;

const FORMAT: u32 = 1;

/// The configuration of the fleet, by key `config`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Revision {
    pub(crate) number: u64,
    /// Another one for each that is written, so that who wrote it knows its own.
    pub(crate) id: u64,
    /// None: what routers had before the first one.
    pub(crate) content: Option<Content>,
    /// None once it is confirmed.
    pub(crate) pending: Option<Pending>,
    /// Why the one before was undone by this one.
    pub(crate) undone: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Content {
    /// As [`super::document`] reads it.
    pub(crate) text: String,
    pub(crate) seed: u64,
}

/// What is undone unless it is confirmed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Pending {
    pub(crate) seconds: u64,
    /// Machines that lived when it was committed.
    pub(crate) machines: Vec<String>,
    pub(crate) before: Option<Content>,
}

impl Revision {
    /// The one that is confirmed.
    pub(crate) fn confirmed(&self) -> Revision {
        Revision { id: random(), pending: None, ..self.clone() }
    }

    /// The one that undoes it; none if it is not pending.
    pub(crate) fn undoing(&self, why: &str) -> Option<Revision> {
        let content = self.pending.as_ref()?.before.clone();
        let undone = Some(format!("revision {} was undone: {why}", self.number));
        Some(Revision { number: self.number + 1, id: random(), content, pending: None, undone })
    }
}

/// A configuration that all machines check and then prepare, by key `candidate`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Candidate {
    pub(crate) id: u64,
    pub(crate) content: Content,
    /// Whether all have checked it, so that flows which it would give another member are mirrored.
    #[serde(default)]
    pub(crate) is_planned: bool,
}

/// What a machine found, by key `check/NAME`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Check {
    pub(crate) candidate: u64,
    /// Empty if it can be taken.
    pub(crate) mistakes: String,
}

/// A machine that lives, by key `machine/NAME`, which ends with its lease.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Member {
    /// The start of its process.
    pub(crate) run: u64,
    /// Whether the network sends packets to it, as far as `artery-fleet` decides that.
    #[serde(default)]
    pub(crate) is_announced: bool,
    #[serde(flatten)]
    pub(crate) state: MemberState,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct MemberState {
    pub(crate) is_router_connected: bool,
    /// What its router was given last.
    pub(crate) revision: Option<u64>,
    /// The revision that it could not take, and why.
    pub(crate) failure: Option<(u64, String)>,
    /// Whether the router's configuration is another one than that revision made.
    pub(crate) is_changed: bool,
    /// Of the balancer's table.
    pub(crate) digest: Option<String>,
    /// Members of the balancer that its own checks find down.
    #[serde(default)]
    pub(crate) down: Vec<String>,
    /// Those that they find up. What has no result yet is in neither.
    #[serde(default)]
    pub(crate) up: Vec<String>,
    /// How much later than others it may find what has become of a member.
    #[serde(default)]
    pub(crate) detection_ms: u64,
    /// What became of a candidate that is planned.
    #[serde(default)]
    pub(crate) prepared: Option<Prepared>,
}

/// Machines that are not announced since each alone does not reach some members, by key `drained`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Drained {
    /// Another one for each that is written.
    pub(crate) id: u64,
    /// By machine: the members.
    pub(crate) machines: BTreeMap<String, Vec<String>>,
}

/// A candidate whose exceptions are at the peers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Prepared {
    pub(crate) candidate: u64,
    /// Why they never will be; empty if they are.
    pub(crate) failure: String,
}

#[derive(Serialize, Deserialize)]
struct Versioned<T> {
    format: u32,
    #[serde(flatten)]
    value: T,
}

#[derive(Deserialize)]
struct Format {
    format: u32,
}

pub(crate) fn to_json<T: Serialize>(value: &T) -> Vec<u8> {
    // Values of this file have nothing that JSON can't say.
    serde_json::to_vec(&Versioned { format: FORMAT, value }).unwrap_or_default()
}

pub(crate) fn parse<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Refusal> {
    let Format { format } = serde_json::from_slice(bytes).map_err(|_| Refusal::Malformed)?;
    if format != FORMAT {
        return Err(Refusal::OtherVersion);
    }
    let versioned: Versioned<T> = serde_json::from_slice(bytes).map_err(|_| Refusal::Malformed)?;
    Ok(versioned.value)
}

/// A number that no one can guess.
pub(crate) fn random() -> u64 {
    use std::hash::{BuildHasher as _, RandomState};
    let mut bytes = [0; 8];
    let read = std::fs::File::open("/dev/urandom")
        .and_then(|mut file| std::io::Read::read_exact(&mut file, &mut bytes));
    // Its keys are random, too.
    read.map_or_else(|_| RandomState::new().hash_one(0), |()| u64::from_ne_bytes(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn revision() -> Revision {
        let content = |text: &str| Some(Content { text: text.to_string(), seed: u64::MAX });
        let pending = Pending { seconds: 60, machines: vec!["m1".to_string()], before: content("old") };
        Revision { number: 7, id: 1, content: content("new"), pending: Some(pending), undone: None }
    }

    #[test]
    fn what_is_written_is_read_again_and_nothing_else_is() {
        let bytes = to_json(&revision());
        assert_eq!(parse(&bytes), Ok(revision()));
        for length in 0..bytes.len() {
            assert_eq!(parse::<Revision>(&bytes[..length]), Err(Refusal::Malformed), "{length}");
        }
        let member = Member { run: 1, is_announced: true, state: MemberState::default() };
        assert_eq!(parse(&to_json(&member)), Ok(member));
        assert_eq!(parse::<Revision>(br#"{"format":2,"number":1}"#), Err(Refusal::OtherVersion));
        assert_eq!(parse::<Revision>(br#"{"format":1,"number":-1}"#), Err(Refusal::Malformed));
        assert_eq!(parse::<Revision>(b"\xff"), Err(Refusal::Malformed));
    }

    #[test]
    fn a_pending_revision_is_undone_by_a_later_one_with_what_was_before() {
        let undone = revision().undoing("m2: no").unwrap();
        assert_eq!((undone.number, undone.content.unwrap().text.as_str()), (8, "old"));
        assert_eq!(undone.undone.as_deref(), Some("revision 7 was undone: m2: no"));
        assert_eq!(revision().confirmed().undoing("x"), None);
        assert_eq!(revision().confirmed().number, 7);
    }
}
