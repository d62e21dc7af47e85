//! Values of which only some bits are known, and what follows from them.

/// Whether something is so, of every packet that is asked about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Truth {
    No,
    /// Of some, or it is not understood.
    Unknown,
    Yes,
}

impl Truth {
    pub(super) fn and(self, other: Truth) -> Truth {
        self.min(other)
    }
    pub(super) fn or(self, other: Truth) -> Truth {
        self.max(other)
    }
    /// The opposite, if `is_inverted`.
    pub(super) fn invert_if(self, is_inverted: bool) -> Truth {
        match (self, is_inverted) {
            (Truth::No, true) => Truth::Yes,
            (Truth::Yes, true) => Truth::No,
            (truth, _) => truth,
        }
    }
}

impl From<bool> for Truth {
    fn from(is_so: bool) -> Truth {
        if is_so { Truth::Yes } else { Truth::No }
    }
}

/// Bytes of which some bits are known. Unknown bits are 0 in `value`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PartialBytes {
    value: Vec<u8>,
    known: Vec<u8>,
}

impl PartialBytes {
    pub(super) fn known(value: impl Into<Vec<u8>>) -> PartialBytes {
        let value = value.into();
        PartialBytes { known: vec![0xff; value.len()], value }
    }
    pub(super) fn unknown(length: usize) -> PartialBytes {
        PartialBytes { value: vec![0; length], known: vec![0; length] }
    }
    pub(super) fn len(&self) -> usize {
        self.value.len()
    }
    /// The bytes, if all bits are known.
    pub(super) fn whole(&self) -> Option<&[u8]> {
        self.known.iter().all(|known| *known == 0xff).then_some(&self.value)
    }
    /// Some of the bytes; unknown ones where there are not as many.
    pub(super) fn slice(&self, at: usize, length: usize) -> PartialBytes {
        let end = at.saturating_add(length);
        match (self.value.get(at..end), self.known.get(at..end)) {
            (Some(value), Some(known)) => PartialBytes { value: value.to_vec(), known: known.to_vec() },
            _ => PartialBytes::unknown(length),
        }
    }
    /// Puts others in their place, as far as there is room.
    pub(super) fn replace(&mut self, at: usize, new: &PartialBytes) {
        let length = new.len().min(self.len().saturating_sub(at));
        let at = at.min(self.len());
        self.value[at..at + length].copy_from_slice(&new.value[..length]);
        self.known[at..at + length].copy_from_slice(&new.known[..length]);
    }
    /// Makes bits of a byte known: those in `mask` are as in `value`.
    pub(super) fn set_bits(&mut self, at: usize, value: u8, mask: u8) {
        self.value[at] = self.value[at] & !mask | value & mask;
        self.known[at] |= mask;
    }
    /// `self & mask ^ xor`.
    pub(super) fn mask_xor(&self, mask: &[u8], xor: &[u8]) -> PartialBytes {
        let byte = |bytes: &[u8], at: usize| bytes.get(at).copied().unwrap_or(0);
        let value = |at: usize| self.value[at] & byte(mask, at) ^ byte(xor, at);
        // What is masked out is known.
        let known = |at: usize| self.known[at] | !byte(mask, at);
        let mut new = PartialBytes {
            value: (0..self.len()).map(value).collect(),
            known: (0..self.len()).map(known).collect(),
        };
        new.value.iter_mut().zip(&new.known).for_each(|(value, known)| *value &= known);
        new
    }
    /// Each group of so many bytes in the opposite order.
    pub(super) fn swap(&self, size: usize) -> PartialBytes {
        let swap = |bytes: &[u8]| bytes.chunks(size).flat_map(|chunk| chunk.iter().rev().copied()).collect();
        PartialBytes { value: swap(&self.value), known: swap(&self.known) }
    }

    /// Whether the first bytes are these.
    pub(super) fn equals(&self, other: &[u8]) -> Truth {
        let mut all = Truth::Yes;
        for ((value, known), other) in self.value.iter().zip(&self.known).zip(other) {
            if value & known != other & known {
                return Truth::No;
            }
            if *known != 0xff {
                all = Truth::Unknown;
            }
        }
        if other.len() > self.len() { all.and(Truth::Unknown) } else { all }
    }
    /// Whether the bytes, as a number in network order, are from `from` to `to`, both included.
    pub(super) fn is_within(&self, from: &[u8], to: &[u8]) -> Truth {
        let length = from.len().min(to.len()).min(self.len());
        let (value, known) = (&self.value[..length], &self.known[..length]);
        let most: Vec<u8> = value.iter().zip(known).map(|(value, known)| value | !known).collect();
        let (from, to) = (&from[..length], &to[..length]);
        if most.as_slice() < from || value > to {
            Truth::No
        } else if value >= from && most.as_slice() <= to {
            Truth::Yes
        } else {
            Truth::Unknown
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_masked_out_is_known_and_what_differs_in_a_known_bit_is_not_equal() {
        let mut flags = PartialBytes::unknown(1);
        flags.set_bits(0, 0x10, 0x17);
        assert_eq!(flags.mask_xor(&[0x07], &[0]).equals(&[0x02]), Truth::No);
        assert_eq!(flags.mask_xor(&[0x16], &[0]).equals(&[0x10]), Truth::Yes);
        assert_eq!(flags.mask_xor(&[0x18], &[0]).equals(&[0x10]), Truth::Unknown);
        assert_eq!(flags.equals(&[0x12]), Truth::No);
        assert_eq!(flags.equals(&[0x10]), Truth::Unknown);
        assert_eq!(flags.mask_xor(&[0x17], &[0xff]).whole(), Some(&[0xef][..]));
        assert_eq!(flags.slice(1, 4), PartialBytes::unknown(4));
        flags.replace(9, &PartialBytes::known([1]));
    }

    #[test]
    fn a_range_takes_what_is_surely_in_it_and_leaves_what_surely_is_not() {
        let port = PartialBytes::known([0, 80]);
        assert_eq!(port.is_within(&[0, 80], &[0, 90]), Truth::Yes);
        assert_eq!(port.is_within(&[0, 81], &[0, 90]), Truth::No);
        let mut some = PartialBytes::unknown(2);
        assert_eq!(some.is_within(&[0, 0], &[255, 255]), Truth::Yes);
        assert_eq!(some.is_within(&[0, 1], &[255, 255]), Truth::Unknown);
        some.set_bits(0, 1, 0xff);
        assert_eq!(some.is_within(&[2, 0], &[3, 0]), Truth::No);
    }
}
