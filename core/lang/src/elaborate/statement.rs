//! Statements in order: class definitions, variables, requirements; chains are in `chain.rs`.

use std::rc::Rc;

use super::Elaborator;
use super::class::{ClassId, ClassKind};
use super::prototype::{Prototype, REST};
use crate::args;
use crate::diagnostic::Diagnostic;
use crate::lexer::{RawConfig, is_variable};
use crate::parser::parse;
use crate::source::Span;
use crate::tree::*;

/// Libraries may require libraries, but no deeper than this.
const MAX_LIBRARIES: usize = 100;

impl Elaborator<'_, '_> {
    pub(super) fn elaborate_statements(&mut self, statements: &[Statement]) {
        for statement in statements {
            match statement {
                Statement::Chain(chain) => self.elaborate_chain(chain),
                Statement::Class(definition) => self.class_definition(definition),
                Statement::Define(config) => self.define_variables(config),
                Statement::Require(config) => self.require_packages(config),
            }
        }
    }

    fn class_definition(&mut self, definition: &ClassDefinition) {
        match &definition.body {
            ClassBody::Compound(compound) => {
                self.elaborate_compound(&definition.name, compound);
            }
            ClassBody::Synonym(other, span) => {
                let id = self.class_or_error(other, *span);
                let kind = self.classes.kind(id).clone();
                self.classes.define_class(&definition.name, kind);
            }
            ClassBody::Missing => {
                self.classes.define_class(&definition.name, ClassKind::Error("<error>".to_string()));
            }
        }
    }

    /// The class of this name; an unknown one is reported once and is an error class from then on.
    pub(super) fn class_or_error(&mut self, name: &str, span: Span) -> ClassId {
        if let Some(id) = self.classes.find_class(name) {
            return id;
        }
        if !self.suspects.contains(name) {
            let error = Diagnostic::error(format!("unknown element class '{name}'"), span);
            let error = error.help(self.class_suggestion(name));
            self.report(error);
        }
        self.classes.define_class(name, ClassKind::Error(name.to_string()))
    }

    /// Reads the alternatives of a compound and defines its class, which is the first of them.
    pub(super) fn elaborate_compound(&mut self, name: &str, compound: &Compound) -> ClassId {
        let extended = compound.extension.and_then(|span| self.extended_class(name, span));
        let prototypes: Vec<Rc<Prototype>> = compound
            .alternatives
            .iter()
            .map(|alternative| Rc::new(self.build_prototype(name, alternative)))
            .collect();
        let mut next = extended;
        for prototype in prototypes.iter().skip(1).rev() {
            next = Some(self.classes.add_class(ClassKind::Compound(prototype.clone(), next)));
        }
        let kind = match prototypes.first() {
            Some(first) => ClassKind::Compound(first.clone(), next),
            None => ClassKind::Error("<error>".to_string()),
        };
        self.classes.define_class(name, kind)
    }

    fn extended_class(&mut self, name: &str, span: Span) -> Option<ClassId> {
        let class = self.classes.find_class(name);
        if class.is_none() {
            let error = Diagnostic::error(format!("cannot extend unknown element class '{name}'"), span);
            self.report(error.help("`...` continues with the class that had the name before; there is none"));
        }
        class
    }

    fn build_prototype(&mut self, name: &str, alternative: &Alternative) -> Prototype {
        let inner = Prototype::compound(name, alternative.open, self.current.depth + 1);
        let outer = std::mem::replace(&mut self.current, inner);
        let scope = self.classes.enter_scope();
        let after_output = self.after_output;
        self.after_output = true;
        self.add_formals(&alternative.formals);
        self.elaborate_statements(&alternative.statements);
        self.after_output = after_output;
        self.classes.leave_scope(scope);
        let mut prototype = std::mem::replace(&mut self.current, outer);
        prototype.finish_ports(&mut self.diagnostics);
        prototype
    }

    fn add_formals(&mut self, formals: &[Formal]) {
        let mut disordered = false;
        for formal in formals {
            let known = &self.current.formals;
            if known.iter().any(|other| other.name == formal.name) {
                self.multiply_defined(&formal.name, formal.span);
                continue;
            }
            if !formal.keyword.is_empty() && known.iter().any(|other| other.keyword == formal.keyword) {
                let message = format!("repeated keyword parameter '{}' in compound element", formal.keyword);
                self.report(
                    Diagnostic::error(message, formal.span).help("give each parameter its own keyword"),
                );
            }
            let out_of_order = self.current.formals.last().is_some_and(|previous| {
                previous.keyword == REST || (formal.keyword.is_empty() && !previous.keyword.is_empty())
            });
            if out_of_order && !std::mem::replace(&mut disordered, true) {
                let message = "compound element parameters out of order\n\
                               (The correct order is '[positional], [keywords], [__REST__]'.)";
                self.report(Diagnostic::error(message, formal.span));
            }
            self.current.formals.push(formal.clone());
        }
    }

    fn multiply_defined(&mut self, name: &str, span: Span) {
        let error = Diagnostic::error(format!("parameter '${name}' multiply defined"), span);
        self.report(error.help("use another name; the first definition counts"));
    }

    fn define_variables(&mut self, config: &RawConfig) {
        for argument in args::split(&config.text).iter().filter(|argument| !argument.is_empty()) {
            let (variable, value) = args::shift_word(argument);
            match variable.strip_prefix('$') {
                Some(name) if !name.is_empty() && name.bytes().all(is_variable) => {
                    let known = self.current.defines.iter().any(|(other, _)| other == name)
                        || self.current.formals.iter().any(|formal| formal.name == name);
                    if known {
                        self.multiply_defined(name, config.span);
                    } else {
                        self.current.defines.push((name.to_string(), value.to_string()));
                    }
                }
                _ => {
                    let error = Diagnostic::error("bad 'define' declaration: not a variable", config.span);
                    self.report(error.help("write `define($name value, $other value)`"));
                }
            }
        }
    }

    fn require_packages(&mut self, config: &RawConfig) {
        for argument in args::split(&config.text) {
            let words = args::split_words(&argument);
            let values: Vec<Option<String>> = words.iter().map(|word| args::parse_string(word)).collect();
            match (words.first().map(String::as_str), values.as_slice()) {
                (None, _) => {}
                (Some("compact_config"), [_]) => {}
                (Some("package"), [_, Some(value)]) => self.require_package(value, config.span),
                (Some("library"), [_, Some(value)]) => self.require_library(value, config.span),
                (Some(first), [Some(value)]) if !["package", "library"].contains(&first) => {
                    self.require_package(value, config.span);
                }
                _ => {
                    let error = Diagnostic::error("syntax error at requirement", config.span);
                    self.report(error.help("write `require(package)` or `require(library \"file.click\")`"));
                }
            }
        }
    }

    fn require_package(&mut self, package: &str, span: Span) {
        if !self.lookup.provides_package(package) {
            let error = Diagnostic::error(format!("requirement '{package}' not available"), span);
            self.report(error.help("remove the requirement if its elements are built in"));
        }
        self.requirements.push(package.to_string());
    }

    fn require_library(&mut self, name: &str, span: Span) {
        if self.current.depth > 0 {
            let error = Diagnostic::error("'require library' must be used at file scope", span);
            return self.report(error.help("move it out of the compound element"));
        }
        let including = self.sources.name(span.file).to_string();
        let found = self.options.library.and_then(|library| library(&including, name));
        let Some((path, text)) = found else {
            let error = Diagnostic::error(format!("library '{name}' not found in CLICKPATH/conf"), span);
            return self.report(error.help("put it beside the file that requires it, or set CLICKPATH"));
        };
        if self.libraries.contains(&path) {
            return;
        }
        if self.libraries.len() >= MAX_LIBRARIES {
            let error = Diagnostic::error("too many libraries", span);
            return self.report(error.help(format!("a configuration may use {MAX_LIBRARIES}")));
        }
        self.libraries.push(path.clone());
        let file = self.sources.add_file(path, text);
        let (tree, diagnostics) = parse(self.sources, file, self.options.dialect);
        self.diagnostics.extend(diagnostics);
        self.suspects.extend(tree.suspects.iter().cloned());
        self.elaborate_statements(&tree.statements);
    }
}
