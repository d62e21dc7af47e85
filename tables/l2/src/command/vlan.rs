//! Numbers of VLANs, and sets of them.
use std::fmt;

/// The number of a VLAN: 1 to 4094 (IEEE 802.1Q section 9.6).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct VlanId(u16);

impl VlanId {
    /// The VLAN of a switch where nothing is said.
    pub const DEFAULT: VlanId = VlanId(1);
    /// The highest VLAN that may be used.
    pub const MAX: VlanId = VlanId(4094);

    /// Makes it of a number, if a VLAN can have that.
    pub const fn new(number: u16) -> Option<VlanId> {
        match number {
            1..=4094 => Some(VlanId(number)),
            _ => None,
        }
    }

    /// Returns the number, 1 to 4094.
    #[inline]
    pub const fn get(self) -> u16 {
        self.0
    }

    /// Reads it; nothing but digits is a number here.
    pub(super) fn parse_id(word: &str) -> Option<VlanId> {
        let is_number = !word.is_empty() && word.bytes().all(|digit| digit.is_ascii_digit());
        is_number.then(|| word.parse().ok()).flatten().and_then(VlanId::new)
    }
}

impl fmt::Display for VlanId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A set of VLANs: a bit for each.
#[derive(Clone, PartialEq, Eq)]
pub struct VlanSet(Box<[u64; 64]>);

impl VlanSet {
    /// Makes one without any.
    pub fn new() -> VlanSet {
        VlanSet(Box::new([0; 64]))
    }

    /// Says whether a number is in it; 0 and 4095 never are.
    #[inline]
    pub fn contains(&self, number: u16) -> bool {
        self.0.get(usize::from(number >> 6)).is_some_and(|word| word >> (number & 63) & 1 != 0)
    }

    /// Says whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.iter().all(|word| *word == 0)
    }

    /// Adds a VLAN to the set.
    pub fn insert(&mut self, vlan: VlanId) {
        self.0[usize::from(vlan.get() >> 6)] |= 1 << (vlan.get() & 63);
    }

    /// Puts those of another in.
    pub fn extend(&mut self, other: &VlanSet) {
        self.0.iter_mut().zip(other.0.iter()).for_each(|(word, other)| *word |= other);
    }

    /// Takes those of another out.
    pub fn subtract(&mut self, other: &VlanSet) {
        self.0.iter_mut().zip(other.0.iter()).for_each(|(word, other)| *word &= !other);
    }

    /// Returns them from first to last.
    pub fn iter(&self) -> impl Iterator<Item = VlanId> + '_ {
        (1..=VlanId::MAX.get()).filter(|number| self.contains(*number)).filter_map(VlanId::new)
    }

    /// Returns the first and the last of each run without a gap.
    pub fn ranges(&self) -> impl Iterator<Item = (VlanId, VlanId)> + '_ {
        let first = |vlan: &VlanId| !self.contains(vlan.get() - 1);
        self.iter().filter(first).map(|first| {
            let last = (first.get()..).take_while(|number| self.contains(*number)).last();
            (first, last.and_then(VlanId::new).unwrap_or(first))
        })
    }

    /// Reads `1,5-7`; the error is the part that is wrong.
    pub(super) fn parse_list(word: &str) -> Result<VlanSet, &str> {
        let mut set = VlanSet::new();
        for part in word.split(',') {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let ends =
                VlanId::parse_id(first).zip(VlanId::parse_id(last)).filter(|(first, last)| first <= last);
            let (first, last) = ends.ok_or(part)?;
            (first.get()..=last.get()).filter_map(VlanId::new).for_each(|vlan| set.insert(vlan));
        }
        Ok(set)
    }
}

impl Default for VlanSet {
    fn default() -> VlanSet {
        VlanSet::new()
    }
}

impl FromIterator<VlanId> for VlanSet {
    fn from_iter<T: IntoIterator<Item = VlanId>>(vlans: T) -> VlanSet {
        let mut set = VlanSet::new();
        vlans.into_iter().for_each(|vlan| set.insert(vlan));
        set
    }
}

impl fmt::Display for VlanSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (n, (first, last)) in self.ranges().enumerate() {
            let comma = if n == 0 { "" } else { "," };
            if first == last { write!(f, "{comma}{first}")? } else { write!(f, "{comma}{first}-{last}")? }
        }
        Ok(())
    }
}

impl fmt::Debug for VlanSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{{{self}}}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(word: &str) -> VlanSet {
        VlanSet::parse_list(word).unwrap()
    }

    #[test]
    fn sets_are_printed_as_runs_in_order() {
        assert_eq!(set("7,3,1-2,4094,4093").to_string(), "1-3,7,4093-4094");
        assert_eq!((set("1-4094").iter().count(), VlanSet::new().to_string()), (4094, String::new()));
    }

    #[test]
    fn sets_are_joined_and_taken_from_each_other() {
        let mut vlans = set("1-10");
        vlans.subtract(&set("3-4,64"));
        vlans.extend(&set("63-65"));
        assert_eq!(vlans.to_string(), "1-2,5-10,63-65");
        assert!(vlans.contains(64) && !vlans.contains(3) && !vlans.contains(u16::MAX));
    }

    #[test]
    fn what_is_no_vlan_is_named() {
        for (word, wrong) in [
            ("", ""),
            ("0", "0"),
            ("1,4095", "4095"),
            ("1,,2", ""),
            ("5-3", "5-3"),
            ("1-", "1-"),
            ("+1", "+1"),
            ("99999", "99999"),
        ] {
            assert_eq!(VlanSet::parse_list(word), Err(wrong), "{word}");
        }
    }
}
