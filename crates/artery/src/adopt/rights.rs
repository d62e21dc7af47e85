//! What the program may do once it forwards: no more than forwarding takes.
use anyhow::Context as _;
use artery_device::privsep::limit_capabilities;
use rustix::thread::CapabilitySet;

/// To hear of tables and say that neighbors are in use; to load programs; and to have them checked without the limits that are for
/// the programs of strangers.
const KEPT: CapabilitySet = CapabilitySet::NET_ADMIN.union(CapabilitySet::BPF).union(CapabilitySet::PERFMON);

/// What programs that are called may have besides: the older iptables are read by a raw socket. This program has it at hand and
/// does not use it: under `NoNewPrivileges` nobody gets what who calls him has not.
const LENT: CapabilitySet = KEPT.union(CapabilitySet::NET_RAW);

/// Gives up all other capabilities but `besides`, and new privileges, for good. Threads that were started before keep theirs:
/// there are to be none.
pub(super) fn drop_but(besides: CapabilitySet) -> anyhow::Result<()> {
    limit_capabilities(KEPT.union(besides), LENT).context("can't give capabilities up")?;
    rustix::thread::set_no_new_privs(true).context("can't give up new privileges")
}
