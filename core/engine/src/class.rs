//! What the language, the manual and the builder know about a kind of element: plain data.
use crate::arg::find_arg;
pub use crate::arg::{Arg, Position};
use crate::args::{ArgError, Args};
use crate::element::Element;
use crate::handler::Handler;
pub use crate::layout::Phase;
use artery_lang::{ClassInfo, ClassLookup};

/// One kind of element. Every element file has one, and the list in `artery-elements` names them all.
pub struct Class {
    /// The name a configuration uses.
    pub name: &'static str,
    /// Older or other spellings that mean this class.
    pub aliases: &'static [&'static str],
    /// The chapter of the manual it belongs to.
    pub group: &'static str,
    /// One line, third person: what it does to packets.
    pub summary: &'static str,
    /// The manual's text, in Markdown: what it expects, what it changes, every output.
    pub manual: &'static str,
    /// A configuration that stands alone and parses.
    pub example: &'static str,
    /// Port count code: `1/1-2`, `1/-`, `-/=`.
    pub ports: &'static str,
    /// Processing code: `a/ah`, with `h` push, `l` pull, `a` agnostic.
    pub processing: &'static str,
    /// Flow code: to which outputs a packet of an input may go; `x/x` is all to all.
    pub flow: &'static str,
    /// Arguments, positional ones first and in order.
    pub args: &'static [Arg],
    /// Handlers besides those that every element has.
    pub handlers: &'static [Handler],
    /// Serves the handlers that an element declares for itself with [`Args::declare_handler`]. It is called
    /// with the handler's name, a space, and the parameters or value.
    pub own_handlers: Option<&'static Handler>,
    /// When elements of this class are made and started.
    pub phase: Phase,
    /// Whether a copy on every worker does what one instance would; see [`crate::graph`].
    pub per_worker: bool,
    /// Whether it can be pushed to from another worker than its own: queues, between two workers' parts.
    pub boundary: bool,
    /// Whether its packets must be as they go over a wire: what senders left undone is finished
    /// before it sees them (see [`Packet::offload`](crate::Packet::offload)), and long packets
    /// come as their segments.
    pub finished: bool,
    /// Whether the arguments of an instance can change while it runs, by writing its handler `config`: a
    /// new instance, made of the new arguments, replaces it. Right for classes whose
    /// [`Element::take_state`] hands over all that packets change in an instance, such as the level of a
    /// bucket; what the arguments set starts afresh.
    pub live: bool,
    /// Which signals its instances give.
    pub signals: SignalKinds,
    /// Makes an element of its arguments.
    pub build: fn(&mut Args<'_>) -> Result<Box<dyn Element>, ArgError>,
}

impl Class {
    /// What most classes share: one agnostic input and output, no arguments.
    /// `..Class::DEFAULT` ends a `CLASS`.
    pub const DEFAULT: Class = Class {
        name: "",
        aliases: &[],
        group: "",
        summary: "",
        manual: "",
        example: "",
        ports: "1/1",
        processing: "a/a",
        flow: "x/x",
        args: &[],
        handlers: &[],
        own_handlers: None,
        phase: Phase::Default,
        per_worker: false,
        boundary: false,
        finished: false,
        live: false,
        signals: SignalKinds::None,
        build: |_| unreachable!("every class says how it is built"),
    };
    /// The same for classes of which copies on several workers together do what one instance would do.
    pub const PER_WORKER: Class = Class { per_worker: true, ..Class::DEFAULT };

    /// What the language needs to know.
    pub fn info(&self) -> ClassInfo {
        ClassInfo { name: self.name, ports: self.ports, processing: self.processing, flow: self.flow }
    }
    /// The declared argument of this name.
    pub fn arg(&self, name: &str) -> Option<&'static Arg> {
        find_arg(self.args, name)
    }
    /// The declared handler of this name.
    pub fn handler(&self, name: &str) -> Option<&'static Handler> {
        self.handlers.iter().find(|handler| handler.name == name)
    }
}

/// Which signals the instances of a class give (Click's notifiers).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SignalKinds {
    /// None. An element that pulls from it must use the signal of its upstream.
    None,
    /// Whether there is something to pull.
    NonEmpty,
    /// That, and whether there is room to push.
    NonEmptyAndNonFull,
    /// It never has anything to pull (Idle, Discard).
    NeverActive,
}

/// A list of classes as the language and the builder look at it.
#[derive(Clone, Copy, Default)]
pub struct Classes(pub &'static [&'static Class]);

impl Classes {
    /// The class that a configuration means by `name`.
    pub fn find_class(&self, name: &str) -> Option<&'static Class> {
        self.0.iter().copied().find(|class| class.name == name || class.aliases.contains(&name))
    }
}

impl ClassLookup for Classes {
    fn find_class(&self, name: &str) -> Option<ClassInfo> {
        self.find_class(name).map(Class::info)
    }
    fn class_names(&self) -> Vec<&str> {
        self.0.iter().flat_map(|class| std::iter::once(&class.name).chain(class.aliases)).copied().collect()
    }
    fn provides_package(&self, package: &str) -> bool {
        self.find_class(package).is_some()
    }
}
