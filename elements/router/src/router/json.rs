//! What the router's documents in JSON have in common.
pub(super) use artery_common::json::{SCHEMA, Schema, to_json};
use artery_l3::PortId;
use artery_l3::router::PortView;

/// The name of a port.
pub(super) fn port_name(ports: &[PortView], port: PortId) -> String {
    ports.get(usize::from(port.0)).map_or_else(|| port.to_string(), |port| port.name.clone())
}
