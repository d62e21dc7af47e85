//! What is said of states in parentheses, of rules and as `set state-defaults`.
use super::lexer::Token;
use super::parser::{Parser, Step};
use crate::options::Timeout;
use crate::rule::{Binding, Flush, SourceTrack, StateOptions};

/// The most connections of `max-src-conn-rate`: thousandths of them are counted in 32 bits.
const MOST_RATE: u32 = u32::MAX / 1000;

impl Parser<'_> {
    /// Reads options of states up to what is none.
    pub(crate) fn state_options(&mut self) -> Step<StateOptions> {
        let (mut options, mut is_global) = (StateOptions::default(), false);
        loop {
            self.state_option(&mut options, &mut is_global)?;
            let has_comma = self.eat_comma();
            let goes_on = matches!(self.peek(), Token::Key(_) | Token::Text(_));
            if !goes_on && has_comma {
                return Err(self.syntax_error());
            }
            if !goes_on {
                return Ok(self.finish_state_options(options, is_global));
            }
        }
    }

    /// Reads one; `is_global` becomes whether `source-track global` was said, which
    /// other options may exclude.
    fn state_option(&mut self, options: &mut StateOptions, is_global: &mut bool) -> Step<()> {
        let Token::Key(word) = *self.peek() else { return self.state_timeout(options) };
        self.next_token();
        match word {
            // No bound is none.
            "max" => {
                let max = self.number_within(word, 0, u32::MAX.into())? as u32;
                let before = std::mem::replace(&mut options.max, Some(max).filter(|max| *max != 0));
                self.defer_if_repeated(before.is_some(), word);
            }
            "max-src-nodes" => self.state_number(word, &mut options.max_source_nodes)?,
            "max-src-states" => self.state_number(word, &mut options.max_source_states)?,
            "max-src-conn" => self.state_number(word, &mut options.max_source_connections)?,
            "max-src-conn-rate" => self.state_rate(word, options)?,
            "no-sync" => self.state_flag("sync", &mut options.is_not_synchronised),
            "sloppy" => self.state_flag(word, &mut options.is_sloppy),
            "pflow" => self.state_flag(word, &mut options.is_pflow),
            "if-bound" => {
                self.defer_if_repeated(options.binding.replace(Binding::Bound).is_some(), "state locking")
            }
            "floating" => {
                self.defer_if_repeated(options.binding.replace(Binding::Floating).is_some(), "state locking")
            }
            "source-track" => {
                let track = if self.eat_key("rule") { SourceTrack::Rule } else { SourceTrack::Global };
                *is_global = track == SourceTrack::Global && self.eat_key("global");
                self.defer_if_repeated(options.source_track.replace(track).is_some(), word);
            }
            "overload" => self.parse_overload(options)?,
            _ => return Err(self.syntax_error()),
        }
        Ok(())
    }

    /// Mistakes in options of states are reported when the whole rule has been read.
    fn defer_if_repeated(&mut self, was_there: bool, word: &str) {
        if was_there {
            self.defer_error(format!("state option '{word}' multiple definitions"));
        }
    }

    fn state_number(&mut self, word: &str, place: &mut Option<u32>) -> Step<()> {
        let n = self.number_within(word, 0, u32::MAX.into())? as u32;
        let was_there = place.replace(n).is_some();
        self.defer_if_repeated(was_there, word);
        if n == 0 {
            self.defer_error(format!("'{word}' must be > 0"));
        }
        Ok(())
    }

    fn state_rate(&mut self, word: &str, options: &mut StateOptions) -> Step<()> {
        let n = self.number_within(word, 0, u32::MAX.into())? as u32;
        self.expect_sign("/")?;
        let seconds = self.number_within(word, 0, u32::MAX.into())? as u32;
        self.defer_if_repeated(options.max_source_rate.replace((n, seconds)).is_some(), word);
        if n == 0 || seconds == 0 {
            self.defer_error(format!("'{word}' values must be > 0"));
        }
        if n > MOST_RATE {
            self.defer_error(format!("'{word}' maximum rate must be < {MOST_RATE}"));
        }
        Ok(())
    }

    fn state_flag(&mut self, word: &str, flag: &mut bool) {
        let was_there = std::mem::replace(flag, true);
        self.defer_if_repeated(was_there, word);
    }

    fn parse_overload(&mut self, options: &mut StateOptions) -> Step<()> {
        let name = self.table_name()?;
        let flush = match self.eat_key("flush") {
            false => Flush::No,
            true if self.eat_key("global") => Flush::Global,
            true => Flush::Rule,
        };
        self.defer_if_repeated(options.overload.replace((name, flush)).is_some(), "overload");
        Ok(())
    }

    fn state_timeout(&mut self, options: &mut StateOptions) -> Step<()> {
        let name = self.expect_text()?;
        let seconds = self.number_within(&name, 0, u32::MAX.into())? as u32;
        let Some((timeout, _)) = Timeout::NAMES.iter().find(|(_, known)| *known == name) else {
            return Err(self.fail_statement(format!("illegal timeout name {name}")));
        };
        if !name.contains('.') {
            return Err(
                self.fail_statement(format!("illegal state timeout {name}\nit is for 'set timeout' only"))
            );
        }
        let was_there = options.timeouts.iter().any(|(known, seconds)| known == timeout && *seconds != 0);
        options.timeouts.push((*timeout, seconds));
        self.defer_if_repeated(was_there, &name);
        Ok(())
    }

    /// Checks options against each other, and adds what follows from them.
    fn finish_state_options(&mut self, mut options: StateOptions, is_global: bool) -> StateOptions {
        let for_rules = [
            (options.max_source_nodes.is_some(), "max-src-nodes"),
            (options.max_source_connections.is_some(), "max-src-conn"),
            (options.max_source_rate.is_some(), "max-src-conn-rate"),
        ];
        let needs_rule = for_rules.iter().find(|(is_said, _)| *is_said);
        if let (true, Some((_, word))) = (is_global, needs_rule) {
            self.defer_error(format!("'{word}' is incompatible with 'source-track global'"));
        }
        if needs_rule.is_some() {
            options.source_track = Some(SourceTrack::Rule);
        } else if options.max_source_states.is_some() {
            options.source_track.get_or_insert(SourceTrack::Global);
        }
        add_implied_timeouts(&mut options);
        options
    }
}

/// A limit of states scales timeouts; sources are remembered at least as long as
/// their connections are counted.
fn add_implied_timeouts(options: &mut StateOptions) {
    let said =
        |timeouts: &[(Timeout, u32)], timeout| timeouts.iter().position(|(known, _)| *known == timeout);
    let scales = [Timeout::AdaptiveStart, Timeout::AdaptiveEnd];
    let is_scaled = scales.iter().any(|timeout| said(&options.timeouts, *timeout).is_some());
    options.timeouts.retain(|(_, seconds)| *seconds != 0);
    if let Some(max) = options.max.filter(|_| !is_scaled) {
        let tenth = max / 10;
        let both =
            [(Timeout::AdaptiveStart, tenth.wrapping_mul(6)), (Timeout::AdaptiveEnd, tenth.wrapping_mul(12))];
        options.timeouts.extend(both.into_iter().filter(|(_, states)| *states != 0));
    }
    if let Some((_, seconds)) = options.max_source_rate {
        match said(&options.timeouts, Timeout::SourceTrack) {
            Some(place) => options.timeouts[place].1 = options.timeouts[place].1.max(seconds),
            None => options.timeouts.push((Timeout::SourceTrack, seconds)),
        }
    }
}
