//! Whether rules let all packets of a connection through that would be forwarded past them, and at which
//! ports.
use super::keeper::ConnectionKeeper;
use super::message::{Entry, TCP};
use crate::policy::{ConnectionView, Interface, Policy};
use std::array;
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
    /// One of the others, but rules may give it to a flow table, which the kernel did not say that it did.
    FlowTable,
    /// The kernel would drop, or not translate, segments that are out of window, and it does not see windows
    /// of packets that go past it.
    Windows,
}

impl Refusal {
    pub(super) fn keeper(self) -> ConnectionKeeper {
        match self {
            Refusal::Rule => ConnectionKeeper::Rule,
            Refusal::FlowTable => ConnectionKeeper::FlowTable,
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
        let by_rules = self.evaluate_rules(entry, egresses, minds_windows && entry.protocol() == TCP);
        if by_rules.is_ok() {
            return by_rules;
        }
        match self.evaluate_flow_tables(entry, egresses) {
            None => by_rules,
            Some(_) if !entry.is_offloaded() => Err(Refusal::FlowTable),
            Some(bounds) => Ok(bounds),
        }
    }

    fn evaluate_rules(&self, entry: &Entry, egresses: Egresses, minds_windows: bool) -> Judgement {
        if minds_windows && entry.is_translated() {
            return Err(Refusal::Windows);
        }
        let mut all = [PortBounds::default(); 2];
        for (view, (bounds, of_all)) in views(entry).iter().zip(self.bounds(egresses).iter().zip(&mut all)) {
            if self.refusal(view, minds_windows).is_none() {
                continue;
            }
            if let Some(refusal) = self.refusal(&self.at_ports(view, bounds), minds_windows) {
                return Err(refusal);
            }
            *of_all = *bounds;
        }
        Ok(all)
    }

    /// Where packets of a connection must arrive and leave for the kernel to forward them past rules, if
    /// these have given it to a flow table: at devices of that, or else rules let them through. It minds no
    /// windows of such a connection.
    fn evaluate_flow_tables(&self, entry: &Entry, egresses: Egresses) -> Option<[PortBounds; 2]> {
        let (views, all) = (views(entry), self.bounds(egresses));
        let views: [ConnectionView<'_>; 2] = array::from_fn(|at| self.at_ports(&views[at], &all[at]));
        let tables = [self.policy.flow_tables(&views[0])?, self.policy.flow_tables(&views[1])?].concat();
        let passes = |view: &ConnectionView<'_>| {
            let input = view.input.filter(|_| view.output.is_some());
            input.is_some_and(|input| tables.iter().all(|table| table.has_device(&input.name)))
                || self.policy.obstacle(view).is_none()
        };
        (!tables.is_empty() && views.iter().all(passes)).then_some(all)
    }

    /// The ports that packets of both directions come by and leave by. Where answers go is where packets come
    /// from, or else they are the kernel's.
    fn bounds(&self, egresses: Egresses) -> [PortBounds; 2] {
        let named = egresses.map(|port| port.flatten().filter(|number| self.ports.contains_key(number)));
        [0, 1].map(|at| PortBounds { entry: named[1 - at], exit: named[at] })
    }

    fn at_ports<'a>(&'a self, view: &ConnectionView<'a>, bounds: &PortBounds) -> ConnectionView<'a> {
        let port = |number: Option<u32>| number.and_then(|number| self.ports.get(&number));
        ConnectionView { input: port(bounds.entry), output: port(bounds.exit), is_routed: true, ..*view }
    }

    fn refusal(&self, view: &ConnectionView<'_>, minds_windows: bool) -> Option<Refusal> {
        if self.policy.obstacle(view).is_some() {
            return Some(Refusal::Rule);
        }
        let is_minded = minds_windows && self.policy.obstacle_to_invalid(view).is_some();
        is_minded.then_some(Refusal::Windows)
    }
}

/// Packets of both directions, wherever they arrive and leave.
fn views(entry: &Entry) -> [ConnectionView<'static>; 2] {
    let directions = entry.directions();
    [0, 1].map(|at| ConnectionView {
        arrives: directions[at].arrives,
        leaves: directions[at].leaves(),
        tuples: [entry.original, entry.reply],
        direction: at as u8,
        status: entry.status(),
        input: None,
        output: None,
        is_routed: false,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::connections::message::tests::{established, offloaded};
    use crate::policy::flow_table_policy;

    /// Rules give connections to a flow table with these devices, and drop all. `lan0` is port 0, `wan0` is
    /// port 1.
    fn judge(devices: &[&str], flags: u32) -> Judge {
        let mut judge = Judge::default();
        judge.set_policy(Arc::new(flow_table_policy(devices, flags)));
        let port = |(number, name): (u32, &str)| (number, Interface { index: 9, name: name.to_owned() });
        judge.set_ports([(0, "lan0"), (1, "wan0")].into_iter().map(port).collect());
        judge
    }

    #[test]
    fn what_the_kernel_has_in_a_flow_table_passes_rules_where_it_arrives_at_devices_of_that() {
        let egresses = [Some(Some(1)), Some(Some(0))];
        let both = &["lan0", "wan0"];
        let is_judged =
            |judge: Judge, entry: Entry, egresses| judge.judge(&entry, egresses, true, None).judgement;
        let bounds = |entry, exit| PortBounds { entry: Some(entry), exit: Some(exit) };
        let allowed = Ok([bounds(0, 1), bounds(1, 0)]);
        assert_eq!(is_judged(judge(both, 0), offloaded(), egresses), allowed, "windows don't matter");
        let found = is_judged(judge(both, 0), established(), egresses);
        assert_eq!(found, Err(Refusal::FlowTable), "not there yet");
        let mut back = offloaded();
        back.forget_offload();
        assert_eq!(is_judged(judge(both, 0), back, egresses), Err(Refusal::FlowTable), "rules have changed");
        // Answers would come to rules that drop them.
        assert_eq!(is_judged(judge(&["lan0"], 0), offloaded(), egresses), Err(Refusal::Windows));
        assert_eq!(is_judged(judge(&["eth9"], 0), offloaded(), egresses), Err(Refusal::Windows));
        let found = is_judged(judge(both, 1), offloaded(), egresses);
        assert_eq!(found, Err(Refusal::Windows), "a card forwards");
        for unknown in [[None, Some(Some(0))], [Some(None), Some(Some(0))], [Some(Some(1)), Some(Some(7))]] {
            assert_eq!(is_judged(judge(both, 0), offloaded(), unknown), Err(Refusal::Windows), "{unknown:?}");
        }
    }
}
