//! Sets and maps of nftables.
use super::ruleset::Verdict;
use super::value::{PartialBytes, Truth};
use std::collections::HashMap;

/// A set or a map, as it was read.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Set {
    /// Bytes of a key, and of what a map has for it.
    pub(super) key_length: usize,
    pub(super) data_length: usize,
    /// Packets or time change what is in it, or it was not understood.
    pub(super) is_changing: bool,
    /// Looking into it counts, limits or refers to objects.
    pub(super) has_effects: bool,
    /// Whole keys by their bytes.
    exact: HashMap<Vec<u8>, usize>,
    ranges: Vec<Range>,
    /// Whether ranges are not in their order, apart from one another, or of several parts.
    is_mixed: bool,
    /// What belongs to keys that are not there.
    catch_all: Option<usize>,
    values: Vec<SetValue>,
}

/// Keys, whose parts are each within bounds.
#[derive(Debug, PartialEq, Eq)]
struct Range {
    from: Vec<u8>,
    to: Vec<u8>,
    /// Bytes of each part.
    parts: Vec<usize>,
    value: usize,
}

/// What belongs to a key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct SetValue {
    pub(super) data: Option<Vec<u8>>,
    pub(super) verdict: Option<Verdict>,
}

/// What a lookup finds.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Found<'a> {
    /// Whether there is something for the key.
    pub(super) truth: Truth,
    /// What may be found: one value if `truth` says yes and nothing else may be.
    pub(super) values: Vec<&'a SetValue>,
}

impl Found<'_> {
    /// The data that a map surely has.
    pub(super) fn data(&self) -> Option<PartialBytes> {
        match self.values.as_slice() {
            [value] if self.truth == Truth::Yes => value.data.clone().map(PartialBytes::known),
            _ => None,
        }
    }
}

impl Set {
    /// A set without elements.
    pub(super) fn new(key_length: usize, data_length: usize, is_changing: bool, has_effects: bool) -> Set {
        Set { key_length, data_length, is_changing, has_effects, ..Set::default() }
    }
    pub(super) fn add_exact(&mut self, key: Vec<u8>, value: SetValue) {
        let value = self.add_value(value);
        self.exact.insert(key, value);
    }
    pub(super) fn add_range(&mut self, from: Vec<u8>, to: Vec<u8>, parts: Vec<usize>, value: SetValue) {
        let is_behind = self.ranges.last().is_none_or(|last| last.to < from);
        self.is_mixed |= !is_behind || parts.len() > 1;
        let value = self.add_value(value);
        self.ranges.push(Range { from, to, parts, value });
    }
    pub(super) fn set_catch_all(&mut self, value: SetValue) {
        self.catch_all = Some(self.add_value(value));
    }
    fn add_value(&mut self, value: SetValue) -> usize {
        self.values.push(value);
        self.values.len() - 1
    }

    /// Looks for a key.
    pub(super) fn lookup(&self, key: &PartialBytes) -> Found<'_> {
        if self.is_changing {
            return Found { truth: Truth::Unknown, values: self.values.iter().collect() };
        }
        let mut truth = Truth::No;
        let mut values = Vec::new();
        let mut add = |is_it: Truth, value: usize| {
            truth = truth.or(is_it);
            values.extend((is_it != Truth::No).then_some(&self.values[value]));
        };
        match key.whole() {
            Some(whole) => self.exact.get(whole).into_iter().for_each(|value| add(Truth::Yes, *value)),
            None => self.exact.iter().for_each(|(one, value)| add(key.equals(one), *value)),
        }
        let ranges = match key.whole() {
            Some(whole) if !self.is_mixed => {
                let end = self.ranges.partition_point(|range| range.from.as_slice() <= whole);
                &self.ranges[end.saturating_sub(1)..end]
            }
            _ => &self.ranges,
        };
        ranges.iter().for_each(|range| add(range.contains(key), range.value));
        match self.catch_all {
            Some(value) if truth != Truth::Yes => {
                values.push(&self.values[value]);
                Found { truth: Truth::Yes, values }
            }
            _ => Found { truth, values },
        }
    }
}

impl Range {
    fn contains(&self, key: &PartialBytes) -> Truth {
        let (mut truth, mut at) = (Truth::Yes, 0);
        for length in &self.parts {
            let end = at + length;
            if end > key.len() {
                return Truth::Unknown;
            }
            truth = truth.and(key.slice(at, *length).is_within(&self.from[at..end], &self.to[at..end]));
            at = end;
        }
        truth
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_in_their_order_and_others_find_the_same() {
        let (mut sorted, mut mixed) = (Set::new(1, 1, false, false), Set::new(1, 1, false, false));
        let value = |byte: u8| SetValue { data: Some(vec![byte]), verdict: None };
        for from in [3, 10, 20_u8] {
            sorted.add_range(vec![from], vec![from + 5], vec![1], value(from));
        }
        for from in [20, 3, 10_u8] {
            mixed.add_range(vec![from], vec![from + 5], vec![1], value(from));
        }
        for byte in 0..40_u8 {
            let key = PartialBytes::known([byte]);
            let (one, other) = (sorted.lookup(&key), mixed.lookup(&key));
            let expected = [3, 10, 20].into_iter().find(|from| (*from..=from + 5).contains(&byte));
            assert_eq!((one.truth, one.data()), (other.truth, other.data()));
            assert_eq!(one.data(), expected.map(|byte| PartialBytes::known([byte])));
        }
        sorted.set_catch_all(value(9));
        let none = PartialBytes::known([0]);
        assert_eq!(sorted.lookup(&none).data(), Some(PartialBytes::known([9])));
        assert_eq!(sorted.lookup(&PartialBytes::unknown(1)).values.len(), 4);
    }
}
