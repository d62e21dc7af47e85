//! The fields of items as bytes.
use super::flows::{AnyKey, StreamError};
use artery_wire::IpProtocol;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The fields of an item, in their order. Bytes after them belong to later versions.
pub(super) struct Fields<'a>(pub(super) &'a [u8]);

impl Fields<'_> {
    #[inline]
    fn read_bytes<const N: usize>(&mut self) -> Result<[u8; N], StreamError> {
        let (field, rest) = self.0.split_first_chunk().ok_or(StreamError::TooShort)?;
        self.0 = rest;
        Ok(*field)
    }
    pub(super) fn u8(&mut self) -> Result<u8, StreamError> {
        self.read_bytes().map(u8::from_be_bytes)
    }
    pub(super) fn u16(&mut self) -> Result<u16, StreamError> {
        self.read_bytes().map(u16::from_be_bytes)
    }
    pub(super) fn u32(&mut self) -> Result<u32, StreamError> {
        self.read_bytes().map(u32::from_be_bytes)
    }
    pub(super) fn u64(&mut self) -> Result<u64, StreamError> {
        self.read_bytes().map(u64::from_be_bytes)
    }
    /// Protocol, ports and addresses of a flow.
    pub(super) fn key(&mut self, is_ipv4: bool) -> Result<AnyKey, StreamError> {
        let protocol = IpProtocol(self.u8()?);
        let (sport, dport) = (self.u16()?, self.u16()?);
        let (from, to) = (self.address(is_ipv4)?, self.address(is_ipv4)?);
        AnyKey::new([(from, sport), (to, dport)], protocol)
    }
    #[inline]
    pub(super) fn address(&mut self, is_ipv4: bool) -> Result<IpAddr, StreamError> {
        Ok(match is_ipv4 {
            true => Ipv4Addr::from(self.read_bytes::<4>()?).into(),
            false => Ipv6Addr::from(self.read_bytes::<16>()?).into(),
        })
    }
}
