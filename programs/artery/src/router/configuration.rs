//! The configuration of `artery router` as settings: read from a file (TOML) or from the command line,
//! written as a file, and compared.
//!
//! The keys of a file are the long options of the command, which are read from clap and listed nowhere else;
//! their values are what the options take. The options parse the values.
use super::options::RouterOptions;
use crate::spelling::nearest;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Arg, ArgAction, ArgMatches, Args as _, Command, FromArgMatches as _};
use std::collections::HashSet;
use std::error::Error as _;
use std::ffi::OsString;
use std::ops::Range;
use toml::de::{DeTable, DeValue};

/// Options that are about one call of the program, and no keys of a file.
const NO_KEYS: [&str; 4] = ["print", "verbose", "no-sandbox", "help"];
/// Keys that may be options beside a file, if it has not got them: where a process listens, what it writes,
/// and which files it may use.
pub(super) const BESIDE_A_FILE: [&str; 4] = ["socket", "log", "sandbox", "allow-path"];
/// Keys that are read when a router starts, and not later.
const AT_START: [&str; 15] = [
    "workers",
    "awake",
    "affinity",
    "socket",
    "metrics",
    "ipfix",
    "psample",
    "read-group",
    "control-timeout",
    "log",
    "allow-replace",
    "sandbox",
    "allow-path",
    "stats",
    "json",
];

/// How a key is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// A boolean, `true` or `false`.
    Flag,
    /// One string or number.
    One,
    /// One value, or `true` for the usual one.
    OneOrTrue,
    /// A list of values.
    List,
}

/// An option that is a key of files.
struct Key {
    name: String,
    kind: Kind,
    /// What clap calls the option.
    id: clap::Id,
}

/// The options, as clap knows them.
fn command() -> Command {
    let command = Command::new("router").no_binary_name(true).disable_help_flag(true);
    RouterOptions::augment_args(command)
}

/// All keys, in the order of the options.
fn keys(command: &Command) -> Vec<Key> {
    let key = |arg: &Arg| {
        let name = arg.get_long().filter(|name| !NO_KEYS.contains(name))?.to_string();
        let kind = match arg.get_action() {
            ArgAction::SetTrue => Kind::Flag,
            ArgAction::Append => Kind::List,
            _ if arg.get_num_args().is_some_and(|count| count.min_values() == 0) => Kind::OneOrTrue,
            _ => Kind::One,
        };
        Some(Key { name, kind, id: arg.get_id().clone() })
    };
    command.get_arguments().filter_map(key).collect()
}

/// A key with what it is set to.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Setting {
    key: String,
    kind: Kind,
    /// None for a flag, which is set.
    values: Vec<String>,
}

/// The settings of a router, in the order of the options.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Configuration(Vec<Setting>);

/// Where a configuration is from, for messages.
#[derive(Clone, Debug, Default)]
pub(crate) struct Origin {
    /// The file; none where options say everything.
    pub(super) file: Option<String>,
    /// Keys and values, and the lines that they stand in.
    places: Vec<(String, String, usize)>,
}

/// A configuration that was read, and the options that it stands for.
#[derive(Clone)]
pub(crate) struct Candidate {
    pub(crate) configuration: Configuration,
    pub(super) options: RouterOptions,
    pub(super) origin: Origin,
}

impl Candidate {
    /// The same for a running router: keys that are read only at the start keep their values.
    pub(super) fn for_running(self, running: &Configuration) -> Result<Candidate, Vec<String>> {
        let mut mistakes = Vec::new();
        let both = self.configuration.with_start_of(running);
        match options(&both, &self.origin, &mut mistakes) {
            Some((configuration, options)) => Ok(Candidate { configuration, options, origin: self.origin }),
            None => Err(mistakes),
        }
    }
}

impl Configuration {
    /// What the options of a command line say.
    pub(super) fn of_matches(matches: &ArgMatches) -> Configuration {
        Configuration::of_keys(keys(&command()), matches)
    }

    fn of_keys(keys: Vec<Key>, matches: &ArgMatches) -> Configuration {
        let said = |key: Key| {
            let id = key.id.as_str();
            let is_said = matches.value_source(id) == Some(clap::parser::ValueSource::CommandLine);
            if !is_said {
                return None;
            }
            let values = match key.kind {
                Kind::Flag => Vec::new(),
                _ => {
                    let raw = matches.get_raw(id).into_iter().flatten();
                    raw.map(|value| value.to_string_lossy().into_owned()).collect()
                }
            };
            Some(Setting { key: key.name, kind: key.kind, values })
        };
        Configuration(keys.into_iter().filter_map(said).collect())
    }

    /// The keys that are set.
    pub(super) fn keys(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|setting| setting.key.as_str())
    }

    /// The arguments of the command that say the same.
    fn arguments(&self) -> Vec<OsString> {
        let words = |setting: &Setting| -> Vec<OsString> {
            let key = &setting.key;
            match setting.kind {
                Kind::Flag => vec![format!("--{key}").into()],
                _ => setting.values.iter().map(|value| format!("--{key}={value}").into()).collect(),
            }
        };
        self.0.iter().flat_map(words).collect()
    }

    /// The file that says the same.
    pub(crate) fn to_toml(&self) -> String {
        self.0.iter().map(Setting::to_toml).collect()
    }

    /// What a router that is this becomes by a file: the lines of a file that go, and that come. Keys that
    /// may stand beside a file go with none.
    pub(crate) fn changes(&self, to: &Configuration) -> Vec<Change> {
        let is_beside = |name: &str| BESIDE_A_FILE.contains(&name) && to.find(name).is_none();
        let names = keys(&command()).into_iter().map(|key| key.name).filter(|name| !is_beside(name));
        names.flat_map(|name| changes_of(&name, self.find(&name), to.find(&name))).collect()
    }

    fn find(&self, key: &str) -> Option<&Setting> {
        self.0.iter().find(|setting| setting.key == key)
    }

    /// This configuration with the values of `running` for keys that are read only at the start.
    fn with_start_of(&self, running: &Configuration) -> Configuration {
        let names = keys(&command()).into_iter().map(|key| key.name);
        let from = |name: String| match AT_START.contains(&name.as_str()) {
            true => running.find(&name).cloned(),
            false => self.find(&name).cloned(),
        };
        Configuration(names.filter_map(from).collect())
    }
}

/// A line of a file that goes or comes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Change {
    pub(crate) is_new: bool,
    line: String,
    key: String,
}

impl Change {
    /// Whether it counts from the next start on.
    pub(crate) fn is_at_start(&self) -> bool {
        AT_START.contains(&self.key.as_str())
    }

    pub(super) fn line(&self) -> &str {
        &self.line
    }

    /// `+ nat = true`.
    pub(crate) fn text(&self) -> String {
        let sign = if self.is_new { '+' } else { '-' };
        let note = if self.is_at_start() { "   # at the next start" } else { "" };
        format!("{sign} {}{note}\n", self.line)
    }
}

fn changes_of(key: &str, from: Option<&Setting>, to: Option<&Setting>) -> Vec<Change> {
    let lines = |setting: Option<&Setting>| setting.map_or(Vec::new(), Setting::lines);
    let (mut gone, mut new) = (lines(from), lines(to));
    // A value that a list has twice counts twice.
    gone.retain(|line| match new.iter().position(|other| other == line) {
        Some(at) => {
            new.remove(at);
            false
        }
        None => true,
    });
    let change = |is_new| move |line: String| Change { is_new, line, key: key.to_string() };
    gone.into_iter().map(change(false)).chain(new.into_iter().map(change(true))).collect()
}

impl Setting {
    fn to_toml(&self) -> String {
        let key = &self.key;
        match self.kind {
            Kind::List if self.values.len() > 1 => {
                let items: String =
                    self.values.iter().map(|value| format!("    {},\n", quoted(value))).collect();
                format!("{key} = [\n{items}]\n")
            }
            Kind::List => {
                let items: String = self.values.iter().map(|value| quoted(value)).collect();
                format!("{key} = [{items}]\n")
            }
            _ => self.lines().into_iter().map(|line| line + "\n").collect(),
        }
    }

    /// A line for each value.
    fn lines(&self) -> Vec<String> {
        let key = &self.key;
        let is_number = |value: &str| value.parse::<u32>().is_ok_and(|number| number.to_string() == value);
        let line = |value: &String| match self.kind {
            Kind::One | Kind::OneOrTrue if is_number(value) => format!("{key} = {value}"),
            _ => format!("{key} = {}", quoted(value)),
        };
        match self.kind {
            Kind::Flag => vec![format!("{key} = true")],
            _ => self.values.iter().map(line).collect(),
        }
    }
}

/// A text as a string of TOML.
fn quoted(text: &str) -> String {
    let escaped = |c: char| match c {
        '"' => "\\\"".to_string(),
        '\\' => "\\\\".to_string(),
        c if c.is_control() => format!("\\u{:04X}", u32::from(c)),
        c => c.to_string(),
    };
    format!("\"{}\"", text.chars().map(escaped).collect::<String>())
}

/// Reads a file's text; `name` is what messages call it. The errors are all mistakes that were found.
pub(crate) fn parse(name: &str, text: &str) -> Result<Candidate, Vec<String>> {
    let mut reader = Reader { name, text, mistakes: Vec::new(), places: Vec::new() };
    let (table, errors) = DeTable::parse_recoverable(text);
    for error in errors {
        let at = error.span().unwrap_or_default().start;
        let what = error.message().replace('\n', ", ");
        reader.blame(
            at,
            &format!("{what}; write KEY = VALUE, texts as \"TEXT\" and lists as [\"TEXT\", \"TEXT\"]"),
        );
    }
    // After a syntax error the rest may be misread.
    if !reader.mistakes.is_empty() {
        return Err(reader.mistakes);
    }
    let keys = keys(&command());
    let mut entries: Vec<(&str, Range<usize>, &DeValue<'_>, Range<usize>)> = table
        .get_ref()
        .iter()
        .map(|(key, value)| (key.get_ref().as_ref(), key.span(), value.get_ref(), value.span()))
        .collect();
    entries.sort_by_key(|(_, place, ..)| place.start);
    let mut settings: Vec<Setting> = entries
        .iter()
        .filter_map(|(key, place, value, at)| reader.setting(&keys, (key, place), (value, at)))
        .collect();
    settings.sort_by_key(|setting| keys.iter().position(|key| key.name == setting.key));
    let origin = Origin { file: Some(name.to_string()), places: std::mem::take(&mut reader.places) };
    let mut mistakes = reader.mistakes;
    let options = options(&Configuration(settings), &origin, &mut mistakes);
    match options {
        Some((configuration, options)) if mistakes.is_empty() => {
            Ok(Candidate { configuration, options, origin })
        }
        options => {
            if let Some((_, options)) = options {
                mistakes.extend(origin.locate_all(super::read::wrong_values(&options)));
            }
            Err(mistakes)
        }
    }
}

/// Reads the settings of one text.
struct Reader<'a> {
    name: &'a str,
    text: &'a str,
    mistakes: Vec<String>,
    places: Vec<(String, String, usize)>,
}

impl Reader<'_> {
    fn line(&self, at: usize) -> usize {
        1 + self.text.as_bytes()[..at.min(self.text.len())].iter().filter(|byte| **byte == b'\n').count()
    }

    fn blame(&mut self, at: usize, what: &str) {
        self.mistakes.push(format!("{}:{}: {what}", self.name, self.line(at)));
    }

    fn setting(
        &mut self,
        keys: &[Key],
        (name, place): (&str, &Range<usize>),
        (value, at): (&DeValue<'_>, &Range<usize>),
    ) -> Option<Setting> {
        let Some(key) = keys.iter().find(|key| key.name == name) else {
            let what = unknown(keys, name, matches!(value, DeValue::Table(_)));
            self.blame(place.start, &what);
            return None;
        };
        let values = match (key.kind, value) {
            (_, DeValue::Boolean(false)) if matches!(key.kind, Kind::Flag | Kind::OneOrTrue) => return None,
            (Kind::Flag, DeValue::Boolean(true)) => Some(Vec::new()),
            // An option without its value means the usual one.
            (Kind::OneOrTrue, DeValue::Boolean(true)) => Some(Vec::new()),
            (Kind::List, DeValue::Array(items)) => self.items(&key.name, items),
            (Kind::One | Kind::OneOrTrue | Kind::List, value) => {
                self.word(&key.name, value, at).map(|word| vec![word])
            }
            _ => None,
        };
        let Some(values) = values else {
            self.blame(at.start, &format!("{name}: {}", wants(key)));
            return None;
        };
        // A list of nothing says nothing.
        if key.kind == Kind::List && values.is_empty() {
            return None;
        }
        if values.is_empty() {
            self.places.push((name.to_string(), String::new(), self.line(place.start)));
        }
        Some(Setting { key: name.to_string(), kind: key.kind, values })
    }

    fn items(&mut self, key: &str, items: &toml::de::DeArray<'_>) -> Option<Vec<String>> {
        items.iter().map(|item| self.word(key, item.get_ref(), &item.span())).collect()
    }

    /// A value that an option could have; the place is kept.
    fn word(&mut self, key: &str, value: &DeValue<'_>, at: &Range<usize>) -> Option<String> {
        let word = match value {
            DeValue::String(text) => text.to_string(),
            DeValue::Integer(number) if number.radix() == 10 => number.as_str().to_string(),
            DeValue::Float(number) => number.as_str().to_string(),
            _ => return None,
        };
        let line = self.line(at.start);
        self.places.push((key.to_string(), word.clone(), line));
        Some(word)
    }
}

/// The message for an unknown key.
fn unknown(keys: &[Key], name: &str, is_table: bool) -> String {
    if is_table {
        return format!(
            "[{name}]: the file has no sections; write KEY = VALUE, as in port = [\"eth1=10.0.1.1/24\"]"
        );
    }
    if NO_KEYS.contains(&name) {
        return format!(
            "'{name}' is an option of one call, and no key of a file; write --{name} on the command line"
        );
    }
    let names = || keys.iter().map(|key| key.name.as_str());
    match nearest(name, names()) {
        Some(near) => format!("unknown key '{name}'; did you mean '{near}'?"),
        None => format!("unknown key '{name}'; the keys are {}", names().collect::<Vec<_>>().join(", ")),
    }
}

/// How a key is to be written.
fn wants(key: &Key) -> String {
    let name = &key.name;
    match key.kind {
        Kind::Flag => format!("write {name} = true or {name} = false"),
        Kind::One => format!("write one value, as in {name} = \"VALUE\""),
        Kind::OneOrTrue => format!("write {name} = true, or one value as in {name} = \"VALUE\""),
        Kind::List => format!("write a list of texts, as in {name} = [\"VALUE\", \"VALUE\"]"),
    }
}

/// What settings say as options, and the settings as the options have them; mistakes are added to `mistakes`.
fn options(
    settings: &Configuration,
    origin: &Origin,
    mistakes: &mut Vec<String>,
) -> Option<(Configuration, RouterOptions)> {
    let mut arguments = settings.arguments();
    // Keys with their usual value.
    let bare =
        settings.0.iter().filter(|setting| setting.kind == Kind::OneOrTrue && setting.values.is_empty());
    arguments.extend(bare.map(|setting| format!("--{}", setting.key).into()));
    let mut command = command();
    loop {
        let error = match command.try_get_matches_from_mut(&arguments) {
            Ok(matches) => {
                let options = RouterOptions::from_arg_matches(&matches).ok()?;
                return Some((Configuration::of_keys(keys(&command), &matches), options));
            }
            Err(error) => error,
        };
        let text = |kind| match error.get(kind) {
            Some(ContextValue::String(text)) => Some(text.clone()),
            _ => None,
        };
        let (of, value) = (text(ContextKind::InvalidArg), text(ContextKind::InvalidValue));
        let option = of.as_deref().and_then(|of| of.split([' ', '=', '[']).next()).map(str::to_string);
        let (Some(option), Some(value), true) = (option, value, is_about_value(error.kind())) else {
            mistakes.push(origin.locate(&about_keys(&error)));
            return None;
        };
        let why = error.source().map_or_else(|| first_line(&error), ToString::to_string);
        mistakes.push(origin.locate(&format!("{option} {value}: {why}")));
        let wrong = OsString::from(format!("{option}={value}"));
        let before = arguments.len();
        arguments.retain(|word| *word != wrong);
        if arguments.len() == before {
            return None;
        }
    }
}

fn is_about_value(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::ValueValidation | ErrorKind::InvalidValue)
}

/// What clap says, without what it says of usage.
fn first_line(error: &clap::Error) -> String {
    let text = error.to_string();
    text.lines().next().unwrap_or_default().trim_start_matches("error: ").to_string()
}

/// The message for keys that conflict.
fn about_keys(error: &clap::Error) -> String {
    let missing = match error.get(ContextKind::InvalidArg) {
        Some(ContextValue::Strings(names)) if error.kind() == ErrorKind::MissingRequiredArgument => {
            names.clone()
        }
        _ => Vec::new(),
    };
    let name = |text: &String| text.split(' ').next().unwrap_or_default().to_string();
    let names: Vec<String> = missing.iter().map(name).collect();
    match &names[..] {
        [] => first_line(error),
        _ if names.iter().any(|name| name == "--port") => {
            "--port: a router needs ports; write port = [\"eth1=10.0.1.1/24\", \"eth2=10.0.2.1/24\"]"
                .to_string()
        }
        names => format!("{} is needed by another key; write both or none", names.join(", ")),
    }
}

impl Origin {
    /// Replaces the option in a mistake by the file and line of its key.
    pub(super) fn locate(&self, mistake: &str) -> String {
        let Some(file) = &self.file else { return mistake.to_string() };
        let exact = |(key, value, _): &&(String, String, usize)| {
            let rest = mistake.strip_prefix(&format!("--{key} "));
            let told = |text: &str| rest.is_some_and(|rest| rest.starts_with(text));
            !value.is_empty() && (told(&format!("{value}: ")) || told(&format!("'{value}': ")))
        };
        let of_key = |(key, ..): &&(String, String, usize)| {
            let rest = mistake.strip_prefix(&format!("--{key}"));
            rest.is_some_and(|rest| rest.starts_with([' ', ':', ',']))
        };
        let place = self.places.iter().find(exact).or_else(|| self.places.iter().find(of_key));
        match place {
            Some((.., line)) => format!("{file}:{line}: {}", as_keys(mistake)),
            None if mistake.contains("--") => format!("{file}: {}", as_keys(mistake)),
            // The mistake names a file of its own.
            None => mistake.to_string(),
        }
    }

    /// The same for several.
    pub(super) fn locate_all(&self, mistakes: Vec<String>) -> Vec<String> {
        mistakes.iter().map(|mistake| self.locate(mistake)).collect()
    }
}

/// A sentence with keys instead of options.
fn as_keys(sentence: &str) -> String {
    let names: HashSet<String> = keys(&command()).into_iter().map(|key| key.name).collect();
    let mut text = String::new();
    for (n, part) in sentence.split("--").enumerate() {
        let end = part.find(|c: char| !(c.is_ascii_alphanumeric() || c == '-')).unwrap_or(part.len());
        if n > 0 && !names.contains(&part[..end]) {
            text += "--";
        }
        text += part;
    }
    text
}

#[cfg(test)]
mod tests;
