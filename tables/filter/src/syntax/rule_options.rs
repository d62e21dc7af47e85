//! The options of a rule, which may stand in any order, each once.
use super::endpoints::UnaryOperator;
use super::hosts::Host;
use super::lexer::Token;
use super::numbers::{icmp_code, icmp_type, parse_flag_letters, type_of_service};
use super::parser::{Parser, Step};
use super::pools::PoolText;
use crate::facts::Family;
use crate::rule::{Comparison, InterfaceName, RouteKind, Scrub, Set, StateKeeping, StateOptions};

/// A type of ICMP, and a code if one is given.
pub(crate) type IcmpType = (u8, Option<u8>);

/// What the options of a rule say.
#[derive(Clone, Debug, Default)]
pub(crate) struct RuleOptions {
    pub(crate) users: Vec<Comparison<u32>>,
    pub(crate) groups: Vec<Comparison<u32>>,
    /// Whether all its users, or all its groups, are unknown: no packet is theirs.
    pub(crate) is_of_nobody: bool,
    /// Flags that must be set, of those that are looked at; none of either is `flags any`.
    pub(crate) flags: Option<(u8, u8)>,
    /// Types and codes, all of one family.
    pub(crate) icmp: Option<(Family, Vec<IcmpType>)>,
    pub(crate) tos: Option<u8>,
    pub(crate) priority: Option<u8>,
    pub(crate) max_packet_rate: Option<(u32, u32)>,
    pub(crate) set: Set,
    pub(crate) keep: Option<(StateKeeping, Option<StateOptions>)>,
    pub(crate) is_fragment: bool,
    pub(crate) scrub: Scrub,
    pub(crate) allows_options: bool,
    pub(crate) label: Option<String>,
    pub(crate) is_once: bool,
    pub(crate) tag: Option<String>,
    pub(crate) tagged: Option<(bool, String)>,
    pub(crate) routing_table: Option<u32>,
    pub(crate) probability: Option<u32>,
    pub(crate) divert: Option<Divert>,
    pub(crate) nat: Option<PoolText>,
    /// Whether `nat` was written as `binat-to`.
    pub(crate) is_binat: bool,
    pub(crate) redirect: Option<PoolText>,
    pub(crate) family_to: Option<FamilyTo>,
    pub(crate) route: Option<(RouteKind, PoolText)>,
    pub(crate) received_on: Option<(bool, InterfaceName)>,
}

/// Where packets go instead of where they were going.
#[derive(Clone, Debug)]
pub(crate) enum Divert {
    To(Vec<Host>, u16),
    Reply,
    Packet(u16),
}

#[derive(Clone, Debug)]
pub(crate) struct FamilyTo {
    pub(crate) family: Family,
    pub(crate) from: PoolText,
    pub(crate) to: Option<PoolText>,
}

impl Parser<'_> {
    /// Reads options up to what is none.
    pub(crate) fn rule_options(&mut self) -> Step<RuleOptions> {
        let mut options = RuleOptions::default();
        while self.rule_option(&mut options)? {}
        Ok(options)
    }

    /// Reads one option; false where there is none.
    fn rule_option(&mut self, options: &mut RuleOptions) -> Step<bool> {
        let word = match *self.peek() {
            Token::Key(word) => word,
            Token::Sign("!") => return self.negated_option(options).map(|()| true),
            Token::Sign("(") => return self.late_state_options(options),
            _ => return Ok(false),
        };
        if !self.matching_option(word, options)? && !self.acting_option(word, options)? {
            return self.routing_option(word, options);
        }
        Ok(true)
    }

    /// Options that are conditions on packets.
    fn matching_option(&mut self, word: &'static str, options: &mut RuleOptions) -> Step<bool> {
        match word {
            "user" | "group" => {
                self.next_token();
                let tests = self.parse_list(&mut |parser, all| parser.account_test(word == "user", all))?;
                options.is_of_nobody |= tests.is_empty();
                // Those of a further option stand before the others.
                let all = if word == "user" { &mut options.users } else { &mut options.groups };
                all.splice(..0, tests);
            }
            "flags" => {
                self.next_token();
                let flags = self.parse_flags()?;
                self.once_only(options.flags.replace(flags).is_some(), word)?;
            }
            "icmp-type" | "icmp6-type" => {
                self.next_token();
                let family = if word == "icmp-type" { Family::Inet } else { Family::Inet6 };
                let types = self.parse_list(&mut |parser, all| parser.parse_icmp(family, all))?;
                self.once_only(options.icmp.replace((family, types)).is_some(), "icmp-type")?;
            }
            "tos" => {
                self.next_token();
                let tos = self.type_of_service()?;
                self.once_only(options.tos.replace(tos).is_some(), word)?;
            }
            "prio" => {
                self.next_token();
                let priority = self.number_within("prio", 0, 7)? as u8;
                self.once_only(options.priority.replace(priority).is_some(), word)?;
            }
            "tagged" => {
                self.next_token();
                options.tagged = Some((false, self.expect_texts()?));
            }
            "received-on" => self.received_on(false, options)?,
            "fragment" => self.flag_option(&mut options.is_fragment),
            "probability" => {
                self.next_token();
                options.probability = Some(self.parse_probability()?);
            }
            "max-pkt-rate" => {
                self.next_token();
                let n = self.number_within("max-pkt-rate", 0, u32::MAX.into())? as u32;
                self.expect_sign("/")?;
                let seconds = self.number_within("max-pkt-rate interval", 0, u32::MAX.into())? as u32;
                let rate = Some((n, seconds)).filter(|_| n != 0);
                let before = std::mem::replace(&mut options.max_packet_rate, rate);
                self.said_once(before.is_some(), word)?;
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// Options that say what is done beside passing and blocking.
    fn acting_option(&mut self, word: &'static str, options: &mut RuleOptions) -> Step<bool> {
        match word {
            "no" | "keep" | "modulate" | "synproxy" => {
                let keep = self.parse_keep(word)?;
                self.once_only(options.keep.replace(keep).is_some(), "modulate or keep")?;
            }
            "allow-opts" => self.flag_option(&mut options.allows_options),
            "once" => self.flag_option(&mut options.is_once),
            "label" => {
                self.next_token();
                let label = self.expect_text()?;
                self.once_only(options.label.replace(label).is_some(), word)?;
            }
            "tag" => {
                self.next_token();
                options.tag = Some(self.expect_texts()?);
            }
            "rtable" => {
                self.next_token();
                options.routing_table = Some(self.number_within("rtable", 0, 255)? as u32);
            }
            "scrub" => {
                self.next_token();
                let reassembled_tcp = options.scrub.reassembles_tcp;
                options.scrub = self.parse_scrub()?;
                options.scrub.reassembles_tcp |= reassembled_tcp;
            }
            "set" => {
                self.next_token();
                self.set_options(&mut options.set)?;
            }
            "queue" => self.set_one(&mut options.set)?,
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// Options that change where packets come from or go to.
    fn routing_option(&mut self, word: &'static str, options: &mut RuleOptions) -> Step<bool> {
        match word {
            "divert-to" | "divert-reply" | "divert-packet" => {
                self.next_token();
                let divert = self.parse_divert(word)?;
                if matches!(divert, Divert::Packet(_)) && !self.defaults.leaves_fragments {
                    (options.scrub.is_given, options.scrub.reassembles_tcp) = (true, true);
                }
                if options.divert.replace(divert).is_some() {
                    return Err(self.fail_statement("more than one divert option"));
                }
            }
            "nat-to" | "binat-to" => {
                self.next_token();
                let mut pool = self.parse_pool(true)?;
                options.is_binat = word == "binat-to";
                pool.has_static_port |= options.is_binat;
                let was_there = options.nat.replace(pool).is_some() || options.family_to.is_some();
                self.said_once(was_there, "nat-to/binat-to")?;
            }
            "rdr-to" => {
                self.next_token();
                let pool = self.parse_pool(true)?;
                let was_there = options.redirect.replace(pool).is_some() || options.family_to.is_some();
                self.said_once(was_there, word)?;
            }
            "af-to" => {
                self.next_token();
                let to = self.family_to()?;
                let was_there = options.family_to.replace(to).is_some() || options.nat.is_some();
                self.said_once(was_there, word)?;
                options.redirect = None;
            }
            "route-to" | "reply-to" | "dup-to" => {
                self.next_token();
                let kind = match word {
                    "route-to" => RouteKind::RouteTo,
                    "reply-to" => RouteKind::ReplyTo,
                    _ => RouteKind::DupTo,
                };
                let pool = self.parse_pool(false)?;
                self.said_once(options.route.replace((kind, pool)).is_some(), "route-to/reply-to/dup-to")?;
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    fn once_only(&mut self, was_there: bool, word: &str) -> Step<()> {
        if was_there { Err(self.fail_statement(format!("{word} cannot be redefined"))) } else { Ok(()) }
    }

    fn said_once(&mut self, was_there: bool, word: &str) -> Step<()> {
        if was_there { Err(self.fail_statement(format!("cannot respecify {word}"))) } else { Ok(()) }
    }

    fn flag_option(&mut self, flag: &mut bool) {
        self.next_token();
        *flag = true;
    }

    /// `! tagged`, `! received-on`.
    fn negated_option(&mut self, options: &mut RuleOptions) -> Step<()> {
        self.expect_sign("!")?;
        if self.eat_key("tagged") {
            options.tagged = Some((true, self.expect_texts()?));
            return Ok(());
        }
        if self.peek() == &Token::Key("received-on") {
            return self.received_on(true, options);
        }
        Err(self.syntax_error())
    }

    fn received_on(&mut self, is_negated: bool, options: &mut RuleOptions) -> Step<()> {
        self.expect_key("received-on")?;
        let name = if self.eat_key("any") { "any".to_string() } else { self.interface_name()? };
        let was_there = options.received_on.replace((is_negated, InterfaceName(name))).is_some();
        self.said_once(was_there, "received-on")
    }

    /// Parses a test of a user or group. A test of an unknown account is left out where the rule may do so.
    fn account_test(&mut self, is_user: bool, tests: &mut Vec<Comparison<u32>>) -> Step<()> {
        let operator = self.parse_operator();
        let what = if is_user { "user" } else { "group" };
        let first = match self.parse_account(is_user)? {
            Ok(number) => number,
            Err(name) => {
                let is_plain =
                    matches!(operator, None | Some(UnaryOperator::Equal)) && self.binary_operator().is_none();
                if !(is_plain && self.takes_unknown_accounts) {
                    return Err(self.fail_statement(format!("unknown {what} {name}")));
                }
                self.report_warning(format!(
                    "unknown {what} {name}\nno packet is from it, so that nothing is blocked for it"
                ));
                return Ok(());
            }
        };
        let test = match (operator, self.binary_operator()) {
            (None, None) => Comparison::Equal(first),
            (None, Some(binary)) => match self.parse_account(is_user)? {
                Ok(second) => binary.to_comparison(first, second),
                Err(name) => return Err(self.fail_statement(format!("unknown {what} {name}"))),
            },
            (Some(unary), None) => unary.to_comparison(first),
            (Some(_), Some(_)) => return Err(self.syntax_error()),
        };
        let is_simple = matches!(test, Comparison::Equal(_) | Comparison::Unequal(_));
        if first == u32::MAX && !is_simple {
            return Err(self.fail_statement(format!("{what} unknown requires operator = or !=")));
        }
        tests.push(test);
        Ok(())
    }

    /// Parses a user or group; returns its number, or its name if the account is unknown.
    fn parse_account(&mut self, is_user: bool) -> Step<Result<u32, String>> {
        if let Token::Number(_) = *self.peek() {
            let what = if is_user { "uid" } else { "gid" };
            return Ok(Ok(self.number_within(what, 0, i64::from(u32::MAX) - 1)? as u32));
        }
        let name = self.expect_text()?;
        if name == "unknown" {
            return Ok(Ok(u32::MAX));
        }
        let names = &self.environment.names;
        let known = if is_user { &names.users } else { &names.groups };
        let found = known.iter().find(|(known, _)| *known == name).map(|(_, number)| *number);
        Ok(found.ok_or(name))
    }

    fn parse_flags(&mut self) -> Step<(u8, u8)> {
        if self.eat_key("any") {
            return Ok((0, 0));
        }
        let set = if let Token::Text(_) = *self.peek() { self.flag_set()? } else { 0 };
        self.expect_sign("/")?;
        Ok((set, self.flag_set()?))
    }

    fn flag_set(&mut self) -> Step<u8> {
        let letters = self.expect_text()?;
        let known = parse_flag_letters(&letters).ok_or(());
        known.map_err(|()| self.fail_statement(format!("bad flags {letters}\nthey are letters of FSRPAUEW")))
    }

    fn parse_icmp(&mut self, family: Family, all: &mut Vec<IcmpType>) -> Step<()> {
        let of = match *self.peek() {
            Token::Number(_) => self.number_within("icmp-type", 0, 255)? as u8,
            _ => {
                // A type is called as a word is that is reserved.
                let name = if self.eat_key("skip") { "skip".to_string() } else { self.expect_text()? };
                let known = icmp_type(&name, family).ok_or(());
                known.map_err(|()| self.fail_statement(format!("unknown icmp-type {name}")))?
            }
        };
        let code = if self.eat_key("code") { Some(self.icmp_code(of, family)?) } else { None };
        all.push((of, code));
        Ok(())
    }

    /// A code of ICMP, by number or name.
    pub(crate) fn icmp_code(&mut self, of: u8, family: Family) -> Step<u8> {
        if let Token::Number(_) = *self.peek() {
            return Ok(self.number_within("icmp-code", 0, 255)? as u8);
        }
        let name = self.expect_text()?;
        icmp_code(of, &name, family)
            .ok_or(())
            .map_err(|()| self.fail_statement(format!("unknown icmp code {name}")))
    }

    fn type_of_service(&mut self) -> Step<u8> {
        if let Token::Number(_) = *self.peek() {
            return Ok(self.number_within("tos", 0, 255)? as u8);
        }
        let word = self.expect_text()?;
        let hexadecimal = || u8::from_str_radix(word.strip_prefix("0x")?, 16).ok();
        let known = type_of_service(&word).or_else(hexadecimal).ok_or(());
        known.map_err(|()| self.fail_statement(format!("illegal tos value {word}")))
    }

    /// A share of packets, of 2³² so many.
    fn parse_probability(&mut self) -> Step<u32> {
        let word = self.number_or_text()?;
        let (digits, scale) = word.strip_suffix('%').map_or((word.as_str(), 1.0), |digits| (digits, 0.01));
        let share =
            digits.parse::<f64>().ok().map(|share| share * scale).filter(|share| (0.0..=1.0).contains(share));
        let Some(share) = share else {
            return Err(self.fail_statement(format!("invalid probability: {word}\nit is from 0% to 100%")));
        };
        Ok(((share * f64::from(u32::MAX) + 0.5).floor() as u32).max(1))
    }

    fn parse_keep(&mut self, word: &'static str) -> Step<(StateKeeping, Option<StateOptions>)> {
        self.next_token();
        self.expect_key("state")?;
        let keep = match word {
            "no" => return Ok((StateKeeping::No, None)),
            "keep" => StateKeeping::Keep,
            "modulate" => StateKeeping::Modulate,
            _ => StateKeeping::Synproxy,
        };
        if !self.eat_sign("(") {
            return Ok((keep, None));
        }
        let options = self.state_options()?;
        self.expect_sign(")")?;
        Ok((keep, Some(options)))
    }

    /// Options of states that a probability stands before, which is how they are printed.
    fn late_state_options(&mut self, options: &mut RuleOptions) -> Step<bool> {
        let may_have_some = matches!(
            options.keep,
            Some((StateKeeping::Keep | StateKeeping::Modulate | StateKeeping::Synproxy, None))
        );
        if !may_have_some || options.probability.is_none() {
            return Ok(false);
        }
        self.expect_sign("(")?;
        let late = self.state_options()?;
        self.expect_sign(")")?;
        if let Some((_, states)) = &mut options.keep {
            *states = Some(late);
        }
        Ok(true)
    }

    fn parse_scrub(&mut self) -> Step<Scrub> {
        let mut scrub = Scrub { is_given: true, ..Scrub::default() };
        self.expect_sign("(")?;
        loop {
            let Token::Key(word) = *self.peek() else { return Err(self.syntax_error()) };
            self.next_token();
            let was_there = match word {
                "no-df" => std::mem::replace(&mut scrub.clears_df, true),
                "random-id" => std::mem::replace(&mut scrub.randomises_id, true),
                "min-ttl" => scrub.min_ttl.replace(self.number_within("min-ttl", 0, 255)? as u8).is_some(),
                "max-mss" => scrub.max_mss.replace(self.number_within("max-mss", 0, 65535)? as u16).is_some(),
                "set-tos" => scrub.tos.replace(self.type_of_service()?).is_some(),
                "reassemble" => {
                    let what = self.expect_text()?;
                    if !what.eq_ignore_ascii_case("tcp") {
                        return Err(
                            self.fail_statement(format!("scrub reassemble supports only tcp, not '{what}'"))
                        );
                    }
                    std::mem::replace(&mut scrub.reassembles_tcp, true)
                }
                _ => return Err(self.syntax_error()),
            };
            if was_there {
                return Err(self.fail_statement(format!("{word} cannot be respecified")));
            }
            if !self.eat_comma() && self.eat_sign(")") {
                break;
            }
        }
        // Zero is the same as no option.
        scrub.min_ttl = scrub.min_ttl.filter(|ttl| *ttl != 0);
        scrub.max_mss = scrub.max_mss.filter(|mss| *mss != 0);
        Ok(scrub)
    }

    fn set_options(&mut self, set: &mut Set) -> Step<()> {
        if !self.eat_sign("(") {
            return self.set_one(set);
        }
        loop {
            self.set_one(set)?;
            if !self.eat_comma() && self.eat_sign(")") {
                return Ok(());
            }
        }
    }

    fn set_one(&mut self, set: &mut Set) -> Step<()> {
        let Token::Key(word) = *self.peek() else { return Err(self.syntax_error()) };
        self.next_token();
        let was_there = match word {
            "prio" => {
                let both =
                    self.parse_pair(&mut |parser| Ok(parser.number_within("set prio", 0, 7)? as u8))?;
                set.priority.replace((both.0, both.1.unwrap_or(both.0))).is_some()
            }
            "queue" => {
                let (all, urgent) = self.parse_pair(&mut Self::leaf_queue)?;
                set.queue.replace((all, urgent.unwrap_or_default())).is_some()
            }
            "tos" => set.tos.replace(self.type_of_service()?).is_some(),
            "delay" => set.delay.replace(self.number_within("delay", 0, 65535)? as u16).is_some(),
            _ => return Err(self.syntax_error()),
        };
        self.once_only(was_there, word)
    }

    /// One, or in parentheses one or two.
    fn parse_pair<T>(&mut self, item: &mut dyn FnMut(&mut Self) -> Step<T>) -> Step<(T, Option<T>)> {
        if !self.eat_sign("(") {
            return Ok((item(self)?, None));
        }
        let first = item(self)?;
        let has_comma = self.eat_comma();
        let second = if has_comma || self.peek() != &Token::Sign(")") { Some(item(self)?) } else { None };
        self.expect_sign(")")?;
        Ok((first, second))
    }

    fn parse_divert(&mut self, word: &str) -> Step<Divert> {
        if word == "divert-reply" {
            return Ok(Divert::Reply);
        }
        let host = if word == "divert-to" { Some(self.expect_text()?) } else { None };
        self.expect_key("port")?;
        let word = self.number_or_text()?;
        if word.contains(':') {
            return Err(self.fail_statement(format!("port is invalid: {word}\ndivert takes a single one")));
        }
        let port = self.parse_port(&word)?;
        let divert = match host {
            None => Divert::Packet(port),
            Some(host) => Divert::To(self.resolve_host(&host, None)?, port),
        };
        if port == 0 {
            return Err(self.fail_statement("invalid divert port: 0"));
        }
        Ok(divert)
    }

    fn family_to(&mut self) -> Step<FamilyTo> {
        let family = self.parse_family();
        self.expect_key("from")?;
        let mut from = self.parse_pool(true)?;
        let mut to = if self.eat_key("to") { Some(self.parse_pool(true)?) } else { None };
        let Some(family) = family else {
            return Err(self.fail_statement(
                "no target address family specified\nwrite 'inet' or 'inet6' before 'from'",
            ));
        };
        if let Some(to) = &mut to {
            let is_other = |pool: &PoolText| {
                pool.hosts.first().and_then(|host| host.family).is_some_and(|of| of != family)
            };
            if is_other(&from) || is_other(to) {
                return Err(self.fail_statement("af-to addresses must be in the target address family"));
            }
            // What is said behind the second pool holds for the first one.
            (from.choice, from.is_sticky, from.has_static_port) =
                (to.choice.take(), to.is_sticky, to.has_static_port);
            (to.is_sticky, to.has_static_port) = (false, false);
        }
        Ok(FamilyTo { family, from, to })
    }
}
