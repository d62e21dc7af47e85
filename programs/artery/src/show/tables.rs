//! The other documents of a router as tables.
use super::routes::next_hop;
use super::table::Table;
use crate::ip_router::{list, text};
use serde_json::Value;

/// Neighbors, a row each.
pub(super) fn neighbors(document: &Value) -> String {
    let mut table =
        Table::headed("ADDRESS | PORT | ETHERNET ADDRESS | STATE | EXPIRES: | NEXT HOPS: | PROBES: | FLAGS");
    for neighbor in list(document, "neighbors") {
        let flags = ["static", "published", "router"].into_iter().filter(|key| neighbor[*key] == true);
        let link = text(neighbor, "lladdr");
        table.row([
            text(neighbor, "dst"),
            text(neighbor, "dev"),
            if link.is_empty() { "(incomplete)".to_string() } else { link },
            text(neighbor, "state"),
            neighbor["expires_s"].as_u64().map_or(String::new(), lasting),
            text(neighbor, "next_hops"),
            text(neighbor, "probes"),
            flags.collect::<Vec<_>>().join(","),
        ]);
    }
    table.drain_text()
}

/// Seconds as `1d2h3m4s`, without leading zero parts.
pub(crate) fn lasting(seconds: u64) -> String {
    let parts =
        [(seconds / 86_400, 'd'), (seconds / 3600 % 24, 'h'), (seconds / 60 % 60, 'm'), (seconds % 60, 's')];
    let first = parts.iter().position(|(count, _)| *count > 0).unwrap_or(parts.len() - 1);
    parts[first..].iter().map(|(count, unit)| format!("{count}{unit}")).collect()
}

/// Groups of next hops, a row for each of their members.
pub(super) fn next_hops(document: &Value) -> String {
    let mut table = Table::headed("GROUP: | ROUTES: | METHOD | NEXT HOP | PORT | WEIGHT: | SHARE: | STATE");
    for group in list(document, "groups") {
        for (n, hop) in list(group, "next_hops").iter().enumerate() {
            let of_group = |key| if n == 0 { text(group, key) } else { String::new() };
            let share = hop["share"].as_f64().map_or(String::new(), |share| format!("{:.0}%", share * 100.0));
            let cells = [
                of_group("group"),
                of_group("routes"),
                of_group("method"),
                next_hop(group, hop),
                text(hop, "port"),
                text(hop, "weight"),
                share,
                text(hop, "state"),
            ];
            if n == 0 { table.row(cells) } else { table.more(cells) }
        }
    }
    table.drain_text()
}

/// Ports, a row for each address.
pub(super) fn ports(document: &Value) -> String {
    let mut table = Table::headed("NUMBER: | PORT | STATE | INTERFACE | MTU: | ETHERNET ADDRESS | ADDRESSES");
    for port in list(document, "ports") {
        // A router of an earlier version does not say more.
        let up = if port["up"] == true { "up" } else { "down" };
        let state = port["state"].as_str().unwrap_or(up);
        let addresses = addresses(port);
        let first = addresses.first().cloned().unwrap_or_default();
        let [number, name, mtu, link] = ["number", "name", "mtu", "lladdr"].map(|key| text(port, key));
        table.row([number, name, state.to_string(), text(port, "interface"), mtu, link, first]);
        for address in addresses.into_iter().skip(1) {
            let mut cells: [String; 7] = Default::default();
            cells[6] = address;
            table.more(cells);
        }
    }
    table.drain_text()
}

/// A port's addresses; duplicates on the link are marked.
fn addresses(port: &Value) -> Vec<String> {
    let duplicates = list(port, "duplicates");
    let own = list(port, "addresses").iter().filter_map(Value::as_str).map(|address| {
        let bare = address.split('/').next().unwrap_or(address);
        let mark = if duplicates.iter().any(|other| other == bare) { " (duplicate)" } else { "" };
        format!("{address}{mark}")
    });
    let link_local = text(port, "link_local");
    own.chain((!link_local.is_empty()).then(|| format!("{link_local}/64"))).collect()
}

/// Drops, a row for each reason and element.
pub(super) fn drops(document: &Value) -> String {
    let mut table = Table::headed("PACKETS: | REASON | ELEMENT | MEANING");
    for drop in list(document, "drops") {
        table.row(["count", "reason", "element", "sentence"].map(|key| text(drop, key)));
    }
    table.drain_text()
}

/// Elements, a row each.
pub(super) fn elements(document: &Value) -> String {
    let mut table = Table::headed("NAME | CLASS | CONFIGURATION");
    for element in list(document, "elements") {
        let config = text(element, "configuration");
        let line = config.split_whitespace().collect::<Vec<_>>().join(" ");
        table.row([text(element, "name"), text(element, "class"), shortened(&line)]);
    }
    table.drain_text()
}

/// The beginning of a long line.
fn shortened(line: &str) -> String {
    const MOST: usize = 80;
    match line.char_indices().nth(MOST) {
        None => line.to_string(),
        Some((end, _)) => format!("{}…", &line[..end]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn neighbors_stand_with_what_is_known_of_them() {
        let document = json!({ "schema_version": 1, "neighbors": [
            { "dst": "10.0.1.9", "dev": "eth1", "lladdr": "02:00:00:00:00:09", "state": "REACHABLE",
              "expires_s": 1198, "static": false, "published": false, "router": false, "next_hops": 2,
              "probes": 0 },
            { "dst": "10.0.1.10", "dev": "eth1", "state": "INCOMPLETE", "static": true, "published": true,
              "router": true, "next_hops": 0, "probes": 3 },
        ]});
        let expected = "\
ADDRESS    PORT  ETHERNET ADDRESS   STATE       EXPIRES  NEXT HOPS  PROBES  FLAGS
10.0.1.9   eth1  02:00:00:00:00:09  REACHABLE    19m58s          2       0  -
10.0.1.10  eth1  (incomplete)       INCOMPLETE        -          0       3  static,published,router
";
        assert_eq!(neighbors(&document), expected);
    }

    #[test]
    fn times_are_in_the_units_they_need() {
        assert_eq!([0, 59, 3600, 93_784].map(lasting), ["0s", "59s", "1h0m0s", "1d2h3m4s"]);
    }

    #[test]
    fn ports_have_a_row_for_each_address_and_duplicates_are_marked() {
        let document = json!({ "ports": [
            { "name": "eth1", "number": 0, "up": true, "state": "up", "interface": "wan0", "mtu": 1500,
            "lladdr": "02:00:00:00:00:01", "addresses": ["10.0.1.1/24", "2001:db8:1::1/64"],
            "link_local": "fe80::1", "duplicates": ["10.0.1.1"] },
            { "name": "eth2", "number": 1, "up": false, "state": "absent", "interface": null, "mtu": 1500,
            "lladdr": "02:00:00:00:00:02", "addresses": ["10.0.2.1/24"], "duplicates": [] }] });
        let expected = "\
NUMBER  PORT  STATE   INTERFACE   MTU  ETHERNET ADDRESS   ADDRESSES
     0  eth1  up      wan0       1500  02:00:00:00:00:01  10.0.1.1/24 (duplicate)
                                                          2001:db8:1::1/64
                                                          fe80::1/64
     1  eth2  absent  -          1500  02:00:00:00:00:02  10.0.2.1/24
";
        assert_eq!(ports(&document), expected);
    }

    #[test]
    fn next_hops_say_how_they_share() {
        let hop = |gateway: &str, share: f64| {
            json!({ "gateway": gateway, "port": "eth2", "weight": 1,
                "state": "up", "share": share, "slots": 1 })
        };
        let document = json!({ "groups": [{ "group": 3, "routes": 900_000, "type": "unicast",
            "method": "hash",
            "next_hops": [hop("10.0.2.7", 0.75), hop("10.0.2.8", 0.25)] }] });
        let expected = "\
GROUP  ROUTES  METHOD  NEXT HOP  PORT  WEIGHT  SHARE  STATE
    3  900000  hash    10.0.2.7  eth2       1    75%  up
                       10.0.2.8  eth2       1    25%  up
";
        assert_eq!(next_hops(&document), expected);
    }
}
