//! The contents of a compound, or of the file, as written.

use std::collections::HashMap;

use super::class::{ClassId, TUNNEL};
use crate::args;
use crate::diagnostic::Diagnostic;
use crate::source::Span;
use crate::tree::Formal;

/// Index of an element in its [`Prototype`].
pub(super) type ItemId = usize;

/// The end of a connection: an element and one of its ports.
pub(super) type Port = (ItemId, usize);

#[derive(Clone, Debug)]
pub(super) struct Item {
    /// Anonymous ones start with `;` until all names are known.
    pub(super) name: String,
    pub(super) class: ClassId,
    pub(super) config: String,
    pub(super) span: Span,
    pub(super) config_span: Span,
    /// How many inputs and outputs are used.
    pub(super) ports: [usize; 2],
    /// True if an error may have cost the element a connection.
    pub(super) doubtful: bool,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Connection {
    pub(super) from: Port,
    pub(super) to: Port,
    pub(super) span: Span,
}

#[derive(Debug, Default)]
pub(super) struct Prototype {
    /// Empty for a compound without a name.
    pub(super) name: String,
    pub(super) span: Span,
    /// Nesting of compounds; 0 is the file.
    pub(super) depth: usize,
    pub(super) formals: Vec<Formal>,
    pub(super) defines: Vec<(String, String)>,
    pub(super) items: Vec<Item>,
    pub(super) by_name: HashMap<String, ItemId>,
    pub(super) connections: Vec<Connection>,
    /// How many inputs and outputs the compound has.
    pub(super) ports: [usize; 2],
    /// True if its `input` or `output` is used wrongly, so that uses of it need not fit.
    pub(super) flawed: bool,
    /// Items that do not count for anonymous names.
    uncounted: usize,
}

pub(super) const PSEUDO: [&str; 2] = ["input", "output"];
pub(super) const INPUT: ItemId = 0;
pub(super) const OUTPUT: ItemId = 1;

impl Prototype {
    pub(super) fn file(span: Span) -> Prototype {
        Prototype { span, ..Prototype::default() }
    }

    pub(super) fn compound(name: &str, span: Span, depth: usize) -> Prototype {
        let mut prototype = Prototype { name: name.to_string(), depth, ..Prototype::file(span) };
        for pseudo in PSEUDO {
            prototype.add_element(pseudo.to_string(), TUNNEL, (String::new(), span), span);
        }
        prototype.uncounted = 2;
        prototype
    }

    /// The element of this name, added if there is none.
    pub(super) fn add_element(
        &mut self,
        name: String,
        class: ClassId,
        config: (String, Span),
        span: Span,
    ) -> ItemId {
        if let Some(&item) = self.by_name.get(&name) {
            return item;
        }
        self.by_name.insert(name.clone(), self.items.len());
        let (config, config_span) = config;
        self.items.push(Item { name, class, config, span, config_span, ports: [0, 0], doubtful: false });
        self.items.len() - 1
    }

    pub(super) fn anonymous_name(&self, class: &str) -> String {
        format!(";{class}@{}", self.items.len() - self.uncounted + 1)
    }

    /// Gives an anonymous element the first free name with its number or a larger one.
    pub(super) fn deanonymize(&mut self, item: ItemId) {
        let Some(name) = self.items[item].name.strip_prefix(';') else { return };
        let mut name = name.to_string();
        if self.by_name.contains_key(&name) {
            let at = name.rfind('@').map_or(0, |at| at + 1);
            let digits = name[at..].bytes().take_while(u8::is_ascii_digit).count();
            let mut number: usize = name[at..at + digits].parse().unwrap_or(0);
            while self.by_name.contains_key(&name) {
                number += 1;
                name.truncate(at);
                name.push_str(&number.to_string());
            }
        }
        self.by_name.insert(name.clone(), item);
        self.items[item].name = name;
    }

    pub(super) fn connect_ports(&mut self, from: Port, to: Port, span: Span) {
        let used = &mut self.items[from.0].ports[1];
        *used = (*used).max(from.1 + 1);
        let used = &mut self.items[to.0].ports[0];
        *used = (*used).max(to.1 + 1);
        self.connections.push(Connection { from, to, span });
    }

    /// Checks that a pseudo-element is used in its one direction and without gaps; gives its port count.
    pub(super) fn check_pseudo(
        &self,
        item: ItemId,
        is_output: bool,
        name: &str,
        span: Span,
        errors: &mut Vec<Diagnostic>,
    ) -> usize {
        let kind = PSEUDO[usize::from(is_output)];
        let opposite = PSEUDO[usize::from(!is_output)];
        if self.items[item].ports[usize::from(is_output)] > 0 {
            let message = format!("'{name}' pseudoelement '{kind}' may only be used as {opposite}");
            let help =
                if is_output { "connect to it: `… -> output`" } else { "connect from it: `input -> …`" };
            errors.push(Diagnostic::error(message, span).help(help));
        }
        let count = self.items[item].ports[usize::from(!is_output)];
        let mut used = vec![false; count];
        for connection in &self.connections {
            let (end, port) = if is_output { connection.to } else { connection.from };
            if end == item {
                used[port] = true;
            }
        }
        for (port, _) in used.iter().enumerate().filter(|(_, used)| !**used) {
            let message = format!("'{name}' {kind} {port} missing");
            let help = format!("use `{kind} [{port}]` in the compound, or number its {kind}s without gaps");
            errors.push(Diagnostic::error(message, span).help(help));
        }
        count
    }

    pub(super) fn finish_ports(&mut self, errors: &mut Vec<Diagnostic>) {
        let name = self.printable_name();
        let before = errors.len();
        self.ports[0] = self.check_pseudo(INPUT, false, &name, self.span, errors);
        self.ports[1] = self.check_pseudo(OUTPUT, true, &name, self.span, errors);
        self.flawed = errors.len() > before;
        for item in 0..self.items.len() {
            self.deanonymize(item);
        }
    }

    fn printable_name(&self) -> String {
        if self.name.is_empty() { "<anonymous>".to_string() } else { self.name.clone() }
    }

    /// `F($a, KEYWORD)[1 input, 0 outputs]` as Click writes it.
    pub(super) fn signature(&self) -> String {
        let formals: Vec<&str> = self.formals.iter().map(|formal| formal_name(&formal.keyword)).collect();
        let formals = if formals.is_empty() { String::new() } else { format!("({})", formals.join(", ")) };
        format!("{}{formals}[{}]", self.printable_name(), counted_ports(self.ports))
    }

    /// The signature a use of the class would need.
    pub(super) fn wanted_signature(&self, arguments: usize, ports: [usize; 2]) -> String {
        let arguments =
            if arguments == 0 { String::new() } else { format!("{}, ", format_count(arguments, "argument")) };
        format!("{}[{arguments}{}]", self.printable_name(), counted_ports(ports))
    }

    /// Values for the formals, or `None` if the arguments do not fit.
    pub(super) fn bind_arguments(&self, arguments: &[String]) -> Option<Vec<String>> {
        let Some(last) = self.formals.last() else { return arguments.is_empty().then(Vec::new) };
        if last.keyword.is_empty() {
            return (arguments.len() == self.formals.len()).then(|| arguments.to_vec());
        }
        let takes_rest = last.keyword == REST;
        let named = &self.formals[..self.formals.len() - usize::from(takes_rest)];
        let positional = named.iter().take_while(|formal| formal.keyword.is_empty()).count();
        let mut values: Vec<Option<String>> = vec![None; named.len()];
        let mut rest = Vec::new();
        let mut supplied = 0;
        let mut any_keyword = false;
        for argument in arguments {
            if supplied >= positional {
                if let Some((index, value)) = keyword_value(named, argument) {
                    values[index] = Some(value.to_string());
                    any_keyword = true;
                    continue;
                }
                if any_keyword && !takes_rest {
                    return None;
                }
                rest.push(argument.as_str());
                supplied += usize::from(!any_keyword);
                continue;
            }
            values[supplied] = Some(argument.clone());
            supplied += 1;
        }
        if supplied > positional && !takes_rest {
            return None;
        }
        let mut values = values.into_iter().collect::<Option<Vec<String>>>()?;
        if takes_rest {
            values.push(args::join(&rest));
        }
        Some(values)
    }
}

/// The keyword of a formal that takes all arguments left over.
pub(super) const REST: &str = "__REST__";

fn keyword_value<'a>(formals: &[Formal], argument: &'a str) -> Option<(usize, &'a str)> {
    let (keyword, value) = args::split_keyword(argument)?;
    let index = formals.iter().position(|formal| !formal.keyword.is_empty() && formal.keyword == keyword)?;
    Some((index, value))
}

fn formal_name(keyword: &str) -> &str {
    match keyword {
        "" => "<arg>",
        REST => "...",
        keyword => keyword,
    }
}

fn counted_ports(ports: [usize; 2]) -> String {
    format!("{}, {}", format_count(ports[0], "input"), format_count(ports[1], "output"))
}

fn format_count(count: usize, word: &str) -> String {
    format!("{count} {word}{}", if count == 1 { "" } else { "s" })
}
