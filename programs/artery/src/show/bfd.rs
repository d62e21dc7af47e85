//! `artery show bfd`.
use super::either;
use super::table::Table;
use super::tables::lasting;
use crate::control_socket::Client;
use crate::ip_router::{elements, list, text};
use crate::options::Reach;
use anyhow::{Context as _, bail};
use clap::Args;
use serde_json::{Value, json};

/// The class whose sessions are shown.
const CLASS: &str = "BFD";

#[derive(Args)]
pub(super) struct BfdOptions {
    #[command(flatten)]
    reach: Reach,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Shows the sessions of all elements of the class.
pub(super) fn show(options: &BfdOptions) -> anyhow::Result<u8> {
    let mut client = Client::connect(&options.reach)?;
    let elements = elements(&mut client)?;
    let names: Vec<&str> =
        elements.iter().filter(|one| one.class == CLASS).map(|one| one.name.as_str()).collect();
    if names.is_empty() {
        bail!("this router has no {CLASS}; 'artery router --bfd GATEWAY' starts one that has");
    }
    let mut sessions = Vec::new();
    for name in names {
        let answer = client.query(&format!("{name}.sessions_json"), "")?;
        let document: Value =
            serde_json::from_str(&answer).context("what the router says by sessions_json makes no sense")?;
        sessions.extend_from_slice(list(&document, "sessions"));
    }
    let document = json!({ "schema_version": 1, "version": crate::report::VERSION, "sessions": sessions });
    either(options.json, &document, table)
}

/// Sessions, a row each.
fn table(document: &Value) -> String {
    let mut table = Table::headed(
        "PEER | PORT | STATE | REMOTE | PATH | DIAGNOSTIC | SENDS EVERY: | DETECTION: | UPTIME: | FLAPS: | \
         IN: | OUT:",
    );
    for session in list(document, "sessions") {
        let time = |key: &str| session[key].as_f64().map_or(String::new(), |ms| format!("{ms}ms"));
        let diagnostic = text(session, "diagnostic");
        table.row([
            text(session, "peer"),
            text(session, "port"),
            text(session, "state"),
            text(session, "remote_state"),
            text(session, "path"),
            if diagnostic == "no diagnostic" { String::new() } else { diagnostic },
            time("tx_interval_ms"),
            time("detection_time_ms"),
            session["uptime_s"].as_u64().map_or(String::new(), lasting),
            text(session, "flaps"),
            text(session, "packets_in"),
            text(session, "packets_out"),
        ]);
    }
    table.drain_text()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sessions_stand_with_their_states_and_times() {
        let document = json!({ "sessions": [
            { "peer": "10.0.2.11", "port": "eth1", "state": "up", "remote_state": "up", "path": "up",
              "diagnostic": "no diagnostic", "tx_interval_ms": 50.0, "detection_time_ms": 150.0,
              "uptime_s": 62, "flaps": 0, "packets_in": 1200, "packets_out": 1300 },
            { "peer": "fe80::9", "port": "eth2", "state": "down", "remote_state": "down", "path": "down",
              "diagnostic": "control detection time expired", "tx_interval_ms": 1000.0, "flaps": 1,
              "packets_in": 7, "packets_out": 9 },
        ]});
        let expected = "\
            PEER       PORT  STATE  REMOTE  PATH  DIAGNOSTIC                      SENDS EVERY  DETECTION  \
            UPTIME  FLAPS    IN   OUT
10.0.2.11  eth1  up     up      up    -                                      50ms      150ms    1m2s      0  \
            1200  1300
fe80::9    eth2  down   down    down  control detection time expired       1000ms          -       -      \
            1     7     9
";
        assert_eq!(table(&document), expected);
    }
}
