//! `set …`: options, which are echoed with the words that they were written in.
use super::ends::unsigned;
use super::lexer::Token;
use super::parser::{Parser, Step};
use crate::options::{Limit, Optimization, RulesetOptimization, SetOption, Syncookies, Timeout};
use crate::rule::InterfaceName;

/// Levels of `set debug`.
/// How much is told of the filter's own doings: the words of `set debug`.
pub const DEBUG_LEVELS: [&str; 8] = ["emerg", "alert", "crit", "err", "warning", "notice", "info", "debug"];

/// At which shares of half-open connections cookies begin and end, if nothing is said.
const COOKIE_SHARES: (u8, u8) = (25, 12);

impl Parser<'_> {
    /// Reads `set` and what it sets.
    pub(crate) fn set_option(&mut self) -> Step<()> {
        self.take();
        let Token::Key(word) = *self.peek() else { return Err(self.syntax_error()) };
        self.take();
        match word {
            "timeout" => self.several(&mut Self::timeout),
            "limit" => self.several(&mut Self::limit),
            "skip" => self.skip(),
            "loginterface" => self.log_interface_option(),
            "state-policy" => self.state_policy(),
            "block-policy" => self.block_policy(),
            "state-defaults" => self.state_defaults(),
            "optimization" => self.optimization(),
            "ruleset-optimization" => self.ruleset_optimization(),
            "reassemble" => self.reassemble(),
            "hostid" => self.host_id(),
            "debug" => self.debug_level(),
            "fingerprints" => {
                let file = self.text()?;
                self.echo_and_add(SetOption::Fingerprints(file));
                Ok(())
            }
            "syncookies" => self.syncookies(),
            _ => Err(self.syntax_error()),
        }
    }

    fn several(&mut self, item: &mut dyn FnMut(&mut Self) -> Step<()>) -> Step<()> {
        self.list(&mut |parser, _: &mut Vec<()>| item(parser)).map(|_| ())
    }

    fn echo_and_add(&mut self, option: SetOption) {
        if let Some(line) = super::print::option(&option) {
            self.echo(line);
        }
        self.add_option(option);
    }

    fn timeout(&mut self) -> Step<()> {
        let name = self.text()?;
        let seconds = self.number_within(&name, 0, u32::MAX.into())? as u32;
        let Some((timeout, _)) = Timeout::NAMES.iter().find(|(_, known)| known.eq_ignore_ascii_case(&name))
        else {
            return Err(self.stop(format!("unknown timeout {name}")));
        };
        self.echo(format!("set timeout {name} {seconds}"));
        self.add_option(SetOption::Timeout(*timeout, seconds));
        Ok(())
    }

    fn limit(&mut self) -> Step<()> {
        let name = self.text()?;
        let n = self.number_within(&name, 0, u32::MAX.into())? as u32;
        let plain = name.to_ascii_lowercase().replace('_', "-");
        let Some((limit, _)) = Limit::NAMES.iter().find(|(_, known)| known.replace('_', "-") == plain) else {
            return Err(self.stop(format!("unable to set limit {name} {n}: there is no such limit")));
        };
        self.echo(format!("set limit {name} {n}"));
        self.add_option(SetOption::Limit(*limit, n));
        Ok(())
    }

    fn skip(&mut self) -> Step<()> {
        self.key("on")?;
        let interfaces = self.list(&mut |parser, all| {
            let is_negated = parser.eat_sign("!");
            let name = if parser.eat("any") { "any".to_string() } else { parser.interface_name()? };
            all.push((is_negated, InterfaceName(name)));
            Ok(())
        })?;
        if self.peek() != &Token::Newline {
            return Err(self.syntax_error());
        }
        let has_negated = interfaces.iter().any(|(is_negated, _)| *is_negated);
        let mut names: Vec<InterfaceName> = interfaces.into_iter().map(|(_, name)| name).collect();
        if let ([InterfaceName(only)], false) = (&names[..], has_negated)
            && only == "none"
        {
            names.clear();
        }
        self.echo_and_add(SetOption::Skip(names));
        if has_negated {
            self.fault("skip on ! <interface> is not supported");
            return Err(self.stop("error setting skip interface(s)"));
        }
        Ok(())
    }

    fn log_interface_option(&mut self) -> Step<()> {
        let name = self.interface_name()?;
        let name = if name == "none" { None } else { Some(InterfaceName(name)) };
        self.echo_and_add(SetOption::LogInterface(name));
        Ok(())
    }

    fn state_policy(&mut self) -> Step<()> {
        let is_bound = self.eat("if-bound");
        if !is_bound {
            self.key("floating")?;
        }
        self.defaults.is_bound = is_bound;
        self.echo_and_add(SetOption::StatePolicy(is_bound));
        Ok(())
    }

    fn block_policy(&mut self) -> Step<()> {
        let is_return = self.eat("return");
        if !is_return {
            self.key("drop")?;
        }
        self.defaults.block_returns = is_return;
        self.echo_and_add(SetOption::BlockPolicy(is_return));
        Ok(())
    }

    fn state_defaults(&mut self) -> Step<()> {
        let options = self.state_options()?;
        if self.defaults.state.is_some() {
            return Err(self.stop("cannot redefine state-defaults"));
        }
        self.defaults.state = Some(options.clone());
        self.add_option(SetOption::StateDefaults(options));
        Ok(())
    }

    fn optimization(&mut self) -> Step<()> {
        let word = if self.eat("default") { "default".to_string() } else { self.text()? };
        let found = match word.as_str() {
            "normal" | "default" => Optimization::Normal,
            "high-latency" | "satellite" => Optimization::HighLatency,
            "aggressive" => Optimization::Aggressive,
            "conservative" => Optimization::Conservative,
            _ => return Err(self.stop(format!("unknown optimization {word}"))),
        };
        self.echo(format!("set optimization {word}"));
        self.add_option(SetOption::Optimization(found));
        Ok(())
    }

    fn ruleset_optimization(&mut self) -> Step<()> {
        let word = self.text()?;
        let found = match word.as_str() {
            "none" => RulesetOptimization::None,
            "basic" => RulesetOptimization::Basic,
            "profile" => RulesetOptimization::Profile,
            _ => return Err(self.stop(format!("unknown ruleset-optimization {word}"))),
        };
        self.add_option(SetOption::RulesetOptimization(found));
        Ok(())
    }

    fn reassemble(&mut self) -> Step<()> {
        let is_on = !self.eat("no");
        if is_on {
            let word = self.text()?;
            if word != "yes" {
                return Err(self.stop(format!("invalid value '{word}', expected 'yes' or 'no'")));
            }
        }
        let takes_df = self.eat("no-df");
        self.echo_and_add(SetOption::Reassemble(is_on, takes_df));
        Ok(())
    }

    fn host_id(&mut self) -> Step<()> {
        let word = self.number_or_text()?;
        let Some(number) = unsigned(&word) else {
            return Err(self.stop(format!("{word} is not a number")));
        };
        match u32::try_from(number) {
            Ok(0) => Err(self.stop("hostid must be non-zero")),
            Ok(id) => {
                self.echo_and_add(SetOption::HostId(id));
                Ok(())
            }
            Err(_) => Err(self.stop(format!("hostid {word} is out of range: it has 32 bits"))),
        }
    }

    fn debug_level(&mut self) -> Step<()> {
        let word = if self.eat("debug") { "debug".to_string() } else { self.text()? };
        if !DEBUG_LEVELS.contains(&word.as_str()) {
            return Err(self.stop(format!("unknown debug level {word}: one of {}", DEBUG_LEVELS.join(", "))));
        }
        self.echo_and_add(SetOption::Debug(word));
        Ok(())
    }

    fn syncookies(&mut self) -> Step<()> {
        let word = self.text()?;
        let found = match word.as_str() {
            "never" => Syncookies::Never,
            "always" => Syncookies::Always,
            "adaptive" => self.adaptive_cookies()?,
            _ => return Err(self.stop(format!("unknown syncookies {word}: never, always or adaptive"))),
        };
        self.echo_and_add(SetOption::Syncookies(found));
        Ok(())
    }

    fn adaptive_cookies(&mut self) -> Step<Syncookies> {
        let (mut start, mut end) = COOKIE_SHARES;
        if !self.eat_sign("(") {
            return Ok(Syncookies::Adaptive(start, end));
        }
        loop {
            let word = self.text()?;
            let share = self.percent()?;
            match word.as_str() {
                "start" => start = share,
                "end" => end = share,
                _ => return Err(self.syntax_error()),
            }
            if !self.comma() && self.eat_sign(")") {
                break;
            }
        }
        if end >= start {
            return Err(self.stop("syncookies: end must be less than start"));
        }
        Ok(Syncookies::Adaptive(start, end))
    }

    fn percent(&mut self) -> Step<u8> {
        let word = self.number_or_text()?;
        let share =
            word.strip_suffix('%').and_then(|digits| digits.parse().ok()).filter(|share| *share <= 100);
        share.ok_or(()).map_err(|()| self.stop(format!("{word} is no share in percent, such as 25%")))
    }
}
