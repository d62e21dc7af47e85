//! What the kernel's rules keep, and how many of its routes lead to the ports.
use super::kept::ExcludedPrefixes;
use artery_adopt::blockers::{self, Blocker, Direction, Port};
use artery_adopt::mirror::{
    ExcludedPackets, ExclusionReason, FibBinding, MirrorDriver, NextHopSet, NextHopSetId, RecordingSink, Vrf,
};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::time::Instant;

/// A summary of the kernel's rules and routes.
#[derive(Default)]
pub(super) struct Routes {
    pub(super) blockers: Vec<Blocker>,
    pub(super) notes: Vec<String>,
    pub(super) excluded: ExcludedPrefixes,
    /// The VRFs that ports, or VLANs on them, belong to, by the interface.
    pub(super) vrfs: BTreeMap<u32, Vrf>,
}

/// Reads rules and routes, which may take a second where there are a million.
pub(super) fn find(ports: &[Port]) -> io::Result<Routes> {
    let mut driver = MirrorDriver::open()?;
    let mut told = RecordingSink { follows_vrfs: true, ..RecordingSink::default() };
    driver.load(Instant::now(), &mut told)?;
    let links = blockers::with_vlans(ports)?.iter().map(|port| port.index).collect::<Vec<_>>();
    let mut routes = Routes { excluded: ExcludedPrefixes::of(driver.mirror()), ..Routes::default() };
    driver.mirror().exclusion_reasons().for_each(|reason| routes.add_reason(reason));
    routes.notes.extend(in_words("IPv4", count(&told.v4, &told, &links)));
    routes.notes.extend(in_words("IPv6", count(&told.v6, &told, &links)));
    let vrf_of = |link: &u32| driver.mirror().vrf_of(*link).map(|vrf| (*link, vrf));
    routes.vrfs = links.iter().filter_map(vrf_of).collect();
    routes.notes.extend(notes_on_vrfs(&told, &links));
    Ok(routes)
}

/// Where the prefixes of VRFs lead that ports belong to.
fn notes_on_vrfs(told: &RecordingSink, links: &[u32]) -> Vec<String> {
    let table_of = |link: &u32| match told.bindings.get(link) {
        Some(FibBinding::Vrf(table)) => Some(*table),
        _ => None,
    };
    let tables: BTreeSet<u32> = links.iter().filter_map(table_of).collect();
    let of_table = |table: u32| {
        let routes = told.vrfs.get(&table);
        let [ipv4, ipv6] = ["IPv4", "IPv6"].map(|family| format!("{family} (VRF of table {table})"));
        let notes = routes.map(|routes| {
            let (v4, v6) = (count(&routes.v4, told, links), count(&routes.v6, told, links));
            [in_words(&ipv4, v4), in_words(&ipv6, v6)]
        });
        notes.into_iter().flatten().flatten()
    };
    tables.into_iter().flat_map(of_table).collect()
}

impl Routes {
    /// A rule for all packets, or for those of some interfaces, is a blocker; one for some
    /// destinations excludes only these.
    fn add_reason(&mut self, reason: &ExclusionReason) {
        let guard = |port| Blocker {
            port,
            family: Some(reason.family),
            direction: if port.is_some() { Direction::In } else { Direction::Both },
            kind: blockers::BlockerKind::Rule,
            what: format!("ip rule {}", reason.rule),
            remedy: "shown by: ip rule show; ip -6 rule show".to_owned(),
            is_passed: false,
        };
        match &reason.packets {
            ExcludedPackets::All => self.blockers.push(guard(None)),
            ExcludedPackets::From(links) => self.blockers.extend(links.iter().map(|link| guard(Some(*link)))),
            ExcludedPackets::To(..) => self.notes.push(format!("{reason}.")),
        }
    }
}

/// Prefixes of a family: those that lead to ports only, those that lead elsewhere, and those
/// that are the kernel's.
fn count<A>(routes: &BTreeMap<A, NextHopSetId>, told: &RecordingSink, links: &[u32]) -> [usize; 3] {
    let mut counts = [0; 3];
    for way in routes.values() {
        counts[match told.next_hop_sets.get(way) {
            Some(NextHopSet::Hops(hops)) if hops.iter().all(|hop| links.contains(&hop.link)) => 0,
            Some(NextHopSet::Hops(_)) => 1,
            Some(NextHopSet::Kernel) | None => 2,
        }] += 1;
    }
    counts
}

fn in_words(family: &str, [here, elsewhere, kernels]: [usize; 3]) -> Option<String> {
    let all = here + elsewhere + kernels;
    (all > 0).then(|| {
        format!(
            "Of {all} {family} prefixes {here} lead to these ports, {elsewhere} to other interfaces, and \
             {kernels} are the kernel's: own addresses, broadcast, unreachable, tunnels."
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use artery_adopt::kernel::Family;
    use artery_adopt::mirror::Hop;
    use artery_adopt::mirror::Sink as _;

    #[test]
    fn prefixes_are_counted_by_where_they_lead() {
        let mut told = RecordingSink::default();
        for (number, links) in [(1, vec![2]), (2, vec![2, 3]), (3, vec![2, 9])] {
            let hop = |link| Hop { link, gateway: None, weight: 1 };
            told.set_next_hops(
                Family::V4,
                NextHopSetId(number),
                Some(&NextHopSet::Hops(links.into_iter().map(hop).collect())),
            );
        }
        let routes = [1, 2, 2, 3, 0].map(NextHopSetId).into_iter().enumerate().collect::<BTreeMap<_, _>>();
        assert_eq!(count(&routes, &told, &[2, 3]), [3, 1, 1]);
        assert_eq!(in_words("IPv4", [0, 0, 0]), None);
        assert!(
            in_words("IPv4", [3, 1, 1])
                .unwrap()
                .starts_with("Of 5 IPv4 prefixes 3 lead to these ports, 1 to")
        );
    }

    #[test]
    fn rules_for_all_or_for_ports_are_guards_and_others_are_noted() {
        let mut routes = Routes::default();
        for packets in [
            ExcludedPackets::All,
            ExcludedPackets::From(vec![2, 7]),
            ExcludedPackets::To("10.9.0.0".parse().unwrap(), 16),
        ] {
            routes.add_reason(&ExclusionReason {
                family: Family::V4,
                rule: "100: from all lookup 9".into(),
                packets,
            });
        }
        let said: Vec<_> = routes.blockers.iter().map(|guard| (guard.port, guard.direction)).collect();
        assert_eq!(said, [(None, Direction::Both), (Some(2), Direction::In), (Some(7), Direction::In)]);
        assert_eq!(routes.blockers[0].what, "ip rule 100: from all lookup 9");
        assert!(routes.notes[0].contains("to 10.9.0.0/16 stay"), "{:?}", routes.notes);
    }
}
