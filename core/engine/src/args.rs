//! An element's configuration string as typed arguments.
use crate::arg::{Arg, Position};
pub use crate::arg_value::{Annotation, ArgValue, Bandwidth, Limit, with_slash};
use crate::class::Class;
use crate::element::Element;
use crate::layout::{Home, ReadEffect};
use crate::names::Names;
use crate::plan::Plan;
use crate::resources::Resources;
use artery_packet::Pool;
use artery_rcu::Domain;
use std::any::{Any, TypeId};
use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::Arc;

mod sort;

use sort::{GivenArgs, sort_args};
pub(crate) use sort::{WrittenArg, split_args};

/// What is wrong with an element's arguments, in Click's words where it has some.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ArgError {
    /// A keyword that the class does not have.
    #[error("{0}: unknown argument")]
    Unknown(String),
    /// A value that can't be read.
    #[error("{arg}: {fault}")]
    Invalid {
        /// The argument's name, as the class declares it.
        arg: &'static str,
        /// The text that was given.
        value: String,
        /// What is wrong with it, in a few words.
        fault: String,
        /// What kind of value the argument takes.
        wants: String,
    },
    /// More positional arguments than the class has; the first that is too many.
    #[error("too many arguments")]
    TooMany(String),
    /// An argument that must be given.
    #[error("{0}: required argument missing")]
    Missing(&'static str),
    /// Arguments that are readable and still make no sense.
    #[error("{0}")]
    Wrong(String),
    /// One argument that makes no sense.
    #[error("{why}")]
    WrongAt {
        /// What is wrong, in a sentence.
        why: String,
        /// The argument's text, or the part of it that is meant.
        text: String,
    },
}

impl ArgError {
    /// Readable arguments that make no sense, said in a sentence.
    pub fn wrong(why: impl Into<String>) -> ArgError {
        ArgError::Wrong(why.into())
    }
    /// The same, of one argument: `text` is what the configuration says.
    pub fn wrong_at(text: impl Into<String>, why: impl Into<String>) -> ArgError {
        ArgError::WrongAt { why: why.into(), text: text.into() }
    }
    /// The text of the configuration that is wrong, if it is not all of it; longer texts that
    /// hold it come first.
    pub fn wrong_texts(&self) -> Vec<String> {
        match self {
            ArgError::Invalid { arg, value, .. } => vec![format!("{arg} {value}"), value.clone()],
            ArgError::Unknown(text) | ArgError::TooMany(text) | ArgError::WrongAt { text, .. } => {
                vec![text.clone()]
            }
            ArgError::Missing(_) | ArgError::Wrong(_) => Vec::new(),
        }
    }
    /// What to do about it, if `class` tells enough.
    pub fn remedy_for(&self, class: &Class) -> Option<String> {
        match self {
            ArgError::Invalid { arg, wants, .. } => Some(format!("{arg} wants {wants}")),
            ArgError::Unknown(_) | ArgError::TooMany(_) if class.args.is_empty() => {
                Some(format!("{} takes no arguments", class.name))
            }
            ArgError::Unknown(_) | ArgError::TooMany(_) | ArgError::Missing(_) => {
                Some(format!("{} takes: {}", class.name, usage_line(class)))
            }
            ArgError::Wrong(_) | ArgError::WrongAt { .. } => None,
        }
    }
}

/// A class's arguments on one line, as a user would type them.
fn usage_line(class: &Class) -> String {
    let spell = |arg: &Arg| match (arg.position, arg.default) {
        (Position::Positional, None) => arg.name.to_string(),
        (Position::Positional, Some(_)) => format!("[{}]", arg.name),
        (Position::Keyword, _) => format!("[{} {}]", arg.name, arg.kind),
        (Position::Rest, _) => format!("{} …", arg.name),
    };
    class.args.iter().map(spell).collect::<Vec<_>>().join(", ")
}

/// What elements may use while they are made.
pub struct Environment<'a> {
    /// Names of addresses and devices.
    pub names: &'a mut Names,
    /// What belongs to the router.
    pub resources: &'a Arc<Resources>,
    /// Where packets come from.
    pub pool: &'static Pool,
    /// Grace periods of published values.
    pub domain: &'a Arc<Domain>,
    /// Which elements exist and where they run.
    pub plan: &'a mut Plan,
    /// Values that copies of one element on several workers share, by element and type.
    pub shared: &'a mut HashMap<(usize, TypeId), Arc<dyn Any + Send + Sync>>,
    /// Collects what is unusual about the arguments without being an error.
    pub warnings: &'a mut Vec<ArgWarning>,
}

/// A warning about an element's arguments: the router runs all the same.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ArgWarning {
    /// What is unusual, in Click's words where Click warns too.
    pub text: String,
    /// What to do about it.
    pub help: Option<String>,
}

/// The arguments of one element, and what it may use while it is made.
pub struct Args<'a> {
    class: &'static Class,
    /// The element's number in the configuration.
    node: usize,
    /// By declared argument; for a `Rest` argument, all of them.
    given: GivenArgs,
    /// Numbers of connected inputs and outputs.
    ports: (usize, usize),
    /// Which worker the instance will run on.
    worker: usize,
    environment: Environment<'a>,
    /// What was found wrong so far.
    wrong: RefCell<Vec<ArgError>>,
}

impl<'a> Args<'a> {
    /// Sorts the arguments of a configuration string into those that the class declares.
    pub fn parse(
        class: &'static Class,
        node: usize,
        config: &str,
        ports: (usize, usize),
        worker: usize,
        environment: Environment<'a>,
    ) -> Args<'a> {
        let (given, wrong) = sort_args(class.args, config);
        environment.names.enter_scope(environment.plan.prefix(node));
        Args { class, node, given, ports, worker, environment, wrong: wrong.into() }
    }

    /// Makes the element, or says all that is wrong with its arguments.
    pub(crate) fn build_element(mut self) -> Result<Box<dyn Element>, Vec<ArgError>> {
        let built = (self.class.build)(&mut self);
        let mut wrong = self.wrong.into_inner();
        match built {
            Ok(element) if wrong.is_empty() => return Ok(element),
            // What else the class says may be the fault of a value that stood in for a wrong one.
            Err(error) if wrong.is_empty() || matches!(error, ArgError::Invalid { .. }) => wrong.push(error),
            _ => {}
        }
        wrong.sort_by_key(|error| match error {
            ArgError::Unknown(_) => 1,
            ArgError::TooMany(_) => 2,
            _ => 0,
        });
        Err(wrong)
    }

    /// The value of a declared argument: what was given, or its default.
    ///
    /// For a value that can't be read another stands in where the type has one, so that the class reads on
    /// and all mistakes are found; no element comes of that.
    pub fn read<T: ArgValue>(&self, name: &'static str) -> Result<T, ArgError> {
        let arg = self.declared_arg(name);
        let given = self.given.get(name).and_then(|values| values.last());
        let value = match (given, arg.default) {
            (Some(value), _) => value.as_str(),
            (None, Some("")) => return T::absent().ok_or(ArgError::Missing(arg.name)),
            (None, Some(default)) => default,
            (None, None) => return Err(ArgError::Missing(arg.name)),
        };
        T::parse(value, self.environment.names).or_else(|wants| {
            let (value, fault) = (value.to_string(), T::fault(value));
            let error = ArgError::Invalid { arg: arg.name, value, fault, wants };
            let Ok(stand_in) = T::parse(T::EXAMPLE, self.environment.names) else { return Err(error) };
            let mut wrong = self.wrong.borrow_mut();
            if !wrong.contains(&error) {
                wrong.push(error);
            }
            Ok(stand_in)
        })
    }
    /// Records a mistake, so that the class reads on and all mistakes are found; the element is not made.
    pub fn record_error(&self, error: ArgError) {
        self.wrong.borrow_mut().push(error);
    }
    /// Whether the configuration gives this argument.
    pub fn is_given(&self, name: &'static str) -> bool {
        self.given.contains_key(self.declared_arg(name).name)
    }
    /// The texts of a `Rest` argument, comments removed, quotes kept.
    pub fn rest(&self, name: &'static str) -> &[String] {
        self.given.get(self.declared_arg(name).name).map_or(&[], Vec::as_slice)
    }
    fn declared_arg(&self, name: &str) -> &'static Arg {
        self.class
            .arg(name)
            .unwrap_or_else(|| panic!("{} reads {name}, which it does not declare", self.class.name))
    }

    /// Number of connected inputs.
    pub fn inputs(&self) -> usize {
        self.ports.0
    }
    /// Number of connected outputs.
    pub fn outputs(&self) -> usize {
        self.ports.1
    }
    /// The element's name in the configuration, with that of its compounds.
    pub fn name(&self) -> &str {
        self.environment.plan.name(self.node)
    }
    /// The name of the compound the element is in, with the slash; empty at top level.
    pub fn prefix(&self) -> &str {
        self.name().rfind('/').map_or("", |at| &self.name()[..=at])
    }
    /// The number of the element called `name` here: in this compound, or further out.
    pub fn find_element(&self, name: &str) -> Option<usize> {
        self.environment.plan.find_node(name, self.prefix())
    }
    /// The class of an element.
    pub fn class_of(&self, element: usize) -> &'static Class {
        self.environment.plan.class(element)
    }
    /// Which worker this instance will run on, and how many there are.
    pub fn worker(&self) -> (usize, usize) {
        (self.worker, self.environment.plan.workers())
    }
    /// Which of the element's copies this instance is, and how many there are.
    pub fn copy_index(&self) -> (usize, usize) {
        match self.environment.plan.home(self.node) {
            Home::Worker(_) => (0, 1),
            Home::Every => self.worker(),
        }
    }
    /// Asks for the element (and all that is connected with it, up to queues) to run on `worker`.
    pub fn place_on(&mut self, element: usize, worker: usize) {
        self.environment.plan.place_node(element, worker);
    }
    /// The elements of the router: their number and names.
    pub fn elements(&self) -> impl Iterator<Item = (usize, &str)> {
        let plan = &*self.environment.plan;
        (0..plan.len()).map(|element| (element, plan.name(element)))
    }
    /// Sets how many tickets an element's task starts with; 1024 is what everyone has.
    pub fn set_tickets(&mut self, element: usize, tickets: u32) {
        self.environment.plan.set_tickets(element, tickets);
    }
    /// How many tickets an element's task starts with.
    pub fn tickets(&self, element: usize) -> u32 {
        self.environment.plan.tickets(element)
    }
    /// Gives this element a handler that its class does not list; `*` stands for any name. The class's
    /// `own_handlers` serves it. `flags` are those that the `handlers` handler prints.
    pub fn declare_handler(&mut self, name: &str, flags: &'static str) {
        self.environment.plan.declare_handler(self.node, name, flags);
    }
    /// Declares what a read of this element's handler may do. Who may only read can't call from outside what
    /// acts, by itself or by what it calls. `*` stands for any that [`Args::declare_handler`] declares.
    pub fn declare_read_effect(&mut self, name: &'static str, effect: ReadEffect) {
        self.environment.plan.declare_read_effect(self.node, name, effect);
    }
    /// Warns of something unusual in the arguments that is not an error, with an optional remedy.
    pub fn warn(&mut self, text: impl Into<String>, help: Option<&str>) {
        self.environment.warnings.push(ArgWarning { text: text.into(), help: help.map(str::to_string) });
    }
    /// Names of addresses and devices.
    pub fn names(&self) -> &Names {
        self.environment.names
    }
    /// Names, to add some.
    pub fn names_mut(&mut self) -> &mut Names {
        self.environment.names
    }
    /// The router's value of this type, such as its ports.
    pub fn resource<T: Any + Send + Sync + Default>(&self) -> Arc<T> {
        self.environment.resources.get()
    }
    /// Where packets come from.
    pub fn pool(&self) -> &'static Pool {
        self.environment.pool
    }
    /// Grace periods for published values.
    pub fn domain(&self) -> &Arc<Domain> {
        self.environment.domain
    }
    /// The value of this type that an earlier copy of this element has
    /// made by [`shared_value`](Self::shared_value).
    pub fn already_shared<T: Any + Send + Sync>(&self) -> Option<Arc<T>> {
        self.environment.shared.get(&(self.node, TypeId::of::<T>()))?.clone().downcast().ok()
    }
    /// A value that the copies of this element on all workers share, such as what is left of a limit.
    pub fn shared_value<T: Any + Send + Sync>(&mut self, make: impl FnOnce() -> T) -> Arc<T> {
        let key = (self.node, TypeId::of::<T>());
        let value = self.environment.shared.entry(key).or_insert_with(|| Arc::new(make()));
        value.clone().downcast().unwrap_or_else(|_| unreachable!("the key is the type"))
    }
}
