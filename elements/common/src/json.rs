//! What documents in JSON have in common.
use serde::Serialize;

/// The common fields of each document.
#[derive(Clone, Copy, Serialize)]
pub struct Schema {
    /// Keys don't change while this number stays.
    pub schema_version: u32,
    /// The version of the program.
    pub version: &'static str,
}

pub const SCHEMA: Schema = Schema { schema_version: 1, version: env!("CARGO_PKG_VERSION") };

/// A value as JSON.
pub fn to_json(value: &impl Serialize) -> String {
    serde_json::to_string(value).expect("its keys are strings, and nothing in it refuses to be written")
}
