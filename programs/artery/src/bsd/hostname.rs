//! Lines of hostname.if(5) files, and what those of an interface say of it.
use artery_wire::EtherAddr;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// A line that says something.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Line {
    /// From 1; the first, where a backslash joins several.
    pub(super) number: usize,
    /// The line without blanks around it and without its comment.
    pub(super) text: String,
}

/// The lines of a file that say something.
pub(super) fn lines(text: &str) -> Vec<Line> {
    let mut lines = Vec::new();
    let mut open: Option<Line> = None;
    for (n, raw) in text.lines().enumerate() {
        let (raw, goes_on) = raw.strip_suffix('\\').map_or((raw, false), |raw| (raw, true));
        let line = match open.take() {
            Some(line) => Line { text: line.text + " " + raw, ..line },
            None => Line { number: n + 1, text: raw.to_string() },
        };
        if goes_on {
            open = Some(line);
        } else {
            lines.push(line);
        }
    }
    lines.extend(open);
    let stripped = lines.into_iter().map(|line| Line { text: without_comment(&line.text), ..line });
    stripped.filter(|line| !line.text.is_empty()).collect()
}

/// The line up to a number sign that begins a word outside of quotes. Commands keep theirs, as
/// the shell reads it.
fn without_comment(line: &str) -> String {
    let line = line.trim();
    if line.starts_with('!') {
        return line.to_string();
    }
    let (mut quote, mut before) = (None, ' ');
    for (at, c) in line.char_indices() {
        match quote {
            Some(mark) if c == mark => quote = None,
            Some(_) => {}
            None if c == '"' || c == '\'' => quote = Some(c),
            None if c == '#' && before.is_whitespace() => return line[..at].trim_end().to_string(),
            None => {}
        }
        before = c;
    }
    line.to_string()
}

/// The words of a line, as the shell takes them.
pub(super) fn words(line: &str) -> Result<Vec<String>, String> {
    let mut words: Vec<String> = Vec::new();
    let (mut quote, mut is_open) = (None, false);
    for c in line.chars() {
        match quote {
            Some(mark) if c == mark => quote = None,
            None if c == '"' || c == '\'' => {
                quote = Some(c);
                begin(&mut words, &mut is_open);
            }
            None if c.is_whitespace() => is_open = false,
            _ => begin(&mut words, &mut is_open).push(c),
        }
    }
    match quote {
        Some(mark) => Err(format!("a {mark} is missing at the end")),
        None => Ok(words),
    }
}

/// The word that is being read, a new one if none is.
fn begin<'a>(words: &'a mut Vec<String>, is_open: &mut bool) -> &'a mut String {
    if !std::mem::replace(is_open, true) {
        words.push(String::new());
    }
    words.last_mut().expect("there is one now")
}

/// What a line says of an interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Setting {
    Up,
    Down,
    Description(String),
    Mtu(u32),
    Station(EtherAddr),
    Address(IpAddr, u8),
    /// The interface that a vlan(4) is on.
    Parent(String),
    /// The number of a vlan(4), from 1 to 4094.
    VlanId(u16),
    /// `inet autoconf`, `dhcp` and their like.
    Automatic(String),
}

/// The settings in a line's words, in order; the error says what is wrong and what helps.
pub(super) fn settings(words: &[String]) -> Result<Vec<Setting>, String> {
    let mut rest = words.iter().map(String::as_str).peekable();
    let mut settings = Vec::new();
    while let Some(word) = rest.next() {
        let mut value = |what: &str| rest.next().ok_or_else(|| format!("'{word}' needs {what}"));
        match word {
            "up" => settings.push(Setting::Up),
            "down" => settings.push(Setting::Down),
            "description" | "descr" => settings.push(Setting::Description(value("a text in quotes")?.into())),
            "-description" | "-descr" => {}
            "mtu" => settings.push(Setting::Mtu(mtu(value("a number of bytes, as in 'mtu 1500'")?)?)),
            "lladdr" => settings.push(Setting::Station(station(value("an Ethernet address")?)?)),
            "parent" | "vlandev" => {
                settings.push(Setting::Parent(value("an interface, as in 'parent em0'")?.into()))
            }
            "vnetid" | "vlan" => {
                settings.push(Setting::VlanId(vlan_id(value("a number, as in 'vnetid 10'")?)?))
            }
            "dhcp" | "autoconf" | "rtsol" => settings.push(Setting::Automatic(word.to_string())),
            "inet" | "inet6" => settings.push(address(word == "inet6", &mut rest)?),
            _ => return Err(unknown(word)),
        }
    }
    Ok(settings)
}

fn unknown(word: &str) -> String {
    const KNOWN: [&str; 9] =
        ["up", "down", "description", "mtu", "lladdr", "inet", "inet6", "parent", "vnetid"];
    match crate::spelling::nearest(word, KNOWN) {
        Some(meant) => format!("'{word}' is nothing that is known of an interface; did you mean '{meant}'?"),
        None => format!(
            "'{word}' is nothing that is known of an interface; known are {}, and what ip(8) or ethtool(8) \
             sets stays as they set it",
            KNOWN.join(", ")
        ),
    }
}

fn vlan_id(word: &str) -> Result<u16, String> {
    let id = word.parse().ok().filter(|id| (1..4095).contains(id));
    id.ok_or_else(|| format!("'{word}' is not the number of a VLAN; it is from 1 to 4094, as in 'vnetid 10'"))
}

fn mtu(word: &str) -> Result<u32, String> {
    let mtu = word.parse().ok().filter(|mtu| (68..=65535).contains(mtu));
    mtu.ok_or_else(|| {
        format!("'{word}' is not a valid MTU; it is a number from 68 to 65535, as in 'mtu 1500'")
    })
}

fn station(word: &str) -> Result<EtherAddr, String> {
    let station =
        word.parse().ok().filter(|ether: &EtherAddr| !ether.is_group() && *ether != EtherAddr::ZERO);
    station.ok_or_else(|| format!("'{word}' is not a MAC address; write it as 02:00:00:00:00:01"))
}

/// The words of a line that are left to be read.
type Rest<'a, I> = std::iter::Peekable<I>;

/// What follows `inet` or `inet6`.
fn address<'a, I: Iterator<Item = &'a str>>(is_v6: bool, rest: &mut Rest<'a, I>) -> Result<Setting, String> {
    let name = if is_v6 { "inet6" } else { "inet" };
    rest.next_if_eq(&"alias");
    let example = if is_v6 { "inet6 2001:db8::1 64" } else { "inet 192.0.2.1 255.255.255.0" };
    let word = rest.next().ok_or_else(|| format!("'{name}' needs an address, as in '{example}'"))?;
    if let "autoconf" | "temporary" | "eui64" | "soii" = word {
        return Ok(Setting::Automatic(format!("{name} {word}")));
    }
    let (text, len) = word.split_once('/').map_or((word, None), |(text, len)| (text, Some(len)));
    let wrong = |what: &str| format!("'{what}' is wrong; write '{example}'");
    let ip: IpAddr = match is_v6 {
        true => text.parse().map(|ip: Ipv6Addr| ip.into()).map_err(|_| wrong(word))?,
        false => text.parse().map(|ip: Ipv4Addr| ip.into()).map_err(|_| wrong(word))?,
    };
    let named = rest.next_if(|word| ["netmask", "prefixlen"].contains(word)).is_some();
    let len = match len {
        Some(len) => length(len, is_v6).ok_or_else(|| wrong(word))?,
        None => {
            let Some(mask) =
                rest.next_if(|word| named || !word.starts_with(|c: char| c.is_ascii_alphabetic()))
            else {
                return Err(format!("how long is the prefix of {ip}? write '{example}'"));
            };
            length(mask, is_v6).or_else(|| length_of_mask(mask, is_v6)).ok_or_else(|| wrong(mask))?
        }
    };
    if !is_v6 {
        broadcast(rest);
    }
    Ok(Setting::Address(ip, len))
}

/// Passes over the broadcast address, which the length of the prefix says already.
fn broadcast<'a, I: Iterator<Item = &'a str>>(rest: &mut Rest<'a, I>) {
    rest.next_if_eq(&"broadcast");
    rest.next_if(|word| *word == "NONE" || word.parse::<Ipv4Addr>().is_ok());
}

fn length(word: &str, is_v6: bool) -> Option<u8> {
    let is_number = word.bytes().all(|digit| digit.is_ascii_digit());
    let longest = if is_v6 { 128 } else { 32 };
    word.parse().ok().filter(|len| is_number && *len <= longest)
}

/// The prefix length of `255.255.255.0` or `0xffffff00`; `None` for other words.
pub(crate) fn length_of_mask(word: &str, is_v6: bool) -> Option<u8> {
    let bits = match word.strip_prefix("0x") {
        Some(digits) => u32::from_str_radix(digits, 16).ok()?,
        None => word.parse::<Ipv4Addr>().ok()?.to_bits(),
    };
    let is_mask = !is_v6 && bits.leading_ones() + bits.trailing_zeros() >= 32;
    is_mask.then_some(bits.leading_ones() as u8)
}

#[cfg(test)]
mod tests {
    use super::*;
    use Setting::{Address, Automatic, Description, Down, Mtu, Station, Up};

    fn said(line: &str) -> Result<Vec<Setting>, String> {
        words(line).and_then(|words| settings(&words))
    }

    fn at(ip: &str, len: u8) -> Setting {
        Address(ip.parse().unwrap(), len)
    }

    #[test]
    fn lines_are_those_that_say_something_and_keep_their_numbers() {
        let text = "\n# all of them\nadd em0 \\\n  add em1 # both\n\tup\n!echo # 1\ndescription \"a # b\"\n\
            add em2 \\";
        let expected = [
            (3, "add em0    add em1"),
            (5, "up"),
            (6, "!echo # 1"),
            (7, "description \"a # b\""),
            (8, "add em2"),
        ];
        let found = lines(text).into_iter().map(|line| (line.number, line.text));
        assert_eq!(found.collect::<Vec<_>>(), expected.map(|(n, text)| (n, text.to_string())));
    }

    #[test]
    fn words_are_quoted_as_for_a_shell() {
        let read = |line| words(line).unwrap();
        assert_eq!(read("a  'b c' d\"e \"f ''"), ["a", "b c", "de f", ""]);
        assert_eq!(words("a \"b"), Err("a \" is missing at the end".into()));
    }

    #[test]
    fn settings_of_an_interface_are_understood() {
        for (line, expected) in [
            ("up", vec![Up]),
            ("inet 10.0.0.1 255.255.255.0 10.0.0.255", vec![at("10.0.0.1", 24)]),
            ("inet 10.0.0.1 0xffff0000 NONE mtu 9000", vec![at("10.0.0.1", 16), Mtu(9000)]),
            ("inet alias 10.0.0.1/30 up", vec![at("10.0.0.1", 30), Up]),
            ("inet 10.0.0.1 netmask 255.255.255.128 broadcast 10.0.0.127", vec![at("10.0.0.1", 25)]),
            ("inet6 2001:db8::1 64", vec![at("2001:db8::1", 64)]),
            ("inet6 alias 2001:db8::1 prefixlen 48 down", vec![at("2001:db8::1", 48), Down]),
            ("inet autoconf", vec![Automatic("inet autoconf".into())]),
            ("dhcp", vec![Automatic("dhcp".into())]),
            (
                "lladdr 2:0:0:0:0:1 description 'to the left'",
                vec![Station(EtherAddr([2, 0, 0, 0, 0, 1])), Description("to the left".into())],
            ),
        ] {
            assert_eq!(said(line), Ok(expected), "{line}");
        }
    }

    #[test]
    fn what_is_wrong_is_named_with_the_remedy() {
        for (line, expected) in [
            ("inet", "'inet' needs an address, as in 'inet 192.0.2.1 255.255.255.0'"),
            ("inet 10.0.0.1", "how long is the prefix of 10.0.0.1? write 'inet 192.0.2.1 255.255.255.0'"),
            ("inet 10.0.0.1 up", "how long is the prefix of 10.0.0.1? write 'inet 192.0.2.1 255.255.255.0'"),
            ("inet 10.0.0.1 255.0.255.0", "'255.0.255.0' is wrong; write 'inet 192.0.2.1 255.255.255.0'"),
            ("inet6 10.0.0.1 24", "'10.0.0.1' is wrong; write 'inet6 2001:db8::1 64'"),
            ("mtu 3", "'3' is not a valid MTU; it is a number from 68 to 65535, as in 'mtu 1500'"),
            ("lladdr 1:0:0:0:0:1", "'1:0:0:0:0:1' is not a MAC address; write it as 02:00:00:00:00:01"),
            (
                "descripton x",
                "'descripton' is nothing that is known of an interface; did you mean 'description'?",
            ),
        ] {
            assert_eq!(said(line), Err(expected.to_string()), "{line}");
        }
    }
}
