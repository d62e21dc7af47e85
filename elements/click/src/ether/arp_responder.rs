use super::ether_text::format_dashed;
use artery_common::arp_frame::{FRAME, HEADER, arp_frame, arp_in};
use artery_engine::names::Names;
use artery_engine::{
    Arg, ArgError, ArgValue, Args, Class, Context, DropReason, Handler, HandlerError, Packet, Read, Show,
    Simple, Write, anno,
};
use artery_wire::{ArpOperation, EtherAddr, Ipv4Prefix};
use std::fmt::Write as _;
use std::net::Ipv4Addr;

pub static CLASS: Class = Class {
    name: "ARPResponder",
    aliases: &["ArpResponder"],
    group: "ether",
    summary: "answers ARP requests",
    manual: "
Takes ARP requests with their Ethernet header. A request for an address in one of the networks is answered:
the reply, which says that the network's ETH has the address, leaves by output 0. Everything else leaves by
output 1, or is dropped when there is none. It answers for its own host as well as, given a network, for all
hosts behind it (proxy ARP).

Each argument is one or more addresses or networks and an Ethernet address; a name that stands for both will
do. The longest network that contains an address decides.

Replies keep the VLAN annotation and the port of the request.",
    example: "Idle -> ARPResponder(18.26.4.24 18.26.7.0/24 00:00:C0:AE:67:EF) -> Discard;",
    ports: "1/1-2",
    processing: "a/ah",
    args: &[Arg::rest(
        "ENTRY",
        "IP/MASK [IP/MASK…] ETH",
        "addresses, and the Ethernet address to answer with",
    )],
    handlers: &[
        Handler::read(
            "table",
            "a line for each network: network, Ethernet address",
            &Show(|r: &mut ArpResponder| r.table_text()),
        ),
        Handler::read(
            "lookup",
            "`IP`: the Ethernet address it is answered with, empty when it is not",
            &Read(|r: &mut ArpResponder, text, _| r.read_lookup(text)),
        )
        .parameters(),
        Handler::write(
            "add",
            "`IP/MASK [IP/MASK…] ETH`: adds networks",
            &Write(|r: &mut ArpResponder, text, _| {
                let new = parse_entries(text, &r.names).map_err(HandlerError::refused)?;
                new.into_iter().for_each(|entry| r.insert_entry(entry));
                Ok(())
            }),
        ),
        Handler::write(
            "remove",
            "`IP/MASK`: removes a network",
            &Write(|r: &mut ArpResponder, text, _| r.remove_entry(text)),
        ),
    ],
    live: true,
    build: |args| Ok(Box::new(ArpResponder::new(args)?)),
    ..Class::PER_WORKER
};

struct ArpResponder {
    /// A network never follows one that contains it.
    entries: Vec<(Ipv4Prefix, EtherAddr)>,
    /// For addresses that handlers write.
    names: Names,
}

impl ArpResponder {
    fn new(args: &mut Args<'_>) -> Result<ArpResponder, ArgError> {
        let names = args.names().clone();
        let mut responder = ArpResponder { entries: Vec::new(), names };
        for (n, text) in args.rest("ENTRY").iter().enumerate() {
            let new = parse_entries(text, &responder.names);
            let new = new.map_err(|why| ArgError::wrong(format!("argument {n}: {why}")))?;
            new.into_iter().for_each(|entry| responder.insert_entry(entry));
        }
        Ok(responder)
    }

    /// Inserts an entry before all whose networks contain its own; replaces the entry of the same network.
    fn insert_entry(&mut self, entry: (Ipv4Prefix, EtherAddr)) {
        match self.entries.iter().position(|(network, _)| network.covers(entry.0)) {
            Some(at) if self.entries[at].0 == entry.0 => self.entries[at] = entry,
            Some(at) => self.entries.insert(at, entry),
            None => self.entries.push(entry),
        }
    }

    fn lookup(&self, ip: Ipv4Addr) -> Option<EtherAddr> {
        self.entries.iter().find(|(network, _)| network.contains(ip)).map(|(_, ether)| *ether)
    }

    fn read_lookup(&self, text: &str) -> Result<String, HandlerError> {
        let ip = <Ipv4Addr as ArgValue>::parse(text.trim(), &self.names);
        let ip = ip.map_err(|_| HandlerError::refused("expected IP address"))?;
        Ok(self.lookup(ip).map(format_dashed).unwrap_or_default())
    }

    fn remove_entry(&mut self, text: &str) -> Result<(), HandlerError> {
        let network = <Ipv4Prefix as ArgValue>::parse(text.trim(), &self.names);
        let network = network.map_err(|_| HandlerError::refused("expected IP/MASK"))?;
        let at = self.entries.iter().position(|(known, _)| *known == network);
        self.entries.remove(
            at.ok_or_else(|| HandlerError::refused(format!("{} not found", short_network(network))))?,
        );
        Ok(())
    }

    fn table_text(&self) -> String {
        let mut text = String::new();
        for (network, ether) in &self.entries {
            let _ = writeln!(text, "{} {}", short_network(*network), format_dashed(*ether));
        }
        text
    }

    /// The answer to a request.
    fn answer_request(&self, frame: &[u8]) -> Option<[u8; FRAME]> {
        let request = arp_in(frame).filter(|arp| arp.is_request())?;
        let ether = self.lookup(request.target_ip())?;
        let asker = (request.sender_ether(), request.sender_ip());
        Some(arp_frame(asker.0, ArpOperation::REPLY, (ether, request.target_ip()), asker))
    }
}

/// Reads an argument: networks and one Ethernet address.
fn parse_entries(text: &str, names: &Names) -> Result<Vec<(Ipv4Prefix, EtherAddr)>, String> {
    let (mut networks, mut ether) = (Vec::new(), None);
    for word in text.split_ascii_whitespace() {
        if let Ok(address) = <Ipv4Addr as ArgValue>::parse(word, names) {
            networks.push(Ipv4Prefix::host(address));
        } else if let Ok(network) = <Ipv4Prefix as ArgValue>::parse(word, names) {
            networks.push(network);
        } else if let Ok(address) = EtherAddr::parse(word, names) {
            if ether.replace(address).is_some() {
                return Err(format!("more than one ETH at '{word}'"));
            }
        } else if let Some(name) = word.strip_suffix(":eth") {
            let here = names.device_name(name);
            let called = if here == name { String::new() } else { format!(", which is to be '{here}' here") };
            return Err(format!(
                "no Ethernet address is known of '{name}'{called}: name a device of this machine that has \
                 one, or say AddressInfo({name} ETH)"
            ));
        } else {
            return Err(format!("expected IP/MASK ETH at '{word}'"));
        }
    }
    // A name may stand for both kinds of address.
    let named = || text.split_ascii_whitespace().find_map(|word| EtherAddr::parse(word, names).ok());
    if networks.is_empty() {
        return Err("missing IP/MASK".into());
    }
    let ether = ether.or_else(named).ok_or("missing ETH")?;
    Ok(networks.into_iter().map(|network| (network, ether)).collect())
}

/// A network; one of a single host as its address.
fn short_network(network: Ipv4Prefix) -> String {
    if network.len() == 32 { network.addr().to_string() } else { network.to_string() }
}

impl Simple for ArpResponder {
    fn process(&mut self, mut packet: Packet, cx: &mut Context<'_>) -> Option<Packet> {
        let Some(reply) = self.answer_request(packet.data()) else {
            cx.send_or_discard(1, packet, DropReason::NotForUs);
            return None;
        };
        let (port, vlan_tci) = (packet.in_port(), packet.annotation::<2>(anno::VLAN_TCI));
        // A request is at least as long as the reply, so it fits.
        if packet.set_data(&reply).is_err() {
            cx.discard(packet, DropReason::NoRoom);
            return None;
        }
        packet.clear_metadata();
        packet.set_in_port(port);
        packet.set_mac_header(0);
        packet.set_network_header(HEADER);
        if vlan_tci != [0; 2] {
            packet.set_annotation(anno::VLAN_TCI, vlan_tci);
        }
        Some(packet)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use artery_engine::{Bench, Time};
    use artery_wire::build::{arp_reply, arp_request, ether, ip4};

    const ASKER: &str = "02:00:00:00:00:0a";
    const CONFIG: &str = "10.0.0.1 10.1.0.0/16 02:00:00:00:00:01, 10.1.2.0/24 02-00-00-00-00-02";

    fn request(ip: &str) -> Vec<u8> {
        arp_request(ASKER, "10.0.0.9", ip).bytes()
    }

    #[test]
    fn requests_for_its_networks_are_answered_the_longest_deciding() {
        let mut bench = Bench::new(&CLASS, CONFIG);
        for (ip, ether) in [
            ("10.0.0.1", "02:00:00:00:00:01"),
            ("10.1.9.9", "02:00:00:00:00:01"),
            ("10.1.2.3", "02:00:00:00:00:02"),
        ] {
            bench.push(0, request(ip));
            let reply = bench.expect(0, arp_reply(ether, ip, ASKER, "10.0.0.9").bytes());
            assert_eq!(reply.network_offset(), Some(14));
        }
    }

    #[test]
    fn everything_else_leaves_by_output_1_or_is_dropped() {
        let reply = arp_reply(ASKER, "10.0.0.9", "02:00:00:00:00:01", "10.0.0.1").bytes();
        let others = [request("10.0.0.2"), reply, ether(ASKER, ASKER).ip4(ip4()).bytes(), vec![]];
        let mut two = Bench::new(&CLASS, CONFIG);
        let mut one = Bench::setup(&CLASS, CONFIG).outputs(1).build().unwrap();
        for other in &others {
            two.push(0, other);
            two.expect(1, other);
            one.push(0, other);
        }
        one.expect_dropped(DropReason::NotForUs, others.len() as u64);
        let whole = request("10.0.0.1");
        for len in 0..whole.len() {
            two.push(0, &whole[..len]);
            two.expect(1, &whole[..len]);
        }
    }

    #[test]
    fn a_padded_request_gets_a_reply_with_its_vlan_and_port_only() {
        let mut bench = Bench::new(&CLASS, CONFIG);
        let mut packet = bench.packet([request("10.0.0.1"), vec![0; 18]].concat());
        packet.set_annotation(anno::VLAN_TCI, [0, 7]);
        packet.set_in_port(3);
        packet.set_timestamp(Time::new(5, 0));
        bench.push_packets(0, [packet]);
        let reply = bench.expect(0, arp_reply("02:00:00:00:00:01", "10.0.0.1", ASKER, "10.0.0.9").bytes());
        assert_eq!(reply.annotation(anno::VLAN_TCI), [0, 7]);
        assert_eq!(reply.in_port(), 3);
        assert_eq!(reply.timestamp(), Time::ZERO);
    }

    #[test]
    fn networks_can_be_read_added_and_removed() {
        let mut bench = Bench::new(&CLASS, CONFIG);
        bench.write("add", "10.0.0.1 2:0:0:0:0:3").unwrap();
        bench.write("remove", "10.1.2.0/24").unwrap();
        let table = "10.0.0.1 02-00-00-00-00-03\n10.1.0.0/16 02-00-00-00-00-01\n";
        assert_eq!(bench.read("table", "").unwrap(), table);
        assert_eq!(bench.read("lookup", "10.1.2.3").unwrap(), "02-00-00-00-00-01");
        assert_eq!(bench.read("lookup", "10.2.2.3").unwrap(), "");
        assert_eq!(bench.read("lookup", "x").unwrap_err().to_string(), "expected IP address");
        assert_eq!(bench.write("remove", "10.1.2.0/24").unwrap_err().to_string(), "10.1.2.0/24 not found");
    }
}
