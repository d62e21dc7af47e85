//! The classes of elements that this program knows: Artery's, and those of a program whose main calls ours.
use artery_engine::{Class, Classes};
use std::sync::OnceLock;

static ALL: OnceLock<Classes> = OnceLock::new();

/// All classes, by which configurations are checked and built.
pub(crate) fn classes() -> Classes {
    ALL.get().copied().unwrap_or(artery_elements::CLASSES)
}

/// Adds classes, once, before any configuration is read.
pub(crate) fn add_classes(more: &[&'static Class]) {
    if more.is_empty() {
        return;
    }
    let mut all = artery_elements::CLASSES.0.to_vec();
    for class in more {
        for name in class.aliases.iter().chain([&class.name]) {
            let is_taken = all.iter().any(|other| other.name == *name || other.aliases.contains(name));
            assert!(!is_taken, "there is a class {name} already");
        }
        all.push(class);
    }
    assert!(ALL.set(Classes(all.leak())).is_ok(), "classes are added once");
}
