//! `artery route`: routes of a running router, shown and changed in the words of iproute2 or of BSD.
pub(crate) mod bsd_table;
mod bsd_words;

use crate::ip_router::{IpRouter, RouterReach, list, text};
use crate::options::values::address;
use crate::output::print_stdout;
use bsd_table::{Family, Ports};
use clap::{Args, Subcommand};
use serde_json::Value;
use std::fmt::Write as _;
use std::net::IpAddr;

/// The last lines of its help.
pub(crate) const EXAMPLES: &str = "Examples:
  artery route add 10.9.0.0/16 via 10.0.2.254
  artery route add 10/8 10.0.2.254                            as in BSD
  artery route replace default via 10.0.2.7 weight 3 via 10.0.2.8
  artery route add 2001:db8:9::/48 via fe80::1 dev eth2
  artery route add blackhole 192.0.2.0/24
  artery route del 10.9.0.0/16
  artery route get 10.9.1.2
  artery route list 10/8                                      the table of 'artery show routes'
  artery route -n show -inet                                  that of BSD's route show
  artery route add -net 10.9.0.0 -netmask 255.255.0.0 10.0.2.254
  artery route change -inet6 default fe80::1 -ifp eth2
  artery route -n get -inet 10.9.1.2
  artery route flush -inet6

BSD's modifiers are -inet, -inet6, -net, -host, -netmask, -prefixlen, -gateway, -iface, -ifp, -ifa, -mpath,
-mtu, -blackhole, -reject, -priority 8, -static, -lock and -T 0. With one of them 'add', 'change' and 'delete'
say what they did, and 'get' prints, as BSD's route does.

A route is changed for all packets at once, and none is lost over it. Without -u and -p the router is the one
at $ARTERY_SOCKET, or else at /run/artery.sock.";

#[derive(Args)]
pub(crate) struct RouteOptions {
    /// Accepted: numbers are never given names; has 'get' print as BSD's route does
    #[arg(short = 'n')]
    numeric: bool,
    /// Say nothing of what was done
    #[arg(short = 'q')]
    quiet: bool,
    /// Say what is done
    #[arg(short = 'v')]
    verbose: bool,
    /// Change nothing, and say what would be done
    #[arg(short = 't')]
    dry_run: bool,
    /// Accepted: the routing table, which is 0
    #[arg(short = 'T', value_name = "TABLE", value_parser = ["0"])]
    table: Option<String>,
    #[command(subcommand)]
    action: Action,
}

#[derive(Subcommand)]
enum Action {
    /// Add a route for a prefix that has none
    #[command(
        override_usage = "artery route add [OPTIONS] PREFIX [via GATEWAY] [dev PORT] [weight N] [mtu N]...\
            \n       artery route add [OPTIONS] blackhole|unreachable|prohibited PREFIX\
            \n       artery route add [OPTIONS] [MODIFIER]... DESTINATION GATEWAY [MASK]",
        after_long_help = "Example:\n  artery route add 10.9.0.0/16 via 10.0.2.254"
    )]
    Add(Change),
    /// Delete the route of a prefix
    #[command(
        visible_alias = "delete",
        override_usage = "artery route del [OPTIONS] PREFIX",
        after_long_help = "Example:\n  artery route del 10.9.0.0/16"
    )]
    Del(Change),
    /// Replace the route of a prefix; with BSD's modifiers only one that is there
    #[command(
        override_usage = "artery route change [OPTIONS] PREFIX [via GATEWAY] [dev PORT] [weight N] [mtu N]...\
            \n       artery route change [OPTIONS] [MODIFIER]... DESTINATION GATEWAY [MASK]",
        after_long_help = "Example:\n  artery route change -net 10/8 10.0.2.8"
    )]
    Change(Change),
    /// Add a route, or replace that of its prefix
    #[command(
        override_usage = "artery route replace [OPTIONS] PREFIX [via GATEWAY] [dev PORT] [weight N] [mtu \
            N]...\n       artery route replace [OPTIONS] blackhole|unreachable|prohibited PREFIX",
        after_long_help = "Example:\n  artery route replace 10/8 via 10.0.2.8"
    )]
    Replace(Change),
    /// Show which route packets to an address take
    #[command(
        after_long_help = "Examples:\n  artery route get 10.9.1.2\n  artery route -n get -inet 10.9.1.2"
    )]
    Get(Get),
    /// List routes, as 'artery show routes' does
    #[command(visible_alias = "ls", after_long_help = "Example:\n  artery route list 10/8 --dev eth2")]
    List(crate::show::RoutesOptions),
    /// Show routes in the layout of BSD's route
    #[command(
        override_usage = "artery route [-n] show [OPTIONS] [-inet|-inet6]",
        after_long_help = "Example:\n  artery route -n show -inet"
    )]
    Show(Families),
    /// Delete all static routes, or those of a family; a reload brings those of the configuration back
    #[command(
        override_usage = "artery route flush [OPTIONS] [-inet|-inet6]",
        after_long_help = "Example:\n  artery route flush -inet6"
    )]
    Flush(Families),
}

#[derive(Args)]
struct Families {
    #[command(flatten)]
    router: RouterReach,
    /// -inet or -inet6; both if none is named
    #[arg(value_name = "FAMILY")]
    words: Vec<String>,
}

impl Families {
    /// Those that are meant.
    fn read(&self) -> Result<Vec<Family>, String> {
        let words = revealed(&self.words);
        if words.is_empty() {
            return Ok(Family::ALL.to_vec());
        }
        let read = |word: &String| {
            let family = word.strip_prefix('-').and_then(Family::named);
            family.ok_or_else(|| format!("'{word}' is not understood; a family is -inet or -inet6"))
        };
        words.iter().map(read).collect()
    }
}

/// The modifiers of BSD that clap would take for letters.
const MODIFIERS: [&str; 30] = [
    "-inet",
    "-inet6",
    "-net",
    "-host",
    "-netmask",
    "-prefixlen",
    "-mpath",
    "-priority",
    "-ifp",
    "-interface",
    "-ifa",
    "-iface",
    "-gateway",
    "-blackhole",
    "-reject",
    "-mtu",
    "-static",
    "-cloning",
    "-nocloning",
    "-lock",
    "-lockrest",
    "-label",
    "-expire",
    "-hopcount",
    "-link",
    "-mpls",
    "-genmask",
    "-nostatic",
    "-nojumbo",
    "-bfd",
];

/// Replaces the dash of a modifier on its way through clap.
const HIDDEN: char = '\u{1}';

/// The words of a command line, with BSD's modifiers of routes such that clap leaves them alone.
pub(crate) fn hide_modifiers(args: Vec<std::ffi::OsString>) -> Vec<std::ffi::OsString> {
    if args.get(1).is_none_or(|command| command != "route") {
        return args;
    }
    let hide = |arg: std::ffi::OsString| match arg.to_str() {
        Some(word) if MODIFIERS.contains(&word) => format!("{HIDDEN}{}", &word[1..]).into(),
        _ => arg,
    };
    args.into_iter().map(hide).collect()
}

/// Words as they were written.
fn revealed(words: &[String]) -> Vec<String> {
    words.iter().map(|word| word.replacen(HIDDEN, "-", 1)).collect()
}

#[derive(Args)]
struct Change {
    #[command(flatten)]
    router: RouterReach,
    /// The route, in the words above
    #[arg(required = true, value_name = "WORD")]
    words: Vec<String>,
}

#[derive(Args)]
struct Get {
    #[command(flatten)]
    router: RouterReach,
    /// The address, with BSD's modifiers before it
    #[arg(required = true, value_name = "ADDRESS")]
    words: Vec<String>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(crate) fn command(options: &RouteOptions) -> anyhow::Result<u8> {
    let usage = |why: String| -> ! { crate::options::usage_error(&why) };
    match &options.action {
        Action::Add(change) => options.change(change, "add", "add_route"),
        Action::Change(change) => options.change(change, "change", "set_route"),
        Action::Replace(change) => options.change(change, "replace", "set_route"),
        Action::Del(change) => options.delete(change),
        Action::Get(get) => get_route(get, options.numeric),
        Action::List(list) => crate::show::show_routes(list),
        Action::Show(families) => {
            let wanted = families.read().unwrap_or_else(|why| usage(why));
            bsd_table::show(&families.router, &wanted)
        }
        Action::Flush(families) => {
            let wanted = families.read().unwrap_or_else(|why| usage(why));
            options.flush(&families.router, &wanted)
        }
    }
}

/// A route of a router that does not run yet.
pub(crate) struct PlannedRoute {
    pub(crate) prefix: String,
    /// In the form of `artery router --route`.
    pub(crate) target: String,
    /// Whether it is a further next hop of a route.
    pub(crate) is_multipath: bool,
}

/// What the words of `route add` say, behind these two, of a router with ports that have these addresses.
pub(crate) fn planned_route<'a>(
    words: &[String],
    ports: impl IntoIterator<Item = (&'a str, &'a [(IpAddr, u8)])>,
) -> Result<PlannedRoute, String> {
    let route = bsd_words::read(words)?;
    let target = route.target(&Ports::planned(ports))?;
    if let Some((_, mtu)) = target.split_once(" mtu ") {
        return Err(format!("-mtu {mtu}: a route has no MTU here; leave it out, or set the port's"));
    }
    Ok(PlannedRoute { prefix: route.prefix_text(), target, is_multipath: route.is_multipath })
}

impl RouteOptions {
    /// Adds a route, or replaces another one.
    fn change(&self, change: &Change, verb: &'static str, handler: &str) -> anyhow::Result<u8> {
        let usage = |why: String| -> ! { crate::options::usage_error(&why) };
        let words = revealed(&change.words);
        if !bsd_words::are_bsd(&words) {
            let route = written(&words).unwrap_or_else(|why| usage(why));
            let mut router = IpRouter::find(&change.router)?;
            if !self.dry_run {
                router.write(handler, &route)?;
            }
            return self.say(self.verbose || self.dry_run, &format!("{verb} {route}"), Ok(()));
        }
        let route = bsd_words::read(&words).unwrap_or_else(|why| usage(why));
        let mut router = IpRouter::find(&change.router)?;
        let target = route.target(&Ports::of(&router.query("ports_json", "")?));
        let target = target.unwrap_or_else(|why| usage(why));
        let existing = hops_of(&mut router, &route.prefix_text())?;
        let done = match (&existing, verb, route.is_multipath) {
            (None, "change", _) => Err("not in table"),
            (Some(_), "add", false) => Err("File exists"),
            (Some(hops), "add", true) => self.write_handler(
                &mut router,
                "set_route",
                &format!("{} {hops} {target}", route.prefix_text()),
            )?,
            _ => self.write_handler(&mut router, handler, &format!("{} {target}", route.prefix_text()))?,
        };
        self.say(!self.quiet, &route.said(verb), done)
    }

    fn delete(&self, change: &Change) -> anyhow::Result<u8> {
        let usage = |why: String| -> ! { crate::options::usage_error(&why) };
        let words = revealed(&change.words);
        if !bsd_words::are_bsd(&words) {
            let prefix = deleted(&words).unwrap_or_else(|why| usage(why));
            let mut router = IpRouter::find(&change.router)?;
            if !self.dry_run {
                router.write("remove_route", prefix)?;
            }
            return self.say(self.verbose || self.dry_run, &format!("delete {prefix}"), Ok(()));
        }
        let route = bsd_words::read(&words).unwrap_or_else(|why| usage(why));
        let mut router = IpRouter::find(&change.router)?;
        let done = match hops_of(&mut router, &route.prefix_text())? {
            None => Err("not in table"),
            Some(_) => self.write_handler(&mut router, "remove_route", &route.prefix_text())?,
        };
        self.say(!self.quiet, &route.said("delete"), done)
    }

    /// Has the router do something, unless nothing is to be done.
    fn write_handler(
        &self,
        router: &mut IpRouter,
        handler: &str,
        text: &str,
    ) -> anyhow::Result<Result<(), &'static str>> {
        if !self.dry_run {
            router.write(handler, text)?;
        }
        Ok(Ok(()))
    }

    /// Prints a line as route(8) does, with why it failed; gives the exit status.
    fn say(&self, is_wanted: bool, line: &str, done: Result<(), &'static str>) -> anyhow::Result<u8> {
        let why = done.err().map_or(String::new(), |why| format!(": {why}"));
        if is_wanted {
            print_stdout(&format!("{line}{why}\n"))?;
        }
        Ok(u8::from(done.is_err()))
    }

    /// Deletes the static routes of families.
    fn flush(&self, reach: &RouterReach, families: &[Family]) -> anyhow::Result<u8> {
        let mut router = IpRouter::find(reach)?;
        for family in families {
            for (prefix, gateways) in static_routes(&mut router, *family)? {
                if !self.dry_run {
                    router.write("remove_route", &prefix)?;
                }
                let shown = bsd_table::with_length(&prefix).map_or(prefix, bsd_table::short_prefix);
                for gateway in gateways.iter().filter(|_| !self.quiet) {
                    print_stdout(&format!("{shown:<20} {gateway:<20} done\n"))?;
                }
            }
        }
        Ok(0)
    }
}

/// The next hops of the route of exactly this prefix, as the router's handlers take them; None
/// if it has none.
fn hops_of(router: &mut IpRouter, prefix: &str) -> anyhow::Result<Option<String>> {
    let page = router.query("routes_json", &format!("{prefix} limit 1"))?;
    let Some(route) = list(&page, "routes").first().filter(|route| route["dst"] == prefix) else {
        return Ok(None);
    };
    if route["source"] != "static" {
        return Ok(None);
    }
    Ok(Some(list(route, "next_hops").iter().map(|hop| hop_words(route, hop)).collect::<Vec<_>>().join(" ")))
}

fn hop_words(route: &Value, hop: &Value) -> String {
    let (gateway, port, kind) = (text(hop, "gateway"), text(hop, "port"), text(route, "type"));
    let target = match (gateway.is_empty(), port.is_empty()) {
        (false, false) => format!("{gateway}%{port}"),
        (false, true) => gateway,
        (true, false) => port,
        (true, true) => end(&kind).unwrap_or("unreachable").to_string(),
    };
    let number = |key: &str| hop[key].as_u64().filter(|n| key != "weight" || *n > 1);
    let more = ["weight", "mtu"].iter().filter_map(|key| Some(format!(" {key} {}", number(key)?)));
    target + &more.collect::<String>()
}

/// Static routes of a family: prefixes, and where they lead.
fn static_routes(router: &mut IpRouter, family: Family) -> anyhow::Result<Vec<(String, Vec<String>)>> {
    const PAGE: usize = 10_000;
    let (mut found, mut after) = (Vec::new(), String::new());
    loop {
        let page = router.query("routes_json", &format!("{}{after} limit {PAGE}", family.digit()))?;
        let routes = list(&page, "routes").iter().filter(|route| route["source"] == "static");
        found.extend(routes.map(|route| {
            let hops = Some(list(route, "next_hops")).filter(|hops| !hops.is_empty());
            let end = |hop: &Value| {
                let known = [text(hop, "gateway"), text(hop, "port"), text(route, "type")];
                known.into_iter().find(|word| !word.is_empty()).unwrap_or_default()
            };
            (text(route, "dst"), hops.unwrap_or(&[Value::Null]).iter().map(end).collect())
        }));
        let next = text(&page, "next");
        if next.is_empty() {
            return Ok(found);
        }
        after = format!(" after {next}");
    }
}

const ENDS: [(&str, &str); 5] = [
    ("blackhole", "blackhole"),
    ("unreachable", "unreachable"),
    ("prohibited", "prohibited"),
    ("prohibit", "prohibited"),
    ("reject", "unreachable"),
];

fn end(word: &str) -> Option<&'static str> {
    ENDS.iter().find(|(name, _)| *name == word.trim_start_matches('-')).map(|(_, end)| *end)
}

/// A route as the router's handlers take it.
fn written(words: &[String]) -> Result<String, String> {
    let mut route = Words::default();
    let mut words = words.iter().map(String::as_str);
    while let Some(word) = words.next() {
        let mut value =
            || words.next().ok_or_else(|| format!("'{word}' is the last word; its value is missing"));
        match word {
            "via" | "gw" => route.gateway(value()?)?,
            "dev" => route.port(value()?)?,
            "weight" | "mtu" => {
                let number = value()?;
                let _ = write!(route.last(word)?, " {word} {number}");
            }
            "by" => route.method = Some(value()?.to_string()),
            // iproute2's other word for the beginning of a next hop, and BSD's words that add nothing.
            "nexthop" | "-net" | "-host" | "-inet" | "-inet6" => {}
            _ if end(word).is_some() => route.ways.extend(end(word).map(str::to_string)),
            _ if route.prefix.is_none() => route.prefix = Some(word.to_string()),
            _ if word.parse::<IpAddr>().is_ok() && route.ways.is_empty() => route.gateway(word)?,
            _ => return Err(format!("'{word}' is not understood; a route is PREFIX via GATEWAY [dev PORT]")),
        }
    }
    route.finish()
}

/// A route as its words are read.
#[derive(Default)]
struct Words {
    prefix: Option<String>,
    ways: Vec<String>,
    /// Whether the last way is a gateway that may yet be given a port.
    is_open: bool,
    method: Option<String>,
}

impl Words {
    fn gateway(&mut self, word: &str) -> Result<(), String> {
        word.split('%').next().and_then(|address| address.parse::<IpAddr>().ok()).ok_or_else(|| {
            format!("'{word}' is not a gateway's address; write it as 10.0.2.254 or 2001:db8::254")
        })?;
        self.ways.push(word.to_string());
        self.is_open = !word.contains('%');
        Ok(())
    }

    fn port(&mut self, word: &str) -> Result<(), String> {
        match self.ways.last_mut().filter(|_| self.is_open) {
            Some(way) => {
                // Between the gateway and its attributes.
                let end = way.find(' ').unwrap_or(way.len());
                way.insert_str(end, &format!("%{word}"));
            }
            None => self.ways.push(word.to_string()),
        }
        self.is_open = false;
        Ok(())
    }

    fn last(&mut self, word: &str) -> Result<&mut String, String> {
        self.ways.last_mut().ok_or_else(|| format!("'{word}' belongs behind the gateway or port it is about"))
    }

    fn finish(self) -> Result<String, String> {
        let prefix = self.prefix.ok_or("which prefix? write it as 10.9.0.0/16, 10.9/16 or default")?;
        if self.ways.is_empty() {
            return Err(format!(
                "where does {prefix} lead? name a gateway ('via 10.0.2.254'), a port ('dev eth2'), or \
                 blackhole, unreachable or prohibited"
            ));
        }
        let is_ipv6 = self.ways[0].contains(':');
        let prefix = if prefix == "default" && is_ipv6 { "::/0".to_string() } else { prefix };
        let method = self.method.map_or(String::new(), |method| format!(" by {method}"));
        Ok(format!("{prefix} {}{method}", self.ways.join(" ")))
    }
}

/// The prefix of a route to be deleted, which identifies it.
fn deleted(words: &[String]) -> Result<&str, String> {
    match words {
        [prefix] => Ok(prefix),
        [prefix, ..] => Err(format!("a route is deleted by its prefix alone: artery route del {prefix}")),
        [] => Err("which prefix? write it as 10.9.0.0/16".to_string()),
    }
}

fn get_route(get: &Get, is_bsd: bool) -> anyhow::Result<u8> {
    let words = revealed(&get.words);
    let is_bsd = is_bsd || bsd_words::are_bsd(&words);
    let address = looked_for(&words).unwrap_or_else(|why| crate::options::usage_error(&why));
    let mut router = IpRouter::find(&get.router)?;
    let document = router.query("route_json", &address.to_string())?;
    if get.json {
        return print_stdout(&format!("{document:#}\n")).map(|()| 0);
    }
    if is_bsd && document["prefix"].is_string() {
        let ports = Ports::of(&router.query("ports_json", "")?);
        return print_stdout(&bsd_words::got(&document, &ports)).map(|()| 0);
    }
    print_stdout(&looked_up(&document))?;
    // As with `ip route get`: a route that leads nowhere is not an error, but the lack of a route is.
    Ok(u8::from(document["prefix"].is_null()))
}

/// The address to look up; BSD's modifiers add nothing.
fn looked_for(words: &[String]) -> Result<IpAddr, String> {
    let is_modifier = |word: &&String| ["-inet", "-inet6", "-host", "-net"].contains(&word.as_str());
    let rest: Vec<&String> = words.iter().filter(|word| !is_modifier(word)).collect();
    match rest[..] {
        [word] => address(word).map_err(|why| format!("'{word}' is not a valid IP address; {why}")),
        [] => Err("which address? write it as 10.9.1.2".to_string()),
        [_, word, ..] => Err(format!("'{word}' is one word too many; one address is looked up")),
    }
}

/// The route of an address, for people.
fn looked_up(document: &Value) -> String {
    let (dst, outcome) = (text(document, "dst"), text(document, "outcome"));
    let Some(prefix) = document["prefix"].as_str() else {
        return format!("{dst}: not in table, no route matches\n");
    };
    let mut said = format!("{dst} matches {prefix} ({})\n", text(document, "source"));
    let hops = list(document, "next_hops");
    if hops.len() > 1 {
        let way = |hop: &Value| format!("{} ({})", text(hop, "gateway"), text(hop, "state"));
        let ways: Vec<String> = hops.iter().map(way).collect();
        let _ = writeln!(
            said,
            "  one of {} next hops, by {}: {}",
            hops.len(),
            text(document, "method"),
            ways.join(", ")
        );
    }
    let chosen = &document["chosen"];
    if chosen.is_object() {
        let [to, port, state, link] = ["next_hop", "port", "state", "lladdr"].map(|key| text(chosen, key));
        let at = if link.is_empty() { String::new() } else { format!(" at {link}") };
        let _ = writeln!(
            said,
            "  to {to} on {port}, {state}{at}, packets of up to {} bytes",
            text(chosen, "mtu")
        );
    }
    let _ = writeln!(said, "  {outcome}");
    said
}

#[cfg(test)]
mod tests {
    use super::*;

    fn route(text: &str) -> Result<String, String> {
        written(&text.split_whitespace().map(str::to_string).collect::<Vec<_>>())
    }

    #[test]
    fn routes_are_understood_in_the_words_of_linux_and_bsd() {
        for (text, expected) in [
            ("10.9.0.0/16 via 10.0.2.254", "10.9.0.0/16 10.0.2.254"),
            ("10/8 10.0.2.254", "10/8 10.0.2.254"),
            ("-inet -net 10/8 10.0.2.254", "10/8 10.0.2.254"),
            ("default via 2001:db8::1", "::/0 2001:db8::1"),
            ("default via 10.0.2.254", "default 10.0.2.254"),
            ("10/8 via fe80::1 dev eth2", "10/8 fe80::1%eth2"),
            ("10/8 via fe80::1 weight 2 dev eth2", "10/8 fe80::1%eth2 weight 2"),
            ("10/8 dev eth2", "10/8 eth2"),
            (
                "10/8 nexthop via 10.0.2.7 weight 3 nexthop via 10.0.2.8 dev b",
                "10/8 10.0.2.7 weight 3 10.0.2.8%b",
            ),
            ("10/8 via 10.0.2.7 via 10.0.2.8 by resilient", "10/8 10.0.2.7 10.0.2.8 by resilient"),
            ("blackhole 10/8", "10/8 blackhole"),
            ("10/8 -reject", "10/8 unreachable"),
            ("prohibit 10/8", "10/8 prohibited"),
        ] {
            assert_eq!(route(text).as_deref(), Ok(expected), "{text}");
        }
    }

    #[test]
    fn what_is_no_route_is_refused_with_the_remedy() {
        for (text, expected) in [
            ("10/8", "where does 10/8 lead? name a gateway"),
            ("via 10.0.2.254", "which prefix?"),
            ("10/8 via", "'via' is the last word; its value is missing"),
            ("10/8 via eth2", "'eth2' is not a gateway's address"),
            ("10/8 weight 3 dev a", "'weight' belongs behind the gateway"),
            ("10/8 10.0.2.254 metric 3", "'metric' is not understood"),
        ] {
            assert!(route(text).unwrap_err().starts_with(expected), "{text}: {:?}", route(text));
        }
        let words = ["10/8", "via", "10.0.2.254"].map(str::to_string);
        assert_eq!(deleted(&words[..1]), Ok("10/8"));
        assert!(deleted(&words).unwrap_err().contains("artery route del 10/8"));
    }

    #[test]
    fn a_looked_up_route_says_where_it_leads() {
        let document = serde_json::json!({ "dst": "10.9.1.2", "prefix": "10.9.0.0/16", "source": "static",
            "outcome": "forward", "type": "unicast", "method": "hash",
            "next_hops": [{ "gateway": "10.0.2.7", "state": "up" },
                { "gateway": "10.0.2.8", "state": "down" }],
            "chosen": { "next_hop": "10.0.2.7", "port": "eth2", "lladdr": "02:00:00:00:00:07",
                "state": "REACHABLE", "mtu": 1500 } });
        let expected = "\
10.9.1.2 matches 10.9.0.0/16 (static)
  one of 2 next hops, by hash: 10.0.2.7 (up), 10.0.2.8 (down)
  to 10.0.2.7 on eth2, REACHABLE at 02:00:00:00:00:07, packets of up to 1500 bytes
  forward
";
        assert_eq!(looked_up(&document), expected);
        let found = looked_up(&serde_json::json!({ "dst": "8.8.8.8" }));
        assert_eq!(found, "8.8.8.8: not in table, no route matches\n");
    }
}
