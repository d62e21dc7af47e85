//! `table <name> …`: what is in tables, by lists and by files.
use super::hosts::Host;
use super::lexer::Token;
use super::parser::{Parser, Step};
use super::print::{echoed_list, table_head};
use crate::rule::{AddressMatch, HostAddress, TableAddress, TableDefinition};

/// The most addresses of a file.
const MOST_ADDRESSES: usize = 2_000_000;

/// Where addresses of a table come from.
enum AddressSource {
    File(String),
    List(Vec<Host>),
}

impl Parser<'_> {
    /// Reads a table's definition.
    pub(crate) fn parse_table(&mut self) -> Step<()> {
        self.next_token();
        let name = self.table_name()?;
        let mut table = TableDefinition { name, place: self.token_location(), ..TableDefinition::default() };
        // Files and lists are echoed in the order that they are written in, lists behind one another as one.
        let mut sources = Vec::new();
        loop {
            match self.peek() {
                Token::Text(_) => self.table_word(&mut table)?,
                Token::Key("file") => {
                    self.next_token();
                    sources.push(AddressSource::File(self.expect_text()?));
                }
                Token::Sign("{") => self.table_list(&mut table, &mut sources)?,
                Token::Newline => break,
                _ => return Err(self.syntax_error()),
            }
        }
        let mut echoed = table_head(&table.name, table.is_const, table.is_persistent, table.has_counters);
        for source in &sources {
            match source {
                AddressSource::File(name) => {
                    table.addresses.append(&mut self.table_file(name)?);
                    table.files.push(name.clone());
                    echoed += &format!(" file \"{name}\"");
                }
                AddressSource::List(hosts) => {
                    let addresses = self.table_addresses(hosts)?;
                    echoed += &echoed_list(addresses.iter());
                    table.addresses.extend(addresses);
                }
            }
        }
        if sources.is_empty() && table.has_list {
            echoed += " { }";
        }
        self.echo_line(echoed);
        self.anchors.last_mut().unwrap_or(&mut self.ruleset).tables.push(table);
        Ok(())
    }

    fn table_word(&mut self, table: &mut TableDefinition) -> Step<()> {
        let word = self.expect_text()?;
        match word.as_str() {
            "const" => table.is_const = true,
            "persist" => table.is_persistent = true,
            "counters" => table.has_counters = true,
            _ => return Err(self.fail_statement(format!("invalid table option '{word}'"))),
        }
        Ok(())
    }

    fn table_list(&mut self, table: &mut TableDefinition, sources: &mut Vec<AddressSource>) -> Step<()> {
        table.has_list = true;
        let hosts = self.table_hosts(true)?;
        let is_address = |host: &Host| matches!(host.address, AddressMatch::Host(HostAddress::Network(..)));
        if let Some(other) = hosts.iter().find(|host| !is_address(host)) {
            let what = match &other.address {
                AddressMatch::Range(..) => "address ranges are",
                AddressMatch::Host(_) => "dynamic addresses are",
                AddressMatch::Table(_) => "tables are",
                AddressMatch::NoRoute => "\"no-route\" is",
                AddressMatch::UrpfFailed => "\"urpf-failed\" is",
                _ => "this is",
            };
            return Err(self
                .fail_statement(format!("{what} not permitted inside tables\naddresses and networks are")));
        }
        match sources.last_mut() {
            Some(AddressSource::List(before)) => before.extend(hosts),
            _ if hosts.is_empty() => (),
            _ => sources.push(AddressSource::List(hosts)),
        }
        Ok(())
    }

    /// Reads a list, which may have lists within, and be empty if `may_be_empty`.
    fn table_hosts(&mut self, may_be_empty: bool) -> Step<Vec<Host>> {
        let mut hosts = Vec::new();
        self.expect_sign("{")?;
        self.skip_newlines();
        if may_be_empty && self.eat_sign("}") {
            return Ok(hosts);
        }
        self.items_after_brace(&mut |parser| {
            let mut found = parser.table_item()?;
            hosts.append(&mut found);
            Ok(())
        })?;
        Ok(hosts)
    }

    fn table_item(&mut self) -> Step<Vec<Host>> {
        if self.peek() == &Token::Sign("{") {
            return self.table_hosts(false);
        }
        let is_negated = self.eat_sign("!");
        let mut found = match self.peek() {
            Token::Key("no-route") => self.word_host(AddressMatch::NoRoute),
            Token::Key("urpf-failed") => self.word_host(AddressMatch::UrpfFailed),
            _ => self.weighted_host()?,
        };
        found.iter_mut().for_each(|host| host.is_negated = is_negated);
        Ok(found)
    }

    fn table_addresses(&mut self, hosts: &[Host]) -> Step<Vec<TableAddress>> {
        if let Some(length) = hosts.iter().find_map(|host| host.excess) {
            return Err(self.fail_statement(format!(
                "cannot create address buffer: Invalid argument\n/{length} is too long for IPv4"
            )));
        }
        Ok(hosts.iter().cloned().filter_map(table_address).collect())
    }

    fn table_file(&mut self, name: &str) -> Step<Vec<TableAddress>> {
        let text = match (self.environment.read_file)(name) {
            Ok(text) => text,
            Err(why) => return Err(self.fail_statement(format!("cannot load \"{name}\": {why}"))),
        };
        addresses_of(&text, self.environment)
            .map_err(|why| self.fail_statement(format!("file \"{name}\" contains bad data: {why}")))
    }
}

/// The addresses of a table's file: words, `!` before those that are exceptions, comments behind `#` or `;`.
/// Two `!` are none.
pub fn addresses_of(text: &[u8], environment: &super::Environment) -> Result<Vec<TableAddress>, String> {
    let text = String::from_utf8_lossy(text);
    let mut addresses = Vec::new();
    for (number, line) in text.lines().enumerate() {
        let line = line.split(['#', ';']).next().unwrap_or_default();
        // A `!` may stand apart from its address.
        let mut is_negated = false;
        for word in line.replace('!', " ! ").split_whitespace() {
            if word == "!" {
                is_negated = !is_negated;
                continue;
            }
            let wrong = |why: String| format!("line {}: {why}", number + 1);
            let (plain, length) = match word.split_once('/') {
                None => (word, None),
                Some((plain, length)) => match length.parse() {
                    Ok(length) => (plain, Some(length)),
                    Err(_) => return Err(wrong(format!("{word} has no length behind its slash"))),
                },
            };
            for host in super::hosts::resolve_word(plain, length, environment).map_err(wrong)? {
                if host.excess.is_some() {
                    return Err(wrong(format!("{word} has too long a length behind its slash")));
                }
                addresses.extend(table_address(Host { is_negated, ..host }));
            }
            if addresses.len() > MOST_ADDRESSES {
                return Err(wrong(format!("it has more than {MOST_ADDRESSES} addresses")));
            }
            is_negated = false;
        }
    }
    Ok(addresses)
}

fn table_address(host: Host) -> Option<TableAddress> {
    match host.address {
        AddressMatch::Host(address @ HostAddress::Network(..)) => {
            Some(TableAddress { is_negated: host.is_negated, address, weight: host.weight })
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Environment, print};
    use super::*;

    #[test]
    fn files_of_tables_have_words_exceptions_and_comments() {
        let text = b"10.0.0.0/8 !10.1.2.3 # so\n; not\n  ! 2001:db8::/32 10/9\nlo0 !!10.2.0.1 ! !!10.3.0.1\n";
        let addresses = addresses_of(text, &Environment::fixture()).unwrap();
        let all = print::echoed_list(addresses.iter());
        let expected =
            " { 10.0.0.0/8 !10.1.2.3 !2001:db8::/32 10.0.0.0/9 ::1 fe80::1 127.0.0.1 10.2.0.1 !10.3.0.1 }";
        assert_eq!(all, expected);
        let why = addresses_of(b"1.2.3.4\n1.2.3.4/x", &Environment::fixture()).unwrap_err();
        assert!(why.starts_with("line 2"), "{why}");
        assert!(addresses_of(b"rubbish\xff\x00", &Environment::fixture()).is_err());
    }
}
