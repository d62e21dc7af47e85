//! The handlers that every element has, and those of the router.
use crate::handler::HandlerError;
use crate::handler_names::{CONFIG, HOTCONFIG, STOP, TRACE};
use crate::plan::Plan;
use crate::trace::Tracer;

/// Handlers that every element has, as `handlers` lists them.
const ELEMENT: &[(&str, &str)] =
    &[("drops", "r"), ("handlers", "r."), ("ports", "r."), (CONFIG, "r."), ("class", "r."), ("name", "r.")];
/// Handlers of elements that can have a task.
const TASK: &[(&str, &str)] = &[("home_thread", "r"), ("tickets", "rw"), ("scheduled", "r")];
/// Handlers of the router.
const GLOBAL: &[(&str, &str)] = &[
    ("version", "r"),
    ("driver", "r"),
    (CONFIG, "r"),
    ("flatconfig", "r"),
    ("requirements", "r"),
    ("handlers", "r"),
    ("list", "r"),
    (STOP, "wb"),
    ("classes", "r"),
    ("packages", "r"),
    ("timewarp", "r"),
    (TRACE, "rw"),
];

/// Whether every element, or every element with a task, has this handler.
pub(crate) fn is_standard(name: &str) -> bool {
    TASK.iter().chain(ELEMENT).any(|(standard, _)| *standard == name)
}

impl Plan {
    /// Flags of a handler of the router.
    pub(crate) fn global_flags(&self, name: &str) -> Option<&'static str> {
        if name == HOTCONFIG {
            return self.is_replaceable().then_some("w%");
        }
        if self.router_handlers().iter().any(|handler| handler.name == name) {
            return Some("r");
        }
        GLOBAL.iter().find(|(global, _)| *global == name).map(|(_, flags)| *flags)
    }

    /// Names and flags of an element's handlers, the class's last one first, as Click lists them.
    pub fn handlers_of(&self, node: usize) -> impl Iterator<Item = (&str, String)> + '_ {
        let flags = move |name: &str, flags: String| match name {
            CONFIG if self.class(node).live => flags.replacen('r', "rw", 1),
            _ => flags,
        };
        let class =
            self.class(node).handlers.iter().rev().map(move |h| (h.name, flags(h.name, h.flag_letters())));
        let own = self.own_handlers(node).iter().rev();
        let own = own.map(|(name, flags)| (name.as_str(), (*flags).to_string()));
        let standard = TASK.iter().chain(ELEMENT);
        let standard = standard.map(move |(name, given)| (*name, flags(name, (*given).to_string())));
        let overridden = move |name: &str| {
            self.class(node).handler(name).is_some() || self.own_handlers(node).iter().any(|(n, _)| n == name)
        };
        own.chain(class).chain(standard.filter(move |(name, _)| !overridden(name)))
    }

    /// The value of a handler of the router.
    pub(crate) fn read_global(&self, name: &str) -> Option<String> {
        let lines = |names: Vec<&str>| names.iter().map(|n| format!("{n}\n")).collect::<String>();
        Some(match name {
            "version" => env!("CARGO_PKG_VERSION").to_string(),
            "driver" => "userlevel".to_string(),
            "timewarp" => if self.is_simulated() { "simulation" } else { "1" }.to_string(),
            "list" => format!("{}\n{}", self.len(), lines((0..self.len()).map(|n| self.name(n)).collect())),
            "classes" => lines(self.class_names()),
            CONFIG => self.source().to_string(),
            "flatconfig" => self.flat().to_string(),
            "requirements" => lines(self.requirements().iter().map(String::as_str).collect()),
            "packages" => String::new(),
            "handlers" => self.list_global(),
            TRACE => self.resources().get::<Tracer>().read_report(),
            _ => {
                let handler = self.router_handlers().iter().find(|handler| handler.name == name)?;
                (handler.read)(self.resources())
            }
        })
    }

    /// Why a handler of the router that can be read can't be written. That it is so is enough, but where
    /// it could be expected.
    pub(crate) fn unwritable_global(&self, name: String) -> HandlerError {
        match name.as_str() {
            "timewarp" if !self.is_simulated() => HandlerError::refused(
                "time passes as fast as it does for the devices and the kernel, whose packets bear its time; \
                 start with --simtime for time that jumps to what happens next",
            ),
            _ => HandlerError::NotWritable(name),
        }
    }

    fn list_global(&self) -> String {
        let hotconfig = self.global_flags(HOTCONFIG).map(|flags| (HOTCONFIG, flags));
        let others = self.router_handlers().iter().map(|handler| (handler.name, "r"));
        let all = GLOBAL.iter().copied().chain(others).chain(hotconfig);
        all.map(|(name, flags)| format!("{name}\t{flags}\n")).collect()
    }

    /// Every port on a line: how packets pass, `~` where the class leaves that open, and what
    /// it is connected with.
    pub(crate) fn read_ports(&self, node: usize) -> String {
        let processing = self.class(node).processing;
        let (before, after) = processing.split_once('/').unwrap_or((processing, processing));
        let line = |pull: bool, codes: &str, port: usize, peers: Vec<String>| {
            let code = codes.chars().nth(port).or(codes.chars().last());
            let open = if code == Some('a') { "~" } else { "" };
            format!("{}{open}\t-\t{}\n", if pull { "pull" } else { "push" }, peers.join(", "))
        };
        let heading = |n: usize, what: &str| format!("{n} {what}{}\n", if n == 1 { "" } else { "s" });
        let mut text = heading(self.inputs(node).len(), "input");
        for (port, pull) in self.inputs(node).iter().enumerate() {
            let peers = self.edges().iter().filter(|edge| edge.to == (node, port));
            let peers = peers.map(|edge| format!("{} [{}]", self.name(edge.from.0), edge.from.1)).collect();
            text += &line(*pull, before, port, peers);
        }
        text += &heading(self.outputs(node).len(), "output");
        for (port, pull) in self.outputs(node).iter().enumerate() {
            let peers = self.edges().iter().filter(|edge| edge.from == (node, port));
            let peers = peers.map(|edge| format!("[{}] {}", edge.to.1, self.name(edge.to.0))).collect();
            text += &line(*pull, after, port, peers);
        }
        text
    }
}
