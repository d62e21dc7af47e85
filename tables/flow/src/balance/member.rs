//! One server, and the number that flows know it by.
use std::net::IpAddr;
use std::num::NonZeroU32;
use std::sync::Arc;

/// Most members at a time.
pub const MOST_MEMBERS: usize = 4096;

/// One of those that flows are shared out among.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// What it is called; what it is placed by. Letters, digits, `.`, `-` and `_`.
    pub name: Arc<str>,
    /// Where packets of its flows are sent.
    pub address: IpAddr,
    /// The port that its service has, where that is not the packet's own.
    pub port: Option<u16>,
    /// Its part of new flows, in comparison with others. With 0 it is drained: it keeps the flows it has.
    pub weight: u32,
}

impl Member {
    /// Most bytes of a name.
    pub const LONGEST_NAME: usize = 64;

    /// One of weight 1 without port.
    pub fn new(name: &str, address: IpAddr) -> Member {
        Member { name: name.into(), address, port: None, weight: 1 }
    }
    /// Whether a member can be called so.
    pub fn is_name(text: &str) -> bool {
        let is_fit = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_');
        (1..=Member::LONGEST_NAME).contains(&text.len()) && text.bytes().all(is_fit)
    }
}

/// A member for as long as it lives. No other member ever has the same number, before or after it.
///
/// The lower half is its place, which others may have after it; the upper half tells them apart, from 1 on,
/// so that no number is 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct MemberId(NonZeroU32);

impl MemberId {
    /// The first member that has a place.
    pub(crate) fn first_at(place: u16) -> MemberId {
        MemberId(NonZeroU32::MIN.saturating_add(0xffff).saturating_add(place.into()))
    }
    /// The next member that has its place, while the place has numbers left.
    pub(crate) fn successor(self) -> Option<MemberId> {
        self.0.checked_add(1 << 16).map(MemberId)
    }
    /// The number that a flow keeps of its member.
    #[inline]
    pub fn action(self) -> u32 {
        self.0.get()
    }
    /// The member that a flow has kept the number of, whether it lives or not.
    #[inline]
    pub fn from_action(action: u32) -> Option<MemberId> {
        NonZeroU32::new(action).filter(|action| action.get() >> 16 != 0).map(MemberId)
    }
    /// Where the member is in arrays that have room for each: a small number, had by one living
    /// member at a time.
    #[inline]
    pub fn place(self) -> usize {
        usize::from(self.action() as u16)
    }
}
