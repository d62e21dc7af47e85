//! Interfaces as a filter describes them: `NAME loopback|- GROUP[,GROUP]… [ADDRESS/LENGTH[>PEER]]…`.
use super::live::Filters;
use anyhow::Context as _;
use artery_filter::names::{InterfaceAddress, InterfaceRecord, Interfaces};

impl Filters {
    /// The interfaces that rules of the filters can name; each once, where several know it.
    pub(super) fn known_interfaces(&mut self) -> anyhow::Result<Interfaces> {
        let mut known: Vec<InterfaceRecord> = Vec::new();
        for answer in self.all("known")? {
            for record in answer.lines().map(record) {
                let record =
                    record.context("the router describes its interfaces in words of another version")?;
                if !known.iter().any(|other| other.name == record.name) {
                    known.push(record);
                }
            }
        }
        Ok(Interfaces(known))
    }
}

/// The interface of a line; None for other lines.
fn record(line: &str) -> Option<InterfaceRecord> {
    let mut words = line.split(' ');
    let (name, kind, groups) = (words.next()?, words.next()?, words.next()?);
    Some(InterfaceRecord {
        name: name.to_string(),
        groups: groups.split(',').map(str::to_string).collect(),
        is_loopback: kind == "loopback",
        domain: 0,
        addresses: words.map(address).collect::<Option<_>>()?,
    })
}

fn address(word: &str) -> Option<InterfaceAddress> {
    let (own, peer) = word.split_once('>').map_or((word, None), |(own, peer)| (own, Some(peer)));
    let (address, length) = own.split_once('/')?;
    Some(InterfaceAddress {
        address: address.parse().ok()?,
        length: length.parse().ok()?,
        peer: peer.map(str::parse).transpose().ok()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interface_has_groups_and_addresses_and_half_a_line_is_none() {
        let line = "em0 - all,egress 192.0.2.1/24 10.0.0.1/32>10.0.0.2 2001:db8::1/64";
        let em0 = record(line).unwrap();
        assert_eq!((em0.name.as_str(), em0.is_loopback, em0.groups.len()), ("em0", false, 2));
        let expected =
            [("192.0.2.1", 24, None), ("10.0.0.1", 32, Some("10.0.0.2")), ("2001:db8::1", 64, None)];
        let expected = expected.map(|(address, length, peer): (&str, u8, Option<&str>)| InterfaceAddress {
            address: address.parse().unwrap(),
            length,
            peer: peer.map(|peer| peer.parse().unwrap()),
        });
        assert_eq!(em0.addresses, expected);
        assert!(record("lo0 loopback all 127.0.0.1/8").unwrap().is_loopback);
        for wrong in ["", "em0", "em0 -", "em0 - all 192.0.2.1", "em0 - all 192.0.2.1/x", "em0 - all 1/2"] {
            assert_eq!(record(wrong), None, "{wrong}");
        }
    }
}
