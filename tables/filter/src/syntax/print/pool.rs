//! Prints what packets are translated and routed to.
use super::Style;
use super::address::{format_table_name, in_rule};
use crate::facts::Family;
use crate::rule::{Comparison, Pool, PoolAddress, PoolChoice, PoolPorts};

/// What a pool is for, which decides how its ports are said.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose {
    Nat,
    /// `rdr-to` of a rule with these ports as destination.
    Redirect(Option<Comparison<u16>>),
    Route,
}

/// A pool with all that is said of it.
pub(crate) fn format_pool(pool: &Pool, purpose: Purpose, family: Option<Family>, style: &Style) -> String {
    let mut text = format_pool_address(&pool.address, family, style);
    text += &format_pool_ports(pool, purpose);
    text += &format_choice(&pool.choice, style);
    if pool.is_sticky {
        text += " sticky-address";
    }
    if pool.has_static_port && purpose == Purpose::Nat {
        text += " static-port";
    }
    text
}

fn format_choice(choice: &PoolChoice, style: &Style) -> String {
    match choice {
        PoolChoice::Paired if style.is_for_reading => " bitmask".into(),
        PoolChoice::Single | PoolChoice::Usual | PoolChoice::Paired => String::new(),
        PoolChoice::Bitmask => " bitmask".into(),
        PoolChoice::Random => " random".into(),
        PoolChoice::RoundRobin => " round-robin".into(),
        PoolChoice::SourceHash(None) => " source-hash".into(),
        PoolChoice::SourceHash(Some([a, b, c, d])) => format!(" source-hash 0x{a:08x}{b:08x}{c:08x}{d:08x}"),
        PoolChoice::LeastStates => " least-states".into(),
    }
}

fn format_pool_address(address: &PoolAddress, family: Option<Family>, style: &Style) -> String {
    match address {
        PoolAddress::Host(host, None) => in_rule(host, family, style),
        PoolAddress::Host(host, Some(interface)) => {
            format!("{}@{}", in_rule(host, family, style), interface.0)
        }
        PoolAddress::Table(name) => format_table_name(name, style),
        PoolAddress::Interface(interface) => format!("({})", interface.0),
    }
}

fn format_pool_ports(pool: &Pool, purpose: Purpose) -> String {
    match (pool.ports, purpose) {
        (None, _) | (_, Purpose::Route) => String::new(),
        (Some(PoolPorts::One(port)), _) => format!(" port {port}"),
        (Some(PoolPorts::Range(first, last)), _) => format!(" port {first}:{last}"),
        (Some(PoolPorts::Moved(first)), Purpose::Redirect(Some(Comparison::Range(from, to)))) => {
            format!(" port {first}:{}", first.wrapping_add(to.wrapping_sub(from)))
        }
        (Some(PoolPorts::Moved(first)), _) => format!(" port {first}"),
    }
}
