//! Ports that are VLANs of an interface, tagged by the router itself.
use super::{Plan, Vlan};
use artery_device::{Interface, split_vlan_name};

/// Finds the ports that are VLANs: they have names such as `eth1.10`, and this machine has no such interface.
pub(super) fn find(plan: &mut Plan) {
    for port in &mut plan.ports {
        let vlan = || split_vlan_name(&port.name).map(|(parent, id)| Vlan { parent: parent.to_string(), id });
        port.vlan = if Interface::find(&port.name).is_ok() { None } else { vlan() };
    }
}
