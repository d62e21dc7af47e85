//! `artery show routes`, for tables of any size: page by page.
use super::table::{Table, numbers, words};
use crate::ip_router::{IpRouter, RouterReach, list, text};
use crate::voice::print;
use clap::Args;
use serde_json::{Value, json};

/// Routes that are asked for at a time.
const PAGE: usize = 10_000;

#[derive(Args)]
pub(crate) struct RoutesOptions {
    #[command(flatten)]
    router: RouterReach,
    /// Those within this prefix, such as 10/8 or 2001:db8::/32
    #[arg(value_name = "PREFIX")]
    prefix: Option<String>,
    /// Those that lead out of this port
    #[arg(long, value_name = "PORT")]
    dev: Option<String>,
    /// IPv4 only
    #[arg(short = '4', conflicts_with = "ipv6")]
    ipv4: bool,
    /// IPv6 only
    #[arg(short = '6')]
    ipv6: bool,
    /// Those of the router's own addresses, of broadcasts, and those that every router has, too
    #[arg(short = 'a', long)]
    all: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Prints them.
pub(super) fn show(options: &RoutesOptions) -> anyhow::Result<u8> {
    let mut router = IpRouter::find(&options.router)?;
    let mut all = Vec::new();
    let mut table = Table::new([
        words("PREFIX"),
        words("NEXT HOP"),
        words("PORT"),
        numbers("WEIGHT"),
        words("STATE"),
        words("SOURCE"),
    ]);
    let mut after = String::new();
    loop {
        let page = router.ask("routes_json", &options.question(&after))?;
        let wanted = list(&page, "routes").iter().filter(|route| options.wants(route));
        if options.json {
            all.extend(wanted.cloned());
        } else {
            wanted.for_each(|route| add(&mut table, route));
            print(&table.take())?;
        }
        after = text(&page, "next");
        if after.is_empty() {
            break;
        }
    }
    if options.json {
        print(&format!("{:#}\n", json!({ "schema_version": 1, "routes": all })))?;
    }
    Ok(0)
}

impl RoutesOptions {
    fn question(&self, after: &str) -> String {
        let family = match (self.ipv4, self.ipv6) {
            (true, _) => "4 ",
            (_, true) => "6 ",
            _ => "",
        };
        let prefix = self.prefix.as_deref().unwrap_or("");
        let after = if after.is_empty() { String::new() } else { format!(" after {after}") };
        format!("{family}{prefix}{after} limit {PAGE}")
    }

    fn wants(&self, route: &Value) -> bool {
        let is_own = matches!(route["source"].as_str(), Some("built-in" | "local" | "broadcast"));
        let leads = |port: &String| list(route, "next_hops").iter().any(|hop| hop["port"] == port.as_str());
        (self.all || !is_own) && self.dev.as_ref().is_none_or(leads)
    }
}

/// A row for each next hop.
fn add(table: &mut Table<6>, route: &Value) {
    let hops = list(route, "next_hops");
    let several = hops.len() > 1;
    for (n, hop) in hops.iter().enumerate() {
        let is_first = n == 0;
        let of_route = |key| if is_first { text(route, key) } else { String::new() };
        let weight = if several { text(hop, "weight") } else { String::new() };
        let cells = [
            of_route("dst"),
            next_hop(route, hop),
            text(hop, "port"),
            weight,
            text(hop, "state"),
            of_route("source"),
        ];
        if is_first { table.row(cells) } else { table.more(cells) }
    }
}

/// A gateway, or what else becomes of packets.
pub(super) fn next_hop(route: &Value, hop: &Value) -> String {
    match (text(hop, "gateway"), text(route, "type")) {
        (gateway, _) if !gateway.is_empty() => gateway,
        (_, kind) if kind == "unicast" => "on link".to_string(),
        (_, kind) => kind,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn routes_stand_in_a_table_with_a_row_for_each_next_hop() {
        let hop = |gateway: &str, weight: u32, state: &str| json!({ "gateway": gateway, "port": "eth2", "weight": weight, "state": state });
        let routes = [
            json!({ "dst": "0.0.0.0/0", "source": "static", "type": "unicast", "method": "hash",
                "next_hops": [hop("10.0.2.7", 3, "up"), hop("10.0.2.8", 1, "down")] }),
            json!({ "dst": "10.0.2.0/24", "source": "connected", "type": "unicast",
                "next_hops": [{ "port": "eth2", "weight": 1, "state": "up" }] }),
            json!({ "dst": "10.9.0.0/16", "source": "static", "type": "blackhole", "next_hops": [{ "weight": 1, "state": "up" }] }),
        ];
        let mut table = Table::new(["PREFIX", "NEXT HOP", "PORT", "WEIGHT", "STATE", "SOURCE"].map(words));
        routes.iter().for_each(|route| add(&mut table, route));
        let expected = "\
PREFIX       NEXT HOP   PORT  WEIGHT  STATE  SOURCE
0.0.0.0/0    10.0.2.7   eth2  3       up     static
             10.0.2.8   eth2  1       down
10.0.2.0/24  on link    eth2  -       up     connected
10.9.0.0/16  blackhole  -     -       up     static
";
        assert_eq!(table.take(), expected);
    }
}
