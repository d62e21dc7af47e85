//! What `artery pfctl` asks of a filter, as words, and the answers as pfctl prints them.
use super::log_file::LogFile;
use super::shared::{Control, SharedFilter, refused};
use super::worker::WorkerFilter;
use artery_engine::{Context, HandlerError};
use artery_filter::anchors::{Called, calls};
use artery_filter::engine::Counted;
use artery_filter::evaluate::{Counters, RuleId, RuleTotals, skip_steps};
use artery_filter::facts::Interface;
use artery_filter::options::{Limit, Timeout};
use artery_filter::rule::{Action, Rule};
use artery_filter::syntax::DEBUG_LEVELS;
use artery_filter::syntax::print::{self, Style};
use artery_filter::tables::{Command, TableEntry, Tone, command, parse};
use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

/// The word that asks for how rules could be skipped.
const DEBUGGING: &str = "-g";

/// What the handlers of a filter are for.
pub(crate) const LOAD: &str = "an anchor in a line of its own, empty for the main rule set, and rules: loads them, or says what is wrong; other anchors with theirs \
     follow behind a line with a form feed, and all are loaded or none";
/// See [`LOAD`].
pub(crate) const ALL: &str = "what `artery pfctl` asks of the packet filter: `info`, `rules`, `labels`, `anchors`, `tables`, `timeouts`, `memory`, \
     `interfaces`, each with `v` for more, `rules` with `-g` as well, and `table …`, `enable`, `disable`, `flush …`, `debug LEVEL`, `checksum`, `etc`, `log`";

/// Answers what is asked of all copies together.
pub(crate) fn all(shared: &SharedFilter, text: &str, cx: &mut Context<'_>) -> Result<String, HandlerError> {
    let now = cx.now().since_epoch();
    let words: Vec<&str> = text.split_whitespace().collect();
    let (verb, rest) =
        words.split_first().ok_or_else(|| refused("what of the filter? say 'info' or 'rules'"))?;
    let verbosity = rest.iter().filter(|word| **word == "v").count() as u8;
    let is_debugging = rest.contains(&DEBUGGING);
    let path = rest.iter().find(|word| **word != "v" && **word != DEBUGGING).copied().unwrap_or_default();
    let mut control = shared.control();
    match *verb {
        "info" => info(shared, &control, now, verbosity > 0),
        "rules" => rules(&control, &shared.counters(), path, (verbosity, is_debugging)),
        "labels" => Ok(labels(&control, &shared.counters())),
        "anchors" => Ok(control.anchors.list(path, verbosity > 0)),
        "tables" => Ok(control.tables.list(path, verbosity, &seconds)),
        "timeouts" => Ok(timeouts(&control)),
        "memory" => Ok(memory(&control)),
        "interfaces" => Ok(interfaces(&control, path, verbosity)),
        "table" => table(&mut control, rest, now),
        "enable" | "disable" => Ok(enable(shared, &mut control, *verb == "enable", now)),
        "flush" => flush(shared, &mut control, rest),
        "debug" => debug(&mut control, rest),
        "etc" => Ok(control.etc().map_or(String::new(), |etc| format!("{}\n", etc.display()))),
        "log" => Ok(shared.log().map_or_else(|| "none\n".to_string(), log)),
        "checksum" => Ok(hexadecimal(&control.checksum()) + "\n"),
        _ => Err(refused(format!("'{verb}' is nothing that the filter can be asked"))),
    }
}

fn seconds(time: Duration) -> String {
    time.as_secs().to_string()
}

fn info(
    shared: &SharedFilter,
    control: &Control,
    now: Duration,
    is_verbose: bool,
) -> Result<String, HandlerError> {
    let mut sum = Counted::default();
    shared.counted().iter().for_each(|counted| sum.add(counted));
    let mut text = String::new();
    sum.print(&control.status(now), is_verbose, &mut text).map_err(|_| refused("no memory"))?;
    Ok(text + &shared.log().filter(|_| is_verbose).map_or(String::new(), log))
}

/// What became of packets that rules log.
fn log(file: &LogFile) -> String {
    let [written, lost] = file.counts();
    format!(
        "Log {}\n  {:<25} {written:>14}\n  {:<25} {lost:>14}\n",
        file.path().display(),
        "packets written",
        "packets lost"
    )
}

/// Rules of the rule set at a path; with what is counted for each where that is wanted.
fn rules(
    control: &Control,
    counters: &[Arc<Counters>],
    path: &str,
    (verbosity, is_debugging): (u8, bool),
) -> Result<String, HandlerError> {
    if control.anchors.get(path).is_none() {
        return if path.is_empty() {
            Ok(String::new())
        } else {
            Err(refused(format!("there is no anchor '{path}'")))
        };
    }
    let style = Style { is_debugging: verbosity > 1 || is_debugging, ..Style::new(&control.names) };
    let mut text = String::new();
    let below = Below { is_counted: verbosity > 0, is_debugging };
    shown_rules(control, counters, (path, 0), (&style, below), &mut text);
    Ok(text)
}

/// What is shown below each rule.
#[derive(Clone, Copy)]
struct Below {
    is_counted: bool,
    /// How rules could be skipped, and by which queue packets go.
    is_debugging: bool,
}

impl Below {
    fn text(self, steps: &str, queue: Option<&(String, String)>, totals: impl Fn() -> RuleTotals) -> String {
        let mut text = String::new();
        if self.is_debugging {
            let (name, urgent) = queue.map_or(("", ""), |(name, urgent)| (name.as_str(), urgent.as_str()));
            text += &format!("{steps}  [ queue: qname={name} qid=0 pqname={urgent} pqid=0 ]\n");
        }
        match (self.is_counted, self.is_debugging) {
            (false, _) => text,
            (true, true) => text + &totals().first_line(),
            (true, false) => text + &totals().text((0, std::process::id())),
        }
    }
}

/// The rules of an anchor so deep in others. Those of anchors without a name stand within; the others are asked for by name.
fn shown_rules(
    control: &Control,
    counters: &[Arc<Counters>],
    (path, depth): (&str, usize),
    (style, below): (&Style<'_>, Below),
    text: &mut String,
) {
    let Some(ruleset) = control.anchors.get(path) else { return };
    let length = |name: &str| control.tables.length(path, name);
    let style = &Style { table_length: Some(&length), ..*style };
    let steps = if below.is_debugging { skip_steps(&ruleset.rules) } else { Vec::new() };
    for ((number, rule), called) in ruleset.rules.iter().enumerate().zip(calls(path, &ruleset.rules)) {
        let inline = is_inline(rule);
        let indent = if below.is_counted { String::new() } else { "  ".repeat(depth) };
        *text += &indent;
        *text += &print::rule(rule, number, style);
        *text += if inline { " {\n" } else { "\n" };
        let steps = steps.get(number).map_or("", String::as_str);
        let totals = || totals(control, counters, path, number);
        *text += &below.text(steps, rule.set.queue.as_ref(), totals);
        if let (true, Some(Called::One(inner))) = (inline, called) {
            shown_rules(control, counters, (&inner, depth + 1), (style, below), text);
            *text += &format!("{indent}}}\n");
        }
    }
}

fn is_inline(rule: &Rule) -> bool {
    matches!(&rule.action, Action::Anchor(call) if call.inline.is_some() && call.name.is_none())
}

/// What all workers count for a rule.
fn totals(control: &Control, counters: &[Arc<Counters>], path: &str, number: usize) -> RuleTotals {
    let rules = control.latest().compiled.rules();
    let place = rules.iter().position(|record| &*record.anchor == path && record.number as usize == number);
    let all = counters.iter().map(|counters| &**counters);
    place.map_or_else(RuleTotals::default, |place| Counters::total(all, RuleId(place as u32)))
}

fn labels(control: &Control, counters: &[Arc<Counters>]) -> String {
    let rules = control.latest().compiled.rules().iter().enumerate();
    let labelled = rules.filter(|(_, record)| !record.rule.label.is_empty());
    let line = |(place, record): (usize, &artery_filter::evaluate::RuleRecord)| {
        let total = Counters::total(counters.iter().map(|counters| &**counters), RuleId(place as u32));
        total.label_line(&record.rule.label)
    };
    labelled.map(line).collect()
}

fn timeouts(control: &Control) -> String {
    let limits = &control.settings().limits;
    let line = |(timeout, name): &(Timeout, &str)| {
        let unit =
            if matches!(timeout, Timeout::AdaptiveStart | Timeout::AdaptiveEnd) { " states" } else { "s" };
        format!("{name:<20} {:>10}{unit}\n", limits.timeouts[*timeout as usize])
    };
    Timeout::NAMES.iter().map(line).collect()
}

fn memory(control: &Control) -> String {
    let limits = &control.settings().limits;
    let line = |(limit, name): &(Limit, &str)| format!("{name:<13} hard limit {:>8}\n", limits.limit(*limit));
    Limit::NAMES.iter().map(line).collect()
}

fn interfaces(control: &Control, name: &str, verbosity: u8) -> String {
    let mut text = String::new();
    let wanted =
        control.interfaces.0.iter().enumerate().filter(|(_, record)| name.is_empty() || record.name == name);
    for (number, record) in wanted {
        let skips = control.latest().compiled.skips(Interface(number as u16));
        let mark = if skips && verbosity > 0 { " (skip)" } else { "" };
        let _ = writeln!(text, "{}{mark}", record.name);
    }
    text
}

/// `table [-a ANCHOR] NAME FLAGS COMMAND ADDRESSES…`; the answer is `STATUS MESSAGE-LINES`, then the message and the listing.
fn table(control: &mut Control, words: &[&str], now: Duration) -> Result<String, HandlerError> {
    let (anchor, words) = match words {
        ["-a", anchor, rest @ ..] => (*anchor, rest),
        all => ("", all),
    };
    let [name, flags, verb, addresses @ ..] = words else {
        return Err(refused("wanted is table [-a ANCHOR] NAME FLAGS COMMAND [ADDRESS…]"));
    };
    let has = |flag: char| flags.contains(flag);
    let tone = Tone {
        verbosity: flags.matches('v').count() as u8,
        is_quiet: has('q'),
        is_dummy: has('n'),
        time: Some(&seconds),
    };
    let reply = command(&mut control.tables, (anchor, name), &table_command(verb, addresses)?, tone, now);
    Ok(format!("{} {}\n{}{}", reply.status, reply.message.lines().count(), reply.message, reply.listing))
}

fn table_command(verb: &str, addresses: &[&str]) -> Result<Command, HandlerError> {
    let entries = || -> Result<Vec<TableEntry>, HandlerError> {
        parse(&addresses.join("\n"))
            .map_err(|(_, word)| refused(format!("'{word}' is no address; the table is as it was")))
    };
    Ok(match verb {
        "add" => Command::Add(entries()?),
        "delete" => Command::Delete(entries()?),
        "replace" => Command::Replace(entries()?),
        "test" => Command::Test(entries()?),
        "zero" => Command::Zero(entries()?),
        "show" => Command::Show,
        "flush" => Command::Flush,
        "kill" => Command::Kill,
        "expire" => {
            let age = addresses.first().and_then(|word| word.parse().ok());
            Command::Expire(Duration::from_secs(
                age.ok_or_else(|| refused("expire wants a number of seconds"))?,
            ))
        }
        _ => return Err(refused(format!("'{verb}' can't be done with a table"))),
    })
}

fn enable(shared: &SharedFilter, control: &mut Control, is_enabled: bool, now: Duration) -> String {
    let word = if is_enabled { "enabled" } else { "disabled" };
    match control.enable(is_enabled, now) {
        true => {
            shared.renew(control);
            format!("pf {word}\n")
        }
        false => format!("pf already {word}\n"),
    }
}

/// `debug LEVEL`.
fn debug(control: &mut Control, words: &[&str]) -> Result<String, HandlerError> {
    let level = match words {
        [word] => DEBUG_LEVELS.iter().find(|level| *level == word),
        _ => None,
    };
    let level = level.ok_or_else(|| refused(format!("a level is one of {}", DEBUG_LEVELS.join(", "))))?;
    control.set_debug(level);
    Ok(format!("debug level set to '{level}'\n"))
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// `flush rules|tables [ANCHOR]`, `flush options`.
fn flush(shared: &SharedFilter, control: &mut Control, words: &[&str]) -> Result<String, HandlerError> {
    let anchor = words.get(1).copied().unwrap_or_default();
    match words.first() {
        Some(&"rules") => {
            control.anchors.flush(anchor);
            shared.renew(control);
            Ok("rules cleared\n".into())
        }
        Some(&"tables") => {
            let names = control.tables.list(anchor, 0, &seconds);
            let tone = Tone::default();
            let end = |name| {
                command(&mut control.tables, (anchor, name), &Command::Kill, tone, Duration::ZERO).status == 0
            };
            let count = names.lines().map(end).filter(|has_ended| *has_ended).count();
            Ok(format!("{count} tables deleted.\n"))
        }
        Some(&"options") => {
            control.reset_options().map_err(refused)?;
            shared.renew(control);
            Ok("pf: options reset\n".into())
        }
        _ => Err(refused("rules, tables or options can be flushed here")),
    }
}

impl WorkerFilter {
    /// `ANCHOR` in a line, then rules, and the same of other anchors behind a form feed: loads them.
    pub(crate) fn load(&mut self, text: &str, cx: &mut Context<'_>) -> Result<(), HandlerError> {
        let part = |part| -> (&str, &[u8]) {
            let (anchor, rules) = str::split_once(part, '\n').unwrap_or((part, ""));
            (anchor.trim(), rules.as_bytes())
        };
        let parts: Vec<_> = text.split("\n\x0c\n").map(part).collect();
        self.shared().load("pf.conf", &parts, cx.now().since_epoch()).map_err(refused)
    }
}
