//! How handlers write Ethernet addresses.
use artery_wire::EtherAddr;

/// In capitals with hyphens, as Click does.
pub(crate) fn format_dashed(address: EtherAddr) -> String {
    address.to_string().to_uppercase().replace(':', "-")
}
