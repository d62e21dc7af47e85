//! Arguments as a class declares them.

/// One argument of a class.
pub struct Arg {
    /// Keyword; a positional argument can be given by it too.
    pub name: &'static str,
    /// What a value looks like, for people: "bytes", "IP address".
    pub kind: &'static str,
    /// Text taken when it is not given; `None` when it must be given, empty when
    /// absence means something itself.
    pub default: Option<&'static str>,
    /// How it is given.
    pub position: Position,
    /// One sentence for the manual page.
    pub doc: &'static str,
}

/// How an argument is given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Position {
    /// By its place or its keyword.
    Positional,
    /// By its keyword only.
    Keyword,
    /// All arguments from its place on that are no keyword arguments.
    Rest,
}

impl Arg {
    /// A positional argument that must be given.
    pub const fn required(name: &'static str, kind: &'static str, doc: &'static str) -> Arg {
        Arg { name, kind, default: None, position: Position::Positional, doc }
    }
    /// A positional argument with a default.
    pub const fn optional(
        name: &'static str,
        kind: &'static str,
        default: &'static str,
        doc: &'static str,
    ) -> Arg {
        Arg { name, kind, default: Some(default), position: Position::Positional, doc }
    }
    /// An argument given by keyword, with a default.
    pub const fn keyword(
        name: &'static str,
        kind: &'static str,
        default: &'static str,
        doc: &'static str,
    ) -> Arg {
        Arg { name, kind, default: Some(default), position: Position::Keyword, doc }
    }
    /// Any number of arguments; read with [`Args::rest`](crate::Args::rest).
    pub const fn rest(name: &'static str, kind: &'static str, doc: &'static str) -> Arg {
        Arg { name, kind, default: Some(""), position: Position::Rest, doc }
    }
}

/// The declared argument of this name.
pub(crate) fn find_arg(args: &'static [Arg], name: &str) -> Option<&'static Arg> {
    args.iter().find(|arg| arg.name == name)
}
