//! `table <name> …`: what is in tables, by lists and by files.
use super::hosts::Host;
use super::lexer::Token;
use super::parser::{Parser, Step};
use super::print::{table_head, table_list};
use crate::rule::{AddressMatch, HostAddress, TableAddress, TableDefinition};

/// The most addresses of a file.
const MOST_ADDRESSES: usize = 2_000_000;

impl Parser<'_> {
    /// Reads a table's definition.
    pub(crate) fn table(&mut self) -> Step<()> {
        self.take();
        let name = self.table_name()?;
        let mut table = TableDefinition {
            name,
            is_const: false,
            is_persistent: false,
            has_counters: false,
            is_automatic: false,
            has_list: false,
            addresses: Vec::new(),
            files: Vec::new(),
            place: self.place(),
        };
        // Files and lists are echoed in the order that they are written in.
        let mut sources = String::new();
        loop {
            match self.peek() {
                Token::Text(_) => self.table_word(&mut table)?,
                Token::Key("file") => sources += &self.table_file(&mut table)?,
                Token::Sign("{") => sources += &self.table_addresses(&mut table)?,
                Token::Newline => break,
                _ => return Err(self.syntax_error()),
            }
        }
        if sources.is_empty() && table.has_list {
            sources = " { }".into();
        }
        let head = table_head(&table.name, table.is_const, table.is_persistent, table.has_counters);
        self.echo(head + &sources);
        self.ruleset.tables.push(table);
        Ok(())
    }

    fn table_word(&mut self, table: &mut TableDefinition) -> Step<()> {
        let word = self.text()?;
        match word.as_str() {
            "const" => table.is_const = true,
            "persist" => table.is_persistent = true,
            "counters" => table.has_counters = true,
            _ => return Err(self.stop(format!("invalid table option '{word}'"))),
        }
        Ok(())
    }

    fn table_addresses(&mut self, table: &mut TableDefinition) -> Step<String> {
        table.has_list = true;
        self.sign("{")?;
        self.newlines();
        let mut hosts = Vec::new();
        while !self.eat_sign("}") {
            self.table_item(&mut hosts)?;
            self.newlines();
            if self.comma() {
                self.newlines();
                if self.peek() == &Token::Sign("}") {
                    return Err(self.syntax_error());
                }
            }
        }
        if hosts.is_empty() {
            return Ok(String::new());
        }
        let before = table.addresses.len();
        for host in hosts {
            let Some(address) = table_address(host) else {
                return Err(self.stop("tables have addresses and networks, and nothing else"));
            };
            table.addresses.push(address);
        }
        Ok(table_list(table.addresses[before..].iter()))
    }

    /// One address, or those of a list within the list.
    fn table_item(&mut self, hosts: &mut Vec<Host>) -> Step<()> {
        let mut found = self.list(&mut |parser: &mut Self, all: &mut Vec<Host>| {
            let is_negated = parser.eat_sign("!");
            let mut found = parser.host()?;
            found.iter_mut().for_each(|host| host.is_negated = is_negated);
            all.append(&mut found);
            Ok(())
        })?;
        hosts.append(&mut found);
        Ok(())
    }

    fn table_file(&mut self, table: &mut TableDefinition) -> Step<String> {
        self.take();
        let name = self.text()?;
        let text = match (self.environment.read_file)(&name) {
            Ok(text) => text,
            Err(why) => return Err(self.stop(format!("cannot load \"{name}\": {why}"))),
        };
        match addresses_of(&text, self.environment) {
            Ok(mut addresses) => table.addresses.append(&mut addresses),
            Err(why) => return Err(self.stop(format!("file \"{name}\" contains bad data: {why}"))),
        }
        let echoed = format!(" file \"{name}\"");
        table.files.push(name);
        Ok(echoed)
    }
}

/// The addresses of a table's file: words, `!` before those that are exceptions, comments behind `#` or `;`.
pub fn addresses_of(text: &[u8], environment: &super::Environment) -> Result<Vec<TableAddress>, String> {
    let text = String::from_utf8_lossy(text);
    let mut addresses = Vec::new();
    for (number, line) in text.lines().enumerate() {
        let line = line.split(['#', ';']).next().unwrap_or_default();
        // A `!` may stand apart from its address.
        let mut is_negated = false;
        for word in line.replace('!', " ! ").split_whitespace() {
            if word == "!" {
                is_negated = true;
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
            for host in super::hosts::resolve(plain, length, environment).map_err(wrong)? {
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
        let text = b"10.0.0.0/8 !10.1.2.3 # so\n; not\n  ! 2001:db8::/32 10/9\nlo0\n";
        let addresses = addresses_of(text, &Environment::fixture()).unwrap();
        let all = print::table_list(addresses.iter());
        assert_eq!(all, " { 10.0.0.0/8 !10.1.2.3 !2001:db8::/32 10.0.0.0/9 ::1 fe80::1 127.0.0.1 }");
        let why = addresses_of(b"1.2.3.4\n1.2.3.4/x", &Environment::fixture()).unwrap_err();
        assert!(why.starts_with("line 2"), "{why}");
        assert!(addresses_of(b"rubbish\xff\x00", &Environment::fixture()).is_err());
    }
}
