//! Whether rules let all packets of a connection through that would be forwarded past them, and at which
//! ports.
use super::keeper::ConnectionKeeper;
use super::message::{Entry, TCP};
use crate::policy::{ConnectionView, Interface, Policy};
use std::collections::HashMap;
use std::sync::Arc;

/// Where packets of a direction must arrive and leave for rules to let them through, by the numbers of ports;
/// otherwise anywhere.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct PortBounds {
    pub(super) entry: Option<u32>,
    pub(super) exit: Option<u32>,
}

impl PortBounds {
    pub(super) fn is_bound(&self) -> bool {
        *self != PortBounds::default()
    }
}

/// Why a connection is the kernel's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    /// A rule stands in the way, or may.
    Rule,
    /// The kernel would drop, or not translate, segments that are out of window, and it does not see windows
    /// of packets that go past it.
    Windows,
}

impl Refusal {
    pub(super) fn keeper(self) -> ConnectionKeeper {
        match self {
            Refusal::Rule => ConnectionKeeper::Rule,
            Refusal::Windows => ConnectionKeeper::Window,
        }
    }
}

/// What rules say of both directions.
pub(super) type Judgement = Result<[PortBounds; 2], Refusal>;

/// The ports that packets of both directions leave by, if that is one, as [`Accelerator::egress`] says it.
///
/// [`Accelerator::egress`]: crate::fast::Accelerator::egress
pub(super) type Egresses = [Option<Option<u32>>; 2];

/// The rules, and the names of ports.
#[derive(Debug, Default)]
pub(super) struct Judge {
    policy: Arc<Policy>,
    ports: HashMap<u32, Interface>,
    /// Counts changes of both.
    generation: u64,
}

/// What was judged of a connection, and by what.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Judged {
    generation: u64,
    status: u32,
    egresses: Egresses,
    minds_windows: bool,
    pub(super) judgement: Judgement,
}

impl Judged {
    /// Whether it was judged with packets that leave by these ports.
    pub(super) fn is_of(&self, egresses: Egresses) -> bool {
        self.egresses == egresses
    }
}

impl Judge {
    /// Takes rules; says whether they are others.
    pub(super) fn set_policy(&mut self, policy: Arc<Policy>) -> bool {
        let is_new = std::mem::replace(&mut self.policy, policy) != self.policy;
        self.generation += u64::from(is_new);
        is_new
    }

    /// Takes interfaces by the numbers of ports; says whether they are others.
    pub(super) fn set_ports(&mut self, ports: HashMap<u32, Interface>) -> bool {
        let is_new = std::mem::replace(&mut self.ports, ports) != self.ports;
        self.generation += u64::from(is_new);
        is_new
    }

    /// Whether routes that change change what rules say.
    pub(super) fn asks_routes(&self) -> bool {
        self.policy.asks_routes()
    }

    /// Whether rules let through whatever is of the same family and protocol.
    pub(super) fn is_open_to_all(&self, entry: &Entry) -> bool {
        self.policy.is_open_to_all(entry.family, entry.protocol())
    }

    /// Judges a connection, unless that was done before.
    pub(super) fn judge(
        &self,
        entry: &Entry,
        egresses: Egresses,
        minds_windows: bool,
        before: Option<Judged>,
    ) -> Judged {
        let (generation, status) = (self.generation, entry.status());
        if let Some(judged) = before {
            let now = Judged { generation, status, egresses, minds_windows, ..judged };
            if now == judged {
                return judged;
            }
        }
        let judgement = self.evaluate(entry, egresses, minds_windows);
        Judged { generation, status, egresses, minds_windows, judgement }
    }

    fn evaluate(&self, entry: &Entry, egresses: Egresses, minds_windows: bool) -> Judgement {
        let minds_windows = minds_windows && entry.protocol() == TCP;
        if minds_windows && entry.is_translated() {
            return Err(Refusal::Windows);
        }
        let directions = entry.directions();
        let mut bounds = [PortBounds::default(); 2];
        for (at, direction) in directions.iter().enumerate() {
            let view = ConnectionView {
                arrives: direction.arrives,
                leaves: direction.leaves(),
                tuples: [entry.original, entry.reply],
                direction: at as u8,
                status: entry.status(),
                input: None,
                output: None,
                is_routed: false,
            };
            if self.refusal(&view, minds_windows).is_none() {
                continue;
            }
            // Where answers go is where packets come from, or else they are the kernel's.
            let (entry, exit) = (egresses[1 - at].flatten(), egresses[at].flatten());
            let port = |number: Option<u32>| number.and_then(|number| self.ports.get(&number));
            let (input, output) = (port(entry), port(exit));
            let view = ConnectionView { input, output, is_routed: true, ..view };
            if let Some(refusal) = self.refusal(&view, minds_windows) {
                return Err(refusal);
            }
            bounds[at] = PortBounds { entry: input.and(entry), exit: output.and(exit) };
        }
        Ok(bounds)
    }

    fn refusal(&self, view: &ConnectionView<'_>, minds_windows: bool) -> Option<Refusal> {
        if self.policy.obstacle(view).is_some() {
            return Some(Refusal::Rule);
        }
        let is_minded = minds_windows && self.policy.obstacle_to_invalid(view).is_some();
        is_minded.then_some(Refusal::Windows)
    }
}
