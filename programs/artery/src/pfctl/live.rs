//! The packet filters of a running router, read and written in the words of pfctl.
use super::rules_file::{RulesFile, for_filter};
use super::{PfctlOptions, address_words};
use crate::control_socket::Client;
use crate::ip_router::elements;
use crate::options::Reach;
use crate::output::{print_stderr, print_stdout};
use anyhow::{Context as _, bail};
use artery_filter::rule::SourceLocation;
use artery_filter::syntax::DEBUG_LEVELS;
use artery_filter::syntax::print::Style;
use std::path::{Path, PathBuf};

/// The classes that filter.
const CLASSES: [&str; 2] = ["PacketFilter", "Veb"];

/// What `-s` shows, by its name; any beginning of one is it, of several the first.
const SHOWS: [&str; 13] = [
    "rules",
    "states",
    "info",
    "Anchors",
    "Sources",
    "Tables",
    "labels",
    "timeouts",
    "memory",
    "Interfaces",
    "queue",
    "osfp",
    "all",
];
/// What `-F` can flush.
const FLUSHES: [&str; 8] = ["rules", "states", "info", "Sources", "Tables", "Reset", "osfp", "all"];
/// What `-T` does with a table.
const TABLE_COMMANDS: [&str; 9] =
    ["add", "delete", "expire", "flush", "kill", "replace", "show", "test", "zero"];

/// What stands between the rules of anchors that a filter is given at once.
const BETWEEN_PARTS: &str = "\x0c\n";

/// The filters of a router that commands are for.
pub(super) struct Filters {
    pub(super) client: Client,
    pub(super) names: Vec<String>,
}

/// The words that request skip steps of rules, and names of ports; only for rules.
pub(super) const DEBUGGING: &str = " -g";
pub(super) const PORT_NAMES: &str = " -P";

/// What `-s all` shows, and the headings.
const ALL_SHOWN: [(&str, &str); 8] = [
    ("rules", "FILTER RULES"),
    ("states", "STATES"),
    ("Sources", "SOURCE TRACKING NODES"),
    ("info", "INFO"),
    ("labels", "LABEL COUNTERS"),
    ("timeouts", "TIMEOUTS"),
    ("memory", "LIMITS"),
    ("Tables", "TABLES"),
];

/// What commands are limited to.
#[derive(Clone, Copy)]
pub(super) struct Scope<'a> {
    /// The path of an anchor; empty for the main rule set.
    pub(super) anchor: &'a str,
    /// An interface, if one is named.
    pub(super) interface: Option<&'a str>,
}

/// The command of `-T` whose beginning a word is.
pub(super) fn table_command(word: &str) -> anyhow::Result<&'static str> {
    named(word, &TABLE_COMMANDS)
}

/// Refuses words that say nothing, before anything is done.
pub(super) fn refuse_words(options: &PfctlOptions) -> anyhow::Result<()> {
    let words = [
        (&options.show, &SHOWS[..]),
        (&options.flush, &FLUSHES[..]),
        (&options.table_command, &TABLE_COMMANDS[..]),
    ];
    for (word, names) in words {
        word.as_deref().map_or(Ok(""), |word| named(word, names))?;
    }
    Ok(())
}

impl Scope<'_> {
    /// Its interface in the form of workers' queries.
    pub(super) fn interface_word(&self) -> &str {
        self.interface.unwrap_or("-")
    }

    /// Refuses `-i` with what can't be limited to an interface.
    fn refuse_interface(&self, what: &str) -> anyhow::Result<()> {
        match self.interface {
            Some(name) => bail!("{what} can't be limited to {name}: -i is for states and Interfaces"),
            None => Ok(()),
        }
    }
}

/// Rules of an anchor as a filter is given them: its path, and lines with the places that they come from.
type Part<'r> = (&'r str, Vec<(String, Option<&'r SourceLocation>)>);

/// What a filter calls the rules of an anchor that it is given.
fn source_of(path: &str) -> String {
    if path.is_empty() { "pf.conf".into() } else { format!("anchor {path}") }
}

/// A filter's messages about rules that it was given, with the places that the rules come from: the filter
/// has anchors and line numbers of its own.
fn with_places(said: &str, parts: &[Part<'_>]) -> String {
    let placed = |line: &str| -> Option<String> {
        let (name, rest) = line.split_once(':')?;
        let (number, message) = rest.split_once(':')?;
        let (_, lines) = parts.iter().find(|(path, _)| source_of(path) == name)?;
        let place = lines.get(number.parse::<usize>().ok()?.checked_sub(1)?)?.1?;
        Some(format!("{}:{}:{message}", place.file, place.line))
    };
    let mut lines: Vec<String> =
        said.lines().map(|line| placed(line).unwrap_or_else(|| line.into())).collect();
    // A line of a file may have become several.
    lines.dedup();
    lines.join("\n") + "\n"
}

impl Filters {
    /// Connects to the router; of several filters all are meant unless one is named.
    pub(super) fn find(reach: &Reach, element: Option<&str>) -> anyhow::Result<Filters> {
        let mut client = Client::connect(reach)?;
        let all = elements(&mut client)?.into_iter();
        let mut names: Vec<String> =
            all.filter(|one| CLASSES.contains(&one.class.as_str())).map(|one| one.name).collect();
        if names.is_empty() {
            bail!("this router has no packet filter: no {}", CLASSES.join(" and no "));
        }
        if let Some(element) = element {
            if !names.iter().any(|name| name == element) {
                bail!("'{element}' is not a packet filter; those of this router are {}", names.join(", "));
            }
            names.retain(|name| name == element);
        }
        Ok(Filters { client, names })
    }

    /// The folder that stands for /etc in the filters' rules, if one was set.
    pub(super) fn etc(&mut self) -> anyhow::Result<Option<PathBuf>> {
        let answer = self.first("etc")?;
        let told = answer.trim_end_matches('\n');
        Ok(Some(told).filter(|told| !told.is_empty()).map(PathBuf::from))
    }

    /// Loads rules that were read, with those of anchors: a filter takes all or none of them. A filter
    /// without a log begins `log`, if one is named.
    pub(super) fn load(
        &mut self,
        anchor: &str,
        rules: &RulesFile,
        style: &Style<'_>,
        log: Option<&Path>,
    ) -> anyhow::Result<()> {
        let plain = Style::for_reading(style.names);
        let anchors = rules.anchors.iter().map(|loaded| (loaded.path.as_str(), &loaded.parsed));
        let all = [(anchor, &rules.main)].into_iter().chain(anchors);
        let parts: Vec<_> = all.map(|(path, parsed)| (path, for_filter(parsed, &plain))).collect();
        let text = |(path, lines): &Part<'_>| {
            lines.iter().fold(format!("{path}\n"), |text, (line, _)| text + line + "\n") + "\n"
        };
        let texts: Vec<String> = parts.iter().map(text).collect();
        for (place, name) in self.names.clone().iter().enumerate() {
            if let Err(why) = self.client.write_plain(&format!("{name}.pf_load"), &texts.join(BETWEEN_PARTS))
            {
                print_stderr(&with_places(&why.to_string(), &parts));
                bail!(self.refusal(place));
            }
        }
        // Filters of one router have the same rules, and know different interfaces.
        let odd = self.all("warnings")?.concat();
        if !odd.is_empty() {
            let placed = with_places(&odd, &parts);
            let warnings = placed.lines().map(|line| format!("{}\n", line.replacen(": ", ": warning: ", 1)));
            print_stderr(&warnings.collect::<String>());
        }
        if let Some(log) = log {
            self.begin_log(log)?;
        }
        if rules.has_log() {
            self.warn_of_log()?;
        }
        Ok(())
    }

    /// The message where a filter refuses rules that those before it have taken.
    fn refusal(&self, place: usize) -> String {
        let (before, name) = (self.names[..place].join(", "), &self.names[place]);
        let others = if before.is_empty() { before } else { format!("; {before} took them") };
        format!("{name} does not take the rules; those it had stay{others}")
    }

    /// Has filters that have no log begin one.
    fn begin_log(&mut self, log: &Path) -> anyhow::Result<()> {
        // The router may be in another folder.
        let file = std::path::absolute(log).with_context(|| log.display().to_string())?;
        self.all(&format!("log {}", file.display()))
            .map(drop)
            .context("rules are loaded, and log nothing yet")
    }

    /// Says which filters have no file for what rules log.
    fn warn_of_log(&mut self) -> anyhow::Result<()> {
        let answers = self.all("log")?;
        for (name, _) in self.names.iter().zip(answers).filter(|(_, answer)| answer.trim_end() == "none") {
            print_stderr(&format!(
                "pfctl: {name} has no file for what rules with 'log' log: they log nothing; --pflog FILE \
                 begins one now, 'artery up --pflog FILE', PFLOG of Veb and LOG of PacketFilter at the \
                 start\n"
            ));
        }
        Ok(())
    }

    /// Shows what `-s` names. `more` is how much of it, as words.
    pub(super) fn show(&mut self, what: &str, scope: Scope<'_>, more: &str) -> anyhow::Result<()> {
        let what = named(what, &SHOWS)?;
        refuse_missing("-s", what)?;
        if !matches!(what, "states" | "Interfaces") {
            scope.refuse_interface(&format!("-s {what}"))?;
        }
        match what {
            "all" => self.show_all(scope, more),
            one => self.show_one(one, scope, more, &mut print_stdout),
        }
    }

    /// Shows everything that there is, each behind a heading.
    fn show_all(&mut self, scope: Scope<'_>, more: &str) -> anyhow::Result<()> {
        let mut is_first = true;
        for (one, heading) in ALL_SHOWN {
            let mut heading = Some(heading);
            self.show_one(one, scope, more, &mut |text| {
                if let Some(heading) = heading.take_if(|_| !text.is_empty()) {
                    let gap = if std::mem::take(&mut is_first) { "" } else { "\n" };
                    print_stdout(&format!("{gap}{heading}:\n"))?;
                }
                print_stdout(text)
            })?;
        }
        Ok(())
    }

    fn show_one(
        &mut self,
        what: &str,
        scope: Scope<'_>,
        more: &str,
        take: &mut impl FnMut(&str) -> anyhow::Result<()>,
    ) -> anyhow::Result<()> {
        let (anchor, all) = (scope.anchor, more);
        let more = all.trim_end_matches(PORT_NAMES).trim_end_matches(DEBUGGING);
        match what {
            "states" => self.parts("states", &format!("{}{more}", scope.interface_word()), take),
            "Sources" => take(&self.workers(&format!("sources{more}"))?),
            "Interfaces" => take(&self.interfaces(scope.interface.unwrap_or_default(), more)?),
            "info" | "rules" | "labels" => {
                self.workers("count")?;
                let more = if what == "rules" { all } else { more };
                self.query(&format!("{what} {anchor}{more}"), take)
            }
            one => self.query(&format!("{} {anchor}{more}", one.to_lowercase()), take),
        }
    }

    fn interfaces(&mut self, wanted: &str, more: &str) -> anyhow::Result<String> {
        self.workers("count")?;
        let answers = self.all(&format!("interfaces {wanted}{more}"))?;
        if !wanted.is_empty() && answers.iter().all(String::is_empty) {
            let all = self.all("interfaces ")?.concat();
            bail!(
                "no interface named {wanted}; the router has {}",
                all.split_whitespace().collect::<Vec<_>>().join(", ")
            );
        }
        Ok(answers.concat())
    }

    /// Flushes what `-F` names; of an anchor only what it has.
    pub(super) fn flush(&mut self, what: &str, scope: Scope<'_>, is_quiet: bool) -> anyhow::Result<()> {
        let what = named(what, &FLUSHES)?;
        refuse_missing("-F", what)?;
        if what != "states" {
            scope.refuse_interface(&format!("-F {what}"))?;
        }
        for one in FLUSHES.iter().filter(|one| missing(one).is_none() && **one != "all") {
            let is_meant = scope.anchor.is_empty() || matches!(*one, "rules" | "Tables");
            if what == *one || (what == "all" && is_meant) {
                let said = self.flush_one(one, scope)?;
                if !is_quiet {
                    print_stderr(&said);
                }
            }
        }
        Ok(())
    }

    /// Flushes one thing; gives pfctl's message.
    fn flush_one(&mut self, what: &str, scope: Scope<'_>) -> anyhow::Result<String> {
        let anchor = scope.anchor;
        Ok(match what {
            "rules" => self.first(&format!("flush rules {anchor}"))?,
            "Tables" => self.first(&format!("flush tables {anchor}"))?,
            "Reset" => self.first("flush options")?,
            "states" => format!("{} states cleared\n", self.count("flush-states", scope.interface_word())?),
            "Sources" => {
                self.workers("kill-sources")?;
                "source tracking entries cleared\n".to_string()
            }
            _ => {
                self.workers("flush-info")?;
                "pf: statistics cleared\n".to_string()
            }
        })
    }

    /// Counts from nothing for rules: `-z`.
    pub(super) fn clear_rules(&mut self, is_quiet: bool) -> anyhow::Result<()> {
        self.workers("flush-rules-info")?;
        if !is_quiet {
            print_stderr("pf: rule counters cleared\n");
        }
        Ok(())
    }

    /// Sets the filter's log level: `-x`.
    pub(super) fn debug(&mut self, level: &str, is_quiet: bool) -> anyhow::Result<()> {
        let level = named(level, &DEBUG_LEVELS)?;
        let said = self.first(&format!("debug {level}"))?;
        if !is_quiet {
            print_stderr(&said);
        }
        Ok(())
    }

    /// Turns the filters on or off.
    pub(super) fn enable(&mut self, is_enabled: bool, is_quiet: bool) -> anyhow::Result<u8> {
        let answers = self.all(if is_enabled { "enable" } else { "disable" })?;
        let first = answers.first().map_or("", String::as_str);
        if !is_quiet {
            print_stderr(first);
        }
        Ok(u8::from(first.contains("already")))
    }

    /// Does `-T command` with a table.
    pub(super) fn table(
        &mut self,
        anchor: &str,
        name: &str,
        flags: &str,
        (command, words): (&str, &[String]),
    ) -> anyhow::Result<u8> {
        let place = if anchor.is_empty() { String::new() } else { format!("-a {anchor} ") };
        let flags = if flags.is_empty() { "-" } else { flags };
        let mut status = 0;
        for (n, answer) in self
            .all(&format!("table {place}{name} {flags} {command} {}", address_words(words)))?
            .iter()
            .enumerate()
        {
            let (head, rest) = answer.split_once('\n').unwrap_or((answer, ""));
            let mut numbers = head.split(' ').map(|word| word.parse::<usize>().unwrap_or(0));
            let (own, lines) = (numbers.next().unwrap_or(1), numbers.next().unwrap_or(0));
            status = status.max(own as u8);
            // What several filters say is the same, unless packets were counted.
            if n == 0 {
                let (message, listing): (Vec<&str>, Vec<&str>) = split_at_line(rest, lines);
                print_stderr(&message.concat());
                print_stdout(&listing.concat())?;
            }
        }
        Ok(status)
    }

    /// Queries filters, and passes on their answers.
    fn query(
        &mut self,
        question: &str,
        take: &mut impl FnMut(&str) -> anyhow::Result<()>,
    ) -> anyhow::Result<()> {
        self.all(question)?.iter().try_for_each(|answer| take(answer))
    }

    /// Queries workers for states, part by part, and passes on the lines of each part.
    pub(super) fn parts(
        &mut self,
        verb: &str,
        rest: &str,
        mut take: impl FnMut(&str) -> anyhow::Result<()>,
    ) -> anyhow::Result<()> {
        for name in self.names.clone() {
            let mut from = Some(0);
            while let Some(first) = from {
                let question = format!("{verb} {first} {rest}");
                let answer = self.client.query(&format!("{name}.pf_worker"), question.trim_end())?;
                let (next, lines) = of_workers(&answer)
                    .filter(|(next, _)| next.is_none_or(|next| next > first))
                    .with_context(|| format!("what {name} says to '{verb}' makes no sense"))?;
                lines.into_iter().try_for_each(&mut take)?;
                from = next;
            }
        }
        Ok(())
    }

    /// What workers count to a question about states, part by part.
    pub(super) fn count(&mut self, verb: &str, rest: &str) -> anyhow::Result<u64> {
        let mut count = 0;
        self.parts(verb, rest, |lines| {
            count += sum(lines);
            Ok(())
        })?;
        Ok(count)
    }

    /// The first filter's answer; every other filter gets the same query.
    pub(super) fn first(&mut self, question: &str) -> anyhow::Result<String> {
        Ok(self.all(question)?.into_iter().next().unwrap_or_default())
    }

    pub(super) fn all(&mut self, question: &str) -> anyhow::Result<Vec<String>> {
        let names = self.names.clone();
        names.iter().map(|name| self.client.query(&format!("{name}.pf"), question.trim_end())).collect()
    }

    pub(super) fn workers(&mut self, question: &str) -> anyhow::Result<String> {
        let names = self.names.clone();
        names
            .iter()
            .map(|name| self.client.query(&format!("{name}.pf_worker"), question.trim_end()))
            .collect()
    }
}

/// What workers say of a part, one after another: where the next part begins, if there is one for any
/// of them, and the lines of each. Each begins with the place of its next part, 0 for none, and the
/// number of its lines.
fn of_workers(mut answer: &str) -> Option<(Option<u32>, Vec<&str>)> {
    let (mut next, mut all) = (None, Vec::new());
    while !answer.is_empty() {
        let (head, rest) = answer.split_once('\n')?;
        let (place, lines) = head.split_once(' ')?;
        next = next.max(Some(place.parse().ok()?).filter(|place| *place != 0));
        let length = rest.split_inclusive('\n').take(lines.parse().ok()?).map(str::len).sum();
        let (own, others) = rest.split_at(length);
        all.push(own);
        answer = others;
    }
    Some((next, all))
}

/// Why a name that OpenBSD's pfctl knows shows nothing here.
fn missing(what: &str) -> Option<&'static str> {
    match what {
        "queue" => Some("nothing is shaped here, so that there are no queues"),
        "osfp" => Some("systems are not recognized by their packets here, so there are no fingerprints"),
        _ => None,
    }
}

fn refuse_missing(option: &str, what: &str) -> anyhow::Result<()> {
    missing(what).map_or(Ok(()), |why| bail!("{option} {what}: {why}"))
}

fn split_at_line(text: &str, lines: usize) -> (Vec<&str>, Vec<&str>) {
    let mut all: Vec<&str> = text.split_inclusive('\n').collect();
    let rest = all.split_off(lines.min(all.len()));
    (all, rest)
}

/// The first of some names that begins so.
fn named(word: &str, names: &[&'static str]) -> anyhow::Result<&'static str> {
    let found = names.iter().find(|name| !word.is_empty() && name.starts_with(word));
    found.copied().with_context(|| format!("'{word}' is none of {}", names.join(", ")))
}

/// What workers count, added up: a number in each line.
pub(super) fn sum(answers: &str) -> u64 {
    answers.lines().filter_map(|line| line.trim().parse::<u64>().ok()).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_may_be_cut_short() {
        assert_eq!(named("r", &SHOWS).unwrap(), "rules");
        assert_eq!([named("s", &SHOWS).unwrap(), named("S", &SHOWS).unwrap()], ["states", "Sources"]);
        assert_eq!([named("i", &SHOWS).unwrap(), named("I", &SHOWS).unwrap()], ["info", "Interfaces"]);
        assert!(named("x", &SHOWS).is_err() && named("", &SHOWS).is_err());
    }

    #[test]
    fn what_workers_say_of_a_part_is_told_apart() {
        assert_eq!(of_workers(""), Some((None, vec![])));
        let answer = "1024 2\na\nb\n0 0\n2048 1\nc\n";
        assert_eq!(of_workers(answer), Some((Some(2048), vec!["a\nb\n", "", "c\n"])));
        for wrong in ["1\n", "a 1\nb\n", "1 b\n", "1 1"] {
            assert_eq!(of_workers(wrong), None, "{wrong}");
        }
    }
}
