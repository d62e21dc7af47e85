//! `artery show routes`, for tables of any size: page by page.
use super::table::Table;
use crate::ip_router::{IpRouter, RouterReach, list, text};
use crate::options::usage_error;
use crate::output::{OutputReader, print_on, print_stdout};
use anyhow::bail;
use clap::Args;
use serde_json::Value;

/// Routes that are requested at a time.
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

/// Prints routes until the reader of the output is gone.
pub(crate) fn show(options: &RoutesOptions) -> anyhow::Result<u8> {
    options.check();
    let mut router = IpRouter::find(&options.router)?;
    if let Some(port) = &options.dev {
        check_port(&mut router, port)?;
    }
    let mut form = if options.json { Form::json() } else { Form::table() };
    let mut after = String::new();
    loop {
        let page = router.query("routes_json", &options.question(&after))?;
        form.check_version(&page);
        let wanted = list(&page, "routes").iter().filter(|route| options.wants(route));
        if print_on(&form.page(wanted))? == OutputReader::Gone {
            return Ok(0);
        }
        after = text(&page, "next");
        if after.is_empty() {
            return print_stdout(&form.end()).map(|()| 0);
        }
    }
}

/// A port that there is not would have no routes, which would be no answer.
fn check_port(router: &mut IpRouter, wanted: &str) -> anyhow::Result<()> {
    let document = router.query("ports_json", "")?;
    let names: Vec<String> = list(&document, "ports").iter().map(|port| text(port, "name")).collect();
    match names.iter().any(|name| name == wanted) {
        true => Ok(()),
        false => bail!("no port is called '{wanted}'; there are: {}", names.join(", ")),
    }
}

/// What the routes become, page by page.
enum Form {
    /// For people, in columns.
    Table(Box<Table<6>>),
    /// With the version of the router, from its first page on.
    Json { has_begun: bool, version: String },
}

impl Form {
    fn table() -> Form {
        Form::Table(Box::new(Table::headed("PREFIX | NEXT HOP | PORT | WEIGHT: | STATE | SOURCE")))
    }

    fn json() -> Form {
        Form::Json { has_begun: false, version: String::new() }
    }

    fn page<'a>(&mut self, routes: impl Iterator<Item = &'a Value>) -> String {
        match self {
            Form::Table(table) => {
                routes.for_each(|route| add(table, route));
                table.drain_text()
            }
            Form::Json { has_begun, version } => {
                // While the output has a reader, `end` follows.
                let begin = |is_first| if is_first { json_opening(version) + "[" } else { ",".to_string() };
                let item = |route: &Value| {
                    let before = begin(!std::mem::replace(has_begun, true));
                    format!("{before}\n    {}", format!("{route:#}").replace('\n', "\n    "))
                };
                routes.map(item).collect()
            }
        }
    }

    /// Takes the version of the router from a page.
    fn check_version(&mut self, page: &Value) {
        if let Form::Json { version, .. } = self {
            *version = text(page, "version");
        }
    }

    fn end(&self) -> String {
        match self {
            Form::Table(_) => String::new(),
            Form::Json { has_begun: true, .. } => "\n  ]\n}\n".to_string(),
            Form::Json { has_begun: false, version } => json_opening(version) + "[]\n}\n",
        }
    }
}

fn json_opening(version: &str) -> String {
    format!("{{\n  \"schema_version\": 1,\n  \"version\": \"{version}\",\n  \"routes\": ")
}

impl RoutesOptions {
    /// Ends the program if no route can be meant.
    fn check(&self) {
        let Some(prefix) = &self.prefix else { return };
        if prefix.contains(char::is_whitespace) || prefix.is_empty() {
            usage_error(&format!(
                "'{prefix}' is not a valid prefix; write it as 10.9.0.0/16 or 2001:db8::/32"
            ));
        }
        let is_ipv6 = prefix.contains(':');
        if (self.ipv4 && is_ipv6) || (self.ipv6 && !is_ipv6) {
            let (family, other) = if is_ipv6 { ("IPv6", "-4") } else { ("IPv4", "-6") };
            usage_error(&format!("{prefix} is of {family}, and {other} leaves that out; leave out {other}"));
        }
    }

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
            if is_first { source(route) } else { String::new() },
        ];
        if is_first { table.row(cells) } else { table.more(cells) }
    }
}

/// Where a route comes from; a static one that was added by a command is gone after a restart.
fn source(route: &Value) -> String {
    let by_hand = if route["by_hand"] == true { " by hand" } else { "" };
    text(route, "source") + by_hand
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
    use serde_json::json;

    #[test]
    fn pages_of_json_make_a_document() {
        let route = |dst: &str| json!({ "dst": dst });
        let document = |pages: &[&[Value]]| {
            let mut form = Form::json();
            form.check_version(&json!({ "version": "1.2.3" }));
            let text: String = pages.iter().map(|page| form.page(page.iter())).collect();
            serde_json::from_str::<Value>(&(text + &form.end())).unwrap()
        };
        assert_eq!(document(&[&[]]), json!({ "schema_version": 1, "version": "1.2.3", "routes": [] }));
        let pages: [&[Value]; 3] = [&[route("a"), route("b")], &[], &[route("c")]];
        let expected = json!({ "schema_version": 1, "version": "1.2.3",
            "routes": [route("a"), route("b"), route("c")] });
        assert_eq!(document(&pages), expected);
    }

    #[test]
    fn routes_stand_in_a_table_with_a_row_for_each_next_hop() {
        let hop = |gateway: &str, weight: u32, state: &str| {
            json!({ "gateway": gateway, "port": "eth2",
                "weight": weight, "state": state })
        };
        let routes = [
            json!({ "dst": "0.0.0.0/0", "source": "static", "type": "unicast", "method": "hash",
                "next_hops": [hop("10.0.2.7", 3, "up"), hop("10.0.2.8", 1, "down")] }),
            json!({ "dst": "10.0.2.0/24", "source": "connected", "type": "unicast",
                "next_hops": [{ "port": "eth2", "weight": 1, "state": "up" }] }),
            json!({ "dst": "10.9.0.0/16", "source": "static", "by_hand": true, "type": "blackhole",
                "next_hops": [{ "weight": 1, "state": "up" }] }),
        ];
        let mut table = Table::headed("PREFIX | NEXT HOP | PORT | WEIGHT | STATE | SOURCE");
        routes.iter().for_each(|route| add(&mut table, route));
        let expected = "\
PREFIX       NEXT HOP   PORT  WEIGHT  STATE  SOURCE
0.0.0.0/0    10.0.2.7   eth2  3       up     static
             10.0.2.8   eth2  1       down
10.0.2.0/24  on link    eth2  -       up     connected
10.9.0.0/16  blackhole  -     -       up     static by hand
";
        assert_eq!(table.drain_text(), expected);
    }
}
