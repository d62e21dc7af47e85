//! An FPM server in lines for people.
use super::tables::lasting;
use crate::ip_router::{list, text};
use serde_json::Value;
use std::fmt::Write as _;

/// The document of `artery show fpm`.
pub(super) fn lines(document: &Value) -> String {
    let mut lines = vec![("listening on", text(document, "listen")), ("peer", peer(document))];
    if document["peer"].is_null() && !document["last_disconnect"].is_null() {
        lines.push(("last disconnect", text(document, "last_disconnect")));
    }
    let (messages, routes, answers) = (&document["messages"], &document["routes"], &document["answers"]);
    lines.push(("messages", messages_text(messages)));
    if let Some(ignored) = messages["ignored"].as_object().filter(|ignored| !ignored.is_empty()) {
        let ignored: Vec<String> = ignored.iter().map(|(what, count)| format!("{count} {what}")).collect();
        lines.push(("ignored", ignored.join(", ")));
    }
    let of = |key| text(routes, key);
    lines.push(("routes", format!("{} IPv4, {} IPv6", of("ipv4"), of("ipv6"))));
    lines.push(("installed", of("installed")));
    lines.push(("shadowed", format!("{} (the router has routes of its own for them)", of("shadowed"))));
    lines.push(("refused", of("refused")));
    lines.push(("stale", stale(document)));
    let next_hops = (text(document, "next_hops"), text(document, "next_hop_groups"));
    lines.push(("next-hop objects", format!("{}, and {} groups of them", next_hops.0, next_hops.1)));
    let lost = answers["lost"].as_u64().unwrap_or(0);
    let lost = if lost == 0 { String::new() } else { format!(", {lost} lost as the peer does not read") };
    lines.push(("answers", format!("{} sent{lost}", text(answers, "sent"))));
    let width = lines.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
    let mut all: String = lines.iter().map(|(name, value)| format!("{name:width$}  {value}\n")).collect();
    for refusal in list(routes, "refusals") {
        let (count, why) = (text(refusal, "routes"), text(refusal, "text"));
        let _ = writeln!(all, "refused: {count} × {why}; last {}", text(refusal, "last"));
    }
    all
}

fn peer(document: &Value) -> String {
    let times = match document["connections"].as_u64().unwrap_or(0) {
        1 => "1 connection so far".to_string(),
        count => format!("{count} connections so far"),
    };
    match document["peer"].as_str() {
        Some(peer) => {
            let since = lasting(document["connected_s"].as_u64().unwrap_or(0));
            format!("{peer}, connected for {since} ({times})")
        }
        None => format!("none ({times})"),
    }
}

fn messages_text(messages: &Value) -> String {
    let of = |key| text(messages, key);
    format!(
        "{} routes, {} deletions; {} next hops, {} deletions",
        of("routes"),
        of("deleted_routes"),
        of("next_hops"),
        of("deleted_next_hops")
    )
}

fn stale(document: &Value) -> String {
    let count = text(&document["routes"], "stale");
    match document["sweep_in_s"].as_u64() {
        Some(seconds) => format!("{count}, removed in {} unless they are sent again", lasting(seconds)),
        None if count != "0" => format!("{count}, kept until a peer connects"),
        None => count,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn states_and_reasons_have_a_line_each() {
        let document = json!({
            "listen": "127.0.0.1:2620", "peer": null, "connections": 2, "last_disconnect": "the peer closed \
                the connection",
            "messages": { "routes": 7, "deleted_routes": 1, "next_hops": 3, "deleted_next_hops": 0,
                "ignored": { "mpls": 4 } },
            "routes": { "ipv4": 5, "ipv6": 1, "installed": 4, "shadowed": 1, "refused": 1, "stale": 6,
                "refusals": [{ "routes": 1, "text": "too many next hops", "last": "10.0.0.0/8: too many next \
                    hops" }] },
            "next_hops": 2, "next_hop_groups": 1, "answers": { "sent": 7, "lost": 0 }, "sweep_in_s": null,
        });
        let expected = "\
listening on      127.0.0.1:2620
peer              none (2 connections so far)
last disconnect   the peer closed the connection
messages          7 routes, 1 deletions; 3 next hops, 0 deletions
ignored           4 mpls
routes            5 IPv4, 1 IPv6
installed         4
shadowed          1 (the router has routes of its own for them)
refused           1
stale             6, kept until a peer connects
next-hop objects  2, and 1 groups of them
answers           7 sent
refused: 1 × too many next hops; last 10.0.0.0/8: too many next hops
";
        assert_eq!(lines(&document), expected);
    }
}
