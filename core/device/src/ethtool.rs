//! Features of an interface that ethtool shows, by the kernel's generic netlink family `ethtool` (Linux 5.6).
use crate::Interface;
use artery_netlink::Attributes;
use artery_netlink::genetlink::query_family;
use std::io;

/// Numbers of messages and attributes, from linux/ethtool_netlink.h.
const FEATURES_GET: u8 = 11;
const HEADER: u16 = 1;
const HEADER_INDEX: u16 = 1;
const ACTIVE: u16 = 4;
const BITSET_BITS: u16 = 3;
const BIT: u16 = 1;
const BIT_NAME: u16 = 2;
const NESTED: u16 = 1 << 15;

/// Features by which a card, or the host behind a virtual card, joins frames of TCP before the kernel sees
/// them. Programs of XDP take whole frames, so drivers switch them off, and TCP gets slower.
const JOINING: [&str; 2] = ["rx-gro-hw", "rx-lro"];

/// The name of the offload that joins frames before the kernel sees them, if one is on.
///
/// # Errors
/// When the kernel can't be queried, or the interface is gone.
pub fn joining_offload(interface: &Interface) -> io::Result<Option<&'static str>> {
    let on = active_features(interface.index)?;
    Ok(JOINING.into_iter().find(|name| on.iter().any(|feature| feature == name)))
}

/// The names of the features that are on.
fn active_features(index: u32) -> io::Result<Vec<String>> {
    let header = [&8_u16.to_ne_bytes()[..], &HEADER_INDEX.to_ne_bytes(), &index.to_ne_bytes()].concat();
    let answer = query_family("ethtool", FEATURES_GET, HEADER | NESTED, &header)?;
    Ok(names(&answer.bytes(ACTIVE).unwrap_or_default()))
}

/// The names of the bits that a set lists; of one without a mask these are the bits that are set.
fn names(bitset: &[u8]) -> Vec<String> {
    let bits = Attributes::new(bitset).find_value(BITSET_BITS).unwrap_or_default();
    let listed = Attributes::new(bits).filter(|(kind, _)| *kind == BIT);
    let name = |bit| Attributes::new(bit).find_value(BIT_NAME);
    let text = |name: &[u8]| String::from_utf8_lossy(name).trim_end_matches('\0').to_owned();
    listed.filter_map(|(_, bit)| name(bit)).map(text).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::namespace::{in_namespace, run};
    use artery_netlink::genetlink::written::attribute;

    #[test]
    fn features_that_are_on_are_listed_by_name() {
        in_namespace(|| {
            run("ip link add left type veth peer name right");
            let left = Interface::find("left").unwrap();
            let is_on = |name: &str| active_features(left.index).unwrap().iter().any(|on| on == name);
            assert!(is_on("tx-tcp-segmentation") && !is_on("rx-lro"));
            run("ethtool -K left tso off");
            assert!(!is_on("tx-tcp-segmentation"));
            assert_eq!(joining_offload(&left).unwrap(), None);
            assert!(active_features(9999).is_err());
        });
    }

    #[test]
    fn a_set_of_any_bytes_has_names_or_none() {
        let bit = |name: &[u8]| attribute(BIT, &attribute(BIT_NAME, name));
        let bits = [bit(b"rx-gro-hw\0"), bit(b"rx-gro\0")].concat();
        let set = [attribute(1, &[]), attribute(BITSET_BITS, &bits)].concat();
        assert_eq!(names(&set), ["rx-gro-hw", "rx-gro"]);
        (0..set.len()).for_each(|len| drop(names(&set[..len])));
    }
}
