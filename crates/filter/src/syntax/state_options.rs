//! What is said of states in parentheses, of rules and as `set state-defaults`.
use super::lexer::Token;
use super::parser::{Parser, Step};
use crate::options::Timeout;
use crate::rule::{Binding, Flush, SourceTrack, StateOptions};

impl Parser<'_> {
    /// Reads options of states up to what is none.
    pub(crate) fn state_options(&mut self) -> Step<StateOptions> {
        let mut options = StateOptions::default();
        loop {
            self.state_option(&mut options)?;
            let has_comma = self.comma();
            let goes_on = matches!(self.peek(), Token::Key(_) | Token::Text(_));
            if !goes_on && has_comma {
                return Err(self.syntax_error());
            }
            if !goes_on {
                return self.finish_state_options(options);
            }
        }
    }

    fn state_option(&mut self, options: &mut StateOptions) -> Step<()> {
        let Token::Key(word) = *self.peek() else { return self.state_timeout(options) };
        self.take();
        match word {
            "max" => self.state_number(word, &mut options.max),
            "max-src-nodes" => self.state_number(word, &mut options.max_source_nodes),
            "max-src-states" => self.state_number(word, &mut options.max_source_states),
            "max-src-conn" => self.state_number(word, &mut options.max_source_connections),
            "max-src-conn-rate" => {
                let n = self.number_within("max-src-conn-rate", 1, u32::MAX.into())? as u32;
                self.sign("/")?;
                let seconds = self.number_within("max-src-conn-rate interval", 1, u32::MAX.into())? as u32;
                self.once(options.max_source_rate.replace((n, seconds)).is_some(), word)
            }
            "no-sync" => self.state_flag(word, &mut options.is_not_synchronised),
            "sloppy" => self.state_flag(word, &mut options.is_sloppy),
            "pflow" => self.state_flag(word, &mut options.is_pflow),
            "if-bound" => self.once(options.binding.replace(Binding::Bound).is_some(), "state locking"),
            "floating" => self.once(options.binding.replace(Binding::Floating).is_some(), "state locking"),
            "source-track" => {
                let is_rule = self.eat("rule");
                let track = if is_rule { SourceTrack::Rule } else { SourceTrack::Global };
                if !is_rule {
                    self.eat("global");
                }
                self.once(options.source_track.replace(track).is_some(), word)
            }
            "overload" => self.overload(options),
            _ => Err(self.syntax_error()),
        }
    }

    fn once(&mut self, was_there: bool, word: &str) -> Step<()> {
        if was_there { Err(self.stop(format!("state option '{word}' multiple definitions"))) } else { Ok(()) }
    }

    fn state_number(&mut self, word: &str, place: &mut Option<u32>) -> Step<()> {
        let n = self.number_within(word, 1, u32::MAX.into())? as u32;
        let was_there = place.replace(n).is_some();
        self.once(was_there, word)
    }

    fn state_flag(&mut self, word: &str, flag: &mut bool) -> Step<()> {
        let was_there = std::mem::replace(flag, true);
        self.once(was_there, word)
    }

    fn overload(&mut self, options: &mut StateOptions) -> Step<()> {
        let name = self.table_name()?;
        let flush = match self.eat("flush") {
            false => Flush::No,
            true if self.eat("global") => Flush::Global,
            true => Flush::Rule,
        };
        self.once(options.overload.replace((name, flush)).is_some(), "overload")
    }

    fn state_timeout(&mut self, options: &mut StateOptions) -> Step<()> {
        let name = self.text()?;
        let seconds = self.number_within(&name, 0, u32::MAX.into())? as u32;
        let Some((timeout, _)) = Timeout::NAMES.iter().find(|(_, known)| *known == name) else {
            return Err(self.stop(format!("illegal timeout name {name}")));
        };
        if !name.contains('.') {
            return Err(self.stop(format!("illegal state timeout {name}: it is for 'set timeout' only")));
        }
        let was_there = options.timeouts.iter().any(|(known, _)| known == timeout);
        options.timeouts.push((*timeout, seconds));
        self.once(was_there, &name)
    }

    /// Checks options against each other, and adds what follows from them.
    fn finish_state_options(&mut self, mut options: StateOptions) -> Step<StateOptions> {
        let for_rules = [
            (options.max_source_nodes.is_some(), "max-src-nodes"),
            (options.max_source_connections.is_some(), "max-src-conn"),
            (options.max_source_rate.is_some(), "max-src-conn-rate"),
        ];
        let needs_rule = for_rules.iter().find(|(is_said, _)| *is_said);
        if let (Some(SourceTrack::Global), Some((_, word))) = (options.source_track, needs_rule) {
            return Err(self.stop(format!("'{word}' is incompatible with 'source-track global'")));
        }
        if needs_rule.is_some() {
            options.source_track = Some(SourceTrack::Rule);
        } else if options.max_source_states.is_some() {
            options.source_track.get_or_insert(SourceTrack::Global);
        }
        add_implied_timeouts(&mut options);
        Ok(options)
    }
}

/// A limit of states scales timeouts; sources are remembered at least as long as their connections are counted.
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
