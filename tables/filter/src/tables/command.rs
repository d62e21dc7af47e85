//! `pfctl -t NAME -T COMMAND` as a function: from tables and a command to new tables and a text.
use super::change::{CannotChange, EntryChange, Feedback, Feedbacks};
use super::text::{entry_line, test_line};
use super::{TableEntry, Tables};
use std::time::Duration;

/// A command of `pfctl -T`, for one table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// `add`; the table is made if there is none.
    Add(Vec<TableEntry>),
    /// `delete`: removes these addresses from the table.
    Delete(Vec<TableEntry>),
    /// `replace`; the table is made if there is none.
    Replace(Vec<TableEntry>),
    /// `test`: reports which of these addresses are in the table.
    Test(Vec<TableEntry>),
    /// `zero`, of these entries, or if there are none, of the table.
    Zero(Vec<TableEntry>),
    /// `show`: lists the addresses of the table.
    Show,
    /// `flush`: removes all addresses from the table.
    Flush,
    /// `kill`: removes the table itself.
    Kill,
    /// `expire`: removes addresses whose counters were reset that long ago.
    Expire(Duration),
}

/// Options of a command: what it changes, and how it reports that.
#[derive(Clone, Copy, Default)]
pub struct CommandOptions<'a> {
    /// How many `-v` there are.
    pub verbosity: u8,
    /// `-q`: without messages for people.
    pub is_quiet: bool,
    /// `-n`: only what would be.
    pub is_dummy: bool,
    /// How a time is written; as seconds if not said.
    pub time: Option<&'a dyn Fn(Duration) -> String>,
}

/// What a command answers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CommandReply {
    /// For the standard error output: what was done.
    pub message: String,
    /// For the standard output, after it.
    pub listing: String,
    /// The status that the program ends with.
    pub status: u8,
}

/// Does a command. `name` is a table of the rule set of `anchor`, which is empty for the main one.
pub fn run_command(
    tables: &mut Tables,
    (anchor, name): (&str, &str),
    command: &Command,
    tone: CommandOptions<'_>,
    now: Duration,
) -> CommandReply {
    let mut teller = CommandRunner { tone, reply: CommandReply::default() };
    let done = teller.execute_command(tables, (anchor, name), command, now);
    tables.renew_indexes();
    match done {
        Ok(()) => teller.reply,
        Err(error) => {
            CommandReply { message: format!("pfctl: {error}.\n"), status: 1, ..CommandReply::default() }
        }
    }
}

struct CommandRunner<'a> {
    tone: CommandOptions<'a>,
    reply: CommandReply,
}

impl CommandRunner<'_> {
    fn execute_command(
        &mut self,
        tables: &mut Tables,
        (anchor, name): (&str, &str),
        command: &Command,
        now: Duration,
    ) -> Result<(), CannotChange> {
        let is_dummy = self.tone.is_dummy;
        let change = |tables: &mut Tables, change, entries: &[TableEntry]| {
            tables.change_entries((anchor, name), change, entries, now, is_dummy)
        };
        match command {
            Command::Add(entries) => {
                if self.ensure_table(tables, (anchor, name), now)? {
                    let feedback = change(tables, EntryChange::Add, entries)?;
                    self.report_share(&feedback, Feedback::Added, entries.len(), "added");
                }
            }
            Command::Delete(entries) => {
                let feedback = change(tables, EntryChange::Delete, entries)?;
                self.report_share(&feedback, Feedback::Deleted, entries.len(), "deleted");
            }
            Command::Replace(entries) => {
                if self.ensure_table(tables, (anchor, name), now)? {
                    let feedback = change(tables, EntryChange::Replace, entries)?;
                    self.report_replaced(&feedback);
                }
            }
            Command::Test(entries) => self.test_entries(tables, (anchor, name), entries)?,
            Command::Zero(entries) if entries.is_empty() => {
                if is_dummy {
                    tables.find_record(anchor, name)?;
                } else {
                    tables.clear(anchor, name, now)?;
                }
                self.append_message("1 table/stats cleared");
            }
            Command::Zero(entries) => {
                let feedback = change(tables, EntryChange::Clear, entries)?;
                self.report_share(&feedback, Feedback::Cleared, entries.len(), "cleared");
            }
            Command::Show => {
                let record = tables.find_record(anchor, name)?;
                let seconds = |time: Duration| time.as_secs().to_string();
                self.reply.listing =
                    record.format_entries(self.tone.verbosity > 0, self.tone.time.unwrap_or(&seconds));
            }
            Command::Flush => {
                let count = tables.flush_table(anchor, name, is_dummy)?;
                self.append_message(&format!("{count} addresses deleted"));
            }
            Command::Kill => {
                if is_dummy {
                    tables.find_record(anchor, name)?;
                } else {
                    tables.kill_table(anchor, name)?;
                }
                self.append_message("1 table deleted");
            }
            Command::Expire(age) => {
                let feedback = tables.expire_entries(anchor, name, *age, now, is_dummy)?;
                self.report_share(&feedback, Feedback::Deleted, feedback.len(), "expired");
            }
        }
        Ok(())
    }

    /// Makes the table if there is none. False where that would only be made, so that nothing can be
    /// said of its entries.
    fn ensure_table(
        &mut self,
        tables: &mut Tables,
        (anchor, name): (&str, &str),
        now: Duration,
    ) -> Result<bool, CannotChange> {
        let is_there = tables.find_record(anchor, name).is_ok();
        if !is_there {
            if !self.tone.is_dummy {
                tables.create_table(anchor, name, now)?;
            }
            self.append_message("1 table created");
        }
        Ok(is_there || !self.tone.is_dummy)
    }

    fn test_entries(
        &mut self,
        tables: &Tables,
        (anchor, name): (&str, &str),
        entries: &[TableEntry],
    ) -> Result<(), CannotChange> {
        let record = tables.find_record(anchor, name)?;
        let mut matches = 0;
        for entry in entries {
            let decides = record.longest_match(entry.address).filter(|found| found.length <= entry.length);
            let met = match decides {
                Some(found) if found.is_negated => Feedback::Exception,
                Some(_) => Feedback::Match,
                None => Feedback::Unchanged,
            };
            matches += usize::from(met == Feedback::Match);
            if self.tone.verbosity > 1 {
                self.reply.listing.push_str(&test_line(entry, met, decides));
            } else if self.tone.verbosity == 1 && met == Feedback::Match {
                self.reply.listing.push_str(&entry_line(entry, met));
            }
        }
        self.append_message(&format!("{matches}/{} addresses match", entries.len()));
        self.reply.status = if matches < entries.len() { 2 } else { 0 };
        Ok(())
    }

    fn append_message(&mut self, message: &str) {
        if !self.tone.is_quiet {
            self.reply.message.push_str(message);
            self.reply.message.push_str(if self.tone.is_dummy { " (dummy).\n" } else { ".\n" });
        }
    }

    fn report_share(&mut self, feedback: &Feedbacks, what: Feedback, of: usize, done: &str) {
        self.append_message(&format!("{}/{of} addresses {done}", count_feedback(feedback, what)));
        self.list_feedback(feedback);
    }

    fn report_replaced(&mut self, feedback: &Feedbacks) {
        let counts = [Feedback::Added, Feedback::Deleted, Feedback::Changed]
            .map(|what| count_feedback(feedback, what));
        for (count, done) in
            counts.iter().zip(["added", "deleted", "changed"]).filter(|(count, _)| **count > 0)
        {
            self.append_message(&format!("{count} addresses {done}"));
        }
        if counts == [0; 3] {
            self.append_message("no changes");
        }
        self.list_feedback(feedback);
    }

    fn list_feedback(&mut self, feedback: &Feedbacks) {
        let is_shown = |met: Feedback| self.tone.verbosity > 1 || met != Feedback::Unchanged;
        if self.tone.verbosity > 0 {
            let shown = feedback.iter().filter(|(_, met)| is_shown(*met));
            self.reply.listing.extend(shown.map(|(entry, met)| entry_line(entry, *met)));
        }
    }
}

fn count_feedback(feedback: &Feedbacks, what: Feedback) -> usize {
    feedback.iter().filter(|(_, met)| *met == what).count()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tables::parse_entries;
    use artery_rcu::Domain;

    fn run(tables: &mut Tables, words: &str, verbosity: u8, now: u64) -> String {
        let (word, addresses) = words.split_once(' ').unwrap_or((words, ""));
        let entries = parse_entries(addresses).unwrap_or_default();
        let what = match word {
            "add" => Command::Add(entries),
            "delete" => Command::Delete(entries),
            "replace" => Command::Replace(entries),
            "test" => Command::Test(entries),
            "zero" => Command::Zero(entries),
            "flush" => Command::Flush,
            "kill" => Command::Kill,
            "expire" => Command::Expire(Duration::from_secs(addresses.parse().unwrap())),
            _ => Command::Show,
        };
        let tone = CommandOptions { verbosity, ..CommandOptions::default() };
        let reply = run_command(tables, ("", "t"), &what, tone, Duration::from_secs(now));
        format!("{}{}{}", reply.message, reply.listing, reply.status)
    }

    #[test]
    fn commands_say_what_they_did() {
        let mut tables = Tables::new(&Domain::new());
        let mut run = |words, verbosity| run(&mut tables, words, verbosity, 5);
        assert_eq!(run("show", 0), "pfctl: Table does not exist.\n1");
        let added = "1 table created.\n3/3 addresses added.\nA  10.0.0.0/8\nA !10.1.0.0/16\nA  10.1.2.3\n0";
        assert_eq!(run("add 10.0.0.0/8 !10.1.0.0/16 10.1.2.3", 1), added);
        assert_eq!(run("add 10.0.0.0/8 10.1.0.0/16 9.9.9.9 9.9.9.9", 2).lines().last(), Some("0"));
        assert_eq!(run("show", 0), "   9.9.9.9\n   10.0.0.0/8\n  !10.1.0.0/16\n   10.1.2.3\n0");
        assert_eq!(run("test 10.2.2.2 10.1.1.1 10.1.2.3", 0), "2/3 addresses match.\n2");
        assert_eq!(run("test 10.1.2.3", 1), "1/1 addresses match.\nM  10.1.2.3\n0");
        let tested = "0/1 addresses match.\n   10.1.1.1\t!10.1.0.0/16\n2";
        assert_eq!(run("test 10.1.1.1", 2), tested);
        assert_eq!(run("test 8.8.8.8", 2), "0/1 addresses match.\n   8.8.8.8\t nomatch\n2");
        let deleted = "1/2 addresses deleted.\nD  9.9.9.9\n   8.8.8.8\n0";
        assert_eq!(run("delete 9.9.9.9 8.8.8.8", 2), deleted);
        let replaced = "1 addresses added.\n3 addresses deleted.\nA  1.1.1.1\nD  10.0.0.0/8\nD !10.1.0.0/16\n\
            D  10.1.2.3\n0";
        assert_eq!(run("replace 1.1.1.1", 1), replaced);
        assert_eq!(run("replace 1.1.1.1", 1), "no changes.\n0");
        assert_eq!(run("zero", 0), "1 table/stats cleared.\n0");
        assert_eq!(run("flush", 0), "1 addresses deleted.\n0");
        assert_eq!(run("kill", 0), "1 table deleted.\n0");
        assert_eq!(run("flush", 0), "pfctl: Table does not exist.\n1");
    }

    #[test]
    fn a_dummy_changes_nothing_and_says_so() {
        let mut tables = Tables::new(&Domain::new());
        run(&mut tables, "add 10.0.0.1", 0, 0);
        let tone = CommandOptions { is_dummy: true, ..CommandOptions::default() };
        let entries = Command::Add(parse_entries("10.0.0.2").unwrap());
        let reply = run_command(&mut tables, ("", "t"), &entries, tone, Duration::ZERO);
        assert_eq!(reply.message, "1/1 addresses added (dummy).\n");
        assert_eq!(run(&mut tables, "show", 0, 0), "   10.0.0.1\n0");
    }

    #[test]
    fn entries_expire_by_the_time_since_they_came_or_were_cleared() {
        let mut tables = Tables::new(&Domain::new());
        run(&mut tables, "add 10.0.0.1 10.0.0.2", 0, 100);
        run(&mut tables, "zero 10.0.0.2", 0, 150);
        assert_eq!(run(&mut tables, "expire 60", 1, 160), "1/2 addresses expired.\nD  10.0.0.1\n0");
    }

    #[test]
    fn more_tables_than_may_be_are_refused_with_their_number() {
        let mut tables = Tables::new(&Domain::new());
        tables.most_tables = 1;
        run(&mut tables, "add 1.1.1.1", 0, 0);
        let (words, tone) = (Command::Add(Vec::new()), CommandOptions::default());
        let reply = run_command(&mut tables, ("", "other"), &words, tone, Duration::ZERO);
        let why = "too many tables: 2 are more than the limit of 1; `set limit tables 2` allows them";
        assert_eq!(reply.message, format!("pfctl: Cannot allocate memory: {why}.\n"));
    }

    #[test]
    fn more_entries_than_may_be_are_refused_as_a_whole() {
        let mut tables = Tables::new(&Domain::new());
        tables.most_entries = 2;
        let refused = run(&mut tables, "add 1.1.1.1 1.1.1.2 1.1.1.3", 0, 0);
        let why =
            "too many table entries: 3 are more than the limit of 2; `set limit table-entries 3` allows them";
        assert_eq!(refused, format!("pfctl: Cannot allocate memory: {why}.\n1"));
        assert_eq!(run(&mut tables, "show", 0, 0), "0");
        run(&mut tables, "add 1.1.1.1 1.1.1.2", 0, 0);
        assert_eq!(run(&mut tables, "replace 1.1.1.1 1.1.1.2 1.1.1.3", 0, 0), refused);
    }
}
