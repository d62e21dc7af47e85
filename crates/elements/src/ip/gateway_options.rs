//! What IPv4 options ask of every router (RFC 791 section 3.1, RFC 1812 section 5.2.4).
use artery_engine::Time;
use std::net::Ipv4Addr;

const MIN_HEADER: usize = 20;

const END: u8 = 0;
const NO_OPERATION: u8 = 1;
const RECORD_ROUTE: u8 = 7;
const TIMESTAMP: u8 = 68;

/// Places within an option. The pointer counts from 1.
const LENGTH: usize = 1;
const POINTER: usize = 2;
const FLAGS: usize = 3;

/// A router that heeds options.
pub(crate) struct Gateway<'a> {
    /// Its address where the packet leaves.
    pub(crate) address: Ipv4Addr,
    /// Tells its addresses from others.
    pub(crate) is_own: &'a dyn Fn(Ipv4Addr) -> bool,
    /// When the packet is there.
    pub(crate) now: Time,
}

/// Where in the header, or in an option, the mistake is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Mistake(pub(crate) usize);

impl Gateway<'_> {
    /// Does what a header's options ask for; says whether it changed one, which leaves the checksum wrong.
    pub(crate) fn heed(&self, header: &mut [u8]) -> Result<bool, Mistake> {
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
            let option = option.ok_or(Mistake(at + LENGTH))?;
            changed |= self.process(option).map_err(|Mistake(within)| Mistake(at + within))?;
            at += length;
        }
        Ok(changed)
    }

    /// Does what one option asks for; says whether that was anything.
    fn process(&self, option: &mut [u8]) -> Result<bool, Mistake> {
        match option[0] {
            RECORD_ROUTE if option.len() > POINTER => self.record_route(option).map(|()| true),
            TIMESTAMP if option.len() > FLAGS => self.stamp(option).map(|()| true),
            RECORD_ROUTE | TIMESTAMP => Err(Mistake(LENGTH)),
            _ => Ok(false),
        }
    }

    fn record_route(&self, option: &mut [u8]) -> Result<(), Mistake> {
        let at = usize::from(option[POINTER]).checked_sub(1).ok_or(Mistake(POINTER))?;
        let full = at == option.len();
        match option.get_mut(at..at + 4) {
            Some(slot) if at >= 3 => {
                slot.copy_from_slice(&self.address.octets());
                option[POINTER] += 4;
                Ok(())
            }
            None if full => Ok(()),
            _ => Err(Mistake(POINTER)),
        }
    }

    fn stamp(&self, option: &mut [u8]) -> Result<(), Mistake> {
        let at = usize::from(option[POINTER]).checked_sub(1).filter(|at| *at >= 4).ok_or(Mistake(POINTER))?;
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
            0 | 1 => return overflow(option),
            3 if room >= 8 => {
                let named = [option[at], option[at + 1], option[at + 2], option[at + 3]];
                if (self.is_own)(named.into()) {
                    option[at + 4..at + 8].copy_from_slice(&time);
                    option[POINTER] += 8;
                }
            }
            _ => return Err(Mistake(FLAGS)),
        }
        Ok(())
    }
}

/// Counts one more router that found no room, up to 15.
fn overflow(option: &mut [u8]) -> Result<(), Mistake> {
    option[FLAGS] = option[FLAGS].checked_add(0x10).ok_or(Mistake(FLAGS))?;
    Ok(())
}

/// Milliseconds since midnight, universal time.
fn milliseconds_of_day(now: Time) -> u32 {
    (now.seconds() % 86_400) as u32 * 1000 + now.subsec_nanos() / 1_000_000
}
