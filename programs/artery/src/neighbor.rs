//! `artery neighbor`: adds, deletes and flushes neighbors of a running router.
pub(crate) mod bsd;

use crate::ip_router::{IpRouter, RouterReach, list, text};
use crate::options::values::station;
use anyhow::bail;
use artery_wire::EtherAddr;
use clap::{Args, Subcommand};
use serde_json::Value;
use std::net::IpAddr;

/// The last lines of its help.
pub(crate) const EXAMPLES: &str = "Examples:
  artery neighbor add 10.0.1.9 lladdr 02:00:00:00:00:09 dev eth1
  artery neighbor add 10.0.1.9 02:00:00:00:00:09              the port is that of 10.0.1.9's network
  artery neighbor del 10.0.1.9
  artery neighbor flush                                       all that were not set by hand
  artery neighbor flush dev eth1

A change counts for the next packet. 'artery show neighbors' lists them. Without -u and -p the router is the
one at $ARTERY_SOCKET, or else at /run/artery.sock.";

#[derive(Args)]
pub(crate) struct NeighborOptions {
    #[command(subcommand)]
    action: Action,
}

#[derive(Subcommand)]
enum Action {
    /// Set the Ethernet address of a neighbor, for good unless 'temporary' is said
    #[command(
        override_usage = "artery neighbor add [OPTIONS] ADDRESS [lladdr] ETHER [dev PORT] \
            [published|temporary]",
        after_long_help = "Example:\n  artery neighbor add 10.0.1.9 lladdr 02:00:00:00:00:09 dev eth1"
    )]
    Add(Change),
    /// Forget a neighbor
    #[command(
        visible_alias = "delete",
        override_usage = "artery neighbor del [OPTIONS] ADDRESS [dev PORT]",
        after_long_help = "Example:\n  artery neighbor del 10.0.1.9 dev eth1"
    )]
    Del(Change),
    /// Forget neighbors that were not set by hand: all, those of a port, or one
    #[command(
        override_usage = "artery neighbor flush [OPTIONS] [ADDRESS] [dev PORT]",
        after_long_help = "Example:\n  artery neighbor flush dev eth1"
    )]
    Flush(Change),
}

#[derive(Args)]
struct Change {
    #[command(flatten)]
    router: RouterReach,
    /// Which neighbor, in the words above
    #[arg(value_name = "WORD")]
    words: Vec<String>,
}

pub(crate) fn command(options: &NeighborOptions) -> anyhow::Result<u8> {
    let (Action::Add(change) | Action::Del(change) | Action::Flush(change)) = &options.action;
    let said = read(&change.words).and_then(|said| check(&options.action, said));
    let said = said.unwrap_or_else(|why| crate::options::usage_error(&why));
    let mut router = IpRouter::find(&change.router)?;
    let port = match (&said.port, said.address) {
        (Some(port), _) => port.clone(),
        (None, Some(address)) => port_of(&mut router, address, "dev")?,
        (None, None) => String::new(),
    };
    let address = said.address.map_or(String::new(), |address| address.to_string());
    let place = format!("{port} {address}");
    match &options.action {
        Action::Add(_) => {
            let link = said.link.map_or(String::new(), |link| link.to_string());
            router.write("add_neighbor", format!("{place} {link} {}", said.kind.unwrap_or("")).trim_end())?;
        }
        Action::Del(_) => router.write("remove_neighbor", &place)?,
        Action::Flush(_) => router.write("flush_neighbors", place.trim())?,
    }
    Ok(0)
}

/// What the words say about a neighbor.
#[derive(Debug, Default, PartialEq, Eq)]
struct Said {
    address: Option<IpAddr>,
    link: Option<EtherAddr>,
    port: Option<String>,
    kind: Option<&'static str>,
}

fn read(words: &[String]) -> Result<Said, String> {
    let mut said = Said::default();
    let mut words = words.iter().map(String::as_str);
    while let Some(word) = words.next() {
        let mut value =
            || words.next().ok_or_else(|| format!("'{word}' is the last word; its value is missing"));
        match word {
            "dev" => said.port = Some(value()?.to_string()),
            "lladdr" => said.link = Some(station(value()?)?),
            "published" | "pub" => said.kind = Some("published"),
            "temporary" | "temp" => said.kind = Some("temporary"),
            // What iproute2 and BSD say of the others.
            "permanent" | "nud" | "to" => {}
            _ if said.address.is_none() => said.address = Some(address(word)?),
            _ => said.link = Some(station(word)?),
        }
    }
    Ok(said)
}

fn address(word: &str) -> Result<IpAddr, String> {
    word.parse()
        .map_err(|_| format!("'{word}' is not a valid IP address; write it as 10.0.1.9 or 2001:db8::9"))
}

/// Whether the words are all that the action needs, and no more.
fn check(action: &Action, said: Said) -> Result<Said, String> {
    let is_flush = matches!(action, Action::Flush(_));
    match action {
        _ if said.address.is_none() && !is_flush => Err("whose? name its address, such as 10.0.1.9".into()),
        Action::Add(_) if said.link.is_none() => {
            Err("which Ethernet address? write 'lladdr 02:00:00:00:00:09'".into())
        }
        Action::Del(_) | Action::Flush(_) if said.link.is_some() || said.kind.is_some() => {
            Err("address and port alone say which neighbor is to be forgotten".into())
        }
        _ => Ok(said),
    }
}

/// The port on whose link an address is. `word` is what the command takes a port behind.
fn port_of(router: &mut IpRouter, address: IpAddr, word: &str) -> anyhow::Result<String> {
    let ports = router.query("ports_json", "")?;
    let on_link = list(&ports, "ports").iter().filter(|port| is_on_link(port, address));
    let names: Vec<String> = on_link.map(|port| text(port, "name")).collect();
    match &names[..] {
        [one] => Ok(one.clone()),
        [] => bail!("{address}: no port has a network with it; say by which port, as in '{word} eth1'"),
        several => bail!("{address} may be on several links; say by '{word}' which: {}", several.join(", ")),
    }
}

fn is_on_link(port: &Value, address: IpAddr) -> bool {
    list(port, "addresses").iter().filter_map(Value::as_str).any(|own| covers(own, address).unwrap_or(false))
}

/// Whether the prefix of `own`, such as `10.0.1.1/24`, covers an address.
fn covers(own: &str, address: IpAddr) -> Option<bool> {
    let (own, len) = own.split_once('/')?;
    let len: u32 = len.parse().ok()?;
    Some(match (own.parse().ok()?, address) {
        (IpAddr::V4(own), IpAddr::V4(address)) => {
            (own.to_bits() ^ address.to_bits()).checked_shr(32_u32.checked_sub(len)?).unwrap_or(0) == 0
        }
        (IpAddr::V6(own), IpAddr::V6(address)) => {
            (own.to_bits() ^ address.to_bits()).checked_shr(128_u32.checked_sub(len)?).unwrap_or(0) == 0
        }
        _ => false,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(text: &str) -> Result<Said, String> {
        read(&text.split_whitespace().map(str::to_string).collect::<Vec<_>>())
    }

    #[test]
    fn neighbors_are_understood_in_any_order() {
        let expected = Said {
            address: Some("10.0.1.9".parse().unwrap()),
            link: Some(EtherAddr([2, 0, 0, 0, 0, 9])),
            port: Some("eth1".into()),
            kind: Some("published"),
        };
        for text in ["10.0.1.9 lladdr 2:0:0:0:0:9 dev eth1 published", "dev eth1 to 10.0.1.9 2:0:0:0:0:9 pub"]
        {
            assert_eq!(said(text).as_ref(), Ok(&expected), "{text}");
        }
        for (text, wrong) in [
            ("10.0.1", "'10.0.1' is not a valid IP address"),
            ("10.0.1.9 2:0", "'2:0' is not a valid Ethernet address"),
            ("10.0.1.9 dev", "'dev' is the last word"),
        ] {
            assert!(said(text).unwrap_err().starts_with(wrong), "{text}");
        }
    }

    #[test]
    fn the_port_is_the_one_whose_network_covers_the_address() {
        let covers = |own, address: &str| covers(own, address.parse().unwrap());
        assert_eq!(covers("10.0.1.1/24", "10.0.1.200"), Some(true));
        assert_eq!(covers("10.0.1.1/24", "10.0.2.1"), Some(false));
        assert_eq!(covers("10.0.1.1/0", "192.0.2.1"), Some(true));
        assert_eq!(covers("2001:db8::1/64", "2001:db8::9"), Some(true));
        assert_eq!(covers("2001:db8::1/64", "10.0.1.1"), Some(false));
        assert_eq!(covers("10.0.1.1/33", "10.0.1.1"), None);
    }
}
