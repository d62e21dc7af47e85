//! Ethernet addresses of interfaces that the router creates. They are the same after each restart, so that
//! entries in the neighbor caches of other hosts stay valid.
use artery_device::Interface;

/// The file with this machine's identity (machine-id(5)).
const MACHINE_ID: &str = "/etc/machine-id";

/// A locally administered address for a new interface. It follows from the interface's name, the
/// machine's identity, and the address of the first other interface here, which differs between
/// containers and network namespaces.
pub(super) fn of_interface(name: &str) -> [u8; 6] {
    let identity = std::fs::read_to_string(MACHINE_ID).unwrap_or_default();
    address_from(name, identity.trim(), first_address(name))
}

/// The address of the Ethernet interface that was there before all others.
fn first_address(but: &str) -> [u8; 6] {
    let others = Interface::list().into_iter().filter(|name| name != but);
    let found = others.filter_map(|name| Interface::find(&name).ok());
    let with_address = found.filter_map(|one| Some((one.index, one.mac.filter(|mac| *mac != [0; 6])?)));
    with_address.min().map_or([0; 6], |(_, mac)| mac)
}

fn address_from(name: &str, identity: &str, neighbor: [u8; 6]) -> [u8; 6] {
    let parts = [name.as_bytes(), &[0], identity.as_bytes(), &[0], &neighbor];
    let [a, b, c, d, e, ..] = fnv1a_hash(parts.into_iter().flatten().copied()).to_be_bytes();
    [2, a, b, c, d, e]
}

/// FNV-1a, which stays what it is from version to version.
fn fnv1a_hash(bytes: impl Iterator<Item = u8>) -> u64 {
    bytes.fold(0xcbf2_9ce4_8422_2325, |sum, byte| (sum ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_stays_the_same_and_is_another_for_each_interface_machine_and_namespace() {
        assert_eq!(of_interface("vport0"), of_interface("vport0"));
        let all = [
            address_from("vport0", "a", [1; 6]),
            address_from("vport1", "a", [1; 6]),
            address_from("vport0", "b", [1; 6]),
            address_from("vport0", "a", [2; 6]),
            address_from("vport", "0a", [1; 6]),
        ];
        for (n, one) in all.iter().enumerate() {
            assert_eq!(one[0], 2, "of local administration, and no group");
            assert!(!all[..n].contains(one));
        }
    }
}
