//! The packet filters of a running router, asked and told in the words of pfctl.
use super::Loaded;
use super::address_words;
use crate::cli::Reach;
use crate::control_socket::Client;
use crate::ip_router::elements;
use crate::voice::{complain, print};
use anyhow::{Context as _, bail};
use artery_filter::rule::Ruleset;
use artery_filter::syntax::print::{self as text, Style};

/// The classes that filter.
const CLASSES: [&str; 2] = ["PacketFilter", "Veb"];

/// What `-s` shows, by its name; any beginning of one is it, of several the first.
const SHOWS: [&str; 11] = [
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
    "all",
];
/// What `-F` forgets.
const FLUSHES: [&str; 6] = ["rules", "states", "info", "Sources", "Tables", "all"];

/// The filters of a router that commands are for.
pub(super) struct Filters {
    client: Client,
    names: Vec<String>,
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
                bail!("'{element}' is no packet filter; those of this router are {}", names.join(", "));
            }
            names.retain(|name| name == element);
        }
        Ok(Filters { client, names })
    }

    /// Loads rules that were read, those of anchors behind the main ones.
    pub(super) fn load(&mut self, anchor: &str, loaded: &Loaded, style: &Style<'_>) -> anyhow::Result<()> {
        let plain = Style { is_debugging: false, has_port_names: false, ..*style };
        let main = loaded.main.text(&plain);
        let anchors = loaded.anchors.iter().map(|(path, ruleset)| (path.as_str(), whole(ruleset, &plain)));
        for (path, rules) in [(anchor, main)].into_iter().chain(anchors) {
            for name in self.names.clone() {
                let told = self.client.tell(&format!("{name}.pf_load"), &format!("{path}\n{rules}\n"));
                told.with_context(|| format!("{name} does not take the rules; those it had stay"))?;
            }
        }
        Ok(())
    }

    /// Shows what `-s` names.
    pub(super) fn show(&mut self, what: &str, anchor: &str, verbosity: u8) -> anyhow::Result<()> {
        let more = " v".repeat(verbosity.into());
        match named(what, &SHOWS)? {
            "all" => {
                for one in SHOWS.iter().filter(|one| **one != "all") {
                    print(&format!("{}:\n", one.to_uppercase()))?;
                    self.show(one, anchor, verbosity)?;
                    print("\n")?;
                }
                Ok(())
            }
            "states" => self.print_workers(&format!("states{more}")),
            "Sources" => self.print_workers("sources"),
            "info" => {
                self.workers("count")?;
                self.print(&format!("info{more}"))
            }
            "rules" => {
                self.workers("count")?;
                self.print(&format!("rules {anchor}{more}"))
            }
            one => self.print(&format!("{} {anchor}{more}", one.to_lowercase())),
        }
    }

    /// Forgets what `-F` names.
    pub(super) fn flush(&mut self, what: &str, anchor: &str, is_quiet: bool) -> anyhow::Result<()> {
        let what = named(what, &FLUSHES)?;
        let is = |one: &str| what == one || what == "all";
        let say = |line: &str| {
            if !is_quiet {
                complain(line)
            }
        };
        if is("rules") {
            self.all(&format!("flush rules {anchor}"))?;
            say("rules cleared\n");
        }
        if is("Tables") {
            let answers = self.all(&format!("flush tables {anchor}"))?;
            say(answers.first().map_or("", String::as_str));
        }
        if is("states") {
            say(&format!("{} states cleared\n", sum(&self.workers("flush-states")?)));
        }
        if is("Sources") {
            self.workers("kill-sources")?;
            say("source tracking entries cleared\n");
        }
        if is("info") {
            self.workers("flush-info")?;
            say("pf: statistics cleared\n");
        }
        Ok(())
    }

    /// Ends states: `-k`, once or twice.
    pub(super) fn kill(&mut self, words: &[String], is_quiet: bool) -> anyhow::Result<()> {
        let question = kill_question(words)?;
        let count = sum(&self.workers(&format!("kill {question}"))?);
        if !is_quiet {
            complain(&match words {
                [kind, _] if kind == "label" || kind == "id" || kind == "key" => {
                    format!("killed {count} states\n")
                }
                _ => format!("killed {count} states from 1 sources and {} destinations\n", words.len() - 1),
            });
        }
        Ok(())
    }

    /// Forgets sources: `-K`.
    pub(super) fn kill_sources(&mut self, words: &[String], is_quiet: bool) -> anyhow::Result<()> {
        let count = sum(&self.workers(&format!("kill-sources {}", words.join(" ")))?);
        if !is_quiet {
            complain(&format!(
                "killed {count} src nodes from 1 sources and {} destinations\n",
                words.len() - 1
            ));
        }
        Ok(())
    }

    /// Turns the filters on or off.
    pub(super) fn enable(&mut self, is_enabled: bool, is_quiet: bool) -> anyhow::Result<u8> {
        let answers = self.all(if is_enabled { "enable" } else { "disable" })?;
        let first = answers.first().map_or("", String::as_str);
        if !is_quiet {
            complain(first);
        }
        Ok(u8::from(first.contains("already")))
    }

    /// Does `-T command` with a table.
    pub(super) fn table(
        &mut self,
        anchor: &str,
        name: &str,
        flags: &str,
        words: &[String],
    ) -> anyhow::Result<u8> {
        let place = if anchor.is_empty() { String::new() } else { format!("-a {anchor} ") };
        let flags = if flags.is_empty() { "-" } else { flags };
        let mut status = 0;
        for (n, answer) in
            self.all(&format!("table {place}{name} {flags} {}", address_words(words)))?.iter().enumerate()
        {
            let (head, rest) = answer.split_once('\n').unwrap_or((answer, ""));
            let mut numbers = head.split(' ').map(|word| word.parse::<usize>().unwrap_or(0));
            let (own, lines) = (numbers.next().unwrap_or(1), numbers.next().unwrap_or(0));
            status = status.max(own as u8);
            // What several filters say is the same, unless packets were counted.
            if n == 0 {
                let (message, listing): (Vec<&str>, Vec<&str>) = split_at_line(rest, lines);
                complain(&message.concat());
                print(&listing.concat())?;
            }
        }
        Ok(status)
    }

    fn print(&mut self, question: &str) -> anyhow::Result<()> {
        for answer in self.all(question)? {
            print(&answer)?;
        }
        Ok(())
    }

    fn print_workers(&mut self, question: &str) -> anyhow::Result<()> {
        print(&self.workers(question)?)?;
        Ok(())
    }

    fn all(&mut self, question: &str) -> anyhow::Result<Vec<String>> {
        let names = self.names.clone();
        names.iter().map(|name| self.client.ask(&format!("{name}.pf"), question.trim_end())).collect()
    }

    fn workers(&mut self, question: &str) -> anyhow::Result<String> {
        let names = self.names.clone();
        names.iter().map(|name| self.client.ask(&format!("{name}.pf_worker"), question.trim_end())).collect()
    }
}

fn split_at_line(text: &str, lines: usize) -> (Vec<&str>, Vec<&str>) {
    let mut all: Vec<&str> = text.split_inclusive('\n').collect();
    let rest = all.split_off(lines.min(all.len()));
    (all, rest)
}

/// The rules of an anchor with its tables, as text.
fn whole(ruleset: &Ruleset, style: &Style<'_>) -> String {
    let tables: String = ruleset.tables.iter().map(|table| text::table(table) + "\n").collect();
    tables + &text::rules(ruleset, style)
}

/// The first of some names that begins so.
fn named(word: &str, names: &[&'static str]) -> anyhow::Result<&'static str> {
    let found = names.iter().find(|name| !word.is_empty() && name.starts_with(word));
    found.copied().with_context(|| format!("'{word}' is none of {}", names.join(", ")))
}

/// What workers count, added up: a number in each line.
fn sum(answers: &str) -> u64 {
    answers.lines().filter_map(|line| line.trim().parse::<u64>().ok()).sum()
}

/// The states that `-k` means, as the filter is asked for them.
fn kill_question(words: &[String]) -> anyhow::Result<String> {
    match words {
        [kind, label] if kind == "label" => Ok(format!("label {label}")),
        [kind, id] if kind == "id" => {
            let (id, creator) = id.split_once('/').unwrap_or((id, ""));
            Ok(format!("id {} {}", id.trim_start_matches("0x"), creator.trim_start_matches("0x"))
                .trim_end()
                .into())
        }
        [kind, key] if kind == "key" => key_question(key),
        [source] => Ok(format!("hosts {source}")),
        [source, destination] => Ok(format!("hosts {source} {destination}")),
        _ => bail!("-k is given once, or twice: whose states, and to whom"),
    }
}

/// `PROTO A:PORT -> B:PORT`.
fn key_question(key: &str) -> anyhow::Result<String> {
    let wanted = || format!("'{key}' is no key; write it as in \"tcp 10.0.0.1:80 <- 10.0.0.101:32123\"");
    let words: Vec<&str> = key.split_whitespace().collect();
    let [protocol, a, arrow, b] = words[..] else { bail!(wanted()) };
    let protocol = match protocol {
        "tcp" => "6",
        "udp" => "17",
        "icmp" => "1",
        "ipv6-icmp" => "58",
        number => number,
    };
    let way = match arrow {
        "<-" => "in",
        "->" => "out",
        _ => bail!(wanted()),
    };
    let end = |word: &str| -> anyhow::Result<String> {
        let bracketed = word.strip_suffix(']').and_then(|word| word.split_once('['));
        let (address, port) = bracketed.or_else(|| word.rsplit_once(':')).with_context(wanted)?;
        Ok(format!("{address},{port}"))
    };
    Ok(format!("key {protocol} {} {way} {}", end(a)?, end(b)?))
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
    fn states_are_meant_by_hosts_label_id_or_key() {
        let question =
            |words: &[&str]| kill_question(&words.iter().map(|word| word.to_string()).collect::<Vec<_>>());
        assert_eq!(question(&["10.0.0.1", "0.0.0.0/0"]).unwrap(), "hosts 10.0.0.1 0.0.0.0/0");
        assert_eq!(question(&["id", "0x1f/2"]).unwrap(), "id 1f 2");
        assert_eq!(
            question(&["key", "tcp 10.0.0.1:80 <- 10.0.0.101:32123"]).unwrap(),
            "key 6 10.0.0.1,80 in 10.0.0.101,32123"
        );
        assert_eq!(question(&["key", "udp ::1[53] -> ::2[1000]"]).unwrap(), "key 17 ::1,53 out ::2,1000");
        for wrong in [&["key", "tcp 10.0.0.1 <- b"][..], &["key", "tcp"], &["a", "b", "c"]] {
            assert!(question(wrong).is_err(), "{wrong:?}");
        }
    }
}
