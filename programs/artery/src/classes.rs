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
    let own = artery_elements::CLASSES;
    for class in more {
        assert!(own.find_class(class.name).is_none(), "Artery has a class {} already", class.name);
    }
    let _ = ALL.set(Classes([own.0, more].concat().leak()));
}
