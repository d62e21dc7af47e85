//! What the kernel's rules keep, and how many of its routes lead to the ports.
use super::kept::KeptPrefixes;
use artery_adopt::guard::{self, Direction, Guard, Port};
use artery_adopt::mirror::{Driver, Packets, Plain, Reason, Way, WayId};
use std::collections::BTreeMap;
use std::io;
use std::time::Instant;

/// What rules and routes come to.
#[derive(Default)]
pub(super) struct Routes {
    pub(super) guards: Vec<Guard>,
    pub(super) notes: Vec<String>,
    pub(super) kept: KeptPrefixes,
}

/// Reads rules and routes, which may take a second where there are a million.
pub(super) fn find(ports: &[Port]) -> io::Result<Routes> {
    let mut driver = Driver::open()?;
    let mut told = Plain::default();
    driver.load(Instant::now(), &mut told)?;
    let links = guard::with_vlans(ports)?.iter().map(|port| port.index).collect::<Vec<_>>();
    let mut routes = Routes { kept: KeptPrefixes::of(driver.mirror()), ..Routes::default() };
    driver.mirror().reasons().for_each(|reason| routes.heed(reason));
    routes.notes.extend(in_words("IPv4", count(&told.v4, &told, &links)));
    routes.notes.extend(in_words("IPv6", count(&told.v6, &told, &links)));
    Ok(routes)
}

impl Routes {
    /// A rule for all packets, or for those of some interfaces, is a guard; one for some destinations leaves the others.
    fn heed(&mut self, reason: &Reason) {
        let guard = |port| Guard {
            port,
            family: Some(reason.family),
            direction: if port.is_some() { Direction::In } else { Direction::Both },
            kind: guard::Kind::Rule,
            what: format!("ip rule {}", reason.rule),
            remedy: "shown by: ip rule show; ip -6 rule show".to_owned(),
        };
        match &reason.packets {
            Packets::All => self.guards.push(guard(None)),
            Packets::From(links) => self.guards.extend(links.iter().map(|link| guard(Some(*link)))),
            Packets::To(..) => self.notes.push(format!("{reason}.")),
        }
    }
}

/// Prefixes of a family: those that lead to ports only, those that lead elsewhere, and those that are the kernel's.
fn count<A>(routes: &BTreeMap<A, WayId>, told: &Plain, links: &[u32]) -> [usize; 3] {
    let mut counts = [0; 3];
    for way in routes.values() {
        counts[match told.ways.get(way) {
            Some(Way::Hops(hops)) if hops.iter().all(|hop| links.contains(&hop.link)) => 0,
            Some(Way::Hops(_)) => 1,
            Some(Way::Kernel) | None => 2,
        }] += 1;
    }
    counts
}

fn in_words(family: &str, [here, elsewhere, kernels]: [usize; 3]) -> Option<String> {
    let all = here + elsewhere + kernels;
    (all > 0).then(|| {
        format!(
            "Of {all} {family} prefixes {here} lead to these ports, {elsewhere} to other interfaces, and {kernels} are the \
             kernel's: own addresses, broadcast, unreachable, tunnels."
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
        let mut told = Plain::default();
        for (number, links) in [(1, vec![2]), (2, vec![2, 3]), (3, vec![2, 9])] {
            let hop = |link| Hop { link, gateway: None, weight: 1 };
            told.way(WayId(number), Some(&Way::Hops(links.into_iter().map(hop).collect())));
        }
        let routes = [1, 2, 2, 3, 0].map(WayId).into_iter().enumerate().collect::<BTreeMap<_, _>>();
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
        for packets in [Packets::All, Packets::From(vec![2, 7]), Packets::To("10.9.0.0".parse().unwrap(), 16)]
        {
            routes.heed(&Reason { family: Family::V4, rule: "100: from all lookup 9".into(), packets });
        }
        let said: Vec<_> = routes.guards.iter().map(|guard| (guard.port, guard.direction)).collect();
        assert_eq!(said, [(None, Direction::Both), (Some(2), Direction::In), (Some(7), Direction::In)]);
        assert_eq!(routes.guards[0].what, "ip rule 100: from all lookup 9");
        assert!(routes.notes[0].contains("to 10.9.0.0/16 stay"), "{:?}", routes.notes);
    }
}
