//! What the language needs to know of element classes.

/// The ports of a class, in Click's codes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClassInfo {
    /// The real name of the class, also when looked up by another.
    pub name: &'static str,
    /// Port count code: `1/1-2`, `1/-`, `-/=`, `1-/=+`.
    pub ports: &'static str,
    /// Processing code: `a/ah`, with `h` push, `l` pull, `a` agnostic.
    pub processing: &'static str,
    /// Flow code: `x/x`, `xy/x`, `#/[^#]`.
    pub flow: &'static str,
}

/// Finds classes by the names a configuration may use.
pub trait ClassLookup {
    /// The class of this name; other spellings resolve to the class they stand for.
    fn find_class(&self, name: &str) -> Option<ClassInfo>;

    /// All names, for suggestions.
    fn class_names(&self) -> Vec<&str>;

    /// True if `require(package)` is satisfied.
    fn provides_package(&self, _package: &str) -> bool {
        true
    }
}
