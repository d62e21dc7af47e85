//! Read and write handlers: text in, text out.
//!
//! A class lists its handlers as data; each wraps a function on the element's own type:
//!
//! ```
//! # use artery_engine::{Handler, Show, Write, HandlerError, Simple, Context, Packet};
//! # struct Counter { packets: u64 }
//! # impl Simple for Counter {
//! #     fn process(&mut self, p: Packet, _: &mut Context<'_>) -> Option<Packet> { Some(p) }
//! # }
//! static HANDLERS: &[Handler] = &[
//!     Handler::read("count", "packets seen so far", &Show(|c: &mut Counter| c.packets)).sum(),
//!     Handler::write("reset", "sets the counts to zero", &Write(|c: &mut Counter, _, _| {
//!         c.packets = 0;
//!         Ok(())
//!     })),
//! ];
//! ```
use crate::arg_value::ArgValue;
use crate::context::Context;
use crate::element::Element;
pub use crate::handler_error::HandlerError;
use crate::names::Names;
use crate::resources::Resources;
use std::any::Any;
use std::fmt::Display;

/// One handler of a class.
pub struct Handler {
    /// Its name, unique in the class.
    pub name: &'static str,
    /// What it gives or does, for the manual.
    pub doc: &'static str,
    /// The function that reads, if it can be read.
    pub read: Option<&'static dyn ReadCall>,
    /// The function that writes, if it can be written.
    pub write: Option<&'static dyn WriteCall>,
    /// Whether a read takes parameters.
    pub takes_parameters: bool,
    /// Where a class runs on every worker: whether values are added up. Otherwise the first worker answers.
    pub sums: bool,
    /// Where a class runs on every worker: whether a read asks all copies, and gives what they
    /// say one after another.
    pub joins: bool,
    /// Where a class runs on every worker: whether a write is for what all copies share, so that one does it.
    pub once: bool,
    /// Whether it belongs on a button in a user interface: a write without value.
    pub button: bool,
    /// The argument that a write changes: `config` then shows the new value.
    pub sets: Option<&'static str>,
    /// Whether it is for this configuration's own use and refuses calls from outside.
    pub private: bool,
    /// Reads in its place when the call comes from outside, for long answers: see [`Handler::with_aside`].
    pub aside: Option<Aside>,
}

/// A read of what outlives an element's graph: `(resources, the element's name, parameters)`.
pub type Aside = fn(&Resources, &str, &str) -> Result<String, HandlerError>;

impl Handler {
    const fn new(name: &'static str, doc: &'static str) -> Handler {
        Handler {
            name,
            doc,
            read: None,
            write: None,
            takes_parameters: false,
            sums: false,
            joins: false,
            once: false,
            button: false,
            sets: None,
            private: false,
            aside: None,
        }
    }
    /// A handler that is read.
    pub const fn read(name: &'static str, doc: &'static str, read: &'static dyn ReadCall) -> Handler {
        Handler { read: Some(read), ..Handler::new(name, doc) }
    }
    /// A handler that is written.
    pub const fn write(name: &'static str, doc: &'static str, write: &'static dyn WriteCall) -> Handler {
        Handler { write: Some(write), ..Handler::new(name, doc) }
    }
    /// A handler that is read and written as a field of the element.
    pub const fn field<F: ReadCall + WriteCall>(
        name: &'static str,
        doc: &'static str,
        field: &'static F,
    ) -> Handler {
        Handler::read(name, doc, field).and_write(field)
    }
    /// Makes it writable as well.
    pub const fn and_write(mut self, write: &'static dyn WriteCall) -> Handler {
        self.write = Some(write);
        self
    }
    /// Declares that a read takes parameters.
    pub const fn parameters(mut self) -> Handler {
        self.takes_parameters = true;
        self
    }
    /// Declares that values of several workers are added up.
    pub const fn sum(mut self) -> Handler {
        self.sums = true;
        self
    }
    /// Declares that all copies on several workers are read, and their texts concatenated.
    pub const fn join(mut self) -> Handler {
        self.joins = true;
        self
    }
    /// Declares that a write changes what the copies on several workers share: one of them does it, for all.
    pub const fn once(mut self) -> Handler {
        self.once = true;
        self
    }
    /// Declares that it is a write without value.
    pub const fn button(mut self) -> Handler {
        self.button = true;
        self
    }
    /// Declares that a write changes this argument, so that `config` shows it.
    pub const fn sets_argument(mut self, argument: &'static str) -> Handler {
        self.sets = Some(argument);
        self
    }
    /// Gives what reads on the thread of whoever calls from outside, and as long as it takes: packets go on
    /// meanwhile. It says what the read says that runs on the element's worker.
    pub const fn with_aside(mut self, read: Aside) -> Handler {
        self.aside = Some(read);
        self
    }
    /// Declares that calls from outside the configuration, such as by a control socket, are refused.
    pub const fn private(mut self) -> Handler {
        self.private = true;
        self
    }
    /// The letters that the `handlers` handler prints.
    pub fn flag_letters(&self) -> String {
        let letters = [
            (self.read.is_some(), 'r'),
            (self.write.is_some(), 'w'),
            (self.takes_parameters, '+'),
            (self.button, 'b'),
        ];
        letters.iter().filter(|(set, _)| *set).map(|(_, letter)| letter).collect()
    }
}

/// A read handler of the router, which tells of what outlives its graphs. It runs on the
/// thread that calls it.
pub struct RouterHandler {
    /// Its name, which no other handler of the router has.
    pub name: &'static str,
    /// The function that reads.
    pub read: fn(&Resources) -> String,
}

/// Reads from an element of type `E`: `(element, parameters, context)`.
pub struct Read<E>(pub fn(&mut E, &str, &mut Context<'_>) -> Result<String, HandlerError>);

/// Reads a value of an element of type `E`, which needs neither parameters nor the context.
pub struct Show<E, T>(pub fn(&mut E) -> T);

/// Reads a field of an element of type `E`, and writes it as an argument of the same type is read.
pub struct Field<E, T>(pub fn(&mut E) -> &mut T);

/// Writes to an element of type `E`: `(element, value, context)`.
pub struct Write<E>(pub fn(&mut E, &str, &mut Context<'_>) -> Result<(), HandlerError>);

/// A [`Read`] with its element type erased.
pub trait ReadCall: Sync {
    /// Calls it with the element downcast to its type.
    fn call_handler(
        &self,
        element: &mut dyn Element,
        text: &str,
        cx: &mut Context<'_>,
    ) -> Result<String, HandlerError>;
}

/// A [`Write`] with its element type erased.
pub trait WriteCall: Sync {
    /// Calls it with the element downcast to its type.
    fn call_handler(
        &self,
        element: &mut dyn Element,
        text: &str,
        cx: &mut Context<'_>,
    ) -> Result<(), HandlerError>;
}

impl<E: Element> ReadCall for Read<E> {
    fn call_handler(
        &self,
        element: &mut dyn Element,
        text: &str,
        cx: &mut Context<'_>,
    ) -> Result<String, HandlerError> {
        (self.0)(downcast_element(element), text, cx)
    }
}

impl<E: Element, T: Display + 'static> ReadCall for Show<E, T> {
    fn call_handler(
        &self,
        element: &mut dyn Element,
        _: &str,
        _: &mut Context<'_>,
    ) -> Result<String, HandlerError> {
        Ok((self.0)(downcast_element(element)).to_string())
    }
}

impl<E: Element, T: Display + 'static> ReadCall for Field<E, T> {
    fn call_handler(
        &self,
        element: &mut dyn Element,
        _: &str,
        _: &mut Context<'_>,
    ) -> Result<String, HandlerError> {
        Ok((self.0)(downcast_element(element)).to_string())
    }
}

impl<E: Element, T: ArgValue + 'static> WriteCall for Field<E, T> {
    fn call_handler(
        &self,
        element: &mut dyn Element,
        text: &str,
        _: &mut Context<'_>,
    ) -> Result<(), HandlerError> {
        *(self.0)(downcast_element(element)) = parse_value(text)?;
        Ok(())
    }
}

impl<E: Element> WriteCall for Write<E> {
    fn call_handler(
        &self,
        element: &mut dyn Element,
        text: &str,
        cx: &mut Context<'_>,
    ) -> Result<(), HandlerError> {
        (self.0)(downcast_element(element), text, cx)
    }
}

/// Reads a value that is written to a handler, as an argument of the same type is read.
pub fn parse_value<T: ArgValue>(text: &str) -> Result<T, HandlerError> {
    let refused = |wants| HandlerError::refused(format!("'{}' is not {wants}", text.trim()));
    T::parse(text.trim(), &Names::default()).map_err(refused)
}

/// The element as its own type. A class whose handlers name another type than its `build` makes is a defect,
/// which the test that reads every handler of every class finds.
fn downcast_element<E: Element>(element: &mut dyn Element) -> &mut E {
    let element: &mut dyn Any = element;
    element.downcast_mut().expect("a class's handlers are written for the type its build makes")
}
