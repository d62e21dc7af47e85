//! Chains: what each name in them means, and the elements they declare.

use super::Elaborator;
use super::class::{ClassId, ERROR, TUNNEL};
use super::prototype::{INPUT, ItemId, OUTPUT, PSEUDO};
use crate::diagnostic::Diagnostic;
use crate::source::Span;
use crate::tree::*;

/// An element of a link, resolved.
pub(super) struct Part {
    pub(super) item: ItemId,
    /// Input ports and output ports, as written.
    pub(super) ports: [Ports; 2],
    pub(super) span: Span,
}

/// An element of a link on the way to be resolved.
struct Mention<'t> {
    element: &'t Element,
    /// The class or element named; empty for a bare compound.
    name: String,
    /// The class, if the name is one.
    class: Option<ClassId>,
    /// The class behind `::`.
    declared: Option<ClassId>,
    config: (String, Span),
    ports: [Ports; 2],
}

impl Mention<'_> {
    /// A name and nothing else.
    fn is_bare(&self) -> bool {
        matches!(self.element.what, What::Name(_))
            && self.element.class.is_none()
            && self.element.config.is_none()
    }
}

impl Elaborator<'_, '_> {
    pub(super) fn elaborate_chain(&mut self, chain: &Chain) {
        let mut last: Vec<Part> = Vec::new();
        for link in &chain.links {
            let parts = self.elaborate_link(link);
            match link.arrow {
                None => self.check_outer_ports(&parts, 0, link.after),
                Some(arrow) => self.connect_all(&last, &parts, arrow, link.after),
            }
            last = parts;
        }
        if chain.broken {
            last.iter().for_each(|part| self.current.items[part.item].doubtful = true);
        } else if let Some(link) = chain.links.last() {
            self.check_outer_ports(&last, 1, link.after);
        }
        let output = self.current.by_name.get(PSEUDO[OUTPUT]);
        self.after_output = last.len() == 1 && output == Some(&last[0].item);
    }

    /// Ports that no arrow can reach are an error.
    fn check_outer_ports(&mut self, parts: &[Part], side: usize, after: Span) {
        let Some(part) = parts.iter().find(|part| !part.ports[side].is_empty()) else { return };
        let (kind, place) = if side == 0 { ("input", "start") } else { ("output", "end") };
        let span = part.ports[side].span.unwrap_or(part.span);
        let error = Diagnostic::error(format!("{kind} ports ignored at {place} of chain"), span);
        self.report(error.landmark(after).help("remove the port, or connect it with `->`"));
    }

    fn elaborate_link(&mut self, link: &Link) -> Vec<Part> {
        let mut mentions: Vec<Mention<'_>> =
            link.elements.iter().map(|element| self.resolve_mention(element, link)).collect();
        if link.arrow.is_none() && !link.continues {
            spread_declaration(&mut mentions);
        }
        mentions.into_iter().map(|mention| self.resolve_part(mention)).collect()
    }

    fn resolve_mention<'t>(&mut self, element: &'t Element, link: &Link) -> Mention<'t> {
        let mut ports = [element.inputs.clone(), element.outputs.clone()];
        let (name, class) = match &element.what {
            What::Name(name) => (name.clone(), self.classes.find_class(name)),
            What::Compound(compound) => (String::new(), Some(self.elaborate_compound("", compound))),
            What::Group(group) => (self.elaborate_group(group, element, &mut ports), None),
            What::Implied => {
                let pseudo = self.implied_pseudo(element, link, &mut ports);
                (pseudo.to_string(), self.classes.find_class(pseudo))
            }
        };
        let declared = match &element.class {
            None => None,
            Some(DeclaredClass::Name(class, span)) => Some(self.class_or_error(class, *span)),
            Some(DeclaredClass::Compound(compound)) => Some(self.elaborate_compound("", compound)),
            Some(DeclaredClass::Missing) => Some(ERROR),
        };
        let config = match &element.config {
            Some(config) => {
                self.check_config(&name, config.span);
                (config.text.clone(), config.span)
            }
            None => (String::new(), element.span),
        };
        Mention { element, name, class, declared, config, ports }
    }

    fn check_config(&mut self, name: &str, span: Span) {
        if self.current.by_name.contains_key(name) {
            let error = Diagnostic::error("configuration string ignored on element reference", span);
            self.report(error.help("give the arguments where the element is declared"));
        }
    }

    /// The pseudo-element a missing element stands for.
    fn implied_pseudo(&mut self, element: &Element, link: &Link, ports: &mut [Ports; 2]) -> &'static str {
        if link.arrow.is_some() {
            return PSEUDO[OUTPUT];
        }
        if element.inputs.is_empty() && !self.after_output {
            let arrow = self.sources.snippet(element.span);
            let message = format!("suggest 'input {arrow}' or '[0] {arrow}' to start connection");
            self.report(Diagnostic::warning(message, element.span));
        }
        ports.swap(0, 1);
        PSEUDO[INPUT]
    }

    /// Reads the contents of a group; what it uses of `input` and `output` are its ports unless given.
    fn elaborate_group(&mut self, group: &Group, element: &Element, ports: &mut [Ports; 2]) -> String {
        let name = self.current.anonymous_name("");
        let tunnel = self.add_tunnel(&name, element.span);
        let outer = [tunnel.input, tunnel.output].map(|item| {
            let pseudo = PSEUDO[usize::from(item == tunnel.output)];
            self.current.by_name.insert(pseudo.to_string(), item)
        });
        let after_output = self.after_output;
        self.after_output = true;
        self.elaborate_statements(&group.statements);
        self.after_output = after_output;
        for (pseudo, item) in PSEUDO.into_iter().zip(outer) {
            match item {
                Some(item) => self.current.by_name.insert(pseudo.to_string(), item),
                None => self.current.by_name.remove(pseudo),
            };
        }
        self.check_group(group, element.span, [tunnel.input, tunnel.output], ports);
        name
    }

    fn check_group(&mut self, group: &Group, span: Span, pseudo: [ItemId; 2], ports: &mut [Ports; 2]) {
        let mut errors = Vec::new();
        for side in 0..2 {
            let name = "<anonymous group>";
            let count = self.current.check_pseudo(pseudo[side], side == 1, name, span, &mut errors);
            if ports[side].is_empty() {
                ports[side].numbers = (0..count).collect();
            }
        }
        if !errors.is_empty() {
            self.tunnels.quiet.extend(pseudo);
        }
        self.diagnostics.extend(errors.into_iter().map(|error| error.landmark(group.close)));
    }

    fn resolve_part(&mut self, mention: Mention<'_>) -> Part {
        let item = self.resolve_item(&mention);
        if let What::Name(name) = &mention.element.what {
            self.current.items[item].doubtful |= self.suspects.contains(name);
        }
        Part { item, ports: mention.ports, span: mention.element.span }
    }

    /// The element a mention refers to or declares.
    fn resolve_item(&mut self, mention: &Mention<'_>) -> ItemId {
        let (name, span) = (&mention.name, mention.element.span);
        let known = self.current.by_name.get(name).copied();
        if let (None, Some(item)) = (mention.class, known) {
            if mention.declared.is_some() {
                self.report_redeclared(name, span, item);
            }
            return item;
        }
        if mention.class.is_some() && mention.declared.is_some() {
            let error = Diagnostic::error(format!("class '{name}' used as element name"), span);
            self.report(error.help("choose a name that is not a class"));
        }
        let class = match (mention.class, mention.declared) {
            (Some(class), _) => class,
            (None, Some(declared)) => return self.declare_element(name, declared, mention),
            (None, None) => {
                self.report_undeclared(name, span);
                ERROR
            }
        };
        let name = self.current.anonymous_name(name);
        self.current.add_element(name, class, mention.config.clone(), span)
    }

    fn declare_element(&mut self, name: &str, class: ClassId, mention: &Mention<'_>) -> ItemId {
        let span = mention.element.span;
        let digits = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
        if name.split('/').any(digits) {
            let error = Diagnostic::error(format!("element name '{name}' has all-digit component"), span);
            self.report(error.help("start the name with a letter"));
        }
        self.current.add_element(name.to_string(), class, mention.config.clone(), span)
    }

    fn report_undeclared(&mut self, name: &str, span: Span) {
        if self.suspects.contains(name) || !self.undeclared.insert(name.to_string()) {
            return;
        }
        let help = self.element_suggestion(name);
        let meant = help.split('`').nth(1).and_then(|meant| self.current.by_name.get(meant));
        if let Some(&item) = meant {
            self.current.items[item].doubtful = true;
        }
        self.report(Diagnostic::error(format!("undeclared element '{name}'"), span).help(help));
    }

    fn report_redeclared(&mut self, name: &str, span: Span, item: ItemId) {
        let name = name.trim_start_matches(';');
        let error = Diagnostic::error(format!("redeclaration of element '{name}'"), span);
        let mut error = error.help("choose another name, or refer to the element without `::`");
        let old = &self.current.items[item];
        if old.class != TUNNEL {
            error = error.related(old.span, format!("element '{name}' previously declared here"));
        }
        self.report(error);
    }
}

/// `a, b, c :: Class(config)` declares all three.
fn spread_declaration(mentions: &mut [Mention<'_>]) {
    let Some((last, bare)) = mentions.split_last_mut() else { return };
    let plain = |mention: &Mention<'_>| {
        mention.ports.iter().all(Ports::is_empty) && mention.element.what != What::Implied
    };
    if !bare.iter().all(Mention::is_bare) || !bare.iter().all(plain) || !plain(last) {
        return;
    }
    for mention in bare {
        mention.declared = last.declared;
        mention.config = last.config.clone();
    }
}
