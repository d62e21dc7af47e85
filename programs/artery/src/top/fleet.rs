//! What `artery-fleet` says of a router's fleet: its machines, and how far their exceptions are here.
use super::view::lines;
use crate::show::table::Table;
use anyhow::Context as _;
use serde_json::Value;
use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

/// How long it may take to answer.
const PATIENCE: Duration = Duration::from_secs(5);

/// Asks at its status socket. That it does not answer is a line, too: the router goes on without it.
pub(super) fn ask(socket: &Path) -> Vec<String> {
    match read(socket) {
        Ok(status) => show(&status),
        Err(error) => vec![format!("artery-fleet at {}: {error:#}", socket.display())],
    }
}

fn read(socket: &Path) -> anyhow::Result<Value> {
    let mut stream = UnixStream::connect(socket).context("it can't be asked")?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.write_all(b"status\n")?;
    let mut text = String::new();
    stream.read_to_string(&mut text).context("it does not answer")?;
    serde_json::from_str(&text).context("what it tells of itself makes no sense: is it of another version?")
}

fn show(status: &Value) -> Vec<String> {
    let text = |value: &Value| value.as_str().unwrap_or("-").to_string();
    let number = |value: &Value| value.to_string();
    let yes = |value: &Value| if value == true { "yes" } else { "no" }.to_string();
    let (machine, fleet, id) = (&status["machine"], &status["fleet"], &status["id"]);
    let mut said = vec![format!(
        "machine {} of fleet {}/{}, {}: {} exceptions sent, {} received",
        text(machine),
        text(fleet),
        text(id),
        status["announcement"]["state"].as_str().unwrap_or("announces nothing"),
        status["sent_records"],
        status["received_records"],
    )];
    let mut peers = Table::headed("PEER | PRESENT | COMPLETE | RECORDS: | MISSED: | LAG MS: | LONGEST MS:");
    for peer in items(&status["peers"]) {
        peers.row([
            text(&peer["machine"]),
            yes(&peer["is_present"]),
            yes(&peer["is_complete"]),
            number(&peer["records"]),
            number(&peer["missed_batches"]),
            number(&peer["last_lag_ms"]),
            number(&peer["longest_lag_ms"]),
        ]);
    }
    said.extend(lines(&peers.drain_text()));
    let configuration = &status["configuration"];
    let differing = items(&configuration["machines"]).iter().filter(|one| one["differs"] == true);
    said.extend(differing.map(|one| format!("{}: {}", text(&one["machine"]), text(&one["explanation"]))));
    said
}

fn items(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn machines_are_rows_and_those_that_differ_say_how() {
        let peer = json!({"machine": "m2", "is_present": true, "is_complete": false, "records": 7,
            "missed_batches": 0, "last_lag_ms": 0.8, "longest_lag_ms": 2.5});
        let machines = json!([{"machine": "m2", "differs": true, "explanation": "absent for 3 s"},
            {"machine": "m1", "differs": false, "explanation": ""}]);
        let status = json!({"machine": "m1", "fleet": "web", "id": "1", "sent_records": 12,
            "received_records": 7, "announcement": {"state": "announced"}, "peers": [peer],
            "configuration": {"machines": machines}});
        let expected = "\
machine m1 of fleet web/1, announced: 12 exceptions sent, 7 received
PEER  PRESENT  COMPLETE  RECORDS  MISSED  LAG MS  LONGEST MS
m2    yes      no              7       0     0.8         2.5
m2: absent for 3 s";
        assert_eq!(show(&status).join("\n"), expected);
    }

    #[test]
    fn what_does_not_answer_is_said() {
        let said = ask(Path::new("/nowhere.sock"));
        assert!(said[0].starts_with("artery-fleet at /nowhere.sock: it can't be asked"), "{said:?}");
    }
}
