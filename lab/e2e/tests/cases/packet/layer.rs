//! One layer of a packet as text: its name, its first words, and fields by name.

use artery_wire::EtherAddr;
use std::fmt::{self, Display, Formatter};
use std::str::FromStr;

use super::{MOST_PORTS, host_mac, router_mac};

/// What a layer is called, and what may be written in it.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Kind {
    pub(super) name: &'static str,
    /// How its first words are written, for messages.
    form: &'static str,
    /// How many they are.
    words: usize,
    fields: &'static [&'static str],
    flags: &'static [&'static str],
}

const KINDS: [Kind; 16] = [
    kind("eth", "SOURCE > DESTINATION", 3, &["type"], &[]),
    kind("vlan", "NUMBER", 1, &["prio", "type"], &["dei"]),
    kind("arp", "request|reply ETHER IP > ETHER IP", 6, &[], &[]),
    kind(
        "ip",
        "SOURCE > DESTINATION",
        3,
        &["ttl", "tos", "id", "offset", "proto", "options", "length", "ihl", "version", "checksum"],
        &["df", "mf", "evil"],
    ),
    kind("ip6", "SOURCE > DESTINATION", 3, &["hlim", "class", "flow", "next", "length", "version"], &[]),
    kind("hbh", "HEX", 1, &["next"], &[]),
    kind("dstopts", "HEX", 1, &["next"], &[]),
    kind("routing", "HEX", 1, &["next"], &[]),
    kind("frag", "", 0, &["id", "offset", "next"], &["more"]),
    kind("udp", "SOURCE > DESTINATION", 3, &["length", "checksum"], &[]),
    kind(
        "tcp",
        "SOURCE > DESTINATION",
        3,
        &["flags", "seq", "ack", "win", "urg", "options", "header", "checksum"],
        &[],
    ),
    kind("icmp", "TYPE", 1, &["code", "id", "seq", "mtu", "gateway", "pointer", "rest", "checksum"], &[]),
    kind(
        "icmp6",
        "TYPE",
        1,
        &["code", "id", "seq", "mtu", "pointer", "flags", "target", "to", "rest", "option", "checksum"],
        &[],
    ),
    kind("hex", "DIGITS", 1, &[], &[]),
    kind("bytes", "", 1, &["from"], &[]),
    // Zeros: as a payload, or after the IP packet to make the frame as long as Ethernet's shortest.
    kind("zeros", "", 1, &[], &[]),
];

const PADDING: Kind = kind("padding", "", 1, &[], &[]);

const fn kind(
    name: &'static str,
    form: &'static str,
    words: usize,
    fields: &'static [&'static str],
    flags: &'static [&'static str],
) -> Kind {
    Kind { name, form, words, fields, flags }
}

/// A layer: `ip 10.0.0.1 > 10.0.0.2 ttl 9` has three first words and a field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Layer {
    kind: &'static Kind,
    words: Vec<String>,
    /// In the order of the kind. A flag is a field without value.
    fields: Vec<(&'static str, String)>,
}

/// A field that was taken out of a layer, and where it was.
pub(super) struct Removed(usize, (&'static str, String));

impl Layer {
    pub(super) fn new(name: &str, words: &[&dyn Display]) -> Layer {
        let words = words.iter().map(|word| word.to_string()).collect();
        Layer { kind: find(name).expect("layers are made by names of kinds"), words, fields: Vec::new() }
    }

    pub(super) fn ethernet(src: EtherAddr, dst: EtherAddr) -> Layer {
        Layer::new("eth", &[&mac_text(src), &">", &mac_text(dst)])
    }

    pub(super) fn hex(bytes: &[u8]) -> Layer {
        Layer::new("hex", &[&hex_text(bytes)])
    }

    /// Adds a field with its value.
    pub(super) fn with(mut self, field: &'static str, value: impl Display) -> Layer {
        self.fields.push((field, value.to_string()));
        self
    }

    /// Adds a flag if it is set.
    pub(super) fn flag(self, field: &'static str, is_set: bool) -> Layer {
        if is_set { self.with(field, "") } else { self }
    }

    pub(super) fn parse(text: &str) -> Result<Layer, String> {
        let mut words = text.split_whitespace().peekable();
        let first = words.next().ok_or("a layer is missing between two '/'")?;
        // Payloads are written as a number of something: "20 bytes".
        let (name, number) = match first.parse::<usize>() {
            Ok(_) => (words.next().unwrap_or("bytes"), Some(first)),
            Err(_) => (first, None),
        };
        let kind = find(name).ok_or_else(|| {
            let known: Vec<&str> = KINDS.iter().map(|kind| kind.name).collect();
            format!("unknown layer '{name}'; layers are {}, padding", known.join(", "))
        })?;
        let mut layer = Layer { kind, words: Vec::new(), fields: Vec::new() };
        layer.words.extend(number.map(str::to_owned));
        while layer.words.len() < kind.words {
            match words.next() {
                Some(word) => layer.words.push(word.to_owned()),
                None => return Err(layer.malformed()),
            }
        }
        while let Some(word) = words.next() {
            if let Some(flag) = kind.flags.iter().find(|flag| **flag == word) {
                layer.fields.push((flag, String::new()));
            } else if let Some(field) = kind.fields.iter().find(|field| **field == word) {
                let value = words.next().ok_or_else(|| format!("{name}: '{word}' has no value"))?;
                layer.fields.push((field, value.to_owned()));
            } else {
                let known = [kind.fields, kind.flags].concat().join(", ");
                return Err(format!("{name}: unknown word '{word}'; fields are: {known}"));
            }
        }
        if layer.words.iter().enumerate().any(|(at, word)| layer.is_arrow(at) != (word == ">")) {
            return Err(layer.malformed());
        }
        Ok(layer)
    }

    fn is_arrow(&self, at: usize) -> bool {
        self.kind.form.split(' ').nth(at) == Some(">")
    }

    fn malformed(&self) -> String {
        format!("write {} {}", self.kind.name, self.kind.form)
    }

    pub(super) fn name(&self) -> &'static str {
        self.kind.name
    }

    pub(super) fn field_names(&self) -> Vec<&'static str> {
        self.fields.iter().map(|(name, _)| *name).collect()
    }

    /// Takes a field out, to try whether it is needed.
    pub(super) fn remove(&mut self, field: &str) -> Removed {
        let at = self.fields.iter().position(|(name, _)| *name == field).expect("the layer has the field");
        Removed(at, self.fields.remove(at))
    }

    pub(super) fn restore(&mut self, Removed(at, field): Removed) {
        self.fields.insert(at, field);
    }

    /// Writes a field as one that may be anything.
    pub(super) fn set_free(&mut self, field: &str) {
        let Some(name) = self.kind.fields.iter().find(|name| **name == field) else { return };
        self.fields.retain(|(other, _)| other != name);
        let order = |field: &str| self.kind.fields.iter().position(|name| *name == field);
        let at = self.fields.iter().position(|(other, _)| order(other) > order(name));
        self.fields.insert(at.unwrap_or(self.fields.len()), (name, "*".to_owned()));
    }

    pub(super) fn has(&self, field: &str) -> bool {
        self.fields.iter().any(|(name, _)| *name == field)
    }

    fn text(&self, field: &str) -> Option<&str> {
        let found = self.fields.iter().find(|(name, _)| *name == field)?;
        Some(found.1.as_str()).filter(|value| *value != "*")
    }

    /// A number, decimal or after 0x; `None` where it is not written or free.
    pub(super) fn number<T: TryFrom<u64>>(&self, field: &str) -> Result<Option<T>, String> {
        self.text(field).map(|text| number(text).ok_or_else(|| self.invalid(field, text))).transpose()
    }

    pub(super) fn value<T: FromStr>(&self, field: &str) -> Result<Option<T>, String> {
        self.text(field).map(|text| text.parse().map_err(|_| self.invalid(field, text))).transpose()
    }

    pub(super) fn bytes(&self, field: &str) -> Result<Option<Vec<u8>>, String> {
        self.text(field).map(|text| hex(text).ok_or_else(|| self.invalid(field, text))).transpose()
    }

    pub(super) fn string(&self, field: &str) -> Option<&str> {
        self.text(field)
    }

    /// One of the first words.
    pub(super) fn word(&self, at: usize) -> &str {
        &self.words[at]
    }

    pub(super) fn word_value<T: FromStr>(&self, at: usize) -> Result<T, String> {
        self.words[at].parse().map_err(|_| self.invalid_word(at))
    }

    pub(super) fn word_number<T: TryFrom<u64>>(&self, at: usize) -> Result<T, String> {
        number(&self.words[at]).ok_or_else(|| self.invalid_word(at))
    }

    pub(super) fn word_mac(&self, at: usize) -> Result<EtherAddr, String> {
        mac(&self.words[at]).ok_or_else(|| {
            let word = &self.words[at];
            format!("'{word}' is not a valid Ethernet address; write h1, r1, *, none or 02:00:00:00:00:09")
        })
    }

    pub(super) fn word_bytes(&self, at: usize) -> Result<Vec<u8>, String> {
        hex(&self.words[at]).ok_or_else(|| self.invalid_word(at))
    }

    fn invalid(&self, field: &str, text: &str) -> String {
        format!("{}: '{text}' is not a valid value of {field}", self.kind.name)
    }

    pub(super) fn invalid_word(&self, at: usize) -> String {
        format!("'{}' is not valid here; {}", self.words[at], self.malformed())
    }
}

impl Display for Layer {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self.kind.name {
            "bytes" | "zeros" | "padding" => write!(f, "{} {}", self.words[0], self.kind.name)?,
            name => {
                f.write_str(name)?;
                self.words.iter().try_for_each(|word| write!(f, " {word}"))?;
            }
        }
        self.fields.iter().try_for_each(|(name, value)| match value.as_str() {
            "" => write!(f, " {name}"),
            value => write!(f, " {name} {value}"),
        })
    }
}

fn find(name: &str) -> Option<&'static Kind> {
    KINDS.iter().chain([&PADDING]).find(|kind| kind.name == name)
}

fn number<T: TryFrom<u64>>(text: &str) -> Option<T> {
    let value = match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).ok()?,
        None => text.parse().ok()?,
    };
    T::try_from(value).ok()
}

pub(super) fn hex(text: &str) -> Option<Vec<u8>> {
    let digits: Vec<u8> =
        text.chars().map(|digit| digit.to_digit(16).map(|digit| digit as u8)).collect::<Option<_>>()?;
    digits.len().is_multiple_of(2).then(|| digits.chunks(2).map(|pair| pair[0] << 4 | pair[1]).collect())
}

pub(super) fn hex_text(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Names of addresses that cases have.
fn names() -> impl Iterator<Item = (String, EtherAddr)> {
    let ports = (1..=MOST_PORTS)
        .flat_map(|port| [(format!("h{port}"), host_mac(port)), (format!("r{port}"), router_mac(port))]);
    ports.chain([("*".to_owned(), EtherAddr::BROADCAST), ("none".to_owned(), EtherAddr::ZERO)])
}

/// Reads an Ethernet address, or the name of one.
pub(super) fn mac(text: &str) -> Option<EtherAddr> {
    names().find(|(name, _)| name == text).map(|(_, mac)| mac).or_else(|| text.parse().ok())
}

pub(super) fn mac_text(mac: EtherAddr) -> String {
    names().find(|(_, other)| *other == mac).map_or_else(|| mac.to_string(), |(name, _)| name)
}
