//! `artery arp` and `artery ndp`: neighbors of a running router in the words and the layout of
//! OpenBSD's arp(8) and ndp(8).
use super::port_of;
use crate::ip_router::{IpRouter, RouterReach, list, text};
use crate::options::usage_error;
use crate::options::values::station;
use crate::output::print_stdout;
use anyhow::bail;
use clap::Args;
use serde_json::Value;
use std::net::IpAddr;

/// The last lines of arp's help.
pub(crate) const ARP_EXAMPLES: &str = "Examples:
  artery arp -an                                   all neighbors of IPv4, and the router's own addresses
  artery arp 10.0.1.9
  artery arp -s 10.0.1.9 02:00:00:00:00:09         set one for good; 'temp' and 'pub' may follow
  artery arp -d 10.0.1.9
  artery arp -ad                                   forget all that were not set by hand

Flags are l for the router's own addresses and p for published ones. Without -u and -p the router is the one
at $ARTERY_SOCKET, or else at /run/artery.sock.";

/// The last lines of ndp's help.
pub(crate) const NDP_EXAMPLES: &str = "Examples:
  artery ndp -an                                   all neighbors of IPv6, and the router's own addresses
  artery ndp -s 2001:db8::9 02:00:00:00:00:09
  artery ndp -d fe80::9%eth1
  artery ndp -c                                    forget all that were not set by hand

S is N for none, I for incomplete, R for reachable, S for stale, D for delay and P for probe; flags are l for
the router's own addresses, R for routers and p for published ones, and then the probes that were sent.
Without -u and -p the router is the one at $ARTERY_SOCKET, or else at /run/artery.sock.";

/// What both commands take.
#[derive(Args)]
pub(crate) struct BsdNeighborOptions {
    #[command(flatten)]
    router: RouterReach,
    /// All neighbors, instead of one
    #[arg(short = 'a')]
    all: bool,
    /// Accepted: numbers are never given names
    #[arg(short = 'n')]
    numeric: bool,
    /// Forget the neighbor that is named, or with -a all that were not set by hand
    #[arg(short = 'd', conflicts_with = "set")]
    delete: bool,
    /// Forget all that were not set by hand
    #[arg(short = 'c', conflicts_with_all = ["delete", "set"])]
    clear: bool,
    /// Set the Ethernet address of a neighbor; see the usage above
    #[arg(short = 's')]
    set: bool,
    /// Those of this port only
    #[arg(short = 'i', value_name = "PORT")]
    interface: Option<String>,
    /// The address of the neighbor; with -s also its Ethernet address
    #[arg(value_name = "WORD")]
    words: Vec<String>,
}

/// `artery arp`, or `artery ndp` if `is_ipv6`.
pub(crate) fn command(options: &BsdNeighborOptions, is_ipv6: bool) -> anyhow::Result<u8> {
    let wanted = options.words.first().map(|word| named(word, is_ipv6)).transpose();
    let wanted = wanted.unwrap_or_else(|why| usage_error(&why));
    let is_change = options.delete || options.clear || options.set;
    if !options.all && !options.clear && wanted.is_none() {
        usage_error("which neighbor? name its address, or all by -a");
    }
    let mut router = IpRouter::find(&options.router)?;
    if is_change {
        return change(options, wanted, &mut router);
    }
    let port = options.interface.as_deref().unwrap_or("");
    let ports = router.query("ports_json", "")?;
    let mut rows = own(&ports, port, is_ipv6);
    rows.extend(
        list(&router.query("neighbors_json", port)?, "neighbors")
            .iter()
            .filter_map(|one| Row::of(one, is_ipv6)),
    );
    if let Some((address, scope)) = &wanted {
        rows.retain(|row| row.address == *address && scope.as_ref().is_none_or(|scope| row.port == *scope));
        if rows.is_empty() {
            bail!("{address} -- no entry");
        }
    }
    rows.sort_by(|one, other| (one.address, &one.port).cmp(&(other.address, &other.port)));
    let lines: String = rows.iter().map(|row| if is_ipv6 { row.ndp() } else { row.arp() }).collect();
    print_stdout(&(header(is_ipv6) + &lines)).map(|()| 0)
}

/// An address, with the port of its link if the text has one.
type Named = (IpAddr, Option<String>);

fn named(word: &str, is_ipv6: bool) -> Result<Named, String> {
    let (text, scope) =
        word.split_once('%').map_or((word, None), |(text, scope)| (text, Some(scope.to_string())));
    match text.parse::<IpAddr>() {
        Ok(address) if address.is_ipv6() == is_ipv6 => Ok((address, scope)),
        _ => {
            let (family, example) = if is_ipv6 { ("IPv6", "2001:db8::9") } else { ("IPv4", "10.0.1.9") };
            Err(format!("'{word}' is not a valid {family} address; write it as {example}"))
        }
    }
}

fn change(options: &BsdNeighborOptions, wanted: Option<Named>, router: &mut IpRouter) -> anyhow::Result<u8> {
    let Some((address, scope)) = wanted else {
        router.write("flush_neighbors", options.interface.as_deref().unwrap_or(""))?;
        return Ok(0);
    };
    let port = match scope.or_else(|| options.interface.clone()) {
        Some(port) => port,
        None => port_of(router, address, "-i")?,
    };
    if options.delete {
        router.write("remove_neighbor", &format!("{port} {address}"))?;
        return print_stdout(&format!("{address} deleted\n")).map(|()| 0);
    }
    let [_, link, rest @ ..] = &options.words[..] else {
        usage_error(&format!("which Ethernet address has {address}? write it behind, as 02:00:00:00:00:09"));
    };
    let link = station(link).unwrap_or_else(|why| usage_error(&why));
    let mut kind = "";
    for word in rest {
        match word.as_str() {
            "temp" => kind = "temporary",
            "pub" => kind = "published",
            "permanent" => (),
            _ => usage_error(&format!("'{word}' is not understood; temp, permanent or pub may follow")),
        }
    }
    router.write("add_neighbor", format!("{port} {address} {link} {kind}").trim_end())?;
    Ok(0)
}

/// A neighbor, or an address of the router itself.
struct Row {
    address: IpAddr,
    port: String,
    link: String,
    expires_s: Option<u64>,
    state: char,
    is_own: bool,
    is_static: bool,
    is_published: bool,
    is_router: bool,
    probes: u64,
}

/// The router's own addresses at ports, or at one.
fn own(document: &Value, wanted: &str, is_ipv6: bool) -> Vec<Row> {
    let ports = list(document, "ports").iter().filter(|port| wanted.is_empty() || port["name"] == wanted);
    let of_port = |port: &Value| {
        let addresses = list(port, "addresses").iter().filter_map(Value::as_str).map(str::to_string);
        let all: Vec<String> = addresses.chain([text(port, "link_local")]).collect();
        let (name, link) = (text(port, "name"), text(port, "lladdr"));
        let row = move |address: String| {
            let address: IpAddr = address.split('/').next()?.parse().ok()?;
            (address.is_ipv6() == is_ipv6).then(|| Row {
                address,
                port: name.clone(),
                link: link.clone(),
                expires_s: None,
                state: 'R',
                is_own: true,
                is_static: true,
                is_published: false,
                is_router: false,
                probes: 0,
            })
        };
        all.into_iter().filter_map(row).collect::<Vec<_>>()
    };
    ports.flat_map(of_port).collect()
}

impl Row {
    fn of(neighbor: &Value, is_ipv6: bool) -> Option<Row> {
        let address: IpAddr = text(neighbor, "dst").parse().ok()?;
        let is = |key: &str| neighbor[key] == true;
        let link = text(neighbor, "lladdr");
        let state = match neighbor["state"].as_str().unwrap_or_default() {
            "INCOMPLETE" => 'I',
            "REACHABLE" | "PERMANENT" => 'R',
            "STALE" => 'S',
            "DELAY" => 'D',
            "PROBE" => 'P',
            _ => 'N',
        };
        (address.is_ipv6() == is_ipv6).then(|| Row {
            address,
            port: text(neighbor, "dev"),
            link: if link.is_empty() { "(incomplete)".to_string() } else { link },
            expires_s: neighbor["expires_s"].as_u64(),
            state,
            is_own: false,
            is_static: is("static"),
            is_published: is("published"),
            is_router: is("router"),
            probes: neighbor["probes"].as_u64().unwrap_or(0),
        })
    }

    fn expire(&self, forever: &'static str) -> String {
        match self.expires_s {
            _ if self.is_own => "permanent".to_string(),
            _ if self.is_static => forever.to_string(),
            Some(seconds) => crate::show::lasting(seconds),
            None => "expired".to_string(),
        }
    }

    fn arp(&self) -> String {
        let flags = [(self.is_own, 'l'), (self.is_published, 'p')];
        let flags: String = flags.iter().filter(|(is_set, _)| *is_set).map(|(_, flag)| *flag).collect();
        let head = columns(ARP_HOST, [&self.address.to_string(), &self.link, &self.port]);
        format!("{head} {:<9} {flags}\n", self.expire("static"))
    }

    fn ndp(&self) -> String {
        let flags = [(self.is_own, 'l'), (self.is_router, 'R'), (self.is_published, 'p')];
        let flags: String = flags.iter().filter(|(is_set, _)| *is_set).map(|(_, flag)| *flag).collect();
        let probes = if self.probes > 0 { format!(" {}", self.probes) } else { String::new() };
        let is_of_link = matches!(self.address, IpAddr::V6(address) if address.is_unicast_link_local());
        let scope = if is_of_link { format!("%{}", self.port) } else { String::new() };
        let head = columns(NDP_HOST, [&format!("{}{scope}", self.address), &self.link, &self.port]);
        format!("{head} {:<9} {} {flags}{probes}\n", self.expire("permanent"), self.state)
    }
}

/// Widths of columns: of hosts, Ethernet addresses and interfaces.
const ARP_HOST: usize = 36;
const NDP_HOST: usize = 39;
const LINK: usize = 17;
const INTERFACE: usize = 7;

/// The first columns. Long values use the space of the next column.
fn columns(host: usize, [address, link, port]: [&str; 3]) -> String {
    let first = address.len().max(host);
    let second = (host + LINK).saturating_sub(first).max(link.len());
    let third = (host + LINK + INTERFACE).saturating_sub(first + second).max(port.len());
    format!("{address:<first$} {link:<second$} {port:>third$}")
}

fn header(is_ipv6: bool) -> String {
    match is_ipv6 {
        false => format!(
            "{} {:<9} {:>5}\n",
            columns(ARP_HOST, ["Host", "Ethernet Address", "Netif"]),
            "Expire",
            "Flags"
        ),
        true => {
            let head = columns(NDP_HOST, ["Neighbor", "Linklayer Address", "Netif"]);
            format!("{head} {:<9} S {:>5}\n", "Expire", "Flags")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn row(neighbor: Value) -> Row {
        let is_ipv6 = text(&neighbor, "dst").contains(':');
        Row::of(&neighbor, is_ipv6).unwrap()
    }

    #[test]
    fn neighbors_stand_in_the_columns_of_arp() {
        let ports = json!({ "ports": [{ "name": "em0", "lladdr": "02:00:00:00:00:01",
            "addresses": ["10.0.1.1/24", "2001:db8::1/64"],
            "link_local": "fe80::1" }] });
        let own = own(&ports, "", false);
        assert_eq!(own.len(), 1);
        let reachable = row(
            json!({ "dst": "10.0.1.9", "dev": "em0", "lladdr": "02:00:00:00:00:09", "state": "REACHABLE",
            "expires_s": 1198, "static": false, "published": false, "probes": 0 }),
        );
        let set = row(
            json!({ "dst": "10.0.1.10", "dev": "em0", "lladdr": "02:00:00:00:00:10", "state": "PERMANENT",
            "static": true, "published": true }),
        );
        let incomplete =
            row(json!({ "dst": "10.0.1.11", "dev": "em0", "state": "INCOMPLETE", "static": false }));
        let text: String = [&own[0], &reachable, &set, &incomplete].map(Row::arp).concat();
        let expected = "\
Host                                 Ethernet Address    Netif Expire    Flags
10.0.1.1                             02:00:00:00:00:01     em0 permanent l
10.0.1.9                             02:00:00:00:00:09     em0 19m58s    \n\
10.0.1.10                            02:00:00:00:00:10     em0 static    p
10.0.1.11                            (incomplete)          em0 expired   \n";
        assert_eq!(header(false) + &text, expected);
    }

    #[test]
    fn neighbors_of_ipv6_have_their_state_and_probes() {
        let router =
            row(json!({ "dst": "fe80::9", "dev": "em0", "lladdr": "02:00:00:00:00:09", "state": "PROBE",
            "expires_s": 5, "static": false, "published": false, "router": true, "probes": 2 }));
        let line = router.ndp();
        assert!(line.starts_with("fe80::9%em0  ") && line.ends_with(" 5s        P R 2\n"), "{line}");
        let head = header(true);
        assert_eq!(head.find(" S "), line.find(" P "), "{head}{line}");
    }

    #[test]
    fn what_is_too_long_takes_of_the_next_column() {
        let all = columns(ARP_HOST, ["a", "b", "c"]).len();
        assert_eq!(columns(ARP_HOST, [&"x".repeat(ARP_HOST + 2), "b", "c"]).len(), all);
        assert_eq!(columns(ARP_HOST, ["a", "b", "enp0s31f6"]).len(), all + 2);
    }
}
