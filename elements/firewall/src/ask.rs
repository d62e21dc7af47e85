//! The commands of `artery pfctl` to a filter, as words, and the replies in the format of pfctl.
use super::log_file::LogFile;
use super::shared::{Control, SharedFilter, refused};
use super::worker::WorkerFilter;
use artery_common::hex::to_hex;
use artery_engine::{Context, HandlerError, Time};
use artery_filter::anchors::{AnchorTarget, resolve_calls};
use artery_filter::engine::FilterCounters;
use artery_filter::evaluate::{Counters, MAX_DEPTH, RuleId, RuleTotals, skip_steps};
use artery_filter::facts::Interface;
use artery_filter::names::{InterfaceAddress, InterfaceRecord};
use artery_filter::options::{Limit, Timeout};
use artery_filter::rule::{Action, On, Rule};
use artery_filter::syntax::DEBUG_LEVELS;
use artery_filter::syntax::print::{self, Style};
use artery_filter::tables::{Command, CommandOptions, TableEntry, parse_entries, run_command};
use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

/// Options that print skip steps of rules, and names of ports.
const DEBUGGING: &str = "-g";
const PORT_NAMES: &str = "-P";

/// Answers a query about the state that all copies share.
pub(crate) fn query_shared(
    shared: &SharedFilter,
    text: &str,
    cx: &mut Context<'_>,
) -> Result<String, HandlerError> {
    let now = cx.now().since_epoch();
    let words: Vec<&str> = text.split_whitespace().collect();
    let (verb, rest) =
        words.split_first().ok_or_else(|| refused("what of the filter? say 'info' or 'rules'"))?;
    let verbosity = rest.iter().filter(|word| **word == "v").count() as u8;
    let is_flag = |word: &str| ["v", DEBUGGING, PORT_NAMES].contains(&word);
    let path = rest.iter().find(|word| !is_flag(word)).copied().unwrap_or_default();
    let mut control = shared.lock_control();
    match *verb {
        "info" => format_info(shared, &control, now, verbosity > 0),
        "rules" => list_rules(&control, &shared.counters(), path, rest),
        "labels" => list_labels(&control, &shared.counters(), path),
        "anchors" => Ok(control.anchors.list_anchors(path, verbosity > 0)),
        "tables" => Ok(control.tables.list_tables(path, verbosity, &format_ctime)),
        "timeouts" => Ok(list_timeouts(&control)),
        "memory" => Ok(list_limits(&control)),
        "interfaces" => list_interfaces(shared, &control, path, verbosity),
        "table" => handle_table(&mut control, rest, now),
        "enable" | "disable" => Ok(enable_filter(shared, &mut control, *verb == "enable", now)),
        "flush" => flush_target(shared, &mut control, rest),
        "debug" => set_debug_level(&mut control, rest),
        "etc" => Ok(control.etc_folder().map_or(String::new(), |etc| format!("{}\n", etc.display()))),
        "known" => Ok(control.interfaces_now().0.iter().map(interface_line).collect()),
        "warnings" => Ok(control.warnings_text()),
        "log" if !path.is_empty() => begin_log(shared, text),
        "log" => Ok(shared.log_file().map_or_else(|| "none\n".to_string(), format_log_counts)),
        "checksum" => Ok(to_hex(&control.rules_checksum()) + "\n"),
        _ => Err(refused(format!("'{verb}' is nothing that the filter can be asked"))),
    }
}

/// A time since the epoch as ctime(3) writes it, in UTC.
fn format_ctime(time: Duration) -> String {
    const DAYS: [&str; 7] = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"];
    const MONTHS: [&str; 12] =
        ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    let (days, within) = (time.as_secs() / 86_400, time.as_secs() % 86_400);
    let (year, month, day) = Time::new(time.as_secs(), 0).date();
    let (hour, minute, second) = (within / 3600, within / 60 % 60, within % 60);
    let (weekday, month) = (DAYS[(days % 7) as usize], MONTHS[month as usize - 1]);
    format!("{weekday} {month} {day:2} {hour:02}:{minute:02}:{second:02} {year}")
}

fn format_info(
    shared: &SharedFilter,
    control: &Control,
    now: Duration,
    is_verbose: bool,
) -> Result<String, HandlerError> {
    let mut sum = FilterCounters::default();
    shared.worker_counters().iter().for_each(|counted| sum.add_counts(counted));
    let mut text = String::new();
    sum.print_info(&control.status(now), is_verbose, &mut text).map_err(|_| refused("no memory"))?;
    Ok(text + &shared.log_file().filter(|_| is_verbose).map_or(String::new(), format_log_counts))
}

/// The counts of logged packets: written and lost.
fn format_log_counts(file: &LogFile) -> String {
    let [written, lost] = file.counts();
    format!(
        "Log {}\n  {:<25} {written:>14}\n  {:<25} {lost:>14}\n",
        file.path().display(),
        "packets written",
        "packets lost"
    )
}

/// Handles `log FILE`: starts a log, unless there is one.
fn begin_log(shared: &SharedFilter, text: &str) -> Result<String, HandlerError> {
    let file = text.trim().strip_prefix("log").unwrap_or_default().trim();
    let begun = shared.begin_log(file).map_err(|error| refused(format!("can't write {file}: {error}")));
    begun.map(|()| shared.log_file().map_or_else(String::new, format_log_counts))
}

/// The rules of the rule set at a path, with their counts if requested. With `*` after the path, also those
/// of all anchors below.
fn list_rules(
    control: &Control,
    counters: &[Arc<Counters>],
    path: &str,
    flags: &[&str],
) -> Result<String, HandlerError> {
    let (path, is_deep) = match path.strip_suffix('*') {
        Some(path) => (path.trim_end_matches('/'), true),
        None => (path, false),
    };
    if !control.anchors.is_there(path) {
        return if path.is_empty() { Ok(String::new()) } else { Err(no_anchor(path)) };
    }
    let verbosity = flags.iter().filter(|flag| **flag == "v").count();
    let is_debugging = flags.contains(&DEBUGGING);
    let style = Style {
        is_debugging: verbosity > 1 || is_debugging,
        has_port_names: flags.contains(&PORT_NAMES),
        ..Style::new(&control.names)
    };
    let below = RuleDetail { is_counted: verbosity > 0, is_debugging, is_deep };
    let mut shown = RuleListing { control, counters, style: &style, below, text: String::new() };
    shown.append_rules(path, 0);
    Ok(shown.text)
}

fn no_anchor(path: &str) -> HandlerError {
    refused(format!("there is no anchor '{path}'"))
}

/// The details to print below each rule.
#[derive(Clone, Copy)]
struct RuleDetail {
    is_counted: bool,
    /// How rules could be skipped, and by which queue packets go.
    is_debugging: bool,
    /// The rules of anchors with names, too.
    is_deep: bool,
}

impl RuleDetail {
    fn to_text(
        self,
        steps: &str,
        queue: Option<&(String, String)>,
        totals: impl Fn() -> RuleTotals,
    ) -> String {
        let mut text = String::new();
        if self.is_debugging {
            let (name, urgent) = queue.map_or(("", ""), |(name, urgent)| (name.as_str(), urgent.as_str()));
            text += &format!("{steps}  [ queue: qname={name} qid=0 pqname={urgent} pqid=0 ]\n");
        }
        match (self.is_counted, self.is_debugging) {
            (false, _) => text,
            (true, true) => text + &totals().first_line(),
            (true, false) => text + &totals().format_lines((0, std::process::id())),
        }
    }
}

/// The state of a listing of rules.
struct RuleListing<'a> {
    control: &'a Control,
    counters: &'a [Arc<Counters>],
    style: &'a Style<'a>,
    below: RuleDetail,
    text: String,
}

impl RuleListing<'_> {
    /// Appends the rules of an anchor at this depth. Those of anonymous anchors are printed inline; named
    /// anchors are queried by name.
    fn append_rules(&mut self, path: &str, depth: usize) {
        let Some(ruleset) = self.control.anchors.get(path).cloned() else {
            return self.append_children(path, depth);
        };
        let length = |name: &str| self.control.tables.table_length(path, name);
        let style = Style { table_length: Some(&length), ..*self.style };
        let steps = if self.below.is_debugging { skip_steps(&ruleset.rules) } else { Vec::new() };
        for ((number, rule), called) in
            ruleset.rules.iter().enumerate().zip(resolve_calls(path, &ruleset.rules))
        {
            let is_expired = rule.is_once && is_expired(self.control, path, number);
            if is_expired && !style.is_debugging {
                continue;
            }
            let inner = called.filter(|_| is_inline(rule) || (self.below.is_deep && is_call(rule)));
            self.append_indent(depth);
            self.text += &print::rule(rule, number, &style);
            self.text += if is_expired { " # expired" } else { "" };
            self.text += if inner.is_some() { " {\n" } else { "\n" };
            let steps = steps.get(number).map_or("", String::as_str);
            let totals = || rule_totals(self.control, self.counters, path, number);
            self.text += &self.below.to_text(steps, rule.set.queue.as_ref(), totals);
            if let Some(inner) = inner {
                // Rule sets may call one another in a circle.
                match inner {
                    _ if depth >= MAX_DEPTH => (),
                    AnchorTarget::One(path) => self.append_rules(&path, depth + 1),
                    AnchorTarget::Below(path) => self.append_children(&path, depth + 1),
                }
                self.append_close(depth);
            }
        }
    }

    /// The anchors right below a path, as if rules called each by its name.
    fn append_children(&mut self, path: &str, depth: usize) {
        for name in self.control.anchors.child_paths(path) {
            self.append_indent(depth);
            self.text += &format!("anchor \"{}\" all {{\n", name.rsplit('/').next().unwrap_or_default());
            if depth < MAX_DEPTH {
                self.append_rules(&name, depth + 1);
            }
            self.append_close(depth);
        }
    }

    fn append_indent(&mut self, depth: usize) {
        if !self.below.is_counted {
            self.text += &"  ".repeat(depth);
        }
    }

    fn append_close(&mut self, depth: usize) {
        self.append_indent(depth);
        self.text += "}\n";
    }
}

fn is_inline(rule: &Rule) -> bool {
    matches!(&rule.action, Action::Anchor(call) if call.inline.is_some() && call.name.is_none())
}

fn is_call(rule: &Rule) -> bool {
    matches!(&rule.action, Action::Anchor(_))
}

/// A rule by its number in the rule set at a path, if that is called.
fn id_of(control: &Control, path: &str, number: usize) -> Option<RuleId> {
    let rules = control.latest().compiled.rules();
    let place =
        rules.iter().position(|record| &*record.anchor == path && record.number as usize == number)?;
    Some(RuleId(place as u32))
}

/// Whether a rule has matched that was to match but once.
fn is_expired(control: &Control, path: &str, number: usize) -> bool {
    id_of(control, path, number).is_some_and(|id| control.latest().compiled.is_expired(id))
}

/// What all workers count for a rule.
fn rule_totals(control: &Control, counters: &[Arc<Counters>], path: &str, number: usize) -> RuleTotals {
    let all = counters.iter().map(|counters| &**counters);
    id_of(control, path, number).map_or_else(RuleTotals::default, |id| Counters::sum_rule(all, id))
}

/// The rules with labels of the rule set at a path.
fn list_labels(control: &Control, counters: &[Arc<Counters>], path: &str) -> Result<String, HandlerError> {
    if !path.is_empty() && !control.anchors.is_there(path) {
        return Err(no_anchor(path));
    }
    let rules = control.latest().compiled.rules().iter().enumerate();
    let labelled = rules.filter(|(_, record)| &*record.anchor == path && !record.rule.label.is_empty());
    let line = |(place, record): (usize, &artery_filter::evaluate::RuleRecord)| {
        let total = Counters::sum_rule(counters.iter().map(|counters| &**counters), RuleId(place as u32));
        total.label_line(&record.rule.label)
    };
    Ok(labelled.map(line).collect())
}

fn list_timeouts(control: &Control) -> String {
    let limits = &control.settings().limits;
    let line = |(timeout, name): &(Timeout, &str)| {
        let unit =
            if matches!(timeout, Timeout::AdaptiveStart | Timeout::AdaptiveEnd) { " states" } else { "s" };
        format!("{name:<20} {:>10}{unit}\n", limits.timeouts[*timeout as usize])
    };
    Timeout::NAMES.iter().map(line).collect()
}

fn list_limits(control: &Control) -> String {
    let limits = &control.settings().limits;
    let line = |(limit, name): &(Limit, &str)| format!("{name:<13} hard limit {:>8}\n", limits.limit(*limit));
    Limit::NAMES.iter().map(line).collect()
}

/// An interface that rules can name: `NAME loopback|- GROUP[,GROUP]… [ADDRESS/LENGTH[>PEER]]…`.
fn interface_line(record: &InterfaceRecord) -> String {
    let kind = if record.is_loopback { "loopback" } else { "-" };
    let address = |own: &InterfaceAddress| {
        let peer = own.peer.map_or(String::new(), |peer| format!(">{peer}"));
        format!(" {}/{}{peer}", own.address, own.length)
    };
    let addresses: String = record.addresses.iter().map(address).collect();
    format!("{} {kind} {}{addresses}\n", record.name, record.groups.join(","))
}

fn list_interfaces(
    shared: &SharedFilter,
    control: &Control,
    name: &str,
    verbosity: u8,
) -> Result<String, HandlerError> {
    let mut text = String::new();
    let mut sum = FilterCounters::default();
    shared.worker_counters().iter().for_each(|counted| sum.add_counts(counted));
    let cleared = format_ctime(control.counting_since());
    let wanted =
        control.interfaces.0.iter().enumerate().filter(|(_, record)| name.is_empty() || record.name == name);
    for (number, record) in wanted {
        let skips = control.latest().compiled.skips_interface(Interface(number as u16));
        let mark = if skips && verbosity > 0 { " (skip)" } else { "" };
        let _ = writeln!(text, "{}{mark}", record.name);
        if verbosity > 1 {
            let counts = sum.interfaces.get(number).copied().unwrap_or_default();
            let rules = control.latest().compiled.rules().iter();
            let is_of_it =
                |rule: &Rule| matches!(&rule.on, Some(On::Interface(_, on)) if on.0 == record.name);
            let rules = rules.filter(|of| is_of_it(&of.rule)).count();
            counts.print_counts(&cleared, rules, &mut text).map_err(|_| refused("no memory"))?;
        }
    }
    Ok(text)
}

/// `table [-a ANCHOR] NAME FLAGS COMMAND ADDRESSES…`; the answer is `STATUS MESSAGE-LINES`, then the
/// message and the listing.
fn handle_table(control: &mut Control, words: &[&str], now: Duration) -> Result<String, HandlerError> {
    let (anchor, words) = match words {
        ["-a", anchor, rest @ ..] => (*anchor, rest),
        all => ("", all),
    };
    let [name, flags, verb, addresses @ ..] = words else {
        return Err(refused("wanted is table [-a ANCHOR] NAME FLAGS COMMAND [ADDRESS…]"));
    };
    let has = |flag: char| flags.contains(flag);
    let tone = CommandOptions {
        verbosity: flags.matches('v').count() as u8,
        is_quiet: has('q'),
        is_dummy: has('n'),
        time: Some(&format_ctime),
    };
    let reply = run_command(&mut control.tables, (anchor, name), &table_command(verb, addresses)?, tone, now);
    Ok(format!("{} {}\n{}{}", reply.status, reply.message.lines().count(), reply.message, reply.listing))
}

fn table_command(verb: &str, addresses: &[&str]) -> Result<Command, HandlerError> {
    let entries = || -> Result<Vec<TableEntry>, HandlerError> {
        parse_entries(&addresses.join("\n"))
            .map_err(|(_, word)| refused(format!("'{word}' is not a valid address; the table is as it was")))
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

fn enable_filter(shared: &SharedFilter, control: &mut Control, is_enabled: bool, now: Duration) -> String {
    let word = if is_enabled { "enabled" } else { "disabled" };
    match control.set_enabled(is_enabled, now) {
        true => {
            shared.recompile_rules(control);
            format!("pf {word}\n")
        }
        false => format!("pf already {word}\n"),
    }
}

/// Handles `debug LEVEL`: sets which messages are logged.
fn set_debug_level(control: &mut Control, words: &[&str]) -> Result<String, HandlerError> {
    let level = match words {
        [word] => DEBUG_LEVELS.iter().find(|level| *level == word),
        _ => None,
    };
    let level = level.ok_or_else(|| refused(format!("a level is one of {}", DEBUG_LEVELS.join(", "))))?;
    control.set_debug(level);
    Ok(format!("debug level set to '{level}'\n"))
}

/// `flush rules|tables [ANCHOR]`, `flush options`.
fn flush_target(
    shared: &SharedFilter,
    control: &mut Control,
    words: &[&str],
) -> Result<String, HandlerError> {
    let anchor = words.get(1).copied().unwrap_or_default();
    match words.first() {
        Some(&"rules") => {
            control.anchors.flush_rules(anchor);
            shared.recompile_rules(control);
            Ok("rules cleared\n".into())
        }
        Some(&"tables") => {
            let names = control.tables.list_tables(anchor, 0, &format_ctime);
            let tone = CommandOptions::default();
            let end = |name| {
                run_command(&mut control.tables, (anchor, name), &Command::Kill, tone, Duration::ZERO).status
                    == 0
            };
            let count = names.lines().map(end).filter(|has_ended| *has_ended).count();
            Ok(format!("{count} tables deleted.\n"))
        }
        Some(&"options") => {
            control.reset_options().map_err(refused)?;
            shared.recompile_rules(control);
            Ok("pf: options reset\n".into())
        }
        _ => Err(refused("rules, tables or options can be flushed here")),
    }
}

impl WorkerFilter {
    /// Loads rules: a line with `ANCHOR`, then its rules, and the same of further anchors after form feeds.
    pub(crate) fn load_rules(&mut self, text: &str, cx: &mut Context<'_>) -> Result<(), HandlerError> {
        let part = |part| -> (&str, &[u8]) {
            let (anchor, rules) = str::split_once(part, '\n').unwrap_or((part, ""));
            (anchor.trim(), rules.as_bytes())
        };
        let parts: Vec<_> = text.split("\n\x0c\n").map(part).collect();
        // `warnings` returns the warnings.
        self.shared().load_texts("pf.conf", &parts, cx.now().since_epoch()).map(drop).map_err(refused)
    }
}
