//! The order in which the tables of a family are looked up for a forwarded packet: the effect of `ip rule`.
//!
//! Rules that are for all packets give tables in a row. All packets that other rules match
//! stay with the kernel.
use super::Exclusion;
use crate::kernel::{Family, Link, LinkKind, Rule, RuleAction};
use artery_lpm::{Address, Prefix};
use std::fmt;
use std::net::IpAddr;

/// The table of the machine's own addresses (RT_TABLE_LOCAL).
pub(super) const LOCAL: u32 = 255;
/// The default rules of IPv4: priorities and tables.
const DEFAULTS4: [(u32, u32); 3] = [(0, LOCAL), (32766, 254), (32767, 253)];

/// A table that is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TableLevel {
    pub(super) table: u32,
    /// Prefixes with fewer bits are passed over.
    pub(super) shortest: u8,
    /// Whether everything that it has is left to the kernel.
    pub(super) is_kernels: bool,
}

/// Which tables are asked, in this order, and which destinations stay with the kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct LookupPlan<A: Address> {
    pub(super) levels: Vec<TableLevel>,
    pub(super) excluded: Vec<Prefix<A>>,
}

impl<A: Address> Default for LookupPlan<A> {
    fn default() -> LookupPlan<A> {
        LookupPlan { levels: Vec::new(), excluded: Vec::new() }
    }
}

impl<A: Address> LookupPlan<A> {
    /// Whether a table is asked.
    pub(super) fn has_table(&self, table: u32) -> bool {
        self.levels.iter().any(|level| level.table == table)
    }
}

/// Why packets stay with the kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExclusionReason {
    /// The address family whose packets stay.
    pub family: Family,
    /// The rule, as ip-rule(8) writes it.
    pub rule: String,
    /// Which packets of the family stay.
    pub packets: ExcludedPackets,
}

/// Packets that stay with the kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ExcludedPackets {
    /// All of the family.
    All,
    /// Those to a prefix.
    To(IpAddr, u8),
    /// Those that come in by these interfaces.
    From(Vec<u32>),
}

impl fmt::Display for ExclusionReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ip rule {}: {} packets", self.rule, self.family)?;
        match &self.packets {
            ExcludedPackets::All => f.write_str(" all stay with the kernel"),
            ExcludedPackets::To(address, len) => write!(f, " to {address}/{len} stay with the kernel"),
            ExcludedPackets::From(links) => write!(f, " from interfaces {links:?} stay with the kernel"),
        }
    }
}

/// What rules come to.
#[derive(Debug)]
pub(super) struct PlanResult<A: Address> {
    pub(super) plan: LookupPlan<A>,
    pub(super) exclusion: Exclusion,
    pub(super) reasons: Vec<ExclusionReason>,
}

/// Which forwarded packets a rule is for.
enum RuleScope {
    None,
    Some(ExcludedPackets),
    All,
}

/// Finds what rules, in the order in which they are asked, come to: for packets of the VRF that has a table,
/// or for those of none.
pub(super) fn build_plan<A: Address>(
    rules: &[Rule],
    links: &[&Link],
    vrf: Option<u32>,
    is_empty: impl Fn(u32) -> bool,
) -> PlanResult<A> {
    let mut made =
        PlanResult { plan: LookupPlan::default(), exclusion: Exclusion::Nothing, reasons: Vec::new() };
    // Until the rules are changed for the first time, the kernel keeps `local` and `main` in one trie, where
    // the longest prefix of both decides. When the rules are restored, it still keeps them apart.
    let may_be_one = is_default(rules);
    let mut next = 0;
    while let Some(rule) = rules.get(next) {
        next += 1;
        let has_effect = match rule.action {
            // Of VRFs there may be many.
            RuleAction::Table(_) if rule.selectors.is_vrf => true,
            RuleAction::Table(table) => !is_empty(table),
            _ => true,
        };
        match rule_scope(rule, links, vrf.is_some()) {
            RuleScope::None => {}
            RuleScope::Some(packets) if has_effect => made.exclude_packets(rule, packets),
            RuleScope::Some(_) => {}
            RuleScope::All => match rule.action {
                RuleAction::Table(table) => made.plan.levels.push(TableLevel {
                    table: vrf.filter(|_| rule.selectors.is_vrf).unwrap_or(table),
                    shortest: rule.suppressed_len.map_or(0, |len| len.saturating_add(1).min(255) as u8),
                    is_kernels: may_be_one && table == LOCAL,
                }),
                RuleAction::Goto(target) => {
                    next = rules.iter().position(|rule| rule.priority == target).unwrap_or(next).max(next);
                }
                RuleAction::Nothing => {}
                RuleAction::Refuse => break,
                RuleAction::Other(_) => made.exclude_packets(rule, ExcludedPackets::All),
            },
        }
    }
    made
}

/// Whether these are the rules of IPv4 that the kernel makes itself.
pub(super) fn is_default(rules: &[Rule]) -> bool {
    let plain = |rule: &Rule| match rule.action {
        RuleAction::Table(table) if rule.selectors.is_none() && rule.suppressed_len.is_none() => {
            Some((rule.priority, table))
        }
        _ => None,
    };
    rules.iter().all(|rule| rule.family == Family::V4) && rules.iter().map(plain).eq(DEFAULTS4.map(Some))
}

/// Which forwarded packets a rule is for; rather too many than too few.
fn rule_scope(rule: &Rule, links: &[&Link], is_for_vrf: bool) -> RuleScope {
    let selectors = &rule.selectors;
    if rule.action == RuleAction::Nothing {
        return RuleScope::None;
    }
    if rule.suppressed_group.is_some() || selectors.is_inverted {
        return RuleScope::Some(ExcludedPackets::All);
    }
    if selectors.is_none() {
        return RuleScope::All;
    }
    if selectors.is_vrf_alone() {
        return if is_for_vrf { RuleScope::All } else { RuleScope::None };
    }
    // Before Linux 5.18 sources are looked up as if packets were bound to the VRF.
    let bound: Vec<u32> = ports_of_output(rule, links);
    if !bound.is_empty() {
        return RuleScope::Some(ExcludedPackets::From(bound));
    }
    // Forwarded packets are bound to no output, belong to root alone, and don't come from the machine itself.
    let is_others = selectors.users.is_some_and(|(first, _)| first > 0);
    if selectors.output.is_some() || is_others || selectors.input.as_deref() == Some("lo") {
        return RuleScope::None;
    }
    if selectors.is_vrf || selectors.input.is_some() {
        // Nothing arrives at a VRF itself.
        let is_meant = |link: &&&Link| !is_vrf(link.index, links) && is_input(rule, link, links);
        let links: Vec<u32> = links.iter().filter(is_meant).map(|link| link.index).collect();
        return if links.is_empty() {
            RuleScope::None
        } else {
            RuleScope::Some(ExcludedPackets::From(links))
        };
    }
    RuleScope::Some(
        selectors.to.map_or(ExcludedPackets::All, |(address, len)| ExcludedPackets::To(address, len)),
    )
}

fn is_vrf(index: u32, links: &[&Link]) -> bool {
    links.iter().any(|link| link.index == index && matches!(link.kind, LinkKind::Vrf { .. }))
}

/// The interfaces of the VRF that a rule for an output names, if it is one.
fn ports_of_output(rule: &Rule, links: &[&Link]) -> Vec<u32> {
    let Some(output) = &rule.selectors.output else { return Vec::new() };
    let Some(vrf) = links.iter().find(|link| link.name == *output && is_vrf(link.index, links)) else {
        return Vec::new();
    };
    links.iter().filter(|link| link.master == Some(vrf.index)).map(|link| link.index).collect()
}

/// Whether packets that come in by an interface may be meant by a rule for an interface or for those of VRFs.
/// Which of two names a rule must have for a packet of a VRF, that of its port or that of the VRF, depends on
/// the kernel and the family (`l3mdev_update_flow`), so that either is taken for a match.
fn is_input(rule: &Rule, link: &Link, links: &[&Link]) -> bool {
    let is_vrf = |index: u32| is_vrf(index, links);
    let named = |name: &String| {
        // Packets of a VRF count as coming in by it, too.
        let master = links.iter().find(|other| Some(other.index) == link.master);
        link.name == *name || master.is_some_and(|master| master.name == *name)
    };
    let is_named = rule.selectors.input.as_ref().is_none_or(named);
    let is_in_vrf = !rule.selectors.is_vrf || link.master.is_some_and(is_vrf);
    is_named && is_in_vrf
}

impl<A: Address> PlanResult<A> {
    /// Leaves to the kernel, too, what the rules keep of a VRF with these interfaces.
    pub(super) fn exclude_of_vrf(&mut self, kept: Exclusion, reasons: Vec<ExclusionReason>, ports: &[u32]) {
        let links = match kept {
            Exclusion::Nothing => Vec::new(),
            Exclusion::From(links) => links,
            Exclusion::Everything => ports.to_vec(),
        };
        match &mut self.exclusion {
            Exclusion::Everything => {}
            Exclusion::From(kept) => kept.extend(links),
            keep if !links.is_empty() => *keep = Exclusion::From(links),
            _ => {}
        }
        for mut reason in reasons {
            if reason.packets == ExcludedPackets::All {
                reason.packets = ExcludedPackets::From(ports.to_vec());
            }
            if !self.reasons.iter().any(|said| said.rule == reason.rule) {
                self.reasons.push(reason);
            }
        }
    }

    /// Leaves packets that a rule is for to the kernel.
    fn exclude_packets(&mut self, rule: &Rule, packets: ExcludedPackets) {
        match (&packets, &mut self.exclusion) {
            (ExcludedPackets::To(address, len), _) => {
                let prefix = A::from_ip(*address).and_then(|bits| Prefix::new(bits, *len).ok());
                self.plan.excluded.push(prefix.unwrap_or(Prefix::ALL));
            }
            (ExcludedPackets::All, keep) => *keep = Exclusion::Everything,
            (_, Exclusion::Everything) => {}
            (ExcludedPackets::From(links), Exclusion::From(kept)) => {
                kept.extend(links);
                kept.sort_unstable();
                kept.dedup();
            }
            (ExcludedPackets::From(links), keep) => *keep = Exclusion::From(links.clone()),
        }
        self.reasons.push(ExclusionReason { family: rule.family, rule: rule.to_string(), packets });
    }
}
