//! What the mirror of the kernel changes in the tables of the programs.
use super::super::hops::EgressInterface;
use super::{Accelerator, GroupTable, RoutedPort};
use crate::kernel::{Family, Link, LinkKind};
use crate::mirror::{Exclusion, FibBinding, NextHopSet, NextHopSetId, Sink};
use artery_lpm::Prefix;
use artery_wire::EtherAddr;
use std::net::IpAddr;

impl Sink for Accelerator {
    fn set_next_hops(&mut self, family: Family, id: NextHopSetId, way: Option<&NextHopSet>) {
        if self.groups.set_group(&self.memory, &mut self.hops, (family, id), way) {
            self.ipv4.review_neighbors(Prefix::ALL, &self.groups);
            self.ipv6.review_neighbors(Prefix::ALL, &self.groups);
            for vrf in self.vrfs.values_mut() {
                vrf.ipv4.review_neighbors(Prefix::ALL, &self.groups);
                vrf.ipv6.review_neighbors(Prefix::ALL, &self.groups);
            }
        }
    }

    fn set_route4(&mut self, prefix: Prefix<u32>, way: Option<NextHopSetId>) {
        self.changes = self.changes.saturating_add(1);
        let were_right = self.ipv4.are_right();
        self.ipv4.set_route(prefix, way.map(GroupTable::group_of), &self.groups);
        self.follow_right(were_right, self.ipv4.are_right());
    }

    fn set_route6(&mut self, prefix: Prefix<u128>, way: Option<NextHopSetId>) {
        self.changes = self.changes.saturating_add(1);
        let were_right = self.ipv6.are_right();
        self.ipv6.set_route(prefix, way.map(GroupTable::group_of), &self.groups);
        self.follow_right(were_right, self.ipv6.are_right());
    }

    fn set_neighbor(&mut self, link: u32, address: IpAddr, mac: Option<EtherAddr>) {
        let key = (link, address);
        let was_known = self.hops.set_neighbor(&self.memory, key, mac);
        if was_known == mac.is_some() {
            return;
        }
        let group = mac.map(|_| self.groups.acquire_neighbor(&self.memory, &mut self.hops, key));
        let before = match address {
            IpAddr::V4(address) => self.ipv4.set_neighbor(address.to_bits(), link, group, &self.groups),
            IpAddr::V6(address) => self.ipv6.set_neighbor(address.to_bits(), link, group, &self.groups),
        };
        // The groups are the same for all routes.
        for vrf in self.vrfs.values_mut() {
            match address {
                IpAddr::V4(address) => {
                    vrf.ipv4.set_neighbor(address.to_bits(), link, group, &self.groups);
                }
                IpAddr::V6(address) => {
                    vrf.ipv6.set_neighbor(address.to_bits(), link, group, &self.groups);
                }
            }
        }
        if let Some(before) = before {
            self.groups.release_neighbor(&self.memory, &mut self.hops, before);
        }
    }

    fn set_link(&mut self, index: u32, link: Option<&Link>) {
        let Some(link) = link else {
            self.remove_member(index);
            return self.remove_attached(index);
        };
        if matches!(link.kind, LinkKind::Tunnel(_) | LinkKind::Ppp) {
            self.groups.add_tunnel(index);
            return self.set_tunnel_link(link);
        }
        let (Some((port, carrier)), Some(mac)) = (self.join_port(link), link.mac) else {
            return self.remove_member(index);
        };
        let is_up = link.is_admin_up && link.has_carrier;
        let member = RoutedPort { port, carrier, mac, is_up };
        self.groups.set_port(&self.memory, index, Some(port));
        self.members.insert(index, member);
        self.apply_sessions();
        // What it may do depends on the interface that carries it.
        let record = self.members[&index].port_record(index, self.port_flags(index));
        self.memory.set_port(port, &record);
        let device = carrier.map_or(Some(port), |(carrier, vlan)| {
            let carrier = self.attached.get(&carrier)?.port;
            self.memory.set_vlan(carrier, vlan, Some(port));
            Some(carrier)
        });
        if self.bridges.bridge_of(index).is_some() {
            // Frames leave by it as the bridge sends them, and by no route of its own.
            self.bridges.set_member_link(index, link.mtu, is_up);
            self.review_member(index);
            return self.hops.set_exit(&self.memory, index, None);
        }
        let is_bridge = self.bridges.number(index).is_some();
        let exit = device.filter(|_| is_up).map(|device| EgressInterface {
            mac,
            mtu: link.mtu,
            vlan: carrier.map(|(_, vlan)| vlan),
            device: (!is_bridge).then_some(device),
            port,
        });
        self.hops.set_exit(&self.memory, index, exit);
    }

    fn exclude(&mut self, family: Family, keep: &Exclusion) {
        self.exclusions[usize::from(family == Family::V6)] = keep.clone();
        self.set_flags();
    }

    fn begin_load(&mut self) {
        self.loads += 1;
        if self.loads == 1 {
            self.set_flags();
            self.begin_all_loads();
        }
    }

    fn end_load(&mut self) {
        self.loads -= 1;
        if self.loads == 0 {
            self.end_all_loads();
            self.set_flags();
        }
    }

    fn follows_vrf(&self, link: &Link) -> bool {
        self.is_port(link)
    }

    fn bind_link(&mut self, link: u32, binding: FibBinding) {
        self.set_binding(link, binding);
    }

    fn begin_vrf(&mut self, table: u32) {
        self.begin_vrf_load(table);
    }

    fn end_vrf(&mut self, table: u32) {
        self.end_vrf_load(table);
    }

    fn remove_vrf(&mut self, table: u32) {
        self.drop_vrf(table);
    }

    fn set_vrf_route4(&mut self, table: u32, prefix: Prefix<u32>, way: Option<NextHopSetId>) {
        self.changes = self.changes.saturating_add(1);
        let Some(vrf) = self.vrfs.get_mut(&table) else { return };
        let were_right = vrf.ipv4.are_right();
        vrf.ipv4.set_route(prefix, way.map(GroupTable::group_of), &self.groups);
        let are_right = vrf.ipv4.are_right();
        self.follow_right(were_right, are_right);
    }

    fn set_vrf_route6(&mut self, table: u32, prefix: Prefix<u128>, way: Option<NextHopSetId>) {
        self.changes = self.changes.saturating_add(1);
        let Some(vrf) = self.vrfs.get_mut(&table) else { return };
        let were_right = vrf.ipv6.are_right();
        vrf.ipv6.set_route(prefix, way.map(GroupTable::group_of), &self.groups);
        let are_right = vrf.ipv6.are_right();
        self.follow_right(were_right, are_right);
    }
}
