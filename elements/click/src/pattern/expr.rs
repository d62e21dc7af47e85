//! Pattern expressions: tests of words joined by and, or, not and the ternary operator.

/// The header that a test's offset is counted from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Base {
    /// Start of the packet's data.
    Data,
    Mac,
    Network,
    Transport,
}

/// How a masked word is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Relation {
    /// It is the value.
    Equal,
    /// It is greater than the value.
    Greater,
}

/// One comparison: `(word at offset) & mask` against `value`, the word in network order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Test {
    /// What the offset is counted from.
    pub(crate) base: Base,
    /// Offset of the word.
    pub(crate) offset: u16,
    /// The bits of the word that are compared.
    pub(crate) mask: u32,
    /// What they are compared with.
    pub(crate) value: u32,
    pub(crate) relation: Relation,
    /// The answer for a packet that ends before the bits that count.
    pub(crate) short: bool,
}

/// A pattern's expression. Every packet either matches or does not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Expr {
    /// Matches every packet, or none.
    Const(bool),
    Test(Test),
    Not(Box<Expr>),
    /// All of them; of none, true.
    And(Vec<Expr>),
    /// Any of them; of none, false.
    Or(Vec<Expr>),
    /// The second if the first, else the third.
    If(Box<[Expr; 3]>),
}

impl Test {
    /// A test for equality that a packet which is too short fails.
    pub(crate) fn equal(base: Base, offset: u16, value: u32, mask: u32) -> Test {
        Test { base, offset, mask, value: value & mask, relation: Relation::Equal, short: false }
    }

    /// How many bytes of the word the mask touches, counted from its start.
    #[inline]
    pub(crate) fn width(&self) -> usize {
        4 - self.mask.trailing_zeros() as usize / 8
    }

    /// The answer for the bytes from the base to the end of the packet.
    #[cfg(test)]
    pub(crate) fn holds(&self, bytes: &[u8]) -> bool {
        let word = bytes.get(usize::from(self.offset)..).and_then(|tail| tail.first_chunk::<4>());
        match word {
            Some(word) => self.holds_for(u32::from_be_bytes(*word)),
            None => self.holds_at_end(bytes),
        }
    }

    #[inline]
    pub(super) fn holds_for(&self, word: u32) -> bool {
        match self.relation {
            Relation::Equal => word & self.mask == self.value,
            Relation::Greater => word & self.mask > self.value,
        }
    }

    /// The answer where the packet ends within the word. An order comparison that the present bytes already
    /// decide is decided by them; otherwise `short` is the answer.
    pub(super) fn holds_at_end(&self, bytes: &[u8]) -> bool {
        let tail = bytes.get(usize::from(self.offset)..).unwrap_or(&[]);
        let have = tail.len().min(4);
        let missing = u32::MAX.checked_shr(8 * have as u32).unwrap_or(0);
        let mut word = [0; 4];
        word[..have].copy_from_slice(&tail[..have]);
        let word = u32::from_be_bytes(word);
        if self.mask & missing == 0 {
            return self.holds_for(word);
        }
        match self.relation {
            Relation::Equal => self.short,
            Relation::Greater if self.short => self.holds_for(word | missing),
            Relation::Greater => self.holds_for(word),
        }
    }
}

impl Expr {
    pub(crate) fn negated(self) -> Expr {
        Expr::Not(Box::new(self))
    }

    /// The opposite as an operator such as `!=` means it: a packet that is too short matches neither.
    pub(crate) fn refuted(mut self) -> Expr {
        self.flip_short();
        self.negated()
    }

    fn flip_short(&mut self) {
        match self {
            Expr::Const(_) => {}
            Expr::Test(test) => test.short = !test.short,
            Expr::Not(inner) => inner.flip_short(),
            Expr::And(parts) | Expr::Or(parts) => parts.iter_mut().for_each(Expr::flip_short),
            Expr::If(parts) => parts.iter_mut().for_each(Expr::flip_short),
        }
    }

    /// The answer for a packet, computed directly from the definition. Programs are tested against it.
    #[cfg(test)]
    pub(crate) fn matches<'a>(&self, bytes: &impl Fn(Base) -> &'a [u8]) -> bool {
        match self {
            Expr::Const(answer) => *answer,
            Expr::Test(test) => test.holds(bytes(test.base)),
            Expr::Not(inner) => !inner.matches(bytes),
            Expr::And(parts) => parts.iter().all(|part| part.matches(bytes)),
            Expr::Or(parts) => parts.iter().any(|part| part.matches(bytes)),
            Expr::If(parts) => {
                let chosen = if parts[0].matches(bytes) { &parts[1] } else { &parts[2] };
                chosen.matches(bytes)
            }
        }
    }
}

impl From<Test> for Expr {
    /// A test of no bits is settled already.
    fn from(test: Test) -> Expr {
        if test.mask == 0 { Expr::Const(test.holds_for(0)) } else { Expr::Test(test) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_test_needs_only_the_bytes_that_its_mask_touches() {
        let test = Test::equal(Base::Data, 1, 0x0102_0000, 0xffff_0000);
        assert_eq!(test.width(), 2);
        assert!(test.holds(&[9, 1, 2]) && test.holds(&[9, 1, 2, 3, 4]));
        assert!(!test.holds(&[9, 1]) && !test.holds(&[]) && !test.holds(&[9, 1, 3]));
        assert!(Test { short: true, ..test }.holds(&[9, 1]));
    }

    #[test]
    fn an_order_is_decided_by_the_bytes_that_are_there_when_they_suffice() {
        let above_1023 = Test {
            base: Base::Data,
            offset: 0,
            mask: 0xffff_0000,
            value: 1023 << 16,
            relation: Relation::Greater,
            short: false,
        };
        assert!(above_1023.holds(&[4]) && !above_1023.holds(&[3]) && !above_1023.holds(&[]));
        let refuted = |bytes: &[u8]| !Test { short: true, ..above_1023 }.holds(bytes);
        assert!(refuted(&[3]) && !refuted(&[4]) && !refuted(&[]));
    }
}
