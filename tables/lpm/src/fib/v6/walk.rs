//! How a lookup walks the words of the IPv6 FIB: the plain path, which is the oracle of the vector code.
use super::ROOT_BITS;
use super::word::{KEY_BITS, NodeKind, Word};
use crate::runs::Group;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::{Acquire, Relaxed};

/// The group of an address, [`NO_GROUP`](crate::NO_GROUP) if only the default route covers it.
#[inline]
pub(super) fn find_group(words: &[AtomicU32], address: u128) -> Group {
    let mut word = load_word(words, (address >> (128 - ROOT_BITS)) as usize);
    let mut rest = address << ROOT_BITS;
    loop {
        if let Some(group) = word.leaf_group() {
            return group;
        }
        let place = word.place();
        match word.kind() {
            NodeKind::Array => {
                // Sixty-four bits are enough for one step, and quicker.
                let index = ((rest >> 64) as u64) >> (64 - word.class());
                rest <<= word.class();
                word = load_word(words, place + index as usize);
            }
            NodeKind::Narrow => {
                let half = 1 << (word.class() - 1);
                let entry = entry_index(words, place, word.class(), (rest >> 112) as u16);
                return half_word(words, place + half, entry).into();
            }
            NodeKind::Wide => {
                let half = 1 << (word.class() - 1);
                let entry = entry_index(words, place, word.class(), (rest >> 112) as u16);
                rest <<= KEY_BITS;
                word = load_word(words, place + half + entry);
            }
        }
    }
}

/// A word that may lead to nodes which were written before it.
#[inline]
pub(super) fn load_word(words: &[AtomicU32], at: usize) -> Word {
    Word(words[at].load(Acquire))
}

/// The `i`th half word from `place` on.
#[inline]
pub(super) fn half_word(words: &[AtomicU32], place: usize, i: usize) -> u16 {
    (words[place + i / 2].load(Relaxed) >> (i % 2 * 16)) as u16
}

/// Which entry of a list a key belongs to: the first whose key is not less. The last key of a
/// list is the largest.
#[inline]
fn entry_index(words: &[AtomicU32], place: usize, class: u8, key: u16) -> usize {
    let mut entry = 0;
    let mut step = 1 << class >> 1;
    while step > 0 {
        entry += if half_word(words, place, entry + step - 1) < key { step } else { 0 };
        step /= 2;
    }
    entry
}
