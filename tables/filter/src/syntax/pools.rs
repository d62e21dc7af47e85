//! Pools: the addresses behind `nat-to`, `rdr-to`, `route-to` and the like, and how one of them is chosen.
use super::endpoints::PortWord;
use super::hosts::Host;
use super::lexer::Token;
use super::parser::{Parser, Step};
use crate::rule::{AddressMatch, HostAddress, PoolChoice};

/// A pool as it is written.
#[derive(Clone, Debug, Default)]
pub(crate) struct PoolText {
    pub(crate) hosts: Vec<Host>,
    pub(crate) ports: Option<PortWord>,
    /// How an address is chosen, if that is said.
    pub(crate) choice: Option<PoolChoice>,
    /// Whether a source keeps its address.
    pub(crate) is_sticky: bool,
    pub(crate) has_static_port: bool,
}

impl Parser<'_> {
    /// Reads a pool and its options; `may_have_ports` where ports can be translated.
    pub(crate) fn parse_pool(&mut self, may_have_ports: bool) -> Step<PoolText> {
        let is_list = self.peek() == &Token::Sign("{");
        let hosts = self.parse_list(&mut |parser, hosts: &mut Vec<Host>| {
            let mut found = parser.weighted_host()?;
            let is_network =
                |host: &Host| matches!(host.address, AddressMatch::Host(HostAddress::Network(..)));
            if is_list && hosts.is_empty() && !found.iter().all(is_network) {
                return Err(parser.fail_statement("only addresses can be listed for redirection pools"));
            }
            hosts.append(&mut found);
            Ok(())
        })?;
        let mut pool = PoolText { hosts, ..PoolText::default() };
        if may_have_ports && self.eat_key("port") {
            pool.ports = Some(self.port_word(true)?);
        }
        while self.pool_option(&mut pool)? {}
        Ok(pool)
    }

    /// Reads one option; false where there is none.
    fn pool_option(&mut self, pool: &mut PoolText) -> Step<bool> {
        let choice = match self.peek() {
            Token::Key("bitmask") => PoolChoice::Bitmask,
            Token::Key("random") => PoolChoice::Random,
            Token::Key("round-robin") => PoolChoice::RoundRobin,
            Token::Key("least-states") => PoolChoice::LeastStates,
            Token::Key("source-hash") => PoolChoice::SourceHash(None),
            Token::Key("static-port") => return self.pool_flag(&mut pool.has_static_port, "static-port"),
            Token::Key("sticky-address") => return self.pool_flag(&mut pool.is_sticky, "sticky-address"),
            _ => return Ok(false),
        };
        self.next_token();
        if pool.choice.is_some() {
            return Err(self.fail_statement("pool type cannot be redefined"));
        }
        pool.choice = Some(match choice {
            PoolChoice::SourceHash(_) => PoolChoice::SourceHash(self.key_of_hash()?),
            other => other,
        });
        Ok(true)
    }

    fn pool_flag(&mut self, flag: &mut bool, word: &str) -> Step<bool> {
        self.next_token();
        if std::mem::replace(flag, true) {
            return Err(self.fail_statement(format!("{word} cannot be redefined")));
        }
        Ok(true)
    }

    /// The key of a hash: 128 bits in hexadecimal, or any other word.
    fn key_of_hash(&mut self) -> Step<Option<[u32; 4]>> {
        if !matches!(self.peek(), Token::Text(_)) {
            return Ok(None);
        }
        let text = self.expect_texts()?;
        let number = match text.strip_prefix("0x") {
            Some(digits) if digits.len() != 32 || digits.starts_with('+') => None,
            Some(digits) => u128::from_str_radix(digits, 16).ok(),
            // A word stands for its digest, on which nothing secret rests.
            None => Some(u128::from_be_bytes(md5::compute(text).0)),
        };
        let Some(number) = number else {
            return Err(self.fail_statement("hex key must be 128 bits (32 hex digits) long"));
        };
        Ok(Some([96, 64, 32, 0].map(|shift| (number >> shift) as u32)))
    }
}
