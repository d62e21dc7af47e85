//! What machines of a fleet agree on by etcd: who lives, and the configuration of their routers under one
//! revision. `docs/decisions/0045-fleet-configuration.md` says why so.
//!
//! Requests to etcd are made by tasks of this program's runtime ([`membership`]), and the router is asked by
//! a thread ([`router`]); they tell one another what is so now by channels that keep the last value alone.

pub(crate) mod change;
mod document;
mod health;
mod membership;
mod prepare;
mod revision;
mod router;
mod store;
mod view;

pub(crate) use membership::Membership;
pub(crate) use router::RouterConfiguration;
pub(crate) use view::{Agreement, ConfigurationReport, View};

use tokio::sync::watch;

use revision::{Candidate, Check, MemberState, Revision};

/// What the thread that asks the router shall do.
#[derive(Debug, Clone, Default)]
pub(crate) struct Wanted {
    pub(crate) revision: Option<std::sync::Arc<Revision>>,
    pub(crate) candidate: Option<std::sync::Arc<Candidate>>,
    /// The other machines that live.
    pub(crate) machines: Vec<String>,
    /// The members that most machines find down; None while etcd is not followed.
    pub(crate) held_down: Option<std::collections::BTreeSet<String>>,
}

/// The ends of the channels that the membership has.
pub(crate) struct ToRouter {
    wanted: watch::Sender<Wanted>,
    state: watch::Receiver<MemberState>,
    check: watch::Receiver<Option<Check>>,
}

/// Those that the thread has.
pub(crate) struct FromMembership {
    wanted: watch::Receiver<Wanted>,
    state: watch::Sender<MemberState>,
    check: watch::Sender<Option<Check>>,
}

pub(crate) fn channels() -> (ToRouter, FromMembership) {
    let (wanted, to_do) = watch::channel(Wanted::default());
    let (state_of, state) = watch::channel(MemberState::default());
    let (check_of, check) = watch::channel(None);
    let to_router = ToRouter { wanted, state, check };
    (to_router, FromMembership { wanted: to_do, state: state_of, check: check_of })
}
