//! What the router's documents in JSON have in common.
use artery_l3::PortId;
use artery_l3::router::PortView;
use serde::Serialize;

/// The common fields of each document.
#[derive(Clone, Copy, Serialize)]
pub(crate) struct Schema {
    /// Keys don't change while this number stays.
    pub(super) schema_version: u32,
    /// The version of the program.
    pub(super) version: &'static str,
}

pub(crate) const SCHEMA: Schema = Schema { schema_version: 1, version: env!("CARGO_PKG_VERSION") };

/// A value as JSON.
pub(crate) fn to_json(value: &impl Serialize) -> String {
    serde_json::to_string(value).expect("its keys are strings, and nothing in it refuses to be written")
}

/// The name of a port.
pub(super) fn port_name(ports: &[PortView], port: PortId) -> String {
    ports.get(usize::from(port.0)).map_or_else(|| port.to_string(), |port| port.name.clone())
}
