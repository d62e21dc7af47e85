//! `set …`: options, which are echoed with the words that they were written in.
use super::endpoints::parse_unsigned;
use super::lexer::Token;
use super::parser::{Parser, Step};
use crate::options::{Limit, Optimization, RulesetOptimization, SetOption, Syncookies, Timeout};
use crate::rule::{InterfaceName, On};

/// How much the filter logs of its own work: the words of `set debug`.
pub const DEBUG_LEVELS: [&str; 8] = ["emerg", "alert", "crit", "err", "warning", "notice", "info", "debug"];

/// Other words for some of them.
const OTHER_LEVELS: [(&str, &str); 3] = [("panic", "emerg"), ("error", "err"), ("warn", "warning")];

/// At which share of half-open connections cookies begin, if nothing is said. They end at half of it.
const COOKIE_SHARE: u8 = 25;

impl Parser<'_> {
    /// Reads `set` and what it sets.
    pub(crate) fn set_option(&mut self) -> Step<()> {
        self.next_token();
        let Token::Key(word) = *self.peek() else { return Err(self.syntax_error()) };
        self.next_token();
        match word {
            "timeout" => self.parse_each(&mut Self::parse_timeout),
            "limit" => self.parse_each(&mut Self::parse_limit),
            "skip" => self.parse_skip(),
            "loginterface" => self.log_interface_option(),
            "state-policy" => self.state_policy(),
            "block-policy" => self.block_policy(),
            "state-defaults" => self.state_defaults(),
            "optimization" => self.parse_optimization(),
            "ruleset-optimization" => self.ruleset_optimization(),
            "reassemble" => self.parse_reassemble(),
            "hostid" => self.host_id(),
            "debug" => self.debug_level(),
            "fingerprints" => {
                let file = self.expect_text()?;
                self.echo_and_add(SetOption::Fingerprints(file));
                Ok(())
            }
            "syncookies" => self.parse_syncookies(),
            _ => Err(self.syntax_error()),
        }
    }

    fn parse_each(&mut self, item: &mut dyn FnMut(&mut Self) -> Step<()>) -> Step<()> {
        self.parse_list(&mut |parser, _: &mut Vec<()>| item(parser)).map(|_| ())
    }

    fn echo_and_add(&mut self, option: SetOption) {
        if let Some(line) = super::print::option(&option) {
            self.echo_line(line);
        }
        self.add_option(option);
    }

    fn parse_timeout(&mut self) -> Step<()> {
        let name = self.expect_text()?;
        let seconds = self.number_within(&name, 0, u32::MAX.into())? as u32;
        let Some((timeout, _)) = Timeout::NAMES.iter().find(|(_, known)| known.eq_ignore_ascii_case(&name))
        else {
            return Err(self.fail_statement(format!("unknown timeout {name}")));
        };
        // It is printed as a signed number.
        self.echo_line(format!("set timeout {name} {}", seconds as i32));
        self.add_option(SetOption::Timeout(*timeout, seconds));
        Ok(())
    }

    fn parse_limit(&mut self) -> Step<()> {
        let name = self.expect_text()?;
        let n = self.number_within(&name, 0, u32::MAX.into())? as u32;
        // One of them is written in two ways.
        let plain = if name == "pktdelay_pkts" { "pktdelay-pkts" } else { &name };
        let Some((limit, _)) = Limit::NAMES.iter().find(|(_, known)| known.eq_ignore_ascii_case(plain))
        else {
            return Err(
                self.fail_statement(format!("unable to set limit {name} {n}\nthere is no such limit"))
            );
        };
        self.echo_line(format!("set limit {name} {}", n as i32));
        self.add_option(SetOption::Limit(*limit, n));
        Ok(())
    }

    fn parse_skip(&mut self) -> Step<()> {
        if !self.eat_key("on") {
            self.echo_and_add(SetOption::Skip(Vec::new()));
            return Ok(());
        }
        let interfaces = self.parse_list(&mut Self::on_item)?;
        let names: Vec<InterfaceName> = interfaces.iter().filter_map(skipped_interface).collect();
        let is_none =
            matches!(&interfaces[..], [On::Interface(false, InterfaceName(only))] if only == "none");
        self.echo_and_add(SetOption::Skip(if is_none { Vec::new() } else { names }));
        let before = self.faults.len();
        for on in &interfaces {
            match on {
                On::Interface(true, _) => self.report_error("skip on ! <interface> is not supported"),
                On::Domain(..) => self.report_error("skip on rdomain <num> is not supported"),
                _ => (),
            }
        }
        match self.faults.len() > before {
            true => Err(self.fail_statement("error setting skip interface(s)")),
            false => Ok(()),
        }
    }

    fn log_interface_option(&mut self) -> Step<()> {
        let name = if self.eat_key("all") { "all".to_string() } else { self.interface_name()? };
        let name = if name == "none" { None } else { Some(InterfaceName(name)) };
        self.echo_and_add(SetOption::LogInterface(name));
        Ok(())
    }

    fn state_policy(&mut self) -> Step<()> {
        let is_bound = self.eat_key("if-bound");
        if !is_bound {
            self.expect_key("floating")?;
        }
        self.defaults.is_bound = is_bound;
        self.echo_and_add(SetOption::StatePolicy(is_bound));
        Ok(())
    }

    fn block_policy(&mut self) -> Step<()> {
        let is_return = self.eat_key("return");
        if !is_return {
            self.expect_key("drop")?;
        }
        self.defaults.block_returns = is_return;
        self.echo_and_add(SetOption::BlockPolicy(is_return));
        Ok(())
    }

    fn state_defaults(&mut self) -> Step<()> {
        let options = self.state_options()?;
        if self.defaults.state.is_some() {
            return Err(self.fail_statement("cannot redefine state-defaults"));
        }
        self.defaults.state = Some(options.clone());
        self.add_option(SetOption::StateDefaults(options));
        Ok(())
    }

    fn parse_optimization(&mut self) -> Step<()> {
        let word = self.expect_text()?;
        let found = match word.to_ascii_lowercase().as_str() {
            "normal" => Optimization::Normal,
            "high-latency" | "satellite" => Optimization::HighLatency,
            "aggressive" => Optimization::Aggressive,
            "conservative" => Optimization::Conservative,
            _ => return Err(self.fail_statement(format!("unknown optimization {word}"))),
        };
        self.echo_line(format!("set optimization {word}"));
        self.add_option(SetOption::Optimization(found));
        Ok(())
    }

    fn ruleset_optimization(&mut self) -> Step<()> {
        let word = self.expect_text()?;
        let found = match word.as_str() {
            "none" => RulesetOptimization::None,
            "basic" => RulesetOptimization::Basic,
            "profile" => RulesetOptimization::Profile,
            _ => return Err(self.fail_statement(format!("unknown ruleset-optimization {word}"))),
        };
        self.add_option(SetOption::RulesetOptimization(found));
        Ok(())
    }

    fn parse_reassemble(&mut self) -> Step<()> {
        let is_on = !self.eat_key("no");
        if is_on {
            let word = self.expect_text()?;
            if word != "yes" {
                return Err(self.fail_statement(format!("invalid value '{word}', expected 'yes' or 'no'")));
            }
        }
        let takes_df = self.eat_key("no-df");
        self.defaults.leaves_fragments = !is_on;
        self.echo_and_add(SetOption::Reassemble(is_on, takes_df));
        Ok(())
    }

    fn host_id(&mut self) -> Step<()> {
        let word = self.number_or_text()?;
        let Some(number) = parse_unsigned(&word) else {
            return Err(self.fail_statement(format!("{word} is not a number")));
        };
        match u32::try_from(number) {
            Ok(0) => Err(self.fail_statement("hostid must be non-zero")),
            Ok(id) => {
                self.echo_and_add(SetOption::HostId(id));
                Ok(())
            }
            Err(_) => Err(self.fail_statement(format!("hostid {word} is out of range\nit has 32 bits"))),
        }
    }

    fn debug_level(&mut self) -> Step<()> {
        let word = if self.eat_key("debug") { "debug".to_string() } else { self.expect_text()? };
        let Some(level) = debug_level_of(&word) else {
            let known = DEBUG_LEVELS.join(", ");
            return Err(self.fail_statement(format!("error setting debuglevel {word}\nit is one of {known}")));
        };
        self.echo_line(format!("set debug {word}"));
        self.add_option(SetOption::Debug(level.to_string()));
        Ok(())
    }

    fn parse_syncookies(&mut self) -> Step<()> {
        let word = self.expect_text()?;
        let is_adaptive = word == "adaptive";
        if !is_adaptive && word != "never" && word != "always" {
            return Err(self
                .fail_statement(format!("illegal value for syncookies {word}\nnever, always or adaptive")));
        }
        let shares = if self.eat_sign("(") { Some(self.cookie_shares()?) } else { None };
        if shares.is_some() && !is_adaptive {
            return Err(
                self.fail_statement("error setting syncookies\nstart and end are for adaptive ones only")
            );
        }
        let (start, end) = shares.unwrap_or((COOKIE_SHARE, COOKIE_SHARE / 2));
        if end >= start {
            return Err(self.fail_statement("error setting syncookies\nstart must be higher than end"));
        }
        self.defaults.has_cookie_shares |= shares.is_some();
        let found = match word.as_str() {
            "never" => Syncookies::Never,
            "always" => Syncookies::Always,
            _ => Syncookies::Adaptive(start, end),
        };
        match is_adaptive && !self.defaults.has_cookie_shares {
            true => self.echo_line("set syncookies adaptive".into()),
            false => self.echo_line(super::print::option(&SetOption::Syncookies(found)).unwrap_or_default()),
        }
        self.add_option(SetOption::Syncookies(found));
        Ok(())
    }

    fn cookie_shares(&mut self) -> Step<(u8, u8)> {
        let (mut start, mut end) = (0, 0);
        loop {
            let word = self.expect_text()?;
            let share = self.parse_percent()?;
            match word.as_str() {
                "start" => start = share,
                "end" => end = share,
                _ => {
                    return Err(self.fail_statement(format!("illegal syncookie option {word}\nstart or end")));
                }
            }
            if !self.eat_comma() && self.eat_sign(")") {
                break;
            }
        }
        let start = if start == 0 { COOKIE_SHARE } else { start };
        Ok((start, if end == 0 { start / 2 } else { end }))
    }

    fn parse_percent(&mut self) -> Step<u8> {
        let word = self.expect_text()?;
        let share = word.strip_suffix('%').and_then(|digits| digits.parse::<f64>().ok());
        match share.filter(|share| *share > 0.0 && *share <= 100.0) {
            Some(share) => Ok(share as u8),
            None => Err(self.fail_statement(format!("illegal percentage value {word}\nit is such as 25%"))),
        }
    }
}

/// The interface that packets are to skip the filter at.
fn skipped_interface(on: &On) -> Option<InterfaceName> {
    match on {
        On::Interface(_, name) => Some(name.clone()),
        On::Any => Some(InterfaceName("any".into())),
        On::Domain(..) => None,
    }
}

/// The level of a word, or of its number.
fn debug_level_of(word: &str) -> Option<&'static str> {
    let word = word.to_ascii_lowercase();
    let plain =
        OTHER_LEVELS.iter().find(|(other, _)| *other == word).map_or(word.as_str(), |(_, level)| level);
    let numbered = word.parse::<usize>().ok().and_then(|number| DEBUG_LEVELS.get(number));
    DEBUG_LEVELS.iter().find(|level| **level == plain).or(numbered).copied()
}
