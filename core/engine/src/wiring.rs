//! From a plan to the nodes of a graph: who pushes to whom, who pulls from whom, who
//! listens to whose signals.
use crate::class::SignalKinds;
use crate::graph::Control;
use crate::graph::{Graph, Input, Node, Output, Sender, Signal, SignalSource};
use crate::handover::{PortRef, Receiver, new_ring};
use crate::layout::Home;
use crate::plan::Plan;
use artery_lang::flow::flows_between;
use artery_packet::Batch;
use std::collections::HashSet;
use std::sync::Arc;

/// The nodes of every worker's graph; all workers number them alike.
pub(crate) fn wire_nodes(plan: &Plan) -> Vec<Node> {
    let wiring = Wiring::new(plan);
    let mut nodes: Vec<Node> = (0..plan.len()).map(|node| wiring.build_node(node)).collect();
    for node in 0..plan.len() {
        for signal in [Signal::NonEmpty, Signal::NonFull] {
            for source in wiring.watched_sources(node, signal) {
                nodes[source as usize].listeners[signal as usize].push(node as u32);
            }
        }
    }
    nodes
}

/// One worker's ends of the connections between workers.
#[derive(Default)]
pub(crate) struct CrossingEnds {
    /// With the element and output that each takes the packets of.
    senders: Vec<(usize, usize, Sender)>,
    receivers: Vec<Receiver>,
}

impl CrossingEnds {
    /// Moves the ends into memory of their graph.
    pub(crate) fn move_into(&mut self, graph: &mut Graph) {
        for (node, output, sender) in self.senders.drain(..) {
            graph.nodes[node].outputs[output].remote = Some(sender);
        }
        graph.incoming.append(&mut self.receivers);
        graph.own_incoming = graph.incoming.len();
    }
}

/// Makes the connections between elements of different workers; gives each worker's ends.
pub(crate) fn connect_workers(plan: &Plan, control: &Arc<Control>) -> Vec<CrossingEnds> {
    let mut ends: Vec<CrossingEnds> = (0..plan.workers()).map(|_| CrossingEnds::default()).collect();
    for edge in plan.edges() {
        let ((up, output), (down, input)) = (edge.from, edge.to);
        let Home::Worker(to) = plan.home(down) else { continue };
        if plan.inputs(down)[input] {
            continue;
        }
        for from in (0..plan.workers()).filter(|&from| from != to && plan.is_on(up, from)) {
            let (sender, receiver) = new_ring(control, to, (down as u32, input as u16));
            ends[from].senders.push((up, output, sender));
            ends[to].receivers.push(receiver);
        }
    }
    ends
}

struct Wiring<'a> {
    plan: &'a Plan,
    /// Where each push output leads.
    to: Vec<Vec<Option<PortRef>>>,
    /// Where each pull input comes from.
    from: Vec<Vec<Option<PortRef>>>,
}

impl<'a> Wiring<'a> {
    fn new(plan: &'a Plan) -> Wiring<'a> {
        let mut to: Vec<Vec<_>> = (0..plan.len()).map(|n| vec![None; plan.outputs(n).len()]).collect();
        let mut from: Vec<Vec<_>> = (0..plan.len()).map(|n| vec![None; plan.inputs(n).len()]).collect();
        for edge in plan.edges() {
            let ((up, output), (down, input)) = (edge.from, edge.to);
            if plan.inputs(down)[input] {
                from[down][input] = Some((up as u32, output as u16));
            } else {
                to[up][output] = Some((down as u32, input as u16));
            }
        }
        Wiring { plan, to, from }
    }

    fn build_node(&self, node: usize) -> Node {
        let input =
            |port: usize| Input { from: self.from[node][port], sources: self.pull_sources(node, port) };
        let output = |port: usize| Output {
            to: self.to[node][port],
            is_pull: self.plan.outputs(node)[port],
            remote: None,
            batch: Batch::default(),
            sinks: self.push_sinks(node, port),
        };
        Node {
            inputs: (0..self.plan.inputs(node).len()).map(input).collect(),
            outputs: (0..self.plan.outputs(node).len()).map(output).collect(),
            counts: Default::default(),
            is_pushed_to: self.plan.inputs(node).contains(&false),
            finished: self.plan.class(node).finished,
            signals: [false; 2],
            room: 0,
            listeners: Default::default(),
        }
    }

    /// Who says whether there is something to pull at an input.
    fn pull_sources(&self, node: usize, input: usize) -> Vec<SignalSource> {
        let mut found = Vec::new();
        self.search_up(node, input, &mut found, &mut HashSet::new());
        found
    }

    fn search_up(
        &self,
        node: usize,
        input: usize,
        found: &mut Vec<SignalSource>,
        seen: &mut HashSet<PortRef>,
    ) {
        let Some(place) = self.from[node][input].filter(|place| seen.insert(*place)) else { return };
        let (up, output) = (place.0 as usize, usize::from(place.1));
        match self.plan.class(up).signals {
            SignalKinds::NonEmpty | SignalKinds::NonEmptyAndNonFull => {
                found.push(SignalSource::Element(place.0))
            }
            SignalKinds::NeverActive => {}
            SignalKinds::None => {
                let flow = self.plan.class(up).flow;
                let inputs = self.plan.inputs(up).iter().enumerate();
                let ports: Vec<usize> = inputs
                    .filter(|(i, pull)| **pull && flows_between(flow, *i, output))
                    .map(|(i, _)| i)
                    .collect();
                if ports.is_empty() {
                    found.push(SignalSource::Unknown);
                }
                ports.into_iter().for_each(|port| self.search_up(up, port, found, seen));
            }
        }
    }

    /// Who says whether there is room behind an output.
    fn push_sinks(&self, node: usize, output: usize) -> Vec<SignalSource> {
        let mut found = Vec::new();
        self.search_down(node, output, &mut found, &mut HashSet::new());
        found
    }

    fn search_down(
        &self,
        node: usize,
        output: usize,
        found: &mut Vec<SignalSource>,
        seen: &mut HashSet<PortRef>,
    ) {
        let Some(place) = self.to[node][output].filter(|place| seen.insert(*place)) else { return };
        let (down, input) = (place.0 as usize, usize::from(place.1));
        if self.plan.home(down) != self.plan.home(node) {
            return found.push(SignalSource::Unknown);
        }
        if self.plan.class(down).signals == SignalKinds::NonEmptyAndNonFull {
            return found.push(SignalSource::Element(place.0));
        }
        let flow = self.plan.class(down).flow;
        let outputs = self.plan.outputs(down).iter().enumerate();
        let ports: Vec<usize> =
            outputs.filter(|(o, pull)| !**pull && flows_between(flow, input, *o)).map(|(o, _)| o).collect();
        if ports.is_empty() {
            found.push(SignalSource::Unknown);
        }
        ports.into_iter().for_each(|port| self.search_down(down, port, found, seen));
    }

    /// The elements whose signal should wake the task of `node`: it pulls, or pushes, of its own accord, or
    /// gives a signal that depends on theirs.
    fn watched_sources(&self, node: usize, signal: Signal) -> HashSet<u32> {
        let (plan, flow) = (self.plan, self.plan.class(node).flow);
        let (inputs, outputs) = (plan.inputs(node), plan.outputs(node));
        let relays = plan.class(node).signals == SignalKinds::NonEmpty;
        let sources: Vec<SignalSource> = match signal {
            Signal::NonEmpty => (0..inputs.len())
                .filter(|&i| inputs[i])
                .filter(|&i| relays || !(0..outputs.len()).any(|o| outputs[o] && flows_between(flow, i, o)))
                .flat_map(|i| self.pull_sources(node, i))
                .collect(),
            Signal::NonFull => (0..outputs.len())
                .filter(|&o| {
                    !outputs[o] && !(0..inputs.len()).any(|i| !inputs[i] && flows_between(flow, i, o))
                })
                .flat_map(|o| self.push_sinks(node, o))
                .collect(),
        };
        let element = |source| if let SignalSource::Element(node) = source { Some(node) } else { None };
        sources.into_iter().filter_map(element).collect()
    }
}
