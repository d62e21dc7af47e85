//! TCP ports that a control socket is asked to listen on.

/// A TCP port to listen on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PortRequest {
    pub(crate) port: u16,
    /// Whether the following ports may be used instead.
    pub(crate) or_next: bool,
}

impl std::str::FromStr for PortRequest {
    type Err = String;
    fn from_str(text: &str) -> Result<PortRequest, String> {
        let (number, or_next) = text.strip_suffix('+').map_or((text, false), |number| (number, true));
        match number.parse() {
            Ok(port) if port > 0 => Ok(PortRequest { port, or_next }),
            _ => Err("a port is a number from 1 to 65535, perhaps with a '+'".to_string()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_may_ask_for_the_next_ones_too() {
        assert_eq!("7777+".parse(), Ok(PortRequest { port: 7777, or_next: true }));
        assert_eq!("80".parse(), Ok(PortRequest { port: 80, or_next: false }));
        for wrong in ["", "0", "+", "65536", "a", "80++"] {
            assert!(wrong.parse::<PortRequest>().is_err(), "{wrong}");
        }
    }
}
