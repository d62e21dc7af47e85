//! The options of IPv6 hop-by-hop and destination headers (RFC 8200 section 4.2).

use crate::bytes::u16_at;

const PAD_1: u8 = 0;
const PAD_N: u8 = 1;
const ROUTER_ALERT: u8 = 5;

/// Place of the option's bytes after kind and length.
const BODY: usize = 2;

/// Goes over options, each an error once it is malformed; padding is left out.
#[derive(Clone, Debug)]
pub struct Ip6Options<'a> {
    bytes: &'a [u8],
    at: usize,
}

/// An option other than padding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ip6Option<'a> {
    /// Option type, with the bits that say what to do if it is unknown.
    pub kind: u8,
    /// Where in the packet the option begins.
    pub at: usize,
    /// What follows kind and length.
    pub body: &'a [u8],
}

/// What a node that does not know an option has to do, by the two highest bits of the kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnknownAction {
    /// To pass over the option.
    Skip,
    /// To discard the packet.
    Discard,
    /// To discard the packet and send a parameter problem, wherever it went.
    Report,
    /// To discard the packet and send a parameter problem, unless it went to a multicast address.
    ReportUnicast,
}

/// The hop-by-hop options that this router acts on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct HopByHop {
    /// Router alert value: which routers should look at the packet (RFC 2711).
    pub alert: Option<u16>,
}

/// Why a packet is to be discarded for its options.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OptionFault {
    /// Where in the packet the wrong field is.
    pub pointer: usize,
    /// The code of the parameter problem to send, if one is to be sent.
    pub report: Option<u8>,
}

impl OptionFault {
    /// A field is wrong (RFC 4443 section 3.4).
    const ERRONEOUS: u8 = 0;
    /// An option is not known.
    const UNKNOWN: u8 = 2;
}

impl Ip6Option<'_> {
    /// An option for packets of more than 65,535 bytes (RFC 2675), which no Ethernet carries.
    pub const JUMBO: u8 = 0xc2;
}

impl UnknownAction {
    /// Returns the action that an option's kind requires if it is unknown.
    pub fn from_kind(kind: u8) -> UnknownAction {
        match kind >> 6 {
            0 => UnknownAction::Skip,
            1 => UnknownAction::Discard,
            2 => UnknownAction::Report,
            _ => UnknownAction::ReportUnicast,
        }
    }
}

impl<'a> Ip6Options<'a> {
    /// Goes over `bytes`, which are at `at` in their packet.
    pub fn new(bytes: &'a [u8], at: usize) -> Ip6Options<'a> {
        Ip6Options { bytes, at }
    }

    /// Judges options that every router looks at: what they say, or why the packet goes no further.
    ///
    /// Of unknown options, a jumbo payload is one, the first that forbids the packet counts.
    pub fn check_options(&self, is_multicast: bool) -> Result<HopByHop, OptionFault> {
        let mut heard = HopByHop::default();
        for option in self.clone() {
            let option = option?;
            match option.kind {
                ROUTER_ALERT => heard.alert = Some(parse_alert(&option)?),
                _ => check_unknown(&option, is_multicast)?,
            }
        }
        Ok(heard)
    }

    fn parse_next(&mut self) -> Result<Ip6Option<'a>, OptionFault> {
        let fault = OptionFault { pointer: self.at + 1, report: Some(OptionFault::ERRONEOUS) };
        let [kind, len, ..] = *self.bytes else { return Err(OptionFault { pointer: self.at, ..fault }) };
        let len = BODY + usize::from(len);
        let option = self.bytes.get(..len).ok_or(fault)?;
        let option = Ip6Option { kind, at: self.at, body: &option[BODY..] };
        self.advance(len);
        Ok(option)
    }

    fn advance(&mut self, len: usize) {
        self.bytes = &self.bytes[len..];
        self.at += len;
    }
}

impl<'a> Iterator for Ip6Options<'a> {
    type Item = Result<Ip6Option<'a>, OptionFault>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            match self.bytes.first()? {
                &PAD_1 => self.advance(1),
                _ => match self.parse_next() {
                    Ok(option) if option.kind == PAD_N => {}
                    Ok(option) => return Some(Ok(option)),
                    Err(fault) => {
                        self.bytes = &[];
                        return Some(Err(fault));
                    }
                },
            }
        }
    }
}

fn parse_alert(option: &Ip6Option<'_>) -> Result<u16, OptionFault> {
    match option.body.len() {
        2 => Ok(u16_at(option.body, 0)),
        _ => Err(OptionFault { pointer: option.at + 1, report: Some(OptionFault::ERRONEOUS) }),
    }
}

fn check_unknown(option: &Ip6Option<'_>, is_multicast: bool) -> Result<(), OptionFault> {
    let report = match UnknownAction::from_kind(option.kind) {
        UnknownAction::Skip => return Ok(()),
        UnknownAction::Report => true,
        UnknownAction::ReportUnicast => !is_multicast,
        UnknownAction::Discard => false,
    };
    Err(OptionFault { pointer: option.at, report: report.then_some(OptionFault::UNKNOWN) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn judge(bytes: &[u8]) -> Result<HopByHop, OptionFault> {
        Ip6Options::new(bytes, 42).check_options(false)
    }

    #[test]
    fn padding_is_left_out() {
        let bytes = [0, 1, 0, 1, 2, 0, 0, 0x1e, 1, 9, 0];
        let options: Vec<_> = Ip6Options::new(&bytes, 42).collect();
        assert_eq!(options, [Ok(Ip6Option { kind: 0x1e, at: 49, body: &[9] })]);
    }

    #[test]
    fn a_router_alert_is_heard() {
        assert_eq!(judge(&[5, 2, 1, 2, 0, 0]), Ok(HopByHop { alert: Some(0x102) }));
        assert_eq!(judge(&[1, 4, 0, 0, 0, 0]), Ok(HopByHop::default()));
        let fault = OptionFault { pointer: 43, report: Some(0) };
        assert_eq!(judge(&[5, 3, 1, 2, 0, 0]), Err(fault));
    }

    #[test]
    fn unknown_options_do_what_their_first_bits_ask_for() {
        let fault = |report| Err(OptionFault { pointer: 43, report });
        for (kind, unicast, multicast) in [
            (0x1e, Ok(HopByHop::default()), Ok(HopByHop::default())),
            (0x5e, fault(None), fault(None)),
            (0x9e, fault(Some(2)), fault(Some(2))),
            (0xde, fault(Some(2)), fault(None)),
            (Ip6Option::JUMBO, fault(Some(2)), fault(None)),
        ] {
            let bytes = [0, kind, 4, 0, 0, 0, 0];
            let options = Ip6Options::new(&bytes, 42);
            assert_eq!(options.check_options(false), unicast, "{kind:#x}");
            assert_eq!(options.check_options(true), multicast, "{kind:#x}");
        }
    }

    #[test]
    fn an_option_cut_short_is_a_fault_at_every_length() {
        let bytes = [0x1e, 6, 0, 0, 0, 0, 0, 0];
        assert_eq!(judge(&bytes[..1]), Err(OptionFault { pointer: 42, report: Some(0) }));
        for len in 2..8 {
            assert_eq!(judge(&bytes[..len]), Err(OptionFault { pointer: 43, report: Some(0) }), "{len}");
        }
        assert_eq!(judge(&bytes), Ok(HopByHop::default()));
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_to_their_end(bytes in prop::collection::vec(0_u8..9, 0..80)) {
            let options: Vec<_> = Ip6Options::new(&bytes, 0).collect();
            prop_assert!(options.iter().rev().skip(1).all(Result::is_ok));
            prop_assert!(options.iter().flatten().all(|option| bytes[option.at] == option.kind));
            prop_assert!(judge(&bytes).is_ok() || options.iter().any(Result::is_err) || bytes.contains(&5));
        }
    }
}
