//! Pools of single rules, and what follows from `binat-to`.
use super::endpoints::PortWord;
use super::expand::{Combination, Template};
use super::hosts::Host;
use super::numbered_names::NumberedNames;
use super::parser::Parser;
use super::pools::PoolText;
use super::print::{self, Purpose, Style};
use super::rule_options::{Divert, RuleOptions};
use crate::facts::{Direction, Family};
use crate::names::address_bits;
use crate::rule::{
    AddressMatch, Endpoint, HostAddress, InterfacePart, Pool, PoolAddress, PoolChoice, PoolPorts, Rule,
    TableAddress,
};

/// The ports that `nat-to` takes if none are said.
const USUAL_PORTS: (u16, u16) = (50001, 65535);

/// The addresses of a rule's pools.
#[derive(Default)]
pub(crate) struct PoolAddresses {
    pub(crate) nat: Option<PoolAddress>,
    redirect: Option<PoolAddress>,
    route: Option<PoolAddress>,
    /// Whether some were wrong, which was reported.
    pub(crate) have_failed: bool,
}

impl Parser<'_> {
    /// Finds the addresses of all pools. A rule without a family takes that of a pool.
    pub(crate) fn pool_addresses(
        &mut self,
        options: &RuleOptions,
        family: &mut Option<Family>,
    ) -> PoolAddresses {
        let before = self.faults.len();
        let to = options.family_to.as_ref();
        let target = to.map(|to| to.family);
        let redirect = to.map_or(options.redirect.as_ref(), |to| to.to.as_ref());
        let nat = to.map(|to| &to.from).or(options.nat.as_ref());
        let route = options.route.as_ref().map(|(_, text)| text);
        let mut find = |text: Option<&PoolText>, target, what| self.pool_address(text?, target, family, what);
        let redirect = find(redirect, target, "translation");
        let nat = find(nat, target, "translation");
        let route = find(route, None, ROUTING);
        PoolAddresses { nat, redirect, route, have_failed: self.faults.len() > before }
    }

    /// The addresses of the rule's family: one, or several in a table that is made for them. Those of `af-to`
    /// are of the family `target`, and the rule is for the other one.
    fn pool_address(
        &mut self,
        text: &PoolText,
        target: Option<Family>,
        family: &mut Option<Family>,
        what: &str,
    ) -> Option<PoolAddress> {
        let (mut chosen, mut common): (Vec<&Host>, _) = (Vec::new(), target.map(other_family));
        for host in &text.hosts {
            if what == ROUTING && is_dynamic_without_peer(host) {
                self.report_error("route spec requires :peer with dynamic interface addresses");
                return None;
            }
            let wanted = target.or(*family).or(common);
            if let (None, Some(wanted), Some(of)) = (target, *family, host.family)
                && wanted != of
            {
                continue;
            }
            if wanted.is_some() && host.family.is_some_and(|of| wanted != Some(of)) {
                let why = if target.is_some() { "that don't match target" } else { "with different" };
                let families = if target.is_some() { "address family" } else { "address families" };
                self.report_error(format!("{what} spec contains addresses {why} {families}"));
                return None;
            }
            common = common.or(host.family);
            if !chosen.is_empty() && text.choice == Some(PoolChoice::Bitmask) {
                self.report_error("pool type is not valid for multiple translation or routing addresses");
                return None;
            }
            chosen.push(host);
        }
        *family = family.or(common);
        match chosen[..] {
            [] => {
                self.report_error(format!("af mismatch in {what} spec\nno address is of the rule's family"));
                None
            }
            [host] => self.single_address(host),
            _ => self.pool_table(&chosen).map(PoolAddress::Table),
        }
    }

    fn single_address(&mut self, host: &Host) -> Option<PoolAddress> {
        match &host.address {
            AddressMatch::Host(address) => Some(PoolAddress::Host(address.clone(), None)),
            AddressMatch::Table(name) => Some(PoolAddress::Table(name.clone())),
            _ => {
                self.report_error(
                    "packets go to an address, a network, (interface) or <table>, and to nothing else",
                );
                None
            }
        }
    }

    fn pool_table(&mut self, hosts: &[&Host]) -> Option<String> {
        let mut addresses = Vec::new();
        for host in hosts {
            let Some(HostAddress::Network(address, length)) = host.host_address() else {
                self.report_error(
                    "multiple tables or dynamic interfaces not supported for translation or routing",
                );
                return None;
            };
            let address = HostAddress::Network(*address, *length);
            addresses.push(TableAddress { is_negated: false, address, weight: host.weight });
        }
        Some(self.automatic_table(addresses))
    }

    /// Gives a rule its pools, and reports mistakes in them.
    pub(crate) fn set_routes(&mut self, template: &Template, rule: &mut Rule, addresses: PoolAddresses) {
        let options = &template.options;
        rule.divert = options.divert.as_ref().map(format_divert);
        if let Some(to) = &options.family_to {
            let nat = addresses.nat.and_then(|address| self.nat_of(&to.from, address, false));
            let second = to
                .to
                .as_ref()
                .zip(addresses.redirect)
                .and_then(|(text, address)| self.redirect_of(text, address));
            rule.family_to = nat.map(|nat| family_text(to.family, &nat, second.as_ref()));
            if rule.family == Some(to.family) {
                self.report_error(
                    "must indicate different address family with af-to\nwrite it before 'proto'",
                );
            }
            return;
        }
        rule.nat = options
            .nat
            .as_ref()
            .zip(addresses.nat)
            .and_then(|(text, address)| self.nat_of(text, address, options.is_binat));
        rule.redirect = options
            .redirect
            .as_ref()
            .zip(addresses.redirect)
            .and_then(|(text, address)| self.redirect_of(text, address));
        rule.route = options
            .route
            .as_ref()
            .zip(addresses.route)
            .and_then(|((kind, text), address)| Some((*kind, self.pool_of(text, address, false)?)));
    }

    fn nat_of(&mut self, text: &PoolText, address: PoolAddress, is_binat: bool) -> Option<Pool> {
        let mut pool = self.pool_of(text, address, true)?;
        let said = text.ports.map(|ports| match ports {
            PortWord::One(port) | PortWord::Star(port) => (port, port),
            PortWord::Range(first, last) => (first, last),
        });
        let (first, last) = said.unwrap_or(USUAL_PORTS);
        if pool.has_static_port && first != USUAL_PORTS.0 && last != USUAL_PORTS.1 {
            self.report_error("the 'static-port' option can't be used when specifying a port range");
            return None;
        }
        let said = said.filter(|ports| !pool.has_static_port && *ports != USUAL_PORTS);
        pool.ports = said.map(|(first, last)| match first == last {
            true => PoolPorts::One(first),
            false => PoolPorts::Range(first, last),
        });
        if is_binat && pool.choice == PoolChoice::Usual {
            pool.choice = PoolChoice::Paired;
        }
        Some(pool)
    }

    fn redirect_of(&mut self, text: &PoolText, address: PoolAddress) -> Option<Pool> {
        if let Some(PortWord::Range(first, last)) = text.ports
            && first > last
        {
            self.report_error(format!("invalid rdr-to port range {first}:{last}"));
            return None;
        }
        let mut pool = self.pool_of(text, address, false)?;
        pool.ports = text.ports.map(|ports| match ports {
            PortWord::One(port) => PoolPorts::One(port),
            PortWord::Range(first, last) => PoolPorts::Range(first, last),
            PortWord::Star(first) => PoolPorts::Moved(first),
        });
        Some(pool)
    }

    /// A pool without ports.
    fn pool_of(&mut self, text: &PoolText, address: PoolAddress, is_nat: bool) -> Option<Pool> {
        let choice = text.choice.unwrap_or_else(|| usual_choice(&address));
        let is_for_one = matches!(choice, PoolChoice::Single | PoolChoice::Usual | PoolChoice::Bitmask);
        if is_for_one && text.hosts.iter().any(|host| matches!(host.address, AddressMatch::Table(_))) {
            self.report_error("tables are not supported by pool type");
            return None;
        }
        if is_for_one && let Some(name) = text.hosts.iter().find_map(many_addresses) {
            self.report_error(format!("interface ({name}) is not supported by pool type"));
            return None;
        }
        if text.has_static_port && !is_nat {
            self.report_error("the 'static-port' option is only valid with nat rules");
            return None;
        }
        let has_static_port = text.has_static_port;
        Some(Pool { address, choice, is_sticky: text.is_sticky, has_static_port, ports: None })
    }

    /// Tells what `binat-to` can't turn around.
    pub(crate) fn check_binat(&mut self, rule: &Rule, choice: &Combination, nat: Option<&PoolAddress>) {
        let source = choice.source;
        let many = many_addresses(source);
        match (&source.address, many) {
            (AddressMatch::Table(name), _) => {
                self.report_error(format!(
                    "invalid use of table <{name}> as the source address of a binat-to rule"
                ));
            }
            (_, Some(name)) => {
                self.report_error(format!(
                    "invalid use of interface ({name}) as the source address of a binat-to rule"
                ));
            }
            (AddressMatch::Any | AddressMatch::Host(_), _) if matches!(nat, Some(PoolAddress::Host(..))) => {}
            _ => self.report_error("binat-to requires a specified source and redirect address"),
        }
        let is_many = nat.is_some_and(|address| usual_choice(address) == PoolChoice::RoundRobin);
        if many.is_some() || is_many && !matches!(nat, Some(PoolAddress::Table(_))) {
            self.report_error("dynamic interfaces must be used with :0 in a binat-to rule");
        }
        let is_empty = |host: &HostAddress| matches!(host, HostAddress::Network(_, 0));
        if source.host_address().is_none_or(is_empty) {
            self.report_error(
                "source and redirect address must have a matching network mask in binat-to rules",
            );
        }
        if matches!(nat, Some(PoolAddress::Table(_))) {
            self.report_error("tables cannot be used as the redirect address of a binat-to rule");
        }
        if rule.direction.is_some() {
            self.report_error("binat-to cannot be specified with a direction\nit is for both");
        }
    }
}

/// What messages call pools of routes.
const ROUTING: &str = "routing";

fn other_family(family: Family) -> Family {
    if family == Family::Inet { Family::Inet6 } else { Family::Inet }
}

fn is_dynamic_without_peer(host: &Host) -> bool {
    match host.host_address() {
        Some(HostAddress::Dynamic { part, without_aliases, .. }) => {
            *part != InterfacePart::Peer || *without_aliases
        }
        _ => false,
    }
}

/// The name of an interface whose addresses may be many.
fn many_addresses(host: &Host) -> Option<&str> {
    match host.host_address() {
        Some(HostAddress::Dynamic { interface, without_aliases, .. }) => {
            let is_one = *without_aliases && interface.0.ends_with(|last: char| last.is_ascii_digit());
            (!is_one).then_some(interface.0.as_str())
        }
        _ => None,
    }
}

/// How an address is chosen if nothing is said: in turn, unless there is but one.
fn usual_choice(address: &PoolAddress) -> PoolChoice {
    let PoolAddress::Host(address, _) = address else { return PoolChoice::RoundRobin };
    match address {
        HostAddress::Network(ip, length) if address_bits(*ip) == *length => PoolChoice::Single,
        HostAddress::Dynamic { .. } => {
            match many_addresses(&Host::new(AddressMatch::Host(address.clone()))) {
                Some(_) => PoolChoice::RoundRobin,
                None => PoolChoice::Single,
            }
        }
        _ => PoolChoice::Usual,
    }
}

fn format_divert(divert: &Divert) -> String {
    match divert {
        Divert::Reply => "divert-reply".into(),
        Divert::Packet(port) => format!("divert-packet port {port}"),
        Divert::To(hosts, port) => {
            let address = match hosts.first().and_then(Host::host_address) {
                Some(HostAddress::Network(address, _)) => print::format_ip(*address),
                _ => String::new(),
            };
            format!("divert-to {address} port {port}")
        }
    }
}

/// The text after `af-to`.
fn family_text(family: Family, nat: &Pool, redirect: Option<&Pool>) -> String {
    let names = NumberedNames::default();
    let (style, family_word) = (Style::new(&names), if family == Family::Inet { "inet" } else { "inet6" });
    let from = print::format_pool(nat, Purpose::Nat, Some(family), &style);
    let to = redirect.map_or(String::new(), |redirect| {
        format!(" to {}", print::format_pool(redirect, Purpose::Redirect(None), Some(family), &style))
    });
    format!("{family_word} from {from}{to}")
}

/// The rule for packets that come the other way, if the source is `source` and the pool
/// was written as `text`.
pub(crate) fn reverse_nat(rule: &Rule, source: &Host, text: Option<&PoolText>) -> Option<Rule> {
    let nat = rule.nat.as_ref()?;
    let PoolAddress::Host(host, _) = &nat.address else { return None };
    let mut back = rule.clone();
    back.direction = Some(Direction::In);
    back.nat = None;
    back.source = Endpoint { os: rule.source.os.clone(), ..rule.destination.clone() };
    let address = AddressMatch::Host(host.clone());
    back.destination = Endpoint { address, port: rule.source.port, ..Endpoint::default() };
    let address = PoolAddress::Host(source.host_address()?.clone(), None);
    let choice = match text.and_then(|text| text.choice).unwrap_or_else(|| usual_choice(&address)) {
        PoolChoice::Usual => PoolChoice::Paired,
        other => other,
    };
    back.redirect =
        Some(Pool { address, choice, is_sticky: nat.is_sticky, has_static_port: false, ports: None });
    Some(back)
}
