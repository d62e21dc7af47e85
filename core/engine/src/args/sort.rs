//! Which declared argument each argument of a configuration string is.
use super::ArgError;
use crate::arg::{Arg, Position, find_arg};
use artery_lang::args as text;
use std::collections::HashMap;

/// Arguments by the declared one they belong to, in their order.
pub(super) type GivenArgs = HashMap<&'static str, Vec<String>>;

/// An argument as it is written.
pub(crate) struct WrittenArg {
    pub(crate) text: String,
    /// Length of the word that looks like a keyword; 0 when there is none.
    keyword: usize,
    /// The declared argument it belongs to, and what it gives it; none for those of a `Rest` argument.
    owner: Option<(&'static str, String)>,
    /// Whether it belongs there by its place.
    is_positional: bool,
}

/// Gives each argument of `config` to the declared one it belongs to: by its keyword, or else by its place.
pub(super) fn sort_args(args: &'static [Arg], config: &str) -> (GivenArgs, Vec<ArgError>) {
    let mut errors = Vec::new();
    let rest = args.iter().find(|arg| arg.position == Position::Rest);
    let mut given = GivenArgs::new();
    for WrittenArg { text, keyword, owner, .. } in split_args(args, config) {
        match (owner, rest) {
            // An empty argument holds its place and gives nothing.
            (Some((_, value)), _) if value.is_empty() => {}
            (Some((name, value)), _) => given.entry(name).or_default().push(value),
            (None, Some(rest)) => given.entry(rest.name).or_default().push(text),
            (None, None) if keyword > 0 => errors.push(ArgError::Unknown(text[..keyword].to_string())),
            (None, None) if errors.iter().any(|error| matches!(error, ArgError::TooMany(_))) => {}
            (None, None) => errors.push(ArgError::TooMany(text)),
        }
    }
    let missing = args.iter().filter(|arg| arg.default.is_none() && !given.contains_key(arg.name));
    errors.extend(missing.map(|arg| ArgError::Missing(arg.name)));
    (given, errors)
}

/// The arguments of `config`, each with the declared one it belongs to.
pub(crate) fn split_args(args: &'static [Arg], config: &str) -> Vec<WrittenArg> {
    let mut written: Vec<WrittenArg> =
        text::split(config).into_iter().map(|text| match_keyword(args, text)).collect();
    for arg in args.iter().filter(|arg| arg.position == Position::Positional) {
        let by_keyword = written.iter().any(|one| one.belongs_to(arg));
        let needed = arg.default.is_none() && !by_keyword;
        let next = written.iter_mut().find(|one| one.owner.is_none());
        // What looks like a keyword may be meant as one that there is not; only what must be given takes
        // it as it is.
        if let Some(one) = next.filter(|one| one.keyword == 0 || needed) {
            one.owner = Some((arg.name, one.text.clone()));
            one.is_positional = true;
        }
    }
    written
}

impl WrittenArg {
    /// Whether it gives a declared argument its value, or one of its values.
    pub(crate) fn belongs_to(&self, arg: &Arg) -> bool {
        match &self.owner {
            Some((name, _)) => *name == arg.name,
            None => arg.position == Position::Rest,
        }
    }
    /// Whether it belongs by its keyword where it belongs.
    pub(crate) fn is_by_keyword(&self) -> bool {
        self.owner.is_some() && !self.is_positional
    }
}

/// An argument, given to the declared one that its keyword names.
fn match_keyword(args: &'static [Arg], text: String) -> WrittenArg {
    let keyword = keyword_length(&text);
    let arg = find_arg(args, &text[..keyword]).filter(|arg| keyword > 0 && arg.position != Position::Rest);
    let owner = arg.map(|arg| (arg.name, text[keyword..].trim_ascii_start().to_string()));
    WrittenArg { text, keyword, owner, is_positional: false }
}

/// Length of a word such as `CAPACITY` with a value behind it; `10.0.0.1 eth0` and a word alone have none.
fn keyword_length(text: &str) -> usize {
    let starts = text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
    let inner = |c: char| c.is_ascii_alphanumeric() || "_:.?!".contains(c);
    let length = text.find(|c| !inner(c)).unwrap_or(text.len());
    let value = text[length..].trim_start_matches(|c: char| c.is_ascii_whitespace() || c == '\x0b');
    if starts && !value.is_empty() && value.len() < text.len() - length { length } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::class::Class;

    static QUEUE: Class = Class {
        args: &[Arg::optional("CAPACITY", "count", "1000", ""), Arg::keyword("CALM", "bool", "false", "")],
        ..Class::DEFAULT
    };
    static STRIP: Class = Class {
        args: &[Arg::required("LENGTH", "bytes", ""), Arg::keyword("CALM", "bool", "false", "")],
        ..Class::DEFAULT
    };
    static FILTER: Class = Class {
        args: &[Arg::rest("PATTERN", "pattern", ""), Arg::keyword("CALM", "bool", "false", "")],
        ..Class::DEFAULT
    };

    /// What each argument was given, or what is wrong.
    fn sorted(class: &'static Class, config: &str) -> String {
        let (given, errors) = sort_args(class.args, config);
        let mut all: Vec<String> = errors.iter().map(ToString::to_string).collect();
        all.extend(
            class
                .args
                .iter()
                .filter_map(|arg| Some(format!("{}={}", arg.name, given.get(arg.name)?.join("|")))),
        );
        all.join("; ")
    }

    #[test]
    fn arguments_belong_by_keyword_or_by_place() {
        for (config, all) in [
            ("", ""),
            ("5, CALM true", "CAPACITY=5; CALM=true"),
            ("CALM true, 5", "CAPACITY=5; CALM=true"),
            ("CAPACITY  5", "CAPACITY=5"),
            ("5, CAPACITY 6", "CAPACITY=5|6"),
            ("CAPACITY", "CAPACITY=CAPACITY"),
            ("5 6", "CAPACITY=5 6"),
            ("5, 6, 7", "too many arguments; CAPACITY=5"),
        ] {
            assert_eq!(sorted(&QUEUE, config), all, "{config}");
        }
    }

    #[test]
    fn what_looks_like_a_keyword_is_one_that_there_is_not() {
        assert_eq!(sorted(&QUEUE, "capacity 5"), "capacity: unknown argument");
        assert_eq!(sorted(&QUEUE, "a.b?c 5, 6"), "a.b?c: unknown argument; too many arguments");
        assert_eq!(sorted(&QUEUE, "'capacity' 5"), "CAPACITY='capacity' 5");
    }

    #[test]
    fn what_must_be_given_takes_what_looks_like_a_keyword() {
        assert_eq!(sorted(&STRIP, "X 4, CALM true"), "LENGTH=X 4; CALM=true");
        assert_eq!(sorted(&STRIP, "X 4, LENGTH 3"), "X: unknown argument; LENGTH=3");
        assert_eq!(sorted(&STRIP, "CALM true"), "LENGTH: required argument missing; CALM=true");
    }

    #[test]
    fn an_empty_argument_holds_its_place() {
        assert_eq!(sorted(&QUEUE, ", 5"), "too many arguments");
        assert_eq!(sorted(&STRIP, ","), "LENGTH: required argument missing");
        assert_eq!(sorted(&FILTER, "a, , tcp port 80"), "PATTERN=a||tcp port 80");
    }
}
