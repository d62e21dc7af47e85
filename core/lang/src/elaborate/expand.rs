//! Expansion: replaces the elements of compound classes by the contents of the compounds.

use std::rc::Rc;

use super::Elaborator;
use super::class::{ClassId, ClassKind, ERROR, TUNNEL};
use super::prototype::{ItemId, Prototype};
use crate::args;
use crate::diagnostic::Diagnostic;
use crate::variables::{Environment, MAX_LENGTH};

/// More elements than this are taken for a mistake: few lines can ask for billions, and a million take a
/// minute and a gigabyte.
const MAX_ITEMS: usize = 1 << 16;

/// Compounds of compounds go no deeper than this.
const MAX_LEVEL: usize = 200;

/// More bytes of configuration strings than this, of what compounds contain and of what variables grow to,
/// are taken for a mistake, too: a few lines that double their parameter ask for terabytes.
const MAX_TEXT: usize = 1 << 26;

impl Elaborator<'_, '_> {
    pub(super) fn expand_all(&mut self) {
        let mut file = Environment { variables: self.current.defines.clone(), ..Default::default() };
        for (name, value) in &self.options.variables {
            file.set_variable(name, value.clone());
        }
        let file = Rc::new(file);
        for item in 0..self.current.items.len() {
            self.expand_item(item, &file, 0);
        }
    }

    fn expand_item(&mut self, item: ItemId, environment: &Rc<Environment>, level: usize) {
        self.current.deanonymize(item);
        let class = self.current.items[item].class;
        if class == TUNNEL {
            return;
        }
        let written = &self.current.items[item].config;
        let config = environment.expand_text(written);
        let (has_changed, length) = (config != *written, config.len());
        if level > 0 || has_changed {
            self.expanded_text += length;
        }
        self.current.items[item].config = config;
        if !matches!(self.classes.kind(class), ClassKind::Compound(..)) {
            return;
        }
        if self.expanded_text >= MAX_TEXT || (has_changed && length >= MAX_LENGTH) {
            self.too_large(item, "configuration expands to too much text");
            return;
        }
        self.expand_compound(item, class, environment, level);
    }

    fn expand_compound(&mut self, item: ItemId, class: ClassId, around: &Rc<Environment>, level: usize) {
        if level >= MAX_LEVEL || self.current.items.len() >= MAX_ITEMS {
            self.too_large(item, "configuration expands to too many elements");
            return;
        }
        let arguments = args::split(&self.current.items[item].config);
        match self.choose_alternative(item, class, &arguments) {
            Choice::None => self.current.items[item].class = ERROR,
            Choice::Class(class) => self.current.items[item].class = class,
            Choice::Compound(prototype, values) => {
                let parent = Environment::parent_of(around, prototype.depth);
                let mut inside = Environment { depth: prototype.depth, parent, variables: Vec::new() };
                for (formal, value) in prototype.formals.iter().zip(values) {
                    inside.set_variable(&formal.name, value);
                }
                for (name, value) in &prototype.defines {
                    let value = inside.expand_text(value);
                    inside.set_variable(name, value);
                }
                self.expand_into(item, &prototype, &Rc::new(inside), level);
            }
        }
    }

    /// Leaves an element out, and says why, once for each limit.
    fn too_large(&mut self, item: ItemId, message: &'static str) {
        self.current.items[item].class = ERROR;
        if self.diagnostics.iter().any(|diagnostic| diagnostic.message == message) {
            return;
        }
        let error = Diagnostic::error(message, self.current.items[item].span);
        let limits = format!(
            "compounds may expand to {MAX_ITEMS} elements, themselves counted, go {MAX_LEVEL} levels deep, \
             and have {} MiB of arguments, {} MiB each",
            MAX_TEXT >> 20,
            MAX_LENGTH >> 20
        );
        self.report(error.help(limits));
    }

    /// The first alternative that fits; if none does, says so.
    fn choose_alternative(&mut self, item: ItemId, class: ClassId, arguments: &[String]) -> Choice {
        let ports = self.current.items[item].ports;
        let mut candidates: Vec<Rc<Prototype>> = Vec::new();
        let mut next = Some(class);
        while let Some(class) = next {
            let ClassKind::Compound(prototype, after) = self.classes.kind(class) else {
                return Choice::Class(class);
            };
            let fits = prototype.ports == ports || prototype.flawed;
            if let (true, Some(values)) = (fits, prototype.bind_arguments(arguments)) {
                return Choice::Compound(prototype.clone(), values);
            }
            candidates.push(prototype.clone());
            next = *after;
        }
        if let [only] = candidates.as_slice() {
            // Wrong ports are reported one by one when connections are routed inside.
            if let Some(values) = only.bind_arguments(arguments) {
                return Choice::Compound(only.clone(), values);
            }
        }
        self.no_match(item, arguments.len(), ports, &candidates);
        Choice::None
    }

    fn no_match(&mut self, item: ItemId, count: usize, ports: [usize; 2], candidates: &[Rc<Prototype>]) {
        let Some(first) = candidates.first() else { return };
        let message = format!("no match for '{}'", first.wanted_signature(count, ports));
        let mut error = Diagnostic::error(message, self.current.items[item].span).landmark(self.end);
        error.help = Some("give the arguments and connect the ports of one of the candidates".to_string());
        error.introduction = Some("candidates are:".to_string());
        error.related = candidates.iter().map(|candidate| (candidate.span, candidate.signature())).collect();
        self.report(error);
    }

    fn expand_into(&mut self, item: ItemId, prototype: &Prototype, inside: &Rc<Environment>, level: usize) {
        let name = self.current.items[item].name.clone();
        let span = self.current.items[item].span;
        self.current.items[item].class = TUNNEL;
        let tunnel = self.add_tunnel(&name, span);
        if prototype.flawed {
            self.tunnels.quiet.extend([tunnel.input, tunnel.output]);
        }
        let new = self.add_contents(item, prototype, inside, [tunnel.input, tunnel.output]);
        for connection in &prototype.connections {
            if let (Some(from), Some(to)) = (new[connection.from.0], new[connection.to.0]) {
                self.current.connect_ports((from, connection.from.1), (to, connection.to.1), connection.span);
            }
        }
        for item in new.into_iter().skip(2).flatten() {
            self.expand_item(item, inside, level + 1);
        }
    }

    /// Adds the contents of a compound under its name; tells where each of them is now.
    fn add_contents(
        &mut self,
        outer: ItemId,
        prototype: &Prototype,
        inside: &Environment,
        pseudo: [ItemId; 2],
    ) -> Vec<Option<ItemId>> {
        let prefix = self.current.items[outer].name.clone();
        let mut new: Vec<Option<ItemId>> = pseudo.map(Some).to_vec();
        while let Some(item) = prototype.items.get(new.len()) {
            let name = format!("{prefix}/{}", item.name);
            if let Some(&old) = self.current.by_name.get(&name) {
                self.report_name_clash(&name, outer, old);
                new.push(None);
                continue;
            }
            if self.classes.find_class(&name).is_some() {
                let span = self.current.items[outer].span;
                let error = Diagnostic::error(format!("'{name}' is an element class"), span);
                self.report(error.help("rename the element or the class"));
            }
            if item.class == TUNNEL {
                let tunnel = self.add_tunnel(&name, item.span);
                new.extend([tunnel.outer, tunnel.input, tunnel.output].map(Some));
                continue;
            }
            let config = (inside.expand_text(&item.config), item.config_span);
            let added = self.current.add_element(name, item.class, config, item.span);
            self.current.items[added].doubtful |= item.doubtful;
            new.push(Some(added));
        }
        new
    }

    fn report_name_clash(&mut self, name: &str, outer: ItemId, old: ItemId) {
        let message = format!("redeclaration of element '{name}'");
        let error = Diagnostic::error(message, self.current.items[outer].span);
        let old_span = self.current.items[old].span;
        let error = error.related(old_span, format!("'{name}' previously declared here"));
        self.report(error.help("an element inside the compound has this name; choose another"));
    }
}

/// What an element of a compound class turns out to be.
enum Choice {
    None,
    Class(ClassId),
    Compound(Rc<Prototype>, Vec<String>),
}
