//! Why a change of members was refused: the subject, the problem, and what to do.
use super::{MOST_MEMBERS, Member, Method};
use std::fmt;
use std::net::IpAddr;
use std::time::Duration;

/// Why a change of members was refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BalanceError {
    /// No member can be called so.
    Name(String),
    /// There is a member of this name.
    Exists(String),
    /// No member has this name.
    NoSuchMember(String),
    /// No single host can have the address.
    NoHost {
        /// Name of the member that was refused.
        name: String,
        /// The refused address, such as a multicast one.
        address: IpAddr,
    },
    /// There are as many members as there can be.
    TooMany(usize),
    /// More members than slots of the table.
    TooFewSlots {
        /// Number of members that the change would give.
        members: usize,
        /// Number of slots of the table.
        slots: u32,
    },
    /// More buckets than there can be, or none.
    Buckets(u32),
    /// A gap that is longer than any.
    Gap(Duration),
}

impl fmt::Display for BalanceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        use BalanceError::*;
        match self {
            Name(name) => write!(
                f,
                "member {name:?}: not a name; take 1 to {} letters, digits, '.', '-' and '_'",
                Member::LONGEST_NAME
            ),
            Exists(name) => {
                write!(
                    f,
                    "member {name}: File exists, there is one of this name; remove it, or take another name"
                )
            }
            NoSuchMember(name) => {
                write!(f, "member {name}: no such member; a list of them tells their names")
            }
            NoHost { name, address } => {
                write!(f, "member {name}: {address} is not the address of one host; take the server's own")
            }
            TooMany(count) => write!(f, "{count} members: there can be {MOST_MEMBERS}; leave the others out"),
            TooFewSlots { members, slots } => {
                write!(f, "{members} members on {slots} slots: each needs one, 100 are good; take more slots")
            }
            Buckets(count) => write!(
                f,
                "{count} buckets: there can be 1 to {}; 64 for each member are good",
                Method::MOST_BUCKETS
            ),
            Gap(gap) => {
                write!(f, "gap {gap:?}: it can be up to {:?}; 500us are usual", Method::LONGEST_GAP)
            }
        }
    }
}

impl std::error::Error for BalanceError {}
