//! Why a change of members was refused: the subject, the problem, and what to do.
use super::{MOST_MEMBERS, Member, Method};
use std::net::IpAddr;
use std::time::Duration;

/// Why a change of members was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs)] // the texts say what is in their fields
pub enum BalanceError {
    /// No member can be called so.
    #[error(
        "member {0:?}: not a name; take 1 to {most} letters, digits, '.', '-' and '_'",
        most = Member::LONGEST_NAME
    )]
    Name(String),
    /// There is a member of this name.
    #[error("member {0}: File exists, there is one of this name; remove it, or take another name")]
    Exists(String),
    /// No member has this name.
    #[error("member {0}: no such member; a list of them tells their names")]
    NoSuchMember(String),
    /// No single host can have the address.
    #[error("member {name}: {address} is not the address of one host; take the server's own")]
    NoHost { name: String, address: IpAddr },
    /// There are as many members as there can be.
    #[error("{0} members: there can be {MOST_MEMBERS}; leave the others out")]
    TooMany(usize),
    /// More members than slots of the table.
    #[error("{members} members on {slots} slots: each needs one, 100 are good; take more slots")]
    TooFewSlots { members: usize, slots: u32 },
    /// More buckets than there can be, or none.
    #[error(
        "{0} buckets: there can be 1 to {most}; 64 for each member are good",
        most = Method::MOST_BUCKETS
    )]
    Buckets(u32),
    /// A gap that is longer than any.
    #[error("gap {0:?}: it can be up to {most:?}; 500us are usual", most = Method::LONGEST_GAP)]
    Gap(Duration),
}
