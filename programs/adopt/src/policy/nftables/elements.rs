//! Elements of sets and maps of nftables.
use super::super::sets::{Set, SetValue};
use artery_netlink::request::{Attributes, nonsense};
use std::io;

/// An element of a set as it was dumped.
pub(super) struct Element {
    pub(super) key: Option<Vec<u8>>,
    pub(super) end: Option<Vec<u8>>,
    /// The key is the first behind an interval.
    pub(super) is_end: bool,
    pub(super) is_catch_all: bool,
    pub(super) value: SetValue,
}

/// Bytes of the parts of a key, each of which fills registers of four bytes.
pub(super) fn part_lengths(set: &Attributes<'_>, key_length: usize) -> io::Result<Vec<usize>> {
    let parts = set.nested(9)?.map(|description| description.nested(2)).transpose()?.flatten();
    let mut lengths = Vec::new();
    for (_, part) in parts.iter().flat_map(Attributes::iter) {
        let length = Attributes::parse_all(part)?.big_endian(1).ok_or_else(nonsense)?;
        lengths.push((length as usize).next_multiple_of(4));
    }
    let is_whole = lengths.iter().sum::<usize>() == key_length;
    Ok(if is_whole { lengths } else { vec![key_length] })
}

pub(super) fn add_elements(set: &mut Set, elements: Vec<Element>, parts: &[usize], has_intervals: bool) {
    let length = set.key_length;
    let (catch_all, mut elements): (Vec<_>, Vec<_>) = elements.into_iter().partition(|one| one.is_catch_all);
    catch_all.into_iter().for_each(|one| set.set_catch_all(one.value));
    let is_whole = |key: &Option<Vec<u8>>| key.as_ref().is_some_and(|key| key.len() == length);
    if !elements.iter().all(|one| is_whole(&one.key) && (one.end.is_none() || is_whole(&one.end))) {
        set.is_changing = true;
        return;
    }
    let is_single = |one: &Element| one.end.is_none();
    if !has_intervals {
        let has_ranges = !elements.iter().all(is_single);
        set.is_changing |= has_ranges;
        elements.into_iter().for_each(|one| set.add_exact(one.key.unwrap_or_default(), one.value));
    } else if parts.len() > 1 || elements.iter().any(|one| one.end.is_some()) {
        for one in elements {
            let from = one.key.unwrap_or_default();
            let to = one.end.unwrap_or_else(|| from.clone());
            set.add_range(from, to, parts.to_vec(), one.value);
        }
    } else {
        // Each begins where its key is, and goes on to the next key; those at ends are gaps.
        elements.sort_by(|one, other| (&one.key, !one.is_end).cmp(&(&other.key, !other.is_end)));
        let last = vec![0xff; length];
        let keys: Vec<_> = elements.iter().map(|one| one.key.clone().unwrap_or_default()).collect();
        for (at, one) in elements.into_iter().enumerate().filter(|(_, one)| !one.is_end) {
            let next = keys[at + 1..].iter().find(|key| **key != keys[at]);
            let to = next.map_or_else(|| last.clone(), |next| predecessor(next));
            set.add_range(keys[at].clone(), to, vec![length], one.value);
        }
    }
}

/// The number before one in network order.
fn predecessor(key: &[u8]) -> Vec<u8> {
    let mut key = key.to_vec();
    for byte in key.iter_mut().rev() {
        let (less, is_borrowed) = byte.overflowing_sub(1);
        *byte = less;
        if !is_borrowed {
            break;
        }
    }
    key
}
