//! Settings of interfaces that decide about forwarding (struct
//! netconfmsg and NETCONFA attributes, linux/netconf.h).
use super::Family;
use super::attributes::{Attributes, read_u32};

const HEADER: usize = 4;
const NETCONFA_IFINDEX: u16 = 1;
const NETCONFA_FORWARDING: u16 = 2;
const NETCONFA_RP_FILTER: u16 = 3;
const NETCONFA_IGNORE_ROUTES_WITH_LINKDOWN: u16 = 6;

/// What was set for an interface in a family. A message may tell only what has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Address family that the settings are of.
    pub family: Family,
    /// The interface; below zero for all (-1) and for those to come (-2).
    pub link: i32,
    /// Whether packets that come in by it are forwarded.
    pub forwards: Option<bool>,
    /// The number of its reverse-path filter, of IPv4 only.
    pub reverse_path: Option<u8>,
    /// Whether routes by it are passed over while it has no carrier.
    pub ignores_without_carrier: Option<bool>,
}

impl Settings {
    /// Parses the payload of RTM_NEWNETCONF.
    pub(crate) fn parse_message(payload: &[u8]) -> Option<Settings> {
        let family = Family::from_number(*payload.first_chunk::<HEADER>()?.first()?)?;
        let mut settings =
            Settings { family, link: 0, forwards: None, reverse_path: None, ignores_without_carrier: None };
        for (kind, value) in Attributes::after_header(payload, HEADER) {
            match kind {
                NETCONFA_IFINDEX => settings.link = read_u32(value) as i32,
                NETCONFA_FORWARDING => settings.forwards = Some(read_u32(value) != 0),
                NETCONFA_RP_FILTER => settings.reverse_path = Some(read_u32(value).min(u8::MAX.into()) as u8),
                NETCONFA_IGNORE_ROUTES_WITH_LINKDOWN => {
                    settings.ignores_without_carrier = Some(read_u32(value) != 0);
                }
                _ => {}
            }
        }
        (settings.link != 0).then_some(settings)
    }
}
