//! The capabilities that the program keeps once it forwards.
use anyhow::Context as _;
use artery_device::privsep::limit_capabilities;
use rustix::thread::CapabilitySet;

/// To read tables and confirm neighbors (NET_ADMIN), to load programs (BPF), and to have the verifier check
/// them without the limits for unprivileged programs (PERFMON).
const KEPT: CapabilitySet = CapabilitySet::NET_ADMIN.union(CapabilitySet::BPF).union(CapabilitySet::PERFMON);

/// Capabilities that child processes may have besides: the older iptables reads its tables by a raw socket.
/// This program keeps NET_RAW in its permitted set for them and does not use it: under `NoNewPrivileges` a
/// child can get no capability that its parent lacks.
const LENT: CapabilitySet = KEPT.union(CapabilitySet::NET_RAW);

/// Gives up all other capabilities but `besides`, and new privileges, for good. Threads that were started
/// before keep theirs: there are to be none.
pub(super) fn drop_but(besides: CapabilitySet) -> anyhow::Result<()> {
    limit_capabilities(KEPT.union(besides), LENT).context("can't give capabilities up")?;
    rustix::thread::set_no_new_privs(true).context("can't give up new privileges")
}
