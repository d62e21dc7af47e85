//! Prefixes whose packets stay with the kernel, since which of their routes one goes by depends on more than
//! its destination.
use super::Mirror;
use super::merged::FamilyTables;
use super::sink::FamilySink;
use super::table::family;
use crate::kernel::Family;
use artery_lpm::Prefix;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Such a prefix. Packets to longer ones are not meant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExcludedPrefix {
    /// The family of its packets.
    pub family: Family,
    /// The table that has the routes.
    pub table: u32,
    /// The first address and the bits that count.
    pub prefix: (IpAddr, u8),
    /// What its routes depend on.
    pub condition: RouteCondition,
}

/// What the routes of a prefix depend on, besides the destination.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RouteCondition {
    /// The source: one is for packets from this prefix only (RTA_SRC).
    Source {
        /// The first address and the bits that count.
        from: (IpAddr, u8),
        /// Whether others are for other sources.
        has_more: bool,
    },
    /// The type of service: one is for packets with one value only.
    TypeOfService,
}

impl fmt::Display for ExcludedPrefix {
    /// In one line: what stays, why, and the command that shows it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ExcludedPrefix { family, table, prefix: (address, len), condition } = self;
        write!(f, "{family} packets to {address}/{len} stay with the kernel: table {table} has ")?;
        match condition {
            RouteCondition::Source { from: (from, bits), has_more: false } => {
                write!(f, "a route there for packets from {from}/{bits} only")?;
            }
            RouteCondition::Source { from: (from, bits), has_more: true } => {
                write!(f, "routes there for packets from {from}/{bits} and from other prefixes only")?;
            }
            RouteCondition::TypeOfService => {
                f.write_str("a route there for one type of service (TOS) only")?
            }
        }
        let option = if *family == Family::V6 { " -6" } else { "" };
        write!(f, " (shown by: ip{option} route show table {table} exact {address}/{len})")
    }
}

impl Mirror {
    /// The prefixes whose packets stay with the kernel because of what their routes depend on, IPv4 first.
    pub fn excluded_prefixes(&self) -> impl Iterator<Item = ExcludedPrefix> {
        self.v4.conditional_prefixes().chain(self.v6.conditional_prefixes())
    }

    /// How many conditions the routes of these prefixes have: for each prefix its prefixes of sources, or
    /// the type of service.
    pub fn route_conditions(&self) -> usize {
        self.v4.count_conditions() + self.v6.count_conditions()
    }
}

impl<A: FamilySink> FamilyTables<A> {
    fn conditional_prefixes(&self) -> impl Iterator<Item = ExcludedPrefix> {
        self.asked_tables().flat_map(|(id, table)| {
            table.conditional_prefixes().map(move |prefix| {
                let mut sources = table.source_prefixes(prefix);
                let condition = match sources.next() {
                    Some(source) => {
                        let from = (source_address(family::<A>(), source), source.len());
                        RouteCondition::Source { from, has_more: sources.next().is_some() }
                    }
                    None => RouteCondition::TypeOfService,
                };
                ExcludedPrefix {
                    family: family::<A>(),
                    table: id,
                    prefix: (A::to_ip(prefix.first()), prefix.len()),
                    condition,
                }
            })
        })
    }

    fn count_conditions(&self) -> usize {
        self.asked_tables().map(|(_, table)| table.count_conditions()).sum()
    }
}

/// The first address of a prefix of sources. Those of IPv4 are in the upper bits.
fn source_address(family: Family, source: Prefix<u128>) -> IpAddr {
    match family {
        Family::V4 => Ipv4Addr::from((source.first() >> 96) as u32).into(),
        Family::V6 => Ipv6Addr::from(source.first()).into(),
    }
}
