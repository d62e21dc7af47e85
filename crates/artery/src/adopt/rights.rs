//! What the program may do once it forwards: no more than forwarding takes.
use anyhow::Context as _;
use rustix::thread::{
    CapabilitySet, CapabilitySets, capabilities, capability_is_in_bounding_set,
    remove_capability_from_bounding_set, set_capabilities,
};

/// To hear of tables and say that neighbors are in use; to load programs; and to have them checked without the limits that are for
/// the programs of strangers.
const KEPT: CapabilitySet = CapabilitySet::NET_ADMIN.union(CapabilitySet::BPF).union(CapabilitySet::PERFMON);

/// What programs that are called may have besides: the older iptables are read by a raw socket. This program has it at hand and
/// does not use it: under `NoNewPrivileges` nobody gets what who calls him has not.
const LENT: CapabilitySet = KEPT.union(CapabilitySet::NET_RAW);

/// Gives up all other capabilities but `besides`, for good. Threads that were started before keep theirs: there are to be none.
pub(super) fn drop_but(besides: CapabilitySet) -> anyhow::Result<()> {
    let had = capabilities(None).context("can't read capabilities")?;
    if had.effective.contains(CapabilitySet::SETPCAP) {
        bound().context("can't bound capabilities")?;
    }
    let sets = CapabilitySets {
        effective: had.permitted.intersection(KEPT.union(besides)),
        permitted: had.permitted.intersection(LENT.union(besides)),
        inheritable: CapabilitySet::empty(),
    };
    set_capabilities(None, sets).context("can't give capabilities up")?;
    Ok(())
}

/// Takes from what programs can ever have that this one calls.
fn bound() -> rustix::io::Result<()> {
    for capability in CapabilitySet::all().difference(LENT).iter() {
        // Those that this kernel does not know are in no set.
        if capability_is_in_bounding_set(capability).unwrap_or(false) {
            remove_capability_from_bounding_set(capability)?;
        }
    }
    Ok(())
}
