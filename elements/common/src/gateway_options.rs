//! Processes IPv4 options as a router (RFC 791 section 3.1, RFC 1812 section 5.2.4).
use artery_engine::Time;
use std::net::Ipv4Addr;

const MIN_HEADER: usize = 20;

const END: u8 = 0;
const NO_OPERATION: u8 = 1;
const RECORD_ROUTE: u8 = 7;
const TIMESTAMP: u8 = 68;

/// Offsets within an option. The pointer counts from 1.
const LENGTH: usize = 1;
const POINTER: usize = 2;
const FLAGS: usize = 3;

/// A router that processes IP options.
pub struct OptionProcessor<'a> {
    /// Its address where the packet leaves.
    pub address: Ipv4Addr,
    /// Whether an address is one of the router's.
    pub is_own: &'a dyn Fn(Ipv4Addr) -> bool,
    /// When the packet is there.
    pub now: Time,
}

/// Where in the header, or in an option, the mistake is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OptionError(pub usize);

impl OptionProcessor<'_> {
    /// Processes a header's options; returns whether it changed one, which invalidates the checksum.
    pub fn process_options(&self, header: &mut [u8]) -> Result<bool, OptionError> {
        let mut changed = false;
        let mut at = MIN_HEADER;
        while at < header.len() {
            match header[at] {
                END => break,
                NO_OPERATION => {
                    at += 1;
                    continue;
                }
                _ => {}
            }
            let length = header.get(at + LENGTH).map_or(0, |length| usize::from(*length));
            let option = header.get_mut(at..at + length).filter(|option| option.len() >= 2);
            let option = option.ok_or(OptionError(at + LENGTH))?;
            changed |= self.process_option(option).map_err(|OptionError(within)| OptionError(at + within))?;
            at += length;
        }
        Ok(changed)
    }

    /// Processes one option; returns whether it changed it.
    fn process_option(&self, option: &mut [u8]) -> Result<bool, OptionError> {
        match option[0] {
            RECORD_ROUTE if option.len() > POINTER => self.record_route(option).map(|()| true),
            TIMESTAMP if option.len() > FLAGS => self.write_timestamp(option).map(|()| true),
            RECORD_ROUTE | TIMESTAMP => Err(OptionError(LENGTH)),
            _ => Ok(false),
        }
    }

    fn record_route(&self, option: &mut [u8]) -> Result<(), OptionError> {
        let at = usize::from(option[POINTER]).checked_sub(1).ok_or(OptionError(POINTER))?;
        let full = at == option.len();
        match option.get_mut(at..at + 4) {
            Some(slot) if at >= 3 => {
                slot.copy_from_slice(&self.address.octets());
                option[POINTER] += 4;
                Ok(())
            }
            None if full => Ok(()),
            _ => Err(OptionError(POINTER)),
        }
    }

    fn write_timestamp(&self, option: &mut [u8]) -> Result<(), OptionError> {
        let at =
            usize::from(option[POINTER]).checked_sub(1).filter(|at| *at >= 4).ok_or(OptionError(POINTER))?;
        let time = milliseconds_of_day(self.now).to_be_bytes();
        let (flag, room) = (option[FLAGS] & 0xf, option.len().saturating_sub(at));
        match flag {
            0 if room >= 4 => {
                option[at..at + 4].copy_from_slice(&time);
                option[POINTER] += 4;
            }
            1 if room >= 8 => {
                option[at..at + 4].copy_from_slice(&self.address.octets());
                option[at + 4..at + 8].copy_from_slice(&time);
                option[POINTER] += 8;
            }
            0 | 1 => return count_overflow(option),
            3 if room >= 8 => {
                let named = [option[at], option[at + 1], option[at + 2], option[at + 3]];
                if (self.is_own)(named.into()) {
                    option[at + 4..at + 8].copy_from_slice(&time);
                    option[POINTER] += 8;
                }
            }
            _ => return Err(OptionError(FLAGS)),
        }
        Ok(())
    }
}

/// Counts one more router without room in the option, up to 15.
fn count_overflow(option: &mut [u8]) -> Result<(), OptionError> {
    option[FLAGS] = option[FLAGS].checked_add(0x10).ok_or(OptionError(FLAGS))?;
    Ok(())
}

/// Milliseconds since midnight, universal time.
fn milliseconds_of_day(now: Time) -> u32 {
    (now.seconds() % 86_400) as u32 * 1000 + now.subsec_nanos() / 1_000_000
}
