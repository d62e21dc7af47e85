//! Gives up capabilities, for good.
use rustix::thread::{
    CapabilitySet, CapabilitySets, capabilities, capability_is_in_bounding_set, clear_ambient_capability_set,
    remove_capability_from_bounding_set, set_capabilities,
};
use std::io;

/// Gives up all capabilities of this thread, and of those that it starts from now on.
pub fn drop_capabilities() -> io::Result<()> {
    limit_capabilities(CapabilitySet::empty(), CapabilitySet::empty())
}

/// Gives up all capabilities but `kept`, and `lent`, which child processes may have besides. Threads that
/// were started before keep theirs.
pub fn limit_capabilities(kept: CapabilitySet, lent: CapabilitySet) -> io::Result<()> {
    let had = capabilities(None)?;
    if had.effective.contains(CapabilitySet::SETPCAP) {
        bound(kept.union(lent))?;
    }
    // Kernels before 4.3 have none.
    let _ = clear_ambient_capability_set();
    let sets = CapabilitySets {
        effective: had.permitted.intersection(kept),
        permitted: had.permitted.intersection(kept.union(lent)),
        inheritable: CapabilitySet::empty(),
    };
    Ok(set_capabilities(None, sets)?)
}

/// Takes from what programs can ever have that this one calls.
fn bound(kept: CapabilitySet) -> rustix::io::Result<()> {
    for capability in CapabilitySet::all().difference(kept).iter() {
        // Those that this kernel does not know are in no set.
        if capability_is_in_bounding_set(capability).unwrap_or(false) {
            remove_capability_from_bounding_set(capability)?;
        }
    }
    Ok(())
}
