//! Loads and stores of network-order fields. Offsets are constants of a header whose length was checked.

use std::net::{Ipv4Addr, Ipv6Addr};

use crate::{EtherAddr, Malformed};

/// Checks that there are `len` bytes.
#[inline]
pub(crate) fn at_least(bytes: &[u8], len: usize) -> Result<(), Malformed> {
    if bytes.len() < len { Err(Malformed::Truncated) } else { Ok(()) }
}

/// Clears the first `len` bytes for a header, and returns them.
#[inline]
pub(crate) fn clear_header(bytes: &mut [u8], len: usize) -> Result<&mut [u8], Malformed> {
    let header = bytes.get_mut(..len).ok_or(Malformed::Truncated)?;
    header.fill(0);
    Ok(header)
}

#[inline(always)]
pub(crate) fn read_array<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    bytes[at..at + N].try_into().expect("the slice has N bytes")
}

#[inline(always)]
pub(crate) fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes(read_array(bytes, at))
}

#[inline(always)]
pub(crate) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes(read_array(bytes, at))
}

#[inline(always)]
pub(crate) fn ipv4_at(bytes: &[u8], at: usize) -> Ipv4Addr {
    Ipv4Addr::from(read_array::<4>(bytes, at))
}

#[inline(always)]
pub(crate) fn ipv6_at(bytes: &[u8], at: usize) -> Ipv6Addr {
    Ipv6Addr::from(read_array::<16>(bytes, at))
}

#[inline(always)]
pub(crate) fn ether_at(bytes: &[u8], at: usize) -> EtherAddr {
    EtherAddr(read_array(bytes, at))
}

#[inline(always)]
pub(crate) fn write_array<const N: usize>(bytes: &mut [u8], at: usize, value: [u8; N]) {
    bytes[at..at + N].copy_from_slice(&value);
}

#[inline(always)]
pub(crate) fn write_u16(bytes: &mut [u8], at: usize, value: u16) {
    write_array(bytes, at, value.to_be_bytes());
}

#[inline(always)]
pub(crate) fn write_u32(bytes: &mut [u8], at: usize, value: u32) {
    write_array(bytes, at, value.to_be_bytes());
}

/// The bytes from `from` to `to`, both limited to the length of the slice.
#[inline]
pub(crate) fn clamped_slice(bytes: &[u8], from: usize, to: usize) -> &[u8] {
    let to = to.min(bytes.len());
    &bytes[from.min(to)..to]
}

/// As [`clamped_slice`], to write.
#[inline]
pub(crate) fn clamped_mut(bytes: &mut [u8], from: usize, to: usize) -> &mut [u8] {
    let to = to.min(bytes.len());
    &mut bytes[from.min(to)..to]
}
