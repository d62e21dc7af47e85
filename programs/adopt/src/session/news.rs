//! What a turn of a session found.
use crate::fast;

/// What a turn found.
#[derive(Debug, Default)]
pub struct SessionNews {
    /// Whether the blockers, or the ports that can't transmit redirected frames, have changed.
    pub guards: bool,
    /// Whether all of the kernel's tables have been read once more.
    pub everything: bool,
    /// Whether memory or descriptors are lacking, if that is new.
    pub shortage: Option<Shortage>,
    /// Why no connections are forwarded past rules, if that is new.
    pub unfollowed: Option<String>,
    /// Why connections that began while no process listened stay with the kernel for now, if that is new.
    pub uncompared: Option<String>,
    /// Whether packets are left to the kernel because of the lag of changes, if that is new.
    pub lags: Option<bool>,
    /// Interfaces that were gone and have come back, by name, and whether they were adopted again.
    pub returned: Vec<(String, Result<(), fast::Error>)>,
    /// Why nothing was forwarded by XDP, and whether all interfaces have changed to tc for it.
    pub left_xdp: Option<(DeadPath, Result<(), fast::Error>)>,
}

/// Whether memory or descriptors are lacking.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Shortage {
    /// They are, for this.
    Of(String),
    /// They are no longer.
    Over,
}

/// Why nothing is forwarded by XDP, though frames arrive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DeadPath {
    /// The driver of the interface with this name takes no frame that is redirected to it.
    TakesNothing(String),
    /// Blockers of XDP, but not of tc, leave no two interfaces between which frames are forwarded.
    AllKept,
}
