//! A checked configuration: its layout, the class of each element, and how it is run.
use crate::class::{Class, Classes};
use crate::context::Context;
use crate::graph::Graph;
use crate::handler::RouterHandler;
use crate::layout::{ClassTraits, Home, Layout};
use crate::names::Names;
use crate::resources::Resources;
use artery_lang::{Ir, Mode, Processing};
use artery_rcu::Domain;
use std::any::Any;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

/// A checked configuration and where its elements run.
#[derive(Clone)]
pub struct Plan {
    layout: Layout,
    /// The class of each element.
    classes: Vec<&'static Class>,
    /// What there is to know beyond the configuration; for handlers.
    circumstances: Circumstances,
}

/// How a configuration is run, as far as its handlers report.
#[derive(Clone, Default)]
pub(crate) struct Circumstances {
    pub(crate) classes: Classes,
    pub(crate) simulated: bool,
    pub(crate) replaceable: bool,
    /// Handlers of the router beside those that every router has, and what they tell of.
    pub(crate) handlers: &'static [RouterHandler],
    pub(crate) resources: Arc<Resources>,
    /// What elements that are made later need as the first ones did; no domain where none can be made.
    pub(crate) names: Names,
    pub(crate) domain: Option<Arc<Domain>>,
}

impl Deref for Plan {
    type Target = Layout;
    fn deref(&self) -> &Layout {
        &self.layout
    }
}

impl DerefMut for Plan {
    fn deref_mut(&mut self) -> &mut Layout {
        &mut self.layout
    }
}

impl Plan {
    /// Makes the plan of a configuration without errors. [`Layout::assign_workers`] completes it.
    pub fn new(ir: &Ir, processing: &Processing, classes: Classes, workers: usize, burst: usize) -> Plan {
        let circumstances = Circumstances { classes, ..Circumstances::default() };
        let layout = Layout::new(workers, burst);
        let mut plan = Plan { layout, classes: Vec::new(), circumstances };
        for (n, node) in ir.nodes.iter().enumerate() {
            let class = classes.find_class(&node.class).expect("the configuration was checked");
            let inputs = processing.inputs[n].iter().map(|mode| *mode == Mode::Pull).collect();
            let outputs = processing.outputs[n].iter().map(|mode| *mode == Mode::Pull).collect();
            plan.add_element(&node.name, class, &node.config, inputs, outputs);
        }
        plan.connect(ir.edges.clone(), ir.requirements.clone(), artery_lang::print_flat(ir));
        plan
    }

    /// The plan of nothing.
    pub(crate) fn empty() -> Plan {
        let layout = Layout::new(1, 1);
        Plan { layout, classes: Vec::new(), circumstances: Circumstances::default() }
    }

    /// The plan of one element alone, for the bench.
    pub(crate) fn of_one(
        class: &'static Class,
        config: &str,
        inputs: Vec<bool>,
        outputs: Vec<bool>,
        workers: usize,
    ) -> Plan {
        let layout = Layout::new(workers, artery_packet::BATCH);
        let mut plan = Plan { layout, classes: Vec::new(), circumstances: Circumstances::default() };
        plan.add_element("e", class, config, inputs, outputs);
        plan.set_home(0, if workers > 1 { Home::Every } else { Home::Worker(0) });
        plan
    }

    fn add_element(
        &mut self,
        name: &str,
        class: &'static Class,
        config: &str,
        inputs: Vec<bool>,
        outputs: Vec<bool>,
    ) {
        let traits = ClassTraits {
            name: class.name,
            phase: class.phase,
            per_worker: class.per_worker,
            boundary: class.boundary,
        };
        self.layout.add_node(name, traits, config, inputs, outputs);
        self.classes.push(class);
    }

    /// Sets how the configuration is run.
    pub(crate) fn set_circumstances(&mut self, circumstances: Circumstances) {
        self.circumstances = circumstances;
    }
    /// What elements need that are made while the router runs.
    pub(crate) fn circumstances(&self) -> &Circumstances {
        &self.circumstances
    }
    pub(crate) fn is_simulated(&self) -> bool {
        self.circumstances.simulated
    }
    pub(crate) fn is_replaceable(&self) -> bool {
        self.circumstances.replaceable
    }
    /// Handlers of the router beside those that every router has.
    pub(crate) fn router_handlers(&self) -> &'static [RouterHandler] {
        self.circumstances.handlers
    }
    /// What outlives the graph.
    pub(crate) fn resources(&self) -> &Resources {
        &self.circumstances.resources
    }
    /// All classes that configurations can use.
    pub(crate) fn classes(&self) -> Classes {
        self.circumstances.classes
    }
    /// Names of all classes that configurations can use, other names that these have too.
    pub(crate) fn class_names(&self) -> Vec<&'static str> {
        let names = |class: &&'static Class| std::iter::once(class.name).chain(class.aliases.iter().copied());
        self.classes().0.iter().flat_map(names).collect()
    }
    /// The class of an element, by its node number.
    pub fn class(&self, node: usize) -> &'static Class {
        self.classes[node]
    }
}

impl Graph {
    /// The plan that the graph was made by, with its classes.
    pub(crate) fn whole_plan(&self) -> Arc<Plan> {
        let plan: Arc<dyn Any + Send + Sync> = self.plan.clone();
        plan.downcast().unwrap_or_else(|_| unreachable!("every graph is made by a plan of this type"))
    }
}

impl Context<'_> {
    /// All classes that the configuration could use.
    pub fn classes(&self) -> Classes {
        self.graph().whole_plan().classes()
    }
}
