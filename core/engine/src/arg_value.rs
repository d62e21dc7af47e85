//! Types of arguments, and how their texts are read.
use crate::names::Names;
use artery_lang::args as text;
use artery_packet::{ANNOTATION_SIZE, anno};
use artery_wire::{EtherAddr, Ipv4Prefix};
use std::net::Ipv4Addr;
use std::time::Duration;

/// A type that an argument can have.
pub trait ArgValue: Sized {
    /// A text that can be read and that few would refuse.
    const EXAMPLE: &'static str = "1";
    /// Reads `text`; the error says what is wanted, to follow "wants".
    fn parse(text: &str, names: &Names) -> Result<Self, String>;
    /// What is wrong with a text that can't be read.
    fn fault(text: &str) -> String {
        let _ = text;
        "parse error".into()
    }
    /// The value of an argument that is not given and whose default is empty.
    fn absent() -> Option<Self> {
        None
    }
}

impl<T: ArgValue> ArgValue for Option<T> {
    const EXAMPLE: &'static str = T::EXAMPLE;
    fn parse(text: &str, names: &Names) -> Result<Self, String> {
        T::parse(text, names).map(Some)
    }
    fn fault(text: &str) -> String {
        T::fault(text)
    }
    fn absent() -> Option<Self> {
        Some(None)
    }
}

impl ArgValue for bool {
    fn parse(text: &str, _: &Names) -> Result<bool, String> {
        text::parse_bool(text).ok_or_else(|| "true or false".into())
    }
}

macro_rules! integers {
    ($($type:ty, $read:path);* $(;)?) => {$(
        impl ArgValue for $type {
            fn parse(text: &str, _: &Names) -> Result<$type, String> {
                let number = $read(text).ok().and_then(|n| <$type>::try_from(n).ok());
                number.ok_or_else(|| format!("an integer from {} to {}", <$type>::MIN, <$type>::MAX))
            }
            fn fault(text: &str) -> String {
                integer_fault(text, <$type>::MIN as i128, <$type>::MAX as i128)
            }
        }
    )*};
}
integers! {
    u8, text::parse_unsigned; u16, text::parse_unsigned; u32, text::parse_unsigned; u64, text::parse_unsigned;
    usize, text::parse_unsigned; i32, text::parse_signed; i64, text::parse_signed
}

/// Distinguishes numbers out of range from text that is not a number of this kind.
fn integer_fault(text: &str, least: i128, most: i128) -> String {
    let is_number = text::parse_signed(text).is_ok()
        || text::parse_unsigned(text).is_ok()
        || text.parse::<i128>().is_ok();
    match text.starts_with('-') {
        _ if !is_number => "invalid number".into(),
        true if least == 0 => "invalid number".into(),
        true => format!("out of range, bound {least}"),
        false => format!("out of range, bound {most}"),
    }
}

impl ArgValue for f64 {
    fn parse(text: &str, _: &Names) -> Result<f64, String> {
        text.parse().ok().filter(|n: &f64| n.is_finite()).ok_or_else(|| "a number".into())
    }
}

impl ArgValue for Duration {
    fn parse(text: &str, _: &Names) -> Result<Duration, String> {
        let nanos = text::parse_seconds(text).map_err(|_| "a time such as 1.5, 20ms or 1h")?;
        Ok(Duration::from_nanos(nanos))
    }
}

/// Text in Click's syntax, unquoted.
impl ArgValue for String {
    fn parse(text: &str, _: &Names) -> Result<String, String> {
        Ok(text::unquote(text))
    }
}

/// Bytes: text with quotes and `\<hex>` resolved, blanks in quotes only.
impl ArgValue for Vec<u8> {
    fn parse(text: &str, _: &Names) -> Result<Vec<u8>, String> {
        text::string_bytes(text).ok_or_else(|| "one string; put quotes around blanks".into())
    }
}

impl ArgValue for Ipv4Addr {
    const EXAMPLE: &'static str = "192.0.2.1";
    fn parse(text: &str, names: &Names) -> Result<Ipv4Addr, String> {
        text.parse().ok().or_else(|| names.lookup_ipv4(text)).ok_or_else(|| "an IP address".into())
    }
}

impl ArgValue for Ipv4Prefix {
    const EXAMPLE: &'static str = "192.0.2.1/32";
    fn parse(text: &str, names: &Names) -> Result<Ipv4Prefix, String> {
        let slashed = with_slash(text, names).map(|(_, prefix)| prefix);
        let bare = || text.parse().ok();
        slashed
            .or_else(bare)
            .or_else(|| names.lookup_prefix(text))
            .ok_or_else(|| "a prefix such as 10.0.0.0/8".into())
    }
}

/// Reads `address/length` or `address/mask`, where trailing zero bytes of the address may be left
/// out, as in `10/8`.
pub fn with_slash(text: &str, names: &Names) -> Option<(Ipv4Addr, Ipv4Prefix)> {
    let (address, rest) = text.rsplit_once('/')?;
    let (address, bytes) = match names.lookup_ipv4(address) {
        Some(named) => (named, 4),
        None => parse_abbreviated(address)?,
    };
    let prefix = if rest.contains('.') {
        Ipv4Prefix::with_mask(address, rest.parse().ok()?).ok()?
    } else if rest.bytes().all(|digit| digit.is_ascii_digit()) {
        Ipv4Prefix::new(address, rest.parse().ok()?).ok()?
    } else {
        return None;
    };
    // A mask that reaches beyond the bytes that were written is a mistake.
    (usize::from(prefix.len()) <= bytes * 8).then_some((address, prefix))
}

/// Up to four bytes of an address, and how many there were.
fn parse_abbreviated(text: &str) -> Option<(Ipv4Addr, usize)> {
    let mut octets = [0; 4];
    let mut bytes = 0;
    for part in text.split('.') {
        if part.is_empty() || !part.bytes().all(|digit| digit.is_ascii_digit()) {
            return None;
        }
        *octets.get_mut(bytes)? = part.parse().ok()?;
        bytes += 1;
    }
    Some((octets.into(), bytes))
}

impl ArgValue for EtherAddr {
    const EXAMPLE: &'static str = "02:00:00:00:00:01";
    fn parse(text: &str, names: &Names) -> Result<EtherAddr, String> {
        let address = text.parse().ok().or_else(|| names.lookup_ether(text));
        address.ok_or_else(|| match text.strip_suffix(":eth") {
            Some(device) => {
                format!(
                    "an Ethernet address, and '{}' is not a device of this machine",
                    names.device_name(device)
                )
            }
            None => "an Ethernet address".into(),
        })
    }
}

/// A number of packets or bytes; `-1` and absence mean no limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limit(pub Option<u64>);

impl ArgValue for Limit {
    fn parse(text: &str, _: &Names) -> Result<Limit, String> {
        match text::parse_signed(text) {
            Ok(n) => Ok(Limit(u64::try_from(n).ok())),
            Err(_) => Err("a number, or -1 for no limit".into()),
        }
    }
    fn fault(_: &str) -> String {
        "invalid number".into()
    }
    fn absent() -> Option<Limit> {
        Some(Limit(None))
    }
}

/// A bandwidth, in bytes per second.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bandwidth(pub u64);

impl ArgValue for Bandwidth {
    fn parse(text: &str, _: &Names) -> Result<Bandwidth, String> {
        text::parse_bandwidth(text).map(Bandwidth).map_err(|_| "a bandwidth such as 10Mbps or 384kB/s".into())
    }
}

/// A place in the annotation area, by name or offset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Annotation<const WIDTH: usize> {
    /// Offset of its first byte in the annotation area.
    pub offset: usize,
}

impl<const WIDTH: usize> ArgValue for Annotation<WIDTH> {
    fn parse(text: &str, _: &Names) -> Result<Self, String> {
        let by_number = || text::parse_unsigned(text).ok().and_then(|n| usize::try_from(n).ok());
        let offset =
            anno::by_name(text).filter(|(_, width)| *width >= WIDTH).map(|(at, _)| at).or_else(by_number);
        offset
            .filter(|at| at + WIDTH <= ANNOTATION_SIZE)
            .map(|offset| Annotation { offset })
            .ok_or_else(|| format!("the name or offset of a {WIDTH}-byte annotation"))
    }
}
