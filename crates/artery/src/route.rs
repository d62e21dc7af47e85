//! `artery route`: routes of a running router, changed in the words of iproute2 or of BSD.
use crate::cli::values::address;
use crate::ip_router::{IpRouter, RouterReach, list, text};
use crate::voice::print;
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

A route is changed for all packets at once, and none is lost over it. Without -u and -p the router is the one at
$ARTERY_SOCKET, or else at /run/artery.sock.";

#[derive(Args)]
pub(crate) struct RouteOptions {
    #[command(subcommand)]
    action: Action,
}

#[derive(Subcommand)]
enum Action {
    /// Add a route for a prefix that has none
    #[command(
        override_usage = "artery route add [OPTIONS] PREFIX [via GATEWAY] [dev PORT] [weight N] [mtu N]...\n       artery route add [OPTIONS] blackhole|unreachable|prohibited PREFIX",
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
    /// Add a route, or replace that of its prefix
    #[command(
        visible_alias = "change",
        override_usage = "artery route replace [OPTIONS] PREFIX [via GATEWAY] [dev PORT] [weight N] [mtu N]...\n       artery route replace [OPTIONS] blackhole|unreachable|prohibited PREFIX",
        after_long_help = "Example:\n  artery route replace 10/8 via 10.0.2.8"
    )]
    Replace(Change),
    /// Show which route packets to an address take
    #[command(after_long_help = "Example:\n  artery route get 10.9.1.2")]
    Get(Get),
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
    /// The address
    #[arg(value_parser = address)]
    address: IpAddr,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Carries it out.
pub(crate) fn command(options: &RouteOptions) -> anyhow::Result<u8> {
    let usage = |why: String| -> ! { crate::cli::usage_error(&why) };
    match &options.action {
        Action::Add(change) => {
            let route = written(&change.words).unwrap_or_else(|why| usage(why));
            IpRouter::find(&change.router)?.tell("add_route", &route)?;
        }
        Action::Replace(change) => {
            let route = written(&change.words).unwrap_or_else(|why| usage(why));
            IpRouter::find(&change.router)?.tell("set_route", &route)?;
        }
        Action::Del(change) => {
            let prefix = deleted(&change.words).unwrap_or_else(|why| usage(why));
            IpRouter::find(&change.router)?.tell("remove_route", prefix)?;
        }
        Action::Get(get) => return look_up(get),
    }
    Ok(0)
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
            // Another way of iproute2 to say that a way begins, and BSD's words for what can be seen anyway.
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
            format!("'{word}' is no gateway's address; write it as 10.0.2.254 or 2001:db8::254")
        })?;
        self.ways.push(word.to_string());
        self.is_open = !word.contains('%');
        Ok(())
    }

    fn port(&mut self, word: &str) -> Result<(), String> {
        match self.ways.last_mut().filter(|_| self.is_open) {
            Some(way) => {
                // Between the gateway and what was said of it.
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
                "where does {prefix} lead? name a gateway ('via 10.0.2.254'), a port ('dev eth2'), or blackhole, \
                 unreachable or prohibited"
            ));
        }
        let is_ipv6 = self.ways[0].contains(':');
        let prefix = if prefix == "default" && is_ipv6 { "::/0".to_string() } else { prefix };
        let method = self.method.map_or(String::new(), |method| format!(" by {method}"));
        Ok(format!("{prefix} {}{method}", self.ways.join(" ")))
    }
}

/// The prefix of a route to be deleted, which stands for all of it.
fn deleted(words: &[String]) -> Result<&str, String> {
    match words {
        [prefix] => Ok(prefix),
        [prefix, ..] => Err(format!("a route is deleted by its prefix alone: artery route del {prefix}")),
        [] => Err("which prefix? write it as 10.9.0.0/16".to_string()),
    }
}

fn look_up(get: &Get) -> anyhow::Result<u8> {
    let document = IpRouter::find(&get.router)?.ask("route_json", &get.address.to_string())?;
    if get.json {
        return print(&format!("{document:#}\n")).map(|()| 0);
    }
    print(&looked_up(&document))?;
    // As with `ip route get`: it is not an error that there are routes to nowhere, but that there is none.
    Ok(u8::from(document["prefix"].is_null()))
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
            ("10/8 via eth2", "'eth2' is no gateway's address"),
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
            "next_hops": [{ "gateway": "10.0.2.7", "state": "up" }, { "gateway": "10.0.2.8", "state": "down" }],
            "chosen": { "next_hop": "10.0.2.7", "port": "eth2", "lladdr": "02:00:00:00:00:07", "state": "REACHABLE", "mtu": 1500 } });
        let expected = "\
10.9.1.2 matches 10.9.0.0/16 (static)
  one of 2 next hops, by hash: 10.0.2.7 (up), 10.0.2.8 (down)
  to 10.0.2.7 on eth2, REACHABLE at 02:00:00:00:00:07, packets of up to 1500 bytes
  forward
";
        assert_eq!(looked_up(&document), expected);
        assert_eq!(
            looked_up(&serde_json::json!({ "dst": "8.8.8.8" })),
            "8.8.8.8: not in table, no route matches\n"
        );
    }
}
