//! Statements that make rules: `pass`, `block`, `match`, `anchor`, `load anchor` and `antispoof`.
use super::SyntaxError;
use super::endpoints::EndpointLists;
use super::expand::Template;
use super::hosts::{
    Host, LONGEST_INTERFACE, Modifiers, check_dynamic_name, interface_hosts, is_interface, is_loopback,
};
use super::lexer::Token;
use super::parser::{Parser, Step};
use super::rule_options::RuleOptions;
use crate::facts::{Direction, Family};
use crate::rule::{
    Action, AddressMatch, AnchorCall, AnchorLoad, BlockReturn, HostAddress, InterfaceName, InterfacePart,
    Log, On, Rule, Ruleset, StateKeeping,
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
    ends: (EndpointLists, EndpointLists),
}

impl Head {
    fn into_template(self, action: Action, options: RuleOptions) -> Template {
        let rule = Rule {
            direction: self.direction,
            log: self.log,
            is_quick: self.is_quick,
            family: self.family,
            action,
            ..Rule::default()
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

impl Parser<'_> {
    /// Reads `pass`, `match` or `block` with all behind it.
    pub(crate) fn filter_rule(&mut self) -> Step<()> {
        let action = match self.next_token() {
            Token::Key("pass") => Action::Pass,
            Token::Key("match") => Action::Match,
            _ => Action::Block(self.parse_block_return()?),
        };
        let head = self.parse_head(Self::log_and_quick)?;
        let blocks_out = matches!(action, Action::Block(_)) && head.direction != Some(Direction::In);
        self.takes_unknown_accounts = blocks_out;
        let options = self.rule_options();
        self.takes_unknown_accounts = false;
        let options = options?;
        if self.peek() != &Token::Newline {
            return Err(self.syntax_error());
        }
        match options.is_of_nobody {
            true => self.report_deferred(),
            false => self.expand_template(head.into_template(action, options)),
        }
    }

    /// Parses the reply to the sender of a blocked packet.
    fn parse_block_return(&mut self) -> Step<BlockReturn> {
        let (v4, v6) = PORT_UNREACHABLE;
        let Token::Key(word) = *self.peek() else { return Ok(self.default_answer()) };
        if !matches!(word, "drop" | "return" | "return-rst" | "return-icmp" | "return-icmp6") {
            return Ok(self.default_answer());
        }
        self.next_token();
        let has_more = word.starts_with("return-") && self.eat_sign("(");
        let answer = match word {
            "drop" => return Ok(BlockReturn::Drop),
            "return" => return Ok(BlockReturn::Return),
            "return-rst" if has_more => {
                self.expect_key("ttl")?;
                BlockReturn::Reset(Some(self.number_within("ttl", 0, 255)? as u8).filter(|ttl| *ttl != 0))
            }
            "return-rst" => BlockReturn::Reset(None),
            "return-icmp6" if has_more => BlockReturn::Icmp(v4, (v6.0, self.icmp_code(v6.0, Family::Inet6)?)),
            "return-icmp" if has_more => {
                let code = self.icmp_code(v4.0, Family::Inet)?;
                let has_comma = self.eat_comma();
                let has_second = has_comma || self.peek() != &Token::Sign(")");
                let code6 = if has_second { self.icmp_code(v6.0, Family::Inet6)? } else { v6.1 };
                BlockReturn::Icmp((v4.0, code), (v6.0, code6))
            }
            _ => BlockReturn::Icmp(v4, v6),
        };
        if has_more {
            self.expect_sign(")")?;
        }
        Ok(answer)
    }

    fn default_answer(&self) -> BlockReturn {
        if self.defaults.block_returns { BlockReturn::Return } else { BlockReturn::Drop }
    }

    fn parse_head(&mut self, log_and_quick: fn(&mut Self) -> Step<LogAndQuick>) -> Step<Head> {
        let direction = match self.eat_key("in") {
            true => Some(Direction::In),
            false => self.eat_key("out").then_some(Direction::Out),
        };
        let (log, is_quick) = log_and_quick(self)?;
        let on = if self.eat_key("on") { self.parse_list(&mut Self::on_item)? } else { Vec::new() };
        let family = self.parse_family();
        let protocols =
            if self.eat_key("proto") { self.parse_list(&mut Self::parse_protocol)? } else { Vec::new() };
        let ends = self.parse_ends()?;
        Ok(Head { direction, log, is_quick, on, family, protocols, ends })
    }

    /// Reads `log` and `quick`, in either order.
    fn log_and_quick(&mut self) -> Step<LogAndQuick> {
        let is_quick = self.eat_key("quick");
        let log = if self.eat_key("log") { Some(self.parse_log()?) } else { None };
        let is_quick = is_quick || self.eat_key("quick");
        Ok((log, is_quick))
    }

    fn parse_log(&mut self) -> Step<Log> {
        let mut log = Log::default();
        if !self.eat_sign("(") {
            return Ok(log);
        }
        loop {
            match self.next_token() {
                Token::Key("all") => log.is_all = true,
                Token::Key("matches") => log.is_matches = true,
                Token::Key("user") => log.is_user = true,
                Token::Key("to") => log.interface = self.log_interface()?,
                _ => return Err(self.syntax_error()),
            }
            if !self.eat_comma() && self.eat_sign(")") {
                return Ok(log);
            }
        }
    }

    fn log_interface(&mut self) -> Step<u16> {
        let name = self.expect_texts()?;
        let number = name.strip_prefix("pflog").and_then(|digits| digits.parse::<u8>().ok());
        let wrong = || format!("{name}: should be a pflog interface\npflog0 to pflog255");
        number.map(u16::from).ok_or(()).map_err(|()| self.fail_statement(wrong()))
    }

    pub(crate) fn on_item(&mut self, all: &mut Vec<On>) -> Step<()> {
        let is_negated = self.eat_sign("!");
        if self.eat_key("rdomain") {
            all.push(On::Domain(is_negated, self.number_within("rdomain", 0, 255)? as u32));
        } else if self.eat_key("any") {
            all.push(if is_negated { On::Interface(true, InterfaceName("any".into())) } else { On::Any });
        } else {
            all.push(On::Interface(is_negated, InterfaceName(self.interface_name()?)));
        }
        Ok(())
    }

    /// Reads the name of an interface or a group.
    pub(crate) fn interface_name(&mut self) -> Step<String> {
        let name = self.expect_text()?;
        if name.len() > LONGEST_INTERFACE {
            return Err(
                self.fail_statement(format!("interface name '{name}' too long\nit may have 15 characters"))
            );
        }
        Ok(name)
    }

    /// Takes `inet` or `inet6`.
    pub(crate) fn parse_family(&mut self) -> Option<Family> {
        if self.eat_key("inet") {
            return Some(Family::Inet);
        }
        self.eat_key("inet6").then_some(Family::Inet6)
    }

    fn parse_protocol(&mut self, all: &mut Vec<IpProtocol>) -> Step<()> {
        let number = match *self.peek() {
            Token::Number(_) => self.number_within("protocol", 0, 255)? as u8,
            _ => {
                let name = self.expect_text()?;
                let known = self.environment.names.protocol_number(&name).ok_or(());
                known.map_err(|()| self.fail_statement(format!("unknown protocol {name}")))?
            }
        };
        if number == 0 {
            return Err(self.fail_statement("proto 0 cannot be used"));
        }
        all.push(IpProtocol(number));
        Ok(())
    }

    /// Reads `anchor`, with the rules in its braces.
    pub(crate) fn anchor_rule(&mut self) -> Step<()> {
        self.next_token();
        let name = if let Token::Text(_) = *self.peek() { Some(self.anchor_name()?) } else { None };
        // What is logged is said by the rules of an anchor.
        let head = self.parse_head(|parser| Ok((None, parser.eat_key("quick"))))?;
        let options = self.rule_options()?;
        let inline = self.anchor_body()?;
        if self.peek() != &Token::Newline {
            return Err(self.syntax_error());
        }
        self.check_anchor(name.as_deref(), inline.as_deref(), &options)?;
        self.expand_template(head.into_template(Action::Anchor(AnchorCall { name, inline }), options))
    }

    fn check_anchor(
        &mut self,
        name: Option<&str>,
        inline: Option<&Ruleset>,
        options: &RuleOptions,
    ) -> Step<()> {
        match (name, inline) {
            (None, None) => {
                return Err(self.fail_statement("anchors without explicit rules must specify a name"));
            }
            (Some(name), Some(_)) if name.contains('/') => {
                return Err(
                    self.fail_statement("anchor paths containing '/' cannot be used for inline anchors.")
                );
            }
            (Some(name), Some(inline)) if !inline.rules.is_empty() => {
                let names = self.inline_names.last_mut();
                if names.is_some_and(|names| !names.insert(name.to_string())) {
                    return Err(self.fail_statement(format!("inline anchor '{name}' already exists")));
                }
            }
            (Some(name), None) if name.ends_with('/') => {
                return Err(self.fail_statement(format!("anchorrule: bad anchor name {name}")));
            }
            _ => (),
        }
        let refused = [
            (options.keep.as_ref().is_some_and(|(keep, _)| *keep != StateKeeping::No), "state handling"),
            (options.route.is_some(), "route handling"),
            (
                options.nat.is_some() || options.redirect.is_some() || options.family_to.is_some(),
                "translation",
            ),
            (options.divert.is_some(), "divert"),
        ];
        match refused.iter().find(|(is_said, _)| *is_said) {
            Some((_, what)) => {
                Err(self
                    .fail_statement(format!("cannot specify {what} on anchors\ngive it to the rules in it")))
            }
            None => Ok(()),
        }
    }

    /// Reads the name of an anchor.
    fn anchor_name(&mut self) -> Step<String> {
        let name = self.expect_text()?;
        if name.is_empty() {
            return Err(self.fail_statement("anchor name must not be empty"));
        }
        if name.starts_with('_') || name.contains("/_") {
            return Err(self.fail_statement("anchor names beginning with '_' are reserved for internal use"));
        }
        if name.len() > LONGEST_ANCHOR || name.split('/').any(|part| part.len() > 63) {
            return Err(
                self.fail_statement("anchor name is too long, each part of it may have 63 characters")
            );
        }
        Ok(name)
    }

    fn anchor_body(&mut self) -> Step<Option<Box<Ruleset>>> {
        if !self.eat_sign("{") {
            return Ok(None);
        }
        self.enter_braces()?;
        if self.peek() != &Token::Newline {
            return Err(self.syntax_error());
        }
        self.anchors.push(Ruleset::default());
        self.inline_names.push(HashSet::new());
        self.anchor_lines();
        self.expect_sign("}")?;
        self.leave_braces();
        self.inline_names.pop();
        Ok(self.anchors.pop().map(Box::new))
    }

    /// Reads `load anchor NAME from FILE`.
    pub(crate) fn load_anchor(&mut self) -> Step<()> {
        let place = self.token_location();
        self.next_token();
        self.expect_key("anchor")?;
        let name = self.anchor_name()?;
        self.expect_key("from")?;
        let file = self.expect_texts()?;
        self.ruleset.loads.push(AnchorLoad { name, file, place });
        Ok(())
    }

    /// Reads `antispoof`, which is a set of rules: who claims to be behind an interface comes by that.
    pub(crate) fn parse_antispoof(&mut self) -> Step<()> {
        self.next_token();
        let (log, is_quick) = self.log_and_quick()?;
        self.expect_key("for")?;
        let interfaces = self.parse_list(&mut Self::parse_guarded)?;
        let family = self.parse_family();
        let mut options = RuleOptions::default();
        loop {
            if self.eat_key("label") {
                let label = self.expect_text()?;
                if options.label.replace(label).is_some() {
                    return Err(self.fail_statement("label cannot be redefined"));
                }
            } else if self.eat_key("rtable") {
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
                ends: (EndpointLists { hosts, ..EndpointLists::default() }, EndpointLists::default()),
            };
            let networks = self.guarded_hosts(&name, is_dynamic, InterfacePart::Network);
            if !networks.is_empty() {
                let on = vec![On::Interface(true, InterfaceName(name.clone()))];
                self.expand_template(
                    head(on, networks).into_template(Action::Block(BlockReturn::Drop), options.clone()),
                )?;
            }
            let own = match is_loopback(&name, self.environment) {
                true => Vec::new(),
                false => self.guarded_hosts(&name, is_dynamic, InterfacePart::Address),
            };
            if !own.is_empty() {
                self.expand_template(
                    head(Vec::new(), own).into_template(Action::Block(BlockReturn::Drop), options.clone()),
                )?;
            }
            if self.rule_count == rules {
                self.warn_useless_antispoof(&name);
            }
        }
        Ok(())
    }

    fn warn_useless_antispoof(&mut self, name: &str) {
        let why = match is_interface(name, self.environment) {
            true => "has no address",
            false => "is not an interface here, nor a group of some",
        };
        let message = format!("antispoof for {name}: {name} {why}, so that this makes no rule");
        let place = self.token_location();
        self.ineffective.push(SyntaxError { place, message });
    }

    /// An interface, in parentheses if its addresses may change.
    fn parse_guarded(&mut self, all: &mut Vec<(String, bool)>) -> Step<()> {
        let is_dynamic = self.eat_sign("(");
        let name = self.interface_name()?;
        if is_dynamic {
            self.expect_sign(")")?;
            check_dynamic_name(&name).map_err(|why| self.fail_statement(why))?;
        }
        all.push((name, is_dynamic));
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
        records.filter(is_meant).flat_map(|record| interface_hosts(record, modifiers)).collect()
    }
}
