//! The classes a name can mean, by lexical scope.

use std::collections::HashMap;
use std::rc::Rc;

use super::prototype::Prototype;
use crate::class::ClassLookup;

/// Index of a class in a [`ClassTable`]; synonyms have their own.
pub(super) type ClassId = usize;

#[derive(Clone, Debug)]
pub(super) enum ClassKind {
    /// A stand-in for a compound or group, or for their `input` or `output`.
    Tunnel,
    /// A class that could not be had, under a name no lookup knows.
    Error(String),
    /// A class of the lookup, by its real name.
    Real(&'static str),
    /// A compound, and the alternative to try after it.
    Compound(Rc<Prototype>, Option<ClassId>),
}

/// The class of every tunnel.
pub(super) const TUNNEL: ClassId = 0;
/// The class of elements that stand for an error, whatever they were to be.
pub(super) const ERROR: ClassId = 1;

pub(super) struct ClassTable<'a> {
    lookup: &'a dyn ClassLookup,
    classes: Vec<ClassKind>,
    scoped: HashMap<String, ClassId>,
    /// What the names defined since meant before, newest last.
    shadowed: Vec<(String, Option<ClassId>)>,
    base: HashMap<String, Option<ClassId>>,
}

impl<'a> ClassTable<'a> {
    pub(super) fn new(lookup: &'a dyn ClassLookup) -> ClassTable<'a> {
        let error = ClassKind::Error("<error>".to_string());
        let classes = vec![ClassKind::Tunnel, error];
        ClassTable { lookup, classes, scoped: HashMap::new(), shadowed: Vec::new(), base: HashMap::new() }
    }

    pub(super) fn kind(&self, id: ClassId) -> &ClassKind {
        &self.classes[id]
    }

    pub(super) fn find_class(&mut self, name: &str) -> Option<ClassId> {
        if let Some(&id) = self.scoped.get(name) {
            return Some(id);
        }
        if let Some(&id) = self.base.get(name) {
            return id;
        }
        let id = self.lookup.find_class(name).map(|class| self.add_class(ClassKind::Real(class.name)));
        self.base.insert(name.to_string(), id);
        id
    }

    /// Adds a class that no name means.
    pub(super) fn add_class(&mut self, kind: ClassKind) -> ClassId {
        self.classes.push(kind);
        self.classes.len() - 1
    }

    /// Adds a class that its name means until the scope ends.
    pub(super) fn define_class(&mut self, name: &str, kind: ClassKind) -> ClassId {
        let id = self.add_class(kind);
        if !name.is_empty() {
            let before = self.scoped.insert(name.to_string(), id);
            self.shadowed.push((name.to_string(), before));
        }
        id
    }

    /// Starts a scope; the value ends it.
    pub(super) fn enter_scope(&self) -> usize {
        self.shadowed.len()
    }

    pub(super) fn leave_scope(&mut self, scope: usize) {
        for (name, before) in self.shadowed.drain(scope..).rev() {
            match before {
                Some(id) => self.scoped.insert(name, id),
                None => self.scoped.remove(&name),
            };
        }
    }

    /// Every name a class can be used by here.
    pub(super) fn class_names(&self) -> Vec<String> {
        let real = |name: &&String| {
            !matches!(self.classes[self.scoped[*name]], ClassKind::Error(_) | ClassKind::Tunnel)
        };
        let scoped = self.scoped.keys().filter(real).cloned();
        scoped.chain(self.lookup.class_names().into_iter().map(String::from)).collect()
    }
}
