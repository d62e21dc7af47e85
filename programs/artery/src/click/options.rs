//! Click's options: short ones bundle, long ones may be shortened while they stay unambiguous.

/// One option of the table.
struct Known {
    name: &'static str,
    letter: Option<char>,
    value: Value,
    /// Whether `--no-NAME` means something.
    negatable: bool,
    /// What it does; empty for spellings that are not listed.
    doc: &'static str,
}

/// Whether an option has a value.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Value {
    None,
    Required(&'static str),
    Optional(&'static str),
}

const fn option(name: &'static str, letter: char, value: Value, negatable: bool, doc: &'static str) -> Known {
    Known { name, letter: if letter == ' ' { None } else { Some(letter) }, value, negatable, doc }
}

static TABLE: &[Known] = &[
    option("file", 'f', Value::Required("FILE"), false, "read the configuration from FILE"),
    option("expression", 'e', Value::Required("TEXT"), false, "take TEXT as the configuration"),
    option("threads", 'j', Value::Required("N"), false, "run on N threads (1)"),
    option("affinity", 'a', Value::Optional("N"), true, "bind threads to processors, from N on"),
    option("cpu", ' ', Value::Optional("N"), true, ""),
    option("port", 'p', Value::Required("PORT"), false, "listen for control connections on a TCP port"),
    option(
        "unix-socket",
        'u',
        Value::Required("FILE"),
        false,
        "listen for control connections on a Unix socket",
    ),
    option("socket", ' ', Value::Required("FD"), false, ""),
    option("allow-reconfigure", 'R', Value::None, true, "make the handler 'hotconfig' writable"),
    option("handler", 'h', Value::Required("E.H"), false, "print a read handler's value at the end"),
    option("exit-handler", 'x', Value::Required("E.H"), false, "exit with a handler's value"),
    option("output", 'o', Value::Required("FILE"), false, "write the flat configuration to FILE"),
    option("quit", 'q', Value::None, false, "do not run"),
    option("time", 't', Value::None, false, "print how long it took"),
    option("warnings", ' ', Value::None, true, ""),
    option("no-warnings", 'w', Value::None, false, "print no warnings"),
    option("simtime", ' ', Value::Optional("T"), false, "simulate time"),
    option("simulation-time", ' ', Value::Optional("T"), false, ""),
    option("clickpath", 'C', Value::Required("PATH"), false, "look for libraries along PATH"),
    option("help", ' ', Value::None, false, "print this and exit"),
    option("version", 'v', Value::None, false, "print the version and exit"),
];

/// All options with their meaning, a line each.
pub(super) fn listing() -> String {
    let line = |known: &Known| {
        let letter = known.letter.map_or("    ".to_string(), |letter| format!("-{letter}, "));
        let value = match known.value {
            Value::None => String::new(),
            Value::Required(value) => format!(" {value}"),
            Value::Optional(value) => format!("[={value}]"),
        };
        format!("  {letter}{:<26} {}\n", format!("--{}{value}", known.name), known.doc)
    };
    TABLE.iter().filter(|known| !known.doc.is_empty()).map(line).collect()
}

/// An option that was given; an argument that is not an option has an empty name.
pub(super) struct Given {
    pub(super) name: &'static str,
    pub(super) negated: bool,
    /// As the user wrote it, a long name in full.
    pub(super) spelling: String,
    pub(super) value: Option<String>,
}

/// Takes a command line apart.
pub(super) struct Options<'a> {
    rest: std::slice::Iter<'a, String>,
    /// The remaining letters of a bundle.
    bundle: &'a str,
    /// After `--` nothing is an option.
    only_arguments: bool,
}

impl<'a> Options<'a> {
    pub(super) fn new(args: &'a [String]) -> Options<'a> {
        Options { rest: args.iter(), bundle: "", only_arguments: false }
    }

    /// The next option or argument; none at the end.
    pub(super) fn next(&mut self) -> Result<Option<Given>, String> {
        if !self.bundle.is_empty() {
            return self.short().map(Some);
        }
        let Some(word) = self.rest.next() else { return Ok(None) };
        if self.only_arguments || word == "-" || !word.starts_with('-') {
            let value = Some(word.clone());
            return Ok(Some(Given { name: "", negated: false, spelling: word.clone(), value }));
        }
        match word.strip_prefix("--") {
            Some("") => {
                self.only_arguments = true;
                self.next()
            }
            Some(long) => self.long(long).map(Some),
            None => {
                self.bundle = &word[1..];
                self.short().map(Some)
            }
        }
    }

    fn short(&mut self) -> Result<Given, String> {
        let mut letters = self.bundle.chars();
        let letter = letters.next().unwrap_or('-');
        self.bundle = letters.as_str();
        let spelling = format!("-{letter}");
        let known = TABLE.iter().find(|known| known.letter == Some(letter));
        let known = known.ok_or_else(|| format!("unrecognized option '{spelling}'"))?;
        let attached = match known.value {
            Value::None => None,
            _ => Some(std::mem::take(&mut self.bundle)).filter(|text| !text.is_empty()).map(str::to_string),
        };
        self.finish(known, false, spelling, attached)
    }

    fn long(&mut self, text: &str) -> Result<Given, String> {
        let (name, attached) = match text.split_once('=') {
            Some((name, value)) => (name, Some(value.to_string())),
            None => (text, None),
        };
        let (known, negated) = find(name)?;
        let spelling = spelled(known, negated);
        if attached.is_some() && (known.value == Value::None || negated) {
            return Err(format!("'{spelling}' can't take an argument"));
        }
        self.finish(known, negated, spelling, attached)
    }

    fn finish(
        &mut self,
        known: &Known,
        negated: bool,
        spelling: String,
        attached: Option<String>,
    ) -> Result<Given, String> {
        let value = match known.value {
            Value::Required(_) if attached.is_none() => {
                let next = self.rest.next().cloned();
                Some(next.ok_or_else(|| format!("'{spelling}' requires an argument"))?)
            }
            _ => attached,
        };
        Ok(Given { name: known.name, negated, spelling, value })
    }
}

/// The option meant by a long name or the beginning of one, and whether it is negated.
fn find(name: &str) -> Result<(&'static Known, bool), String> {
    let exact = TABLE.iter().find(|known| known.name == name);
    if let Some(known) = exact {
        return Ok((known, false));
    }
    // `--no` is the beginning of no name.
    let starts = |known: &&Known| known.name.starts_with(name) && name != "no";
    let positive = TABLE.iter().filter(starts).map(|known| (known, false));
    let negative = name.strip_prefix("no-").into_iter().flat_map(|name| {
        TABLE
            .iter()
            .filter(move |known| known.negatable && known.name.starts_with(name))
            .map(|known| (known, true))
    });
    let mut all: Vec<(&Known, bool)> = positive.chain(negative).collect();
    let mut possible: Vec<String> = Vec::new();
    for name in all.iter().map(|(known, negated)| format!("'{}'", spelled(known, *negated))) {
        if !possible.contains(&name) {
            possible.push(name);
        }
    }
    // `--no-warnings` is also the negation of `--warnings`; `--simtime` has a longer spelling.
    all.dedup_by_key(|(known, negated)| meaning(known.name, *negated));
    match all[..] {
        [one] => Ok(one),
        [] => Err(format!("unrecognized option '--{name}'")),
        _ => Err(format!("option '--{name}' is ambiguous\n(Possibilities are {}.)", listed(&possible))),
    }
}

/// An option's complete long name.
fn spelled(known: &Known, negated: bool) -> String {
    format!("--{}{}", if negated { "no-" } else { "" }, known.name)
}

/// `a and b`, or `a, b, and c`.
fn listed(names: &[String]) -> String {
    match names {
        [first, second] => format!("{first} and {second}"),
        [most @ .., last] => format!("{}, and {last}", most.join(", ")),
        [] => String::new(),
    }
}

/// What an option means, the same for several spellings of one.
fn meaning(name: &'static str, negated: bool) -> (&'static str, bool) {
    match name {
        "no-warnings" => ("warnings", true),
        "simulation-time" => ("simtime", negated),
        "cpu" => ("affinity", negated),
        name => (name, negated),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_beginning_of_a_long_name_is_enough_unless_two_have_it() {
        let name = |text| find(text).map(|(known, negated)| (known.name, negated));
        assert_eq!(name("han"), Ok(("handler", false)));
        assert_eq!(name("no-aff"), Ok(("affinity", true)));
        assert_eq!(name("sim"), Ok(("simtime", false)));
        let ambiguous = "option '--h' is ambiguous\n(Possibilities are '--handler' and '--help'.)";
        assert_eq!(name("h"), Err(ambiguous.to_string()));
        let three = "'--socket', '--simtime', and '--simulation-time'";
        assert!(name("s").unwrap_err().ends_with(&format!("(Possibilities are {three}.)")));
        assert_eq!(name("no").unwrap_err(), "unrecognized option '--no'");
        assert_eq!(name("no-").unwrap_err().matches("'--no-warnings'").count(), 1);
        assert_eq!(name("no-quit"), Err("unrecognized option '--no-quit'".to_string()));
    }

    #[test]
    fn after_two_hyphens_nothing_is_an_option() {
        let args = ["-q", "--", "-q"].map(String::from);
        let mut options = Options::new(&args);
        let mut names = Vec::new();
        while let Some(given) = options.next().unwrap() {
            names.push(given.name);
        }
        assert_eq!(names, ["quit", ""]);
    }
}
