//! Statements that make rules: `pass`, `block`, `match`, `anchor`, `load anchor` and `antispoof`.
use super::Fault;
use super::ends::End;
use super::expand::Template;
use super::hosts::{Host, LONGEST_INTERFACE, Modifiers, is_interface, is_loopback, parts};
use super::lexer::Token;
use super::parser::{Parser, Step};
use super::rule_options::RuleOptions;
use crate::facts::{Direction, Family};
use crate::rule::{
    Action, AddressMatch, AnchorCall, AnchorLoad, Answer, HostAddress, InterfaceName, InterfacePart, Keep,
    Log, On, Rule, Ruleset,
};
use artery_wire::IpProtocol;
use std::collections::HashSet;

/// The longest path of an anchor.
const LONGEST_ANCHOR: usize = 1023;

/// The errors that are sent where none is named: the port can't be reached.
const PORT_UNREACHABLE: ((u8, u8), (u8, u8)) = ((3, 3), (1, 4));

/// How packets are logged, and whether evaluation ends.
type LogAndQuick = (Option<Log>, bool);

/// What stands between the action of a rule and its options.
struct Head {
    direction: Option<Direction>,
    log: Option<Log>,
    is_quick: bool,
    on: Vec<On>,
    family: Option<Family>,
    protocols: Vec<IpProtocol>,
    ends: (End, End),
}

impl Head {
    fn template(self, action: Action, options: RuleOptions) -> Template {
        let rule = Rule {
            direction: self.direction,
            log: self.log,
            is_quick: self.is_quick,
            family: self.family,
            ..blank(action)
        };
        Template {
            rule,
            on: self.on,
            protocols: self.protocols,
            source: self.ends.0,
            destination: self.ends.1,
            options,
        }
    }
}

/// A rule that says nothing but its action.
pub(crate) fn blank(action: Action) -> Rule {
    Rule {
        action,
        direction: None,
        log: None,
        is_quick: false,
        on: None,
        family: None,
        protocol: None,
        source: Default::default(),
        destination: Default::default(),
        received_on: None,
        user: None,
        group: None,
        flags: Default::default(),
        icmp: None,
        tos: None,
        priority: None,
        max_packet_rate: None,
        set: Default::default(),
        state: Default::default(),
        probability: None,
        is_fragment: false,
        scrub: Default::default(),
        allows_options: false,
        label: String::new(),
        is_once: false,
        tag: String::new(),
        tagged: None,
        routing_table: None,
        divert: None,
        nat: None,
        redirect: None,
        family_to: None,
        route: None,
        place: Default::default(),
    }
}

impl Parser<'_> {
    /// Reads `pass`, `match` or `block` with all behind it.
    pub(crate) fn filter_rule(&mut self) -> Step<()> {
        let action = match self.take() {
            Token::Key("pass") => Action::Pass,
            Token::Key("match") => Action::Match,
            _ => Action::Block(self.answer()?),
        };
        let head = self.head(Self::log_and_quick)?;
        let blocks_out = matches!(action, Action::Block(_)) && head.direction != Some(Direction::In);
        self.takes_unknown_accounts = blocks_out;
        let options = self.rule_options();
        self.takes_unknown_accounts = false;
        let options = options?;
        if self.peek() != &Token::Newline {
            return Err(self.syntax_error());
        }
        match options.is_of_nobody {
            true => self.tell_deferred(),
            false => self.expand(head.template(action, options)),
        }
    }

    /// Reads what the sender of a blocked packet hears.
    fn answer(&mut self) -> Step<Answer> {
        let (v4, v6) = PORT_UNREACHABLE;
        let Token::Key(word) = *self.peek() else { return Ok(self.default_answer()) };
        if !matches!(word, "drop" | "return" | "return-rst" | "return-icmp" | "return-icmp6") {
            return Ok(self.default_answer());
        }
        self.take();
        let has_more = word.starts_with("return-") && self.eat_sign("(");
        let answer = match word {
            "drop" => return Ok(Answer::Drop),
            "return" => return Ok(Answer::Return),
            "return-rst" if has_more => {
                self.key("ttl")?;
                Answer::Reset(Some(self.number_within("ttl", 0, 255)? as u8).filter(|ttl| *ttl != 0))
            }
            "return-rst" => Answer::Reset(None),
            "return-icmp6" if has_more => Answer::Icmp(v4, (v6.0, self.icmp_code(v6.0, Family::Inet6)?)),
            "return-icmp" if has_more => {
                let code = self.icmp_code(v4.0, Family::Inet)?;
                let has_comma = self.comma();
                let has_second = has_comma || self.peek() != &Token::Sign(")");
                let code6 = if has_second { self.icmp_code(v6.0, Family::Inet6)? } else { v6.1 };
                Answer::Icmp((v4.0, code), (v6.0, code6))
            }
            _ => Answer::Icmp(v4, v6),
        };
        if has_more {
            self.sign(")")?;
        }
        Ok(answer)
    }

    fn default_answer(&self) -> Answer {
        if self.defaults.block_returns { Answer::Return } else { Answer::Drop }
    }

    fn head(&mut self, log_and_quick: fn(&mut Self) -> Step<LogAndQuick>) -> Step<Head> {
        let direction = match self.eat("in") {
            true => Some(Direction::In),
            false => self.eat("out").then_some(Direction::Out),
        };
        let (log, is_quick) = log_and_quick(self)?;
        let on = if self.eat("on") { self.list(&mut Self::on_item)? } else { Vec::new() };
        let family = self.family();
        let protocols = if self.eat("proto") { self.list(&mut Self::protocol)? } else { Vec::new() };
        let ends = self.ends()?;
        Ok(Head { direction, log, is_quick, on, family, protocols, ends })
    }

    /// Reads `log` and `quick`, in either order.
    fn log_and_quick(&mut self) -> Step<LogAndQuick> {
        let is_quick = self.eat("quick");
        let log = if self.eat("log") { Some(self.log()?) } else { None };
        let is_quick = is_quick || self.eat("quick");
        Ok((log, is_quick))
    }

    fn log(&mut self) -> Step<Log> {
        let mut log = Log::default();
        if !self.eat_sign("(") {
            return Ok(log);
        }
        loop {
            match self.take() {
                Token::Key("all") => log.is_all = true,
                Token::Key("matches") => log.is_matches = true,
                Token::Key("user") => log.is_user = true,
                Token::Key("to") => log.interface = self.log_interface()?,
                _ => return Err(self.syntax_error()),
            }
            if !self.comma() && self.eat_sign(")") {
                return Ok(log);
            }
        }
    }

    fn log_interface(&mut self) -> Step<u16> {
        let name = self.texts()?;
        let number = name.strip_prefix("pflog").and_then(|digits| digits.parse::<u8>().ok());
        let wrong = || format!("{name}: should be a pflog interface\npflog0 to pflog255");
        number.map(u16::from).ok_or(()).map_err(|()| self.stop(wrong()))
    }

    pub(crate) fn on_item(&mut self, all: &mut Vec<On>) -> Step<()> {
        let is_negated = self.eat_sign("!");
        if self.eat("rdomain") {
            all.push(On::Domain(is_negated, self.number_within("rdomain", 0, 255)? as u32));
        } else if self.eat("any") {
            all.push(if is_negated { On::Interface(true, InterfaceName("any".into())) } else { On::Any });
        } else {
            all.push(On::Interface(is_negated, InterfaceName(self.interface_name()?)));
        }
        Ok(())
    }

    /// Reads the name of an interface or a group.
    pub(crate) fn interface_name(&mut self) -> Step<String> {
        let name = self.text()?;
        if name.len() > LONGEST_INTERFACE {
            return Err(self.stop(format!("interface name '{name}' too long\nit may have 15 characters")));
        }
        Ok(name)
    }

    /// Takes `inet` or `inet6`.
    pub(crate) fn family(&mut self) -> Option<Family> {
        if self.eat("inet") {
            return Some(Family::Inet);
        }
        self.eat("inet6").then_some(Family::Inet6)
    }

    fn protocol(&mut self, all: &mut Vec<IpProtocol>) -> Step<()> {
        let number = match *self.peek() {
            Token::Number(_) => self.number_within("protocol", 0, 255)? as u8,
            _ => {
                let name = self.text()?;
                let known = self.environment.names.protocol(&name).ok_or(());
                known.map_err(|()| self.stop(format!("unknown protocol {name}")))?
            }
        };
        if number == 0 {
            return Err(self.stop("proto 0 cannot be used"));
        }
        all.push(IpProtocol(number));
        Ok(())
    }

    /// Reads `anchor`, with the rules in its braces.
    pub(crate) fn anchor_rule(&mut self) -> Step<()> {
        self.take();
        let name = if let Token::Text(_) = *self.peek() { Some(self.anchor_name()?) } else { None };
        // What is logged is said by the rules of an anchor.
        let head = self.head(|parser| Ok((None, parser.eat("quick"))))?;
        let options = self.rule_options()?;
        let inline = self.anchor_body()?;
        if self.peek() != &Token::Newline {
            return Err(self.syntax_error());
        }
        self.check_anchor(name.as_deref(), inline.as_deref(), &options)?;
        self.expand(head.template(Action::Anchor(AnchorCall { name, inline }), options))
    }

    fn check_anchor(
        &mut self,
        name: Option<&str>,
        inline: Option<&Ruleset>,
        options: &RuleOptions,
    ) -> Step<()> {
        match (name, inline) {
            (None, None) => {
                return Err(self.stop("anchors without explicit rules must specify a name"));
            }
            (Some(name), Some(_)) if name.contains('/') => {
                return Err(self.stop("anchor paths containing '/' cannot be used for inline anchors."));
            }
            (Some(name), Some(inline)) if !inline.rules.is_empty() => {
                let names = self.inline_names.last_mut();
                if names.is_some_and(|names| !names.insert(name.to_string())) {
                    return Err(self.stop(format!("inline anchor '{name}' already exists")));
                }
            }
            (Some(name), None) if name.ends_with('/') => {
                return Err(self.stop(format!("anchorrule: bad anchor name {name}")));
            }
            _ => (),
        }
        let refused = [
            (options.keep.as_ref().is_some_and(|(keep, _)| *keep != Keep::No), "state handling"),
            (options.route.is_some(), "route handling"),
            (
                options.nat.is_some() || options.redirect.is_some() || options.family_to.is_some(),
                "translation",
            ),
            (options.divert.is_some(), "divert"),
        ];
        match refused.iter().find(|(is_said, _)| *is_said) {
            Some((_, what)) => {
                Err(self.stop(format!("cannot specify {what} on anchors\ngive it to the rules in it")))
            }
            None => Ok(()),
        }
    }

    /// Reads the name of an anchor.
    fn anchor_name(&mut self) -> Step<String> {
        let name = self.text()?;
        if name.is_empty() {
            return Err(self.stop("anchor name must not be empty"));
        }
        if name.starts_with('_') || name.contains("/_") {
            return Err(self.stop("anchor names beginning with '_' are reserved for internal use"));
        }
        if name.len() > LONGEST_ANCHOR || name.split('/').any(|part| part.len() > 63) {
            return Err(self.stop("anchor name is too long, each part of it may have 63 characters"));
        }
        Ok(name)
    }

    fn anchor_body(&mut self) -> Step<Option<Box<Ruleset>>> {
        if !self.eat_sign("{") {
            return Ok(None);
        }
        self.enter()?;
        if self.peek() != &Token::Newline {
            return Err(self.syntax_error());
        }
        self.anchors.push(Ruleset::default());
        self.inline_names.push(HashSet::new());
        self.anchor_lines();
        self.sign("}")?;
        self.leave();
        self.inline_names.pop();
        Ok(self.anchors.pop().map(Box::new))
    }

    /// Reads `load anchor NAME from FILE`.
    pub(crate) fn load_anchor(&mut self) -> Step<()> {
        let place = self.place();
        self.take();
        self.key("anchor")?;
        let name = self.anchor_name()?;
        self.key("from")?;
        let file = self.texts()?;
        self.ruleset.loads.push(AnchorLoad { name, file, place });
        Ok(())
    }

    /// Reads `antispoof`, which is a set of rules: who claims to be behind an interface comes by that.
    pub(crate) fn antispoof(&mut self) -> Step<()> {
        self.take();
        let (log, is_quick) = self.log_and_quick()?;
        self.key("for")?;
        let interfaces = self.list(&mut Self::guarded)?;
        let family = self.family();
        let mut options = RuleOptions::default();
        loop {
            if self.eat("label") {
                let label = self.text()?;
                if options.label.replace(label).is_some() {
                    return Err(self.stop("label cannot be redefined"));
                }
            } else if self.eat("rtable") {
                options.routing_table = Some(self.number_within("rtable", 0, 255)? as u32);
            } else {
                break;
            }
        }
        if self.peek() != &Token::Newline {
            return Err(self.syntax_error());
        }
        for (name, is_dynamic) in interfaces {
            let rules = self.rule_count;
            let head = |on: Vec<On>, hosts| Head {
                direction: Some(Direction::In),
                log: log.clone(),
                is_quick,
                on,
                family,
                protocols: Vec::new(),
                ends: (End { hosts, ..End::default() }, End::default()),
            };
            let networks = self.guarded_hosts(&name, is_dynamic, InterfacePart::Network);
            if !networks.is_empty() {
                let on = vec![On::Interface(true, InterfaceName(name.clone()))];
                self.expand(head(on, networks).template(Action::Block(Answer::Drop), options.clone()))?;
            }
            let own = match is_loopback(&name, self.environment) {
                true => Vec::new(),
                false => self.guarded_hosts(&name, is_dynamic, InterfacePart::Address),
            };
            if !own.is_empty() {
                self.expand(head(Vec::new(), own).template(Action::Block(Answer::Drop), options.clone()))?;
            }
            if self.rule_count == rules {
                self.note_useless_antispoof(&name);
            }
        }
        Ok(())
    }

    fn note_useless_antispoof(&mut self, name: &str) {
        let why = match is_interface(name, self.environment) {
            true => "has no address",
            false => "is no interface here, and no group of some",
        };
        let message = format!("antispoof for {name}: {name} {why}, so that this makes no rule");
        let place = self.place();
        self.ineffective.push(Fault { place, message });
    }

    /// An interface, in parentheses if its addresses may change.
    fn guarded(&mut self, all: &mut Vec<(String, bool)>) -> Step<()> {
        let is_dynamic = self.eat_sign("(");
        all.push((self.interface_name()?, is_dynamic));
        if is_dynamic {
            self.sign(")")?;
        }
        Ok(())
    }

    fn guarded_hosts(&self, name: &str, is_dynamic: bool, part: InterfacePart) -> Vec<Host> {
        if is_dynamic {
            let interface = InterfaceName(name.to_string());
            let address = HostAddress::Dynamic { interface, part, without_aliases: false, length: None };
            return vec![Host::new(AddressMatch::Host(address))];
        }
        if !is_interface(name, self.environment) {
            return Vec::new();
        }
        let records = self.environment.interfaces.0.iter();
        let is_meant = |record: &&crate::names::InterfaceRecord| {
            record.name == name || record.groups.iter().any(|group| group == name)
        };
        let modifiers = Modifiers { part, without_aliases: false };
        records.filter(is_meant).flat_map(|record| parts(record, modifiers)).collect()
    }
}
