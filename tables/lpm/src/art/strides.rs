//! How many bits of an address each level of tables decides.
use crate::address::Address;
use std::fmt;
use std::marker::PhantomData;
use std::str::FromStr;

/// The bits of an address, dealt out to the levels of a table: `8/4/4/4/4/4/4`, `16/8/8`, any
/// list that adds up.
#[derive(Clone, PartialEq, Eq)]
pub struct Strides<A> {
    levels: Box<[Level]>,
    /// By prefix length, the level that prefixes of this length are painted in.
    level_of: Box<[u8]>,
    pub(super) known: Known,
    family: PhantomData<A>,
}

/// One level: which bits of an address pick a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Level {
    /// Bits that the levels before have decided.
    pub(super) offset: u8,
    /// Bits that this level decides.
    pub(super) stride: u8,
}

/// The lists for which the compiler makes lookups of their own, with the strides as constants.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Known {
    Source4,
    Eights4,
    Fast4,
    Other,
}

/// Evaluates an expression for the levels of a stride list, which are constants where the list
/// is a known one.
macro_rules! on_levels {
    ($strides:expr, $levels:ident => $value:expr) => {{
        use $crate::art::strides::{EIGHTS4, FAST4, Known, SOURCE4};
        macro_rules! with {
            ($list:expr) => {{
                let $levels = $list;
                $value
            }};
        }
        match $strides.known {
            Known::Source4 => with!(&SOURCE4),
            Known::Eights4 => with!(&EIGHTS4),
            Known::Fast4 => with!(&FAST4),
            Known::Other => with!($strides.levels()),
        }
    }};
}
pub(super) use on_levels;

pub(super) const SOURCE4: [Level; 7] = build_levels([8, 4, 4, 4, 4, 4, 4]);
pub(super) const EIGHTS4: [Level; 4] = build_levels([8; 4]);
pub(super) const FAST4: [Level; 3] = build_levels([16, 8, 8]);

const fn build_levels<const N: usize>(strides: [u8; N]) -> [Level; N] {
    let mut levels = [Level { offset: 0, stride: strides[0] }; N];
    let mut number = 1;
    while number < N {
        let before = levels[number - 1];
        levels[number] = Level { offset: before.offset + before.stride, stride: strides[number] };
        number += 1;
    }
    levels
}

impl Level {
    /// Where the fringe begins: the number of slots.
    #[inline]
    pub(super) fn fringe(self) -> usize {
        1 << self.stride
    }
    /// The words of a heap.
    #[inline]
    pub(super) fn words(self) -> usize {
        2 << self.stride
    }
    /// The index of an address in the fringe.
    #[inline]
    pub(super) fn slot_index<A: Address>(self, address: A) -> usize {
        self.fringe() + address.field(self.offset, self.stride)
    }
    /// The base index of a prefix that ends `len` bits into this level, `len` being 1 or more.
    #[inline]
    pub(super) fn base_index<A: Address>(self, first: A, len: u8) -> usize {
        (1 << len) + first.field(self.offset, len)
    }
}

impl<A: Address> Strides<A> {
    /// The most bits that one level may decide: a heap of 128 MiB.
    pub const MOST: u8 = 24;

    /// Deals out the bits of an address; refused unless each stride is 1 to [`MOST`](Self::MOST) and they sum
    /// up to the bits of an address.
    pub fn new(strides: &[u8]) -> Result<Strides<A>, NotStrides> {
        if strides.iter().any(|stride| !(1..=Self::MOST).contains(stride)) {
            return Err(NotStrides::Stride);
        }
        let sum: usize = strides.iter().map(|&stride| usize::from(stride)).sum();
        if sum != usize::from(A::BITS) {
            return Err(NotStrides::Sum { sum, bits: A::BITS });
        }
        Ok(Self::from_strides(strides))
    }

    /// The levels that ART was first published with: 8/4/4/4/4/4/4 for IPv4, 32 times 4
    /// for IPv6. Little memory.
    pub fn source() -> Strides<A> {
        if A::BITS == 32 { Self::from_strides(&[8, 4, 4, 4, 4, 4, 4]) } else { Self::from_strides(&[4; 32]) }
    }

    /// Levels for fast lookups: 16/8/8 for IPv4, 16/8/8/… for IPv6.
    pub fn fast() -> Strides<A> {
        let eights = [8; 14];
        let count = usize::from((A::BITS - 16) / 8);
        Self::from_strides(&[&[16], &eights[..count]].concat())
    }

    /// The strides, from the first bit on.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = u8> + '_ {
        self.levels.iter().map(|level| level.stride)
    }

    pub(super) fn levels(&self) -> &[Level] {
        &self.levels
    }

    /// The level that prefixes of `len` bits, at least 1, are painted in.
    #[inline]
    pub(super) fn level_of(&self, len: u8) -> usize {
        self.level_of[usize::from(len)].into()
    }

    /// Makes levels of strides that sum up to the bits of an address.
    fn from_strides(strides: &[u8]) -> Strides<A> {
        let mut levels = Vec::with_capacity(strides.len());
        let mut level_of = vec![0];
        for (number, &stride) in (0u8..).zip(strides) {
            levels.push(Level { offset: (level_of.len() - 1) as u8, stride });
            level_of.extend(std::iter::repeat_n(number, stride.into()));
        }
        let known = match &levels[..] {
            list if list == SOURCE4 => Known::Source4,
            list if list == EIGHTS4 => Known::Eights4,
            list if list == FAST4 => Known::Fast4,
            _ => Known::Other,
        };
        Strides { levels: levels.into(), level_of: level_of.into(), known, family: PhantomData }
    }
}

impl<A: Address> fmt::Display for Strides<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, stride) in self.iter().enumerate() {
            write!(f, "{}{stride}", if number == 0 { "" } else { "/" })?;
        }
        Ok(())
    }
}

impl<A: Address> fmt::Debug for Strides<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl<A: Address> FromStr for Strides<A> {
    type Err = NotStrides;

    /// Reads numbers between slashes.
    fn from_str(text: &str) -> Result<Strides<A>, NotStrides> {
        let is_number = |part: &&str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
        let number = |part: &str| Some(part).filter(is_number)?.parse().ok();
        let strides: Option<Vec<u8>> = text.split('/').map(number).collect();
        Strides::new(&strides.ok_or(NotStrides::Stride)?)
    }
}

/// Why a list is not one of strides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotStrides {
    /// A stride is not a number from 1 to [`Strides::MOST`].
    Stride,
    /// The strides do not sum up to the bits of an address.
    Sum {
        /// What they sum up to.
        sum: usize,
        /// The bits of an address.
        bits: u8,
    },
}

impl fmt::Display for NotStrides {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NotStrides::Stride => {
                write!(
                    f,
                    "a stride is a number of bits from 1 to {}, with slashes between, as in 16/8/8",
                    Strides::<u32>::MOST
                )
            }
            NotStrides::Sum { sum, bits } => {
                write!(f, "the strides sum up to {sum}, but an address of this family has {bits} bits")
            }
        }
    }
}

impl std::error::Error for NotStrides {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_that_add_up_are_read_and_written() {
        for text in ["8/4/4/4/4/4/4", "16/8/8", "24/8", "1/7/24", "8/8/8/8"] {
            assert_eq!(text.parse::<Strides<u32>>().unwrap().to_string(), text);
        }
        assert_eq!(Strides::<u32>::source().to_string(), "8/4/4/4/4/4/4");
        assert_eq!(Strides::<u32>::fast().to_string(), "16/8/8");
        for v6 in [Strides::<u128>::source(), Strides::fast()] {
            assert_eq!(v6.to_string().parse(), Ok(v6));
        }
    }

    #[test]
    fn other_lists_are_refused_with_the_reason() {
        for text in ["", "32", "0/32", "16/8/", "16/+8/8", "16,8,8", "16/8/8 ", "300/8"] {
            assert_eq!(text.parse::<Strides<u32>>(), Err(NotStrides::Stride), "{text}");
        }
        assert_eq!("16/8".parse::<Strides<u32>>(), Err(NotStrides::Sum { sum: 24, bits: 32 }));
        assert_eq!("16/8/8".parse::<Strides<u128>>(), Err(NotStrides::Sum { sum: 32, bits: 128 }));
    }

    #[test]
    fn every_length_is_painted_in_the_level_that_holds_its_last_bit() {
        let strides: Strides<u32> = "8/4/4/16".parse().unwrap();
        for len in 1..=32 {
            let level = strides.levels()[strides.level_of(len)];
            assert!(level.offset < len && len <= level.offset + level.stride, "{len}");
        }
    }
}
