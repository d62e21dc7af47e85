//! Routes as configurations and handlers write them: `ADDR/MASK [GATEWAY] OUTPUT`.
use super::address::Interface;
use artery_engine::ArgValue;
use artery_engine::names::Names;
use artery_wire::Ipv4Prefix;
use std::fmt;
use std::net::Ipv4Addr;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Route {
    pub(crate) prefix: Ipv4Prefix,
    pub(crate) next: RouteNextHop,
}

/// The next hop of a route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RouteNextHop {
    /// The router to send to, unless packets go to their destination directly.
    pub(crate) gateway: Option<Ipv4Addr>,
    pub(crate) output: usize,
}

/// Parses a prefix and the next hop after it, if there is one. Without an output the next hop is None.
pub(crate) fn parse(text: &str, names: &Names) -> Option<(Ipv4Prefix, Option<RouteNextHop>)> {
    let mut words = text.split_whitespace();
    let prefix = Interface::parse(words.next()?, names).ok()?.prefix;
    let rest: Vec<&str> = words.collect();
    let (gateway, output) = match rest[..] {
        [] => return Some((prefix, None)),
        [output] => (None, output),
        ["-", output] => (None, output),
        [gateway, output] => (Some(Ipv4Addr::parse(gateway, names).ok()?), output),
        _ => return None,
    };
    let gateway = gateway.filter(|gateway| !gateway.is_unspecified());
    let output = usize::try_from(u32::parse(output, names).ok()?).ok()?;
    Some((prefix, Some(RouteNextHop { gateway, output })))
}

/// The invalid part of a text that is not a route, if it is known: the number after the slash.
pub(crate) fn describe_fault(text: &str) -> Option<String> {
    let (address, length) = text.split_whitespace().next()?.split_once('/')?;
    if length.is_empty() || !length.bytes().all(|digit| digit.is_ascii_digit()) {
        return None;
    }
    let bytes = address.split('.').count().min(4);
    match length.parse::<u32>() {
        Ok(bits) if bits <= 32 && bits as usize > 8 * bytes => {
            Some(format!("'/{length}' needs more of the address than '{address}'"))
        }
        Ok(bits) if bits <= 32 => None,
        _ => Some(format!("prefix length '/{length}' is not 0 to 32")),
    }
}

impl Route {
    /// A line of a table, its columns lined up by tabs.
    pub(crate) fn table_line(&self) -> String {
        let column = |text: String, width: usize| {
            let more = if text.len() + 1 < width { "\t" } else { "" };
            format!("{text}\t{more}")
        };
        let prefix = column(self.prefix.to_string(), 17);
        format!("{prefix}{}{}\n", column(self.next.gateway_text(), 9), self.next.output)
    }
}

impl RouteNextHop {
    fn gateway_text(&self) -> String {
        self.gateway.map_or_else(|| "-".to_string(), |gateway| gateway.to_string())
    }
}

/// `10.0.0.0/8 10.0.0.1 2`, or `10.0.0.0/8 - 2` without gateway.
impl fmt::Display for Route {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} {}", self.prefix, self.next.gateway_text(), self.next.output)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Option<String> {
        let (prefix, next) = parse(text, &Names::default())?;
        Some(next.map_or_else(|| prefix.to_string(), |next| Route { prefix, next }.to_string()))
    }

    #[test]
    fn routes_have_a_prefix_perhaps_a_gateway_and_an_output() {
        for (text, expected) in [
            ("10.0.0.0/8 1", "10.0.0.0/8 - 1"),
            ("10.1.2.3/8 - 1", "10.0.0.0/8 - 1"),
            ("10.1.2.3 10.0.0.1 2", "10.1.2.3/32 10.0.0.1 2"),
            ("0/0 0.0.0.0 2", "0.0.0.0/0 - 2"),
            ("18.26.4/24 1", "18.26.4.0/24 - 1"),
            ("10/8", "10.0.0.0/8"),
        ] {
            assert_eq!(read(text).as_deref(), Some(expected), "{text}");
        }
    }

    #[test]
    fn what_is_no_route_is_refused() {
        for text in
            ["", "x 1", "10.0.0.0/8 -1", "10.0.0.0/8 10.0.0.1", "10.0.0.0/8 1 2 3", "10.0.0.0/8 - - 1"]
        {
            assert_eq!(read(text), None, "{text}");
        }
    }

    #[test]
    fn a_prefix_length_that_cannot_be_is_the_fault() {
        let too_long = |length| Some(format!("prefix length '/{length}' is not 0 to 32"));
        assert_eq!(describe_fault("1.2.3.4/40 0"), too_long("40"));
        assert_eq!(describe_fault("10/99999999999 0"), too_long("99999999999"));
        assert_eq!(describe_fault("10/9 0").unwrap(), "'/9' needs more of the address than '10'");
        for text in ["", "10/8", "10.0.0.0/8 x", "x 0", "10/ 0", "1.2.3.4/255.0.0.1 0", "1.2.3.4.5/32 0"] {
            assert_eq!(describe_fault(text), None, "{text}");
        }
    }

    #[test]
    fn lines_of_a_table_line_up() {
        let line = |text| {
            let (prefix, next) = parse(text, &Names::default()).unwrap();
            Route { prefix, next: next.unwrap() }.table_line()
        };
        assert_eq!(line("10.0.0.0/8 1"), "10.0.0.0/8\t\t-\t\t1\n");
        assert_eq!(line("192.168.100.0/24 192.168.1.1 1"), "192.168.100.0/24\t192.168.1.1\t1\n");
        assert_eq!(line("18.26.14.0/24 1.2.3.45 1"), "18.26.14.0/24\t\t1.2.3.45\t1\n");
    }
}
