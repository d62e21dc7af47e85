//! Interfaces that come back with the name of an adopted one that is gone.
use super::Session;
use super::claims::Claimed;
use crate::blockers::{Bridging, Port, PortTunnel};
use crate::fast;
use crate::kernel::{Link, LinkKind};
use crate::mirror::Sink as _;
use std::time::Instant;

impl Session {
    /// Adopts interfaces that have come back with the name of one that is gone, by the same path.
    pub(super) fn adopt_returned(&mut self, now: Instant) -> Vec<(String, Result<(), fast::Error>)> {
        let is_gone = |port: &&Port| {
            let accelerator = &self.accelerator;
            let is_known = accelerator.is_bridge(port.index) || accelerator.is_tunnel(port.index);
            !is_known && accelerator.mode(port.index).is_none()
        };
        let gone: Vec<Port> = self.ports.iter().filter(is_gone).cloned().collect();
        if gone.is_empty() || !self.adopts_returned() {
            return Vec::new();
        }
        let links: Vec<Link> = self.driver.mirror().links().cloned().collect();
        let is_there = |index| links.iter().any(|link| link.index == index);
        self.not_adopted.retain(|index| is_there(*index));
        self.claims.retain(is_there);
        let mut returned = Vec::new();
        for old in gone {
            let is_free = |link: &Link| {
                let is_bridge = matches!(&link.kind, LinkKind::Other(kind) if kind == "bridge");
                let is_same_tunnel = match &old.tunnel {
                    Some(PortTunnel::OverIpv4) => matches!(&link.kind, LinkKind::Tunnel(_)),
                    Some(PortTunnel::Ppp(_)) => link.kind == LinkKind::Ppp,
                    None => !matches!(&link.kind, LinkKind::Tunnel(_) | LinkKind::Ppp),
                };
                let is_like = is_bridge == (old.bridging == Bridging::Bridge) && is_same_tunnel;
                is_like && self.accelerator.mode(link.index).is_none()
            };
            let is_tried = |link: &Link| self.not_adopted.contains(&link.index);
            let comes_back = |link: &&Link| link.name == old.name && is_free(link) && !is_tried(link);
            let Some(link) = links.iter().find(comes_back) else { continue };
            match self.claims.claim(link.index, now) {
                Claimed::Yes => {}
                Claimed::NotYet => continue,
                Claimed::No(error) => {
                    returned.push((old.name, Err(error)));
                    continue;
                }
            }
            let number = self.numbers.get(&old.index).copied().unwrap_or_default();
            self.report_progress();
            let adopted = match old.bridging {
                Bridging::Bridge => self.accelerator.adopt_bridge(link.index),
                _ if old.is_tunnel() => self.accelerator.adopt_tunnel_again(link.index, number),
                _ => self.accelerator.adopt_again(link.index, self.mode, number),
            };
            self.report_progress();
            match adopted {
                Ok(()) => self.replace_port(&old, link),
                Err(_) => {
                    self.claims.release(link.index);
                    self.not_adopted.insert(link.index);
                }
            }
            returned.push((old.name, adopted));
        }
        if returned.iter().any(|(_, adopted)| adopted.is_ok()) {
            self.resend_links();
            self.update_blockers();
            // Where this fails it is done with the next turn.
            let _ = self.follow_tunnels();
        }
        returned
    }

    /// Has an interface take the place of one that is gone.
    fn replace_port(&mut self, old: &Port, link: &Link) {
        let vlan_on = match link.kind {
            LinkKind::Vlan { parent, .. } => Some(parent),
            _ => None,
        };
        self.gone.remove(&old.index);
        if old.index != link.index {
            self.claims.release(old.index);
        }
        let place = self.ports.iter_mut().find(|port| port.index == old.index);
        place.into_iter().for_each(|port| *port = Port { index: link.index, vlan_on, ..old.clone() });
    }

    /// Has the accelerator know interfaces, and VLANs on them, that were there before they were adopted: the
    /// mirror sends only changes of links.
    pub(super) fn resend_links(&mut self) {
        for link in self.driver.mirror().links() {
            self.accelerator.set_link(link.index, Some(link));
        }
        self.driver.review_vrfs(&mut self.accelerator);
        self.numbers.extend(self.accelerator.ports());
    }
}
