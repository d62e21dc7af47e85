//! Pools of single rules, and what follows from `binat-to`.
use super::ends::PortWord;
use super::environment::Names;
use super::expand::Template;
use super::hosts::Host;
use super::parser::{Parser, Step};
use super::pools::PoolText;
use super::print::{self, Purpose, Style};
use super::rule_options::Divert;
use crate::facts::{Direction, Family};
use crate::names::bits;
use crate::rule::{
    AddressMatch, Endpoint, HostAddress, InterfaceName, Pool, PoolAddress, PoolChoice, PoolPorts, Rule,
    TableAddress,
};

/// The ports that `nat-to` takes if none are said.
const USUAL_PORTS: PoolPorts = PoolPorts::Range(50001, 65535);

impl Parser<'_> {
    /// Gives a rule its pools, in its family. What is wrong with them is told.
    pub(crate) fn set_ways(&mut self, template: &Template, rule: &mut Rule) {
        let options = &template.options;
        let family = rule.family;
        if let Some(text) = &options.nat {
            let is_binat = options.is_binat;
            rule.nat = self.pool_of(text, family, false).and_then(|pool| self.with_nat_ports(pool, text));
            if let (Some(pool), true) = (&mut rule.nat, is_binat) {
                settle_binat(pool, text);
            }
        }
        if let Some(text) = &options.redirect {
            rule.redirect = self.redirect_of(text, family);
        }
        if let Some((kind, text)) = &options.route {
            rule.route = self.pool_of(text, family, true).map(|pool| (*kind, pool));
        }
        rule.divert = self.divert_of(options.divert.as_ref(), family);
        rule.family_to = self.family_to_of(template, family);
    }

    fn redirect_of(&mut self, text: &PoolText, family: Option<Family>) -> Option<Pool> {
        if text.has_static_port {
            self.fault("the 'static-port' option is only valid with nat rules");
        }
        let mut pool = self.pool_of(text, family, false)?;
        pool.ports = text.ports.map(|ports| match ports {
            PortWord::One(port) => PoolPorts::One(port),
            PortWord::Range(first, last) => PoolPorts::Range(first, last),
            PortWord::Star(first) => PoolPorts::Moved(first),
        });
        Some(pool)
    }

    fn with_nat_ports(&mut self, mut pool: Pool, text: &PoolText) -> Option<Pool> {
        pool.has_static_port = text.has_static_port;
        pool.ports = match text.ports {
            None => None,
            Some(PortWord::One(port) | PortWord::Star(port)) => Some(PoolPorts::One(port)),
            Some(PortWord::Range(first, last)) => Some(PoolPorts::Range(first, last)),
        };
        pool.ports = pool.ports.filter(|ports| *ports != USUAL_PORTS);
        if pool.has_static_port && pool.ports.is_some() {
            self.fault("the 'static-port' option can't be used when specifying a port range");
            return None;
        }
        Some(pool)
    }

    /// The addresses of the rule's family: one, or several in a table that is made for them.
    fn pool_of(&mut self, text: &PoolText, family: Option<Family>, may_have_interface: bool) -> Option<Pool> {
        let fits = |host: &&Host| family.is_none() || host.family.is_none() || host.family == family;
        let hosts: Vec<&Host> = text.hosts.iter().filter(fits).collect();
        if hosts.iter().any(|host| host.at.is_some()) && !may_have_interface {
            self.fault("@if not permitted for translation");
            return None;
        }
        let (address, usual) = match hosts[..] {
            [] => {
                self.fault("no translation address with matching address family found");
                return None;
            }
            [host] => (self.pool_address(host)?, usual_choice(host)),
            _ => (PoolAddress::Table(self.pool_table(&hosts)?), PoolChoice::RoundRobin),
        };
        let choice = text.choice.unwrap_or(usual);
        let is_fixed = matches!(address, PoolAddress::Host(HostAddress::Network(..), _));
        if choice == PoolChoice::Bitmask && !is_fixed {
            self.fault("tables and (interfaces) are not supported by pool type bitmask");
            return None;
        }
        Some(Pool { address, choice, is_sticky: text.is_sticky, has_static_port: false, ports: None })
    }

    fn pool_address(&mut self, host: &Host) -> Option<PoolAddress> {
        let found = match &host.address {
            AddressMatch::Host(address) => {
                PoolAddress::Host(address.clone(), host.at.clone().map(InterfaceName))
            }
            AddressMatch::Table(name) => PoolAddress::Table(name.clone()),
            _ => {
                self.fault(
                    "packets go to an address, a network, (interface) or <table>, and to nothing else",
                );
                return None;
            }
        };
        Some(found)
    }

    fn pool_table(&mut self, hosts: &[&Host]) -> Option<String> {
        let mut addresses = Vec::new();
        for host in hosts {
            let Some(HostAddress::Network(address, length)) = host.host() else {
                self.fault("multiple tables or dynamic interfaces not supported for translation or routing");
                return None;
            };
            let address = HostAddress::Network(*address, *length);
            addresses.push(TableAddress { is_negated: false, address, weight: host.weight });
        }
        Some(self.automatic_table(addresses))
    }

    fn divert_of(&mut self, divert: Option<&Divert>, family: Option<Family>) -> Option<String> {
        match divert? {
            Divert::Reply => Some("divert-reply".into()),
            Divert::Packet(port) => Some(format!("divert-packet port {port}")),
            Divert::To(host, port) => match host.host() {
                Some(address @ HostAddress::Network(ip, length)) if bits(*ip) == *length => {
                    if host.family != family {
                        self.fault("divert address family mismatch");
                    }
                    Some(format!("divert-to {} port {port}", print::host(address)))
                }
                _ => {
                    self.fault("divert-to takes a single address");
                    None
                }
            },
        }
    }

    fn family_to_of(&mut self, template: &Template, family: Option<Family>) -> Option<String> {
        let to = template.options.family_to.as_ref()?;
        if family.is_none_or(|family| family == to.family) {
            self.fault("must indicate different address family with af-to: write it before 'proto'");
        }
        let target = Some(to.family);
        let names = Names::default();
        let style = Style::new(&names);
        let pool =
            self.pool_of(&to.from, target, false).and_then(|pool| self.with_nat_ports(pool, &to.from))?;
        let mut text = if to.family == Family::Inet { "inet from " } else { "inet6 from " }.to_string();
        text += &print::pool(&pool, Purpose::Nat, target, &style);
        if let Some(second) = &to.to {
            let mut pool = self.redirect_of(second, target)?;
            // Here a network is what addresses are put into, not one to choose from.
            if second.choice.is_none()
                && matches!(pool.address, PoolAddress::Host(HostAddress::Network(..), _))
            {
                pool.choice = PoolChoice::Single;
            }
            text += &format!(" to {}", print::pool(&pool, Purpose::Redirect(None), target, &style));
        }
        Some(text)
    }

    /// Refuses what `binat-to` can't turn around.
    pub(crate) fn check_binat(&mut self, template: &Template) -> Step<()> {
        let network = |hosts: &[Host]| match hosts {
            [
                Host {
                    address: AddressMatch::Host(HostAddress::Network(_, length)), is_negated: false, ..
                },
            ] => Some(*length),
            _ => None,
        };
        let Some(source) = network(&template.source.hosts) else {
            return Err(self.stop("binat-to requires one source address or network"));
        };
        let pool = template.options.nat.as_ref().map_or(&[][..], |pool| &pool.hosts);
        if pool.len() != 1 {
            return Err(self.stop("binat-to requires one redirection address or network"));
        }
        if network(pool).is_some_and(|length| length != source) {
            return Err(self.stop("binat-to requires the source and the redirection to be of the same size"));
        }
        if template.rule.direction.is_some() {
            return Err(self.stop("binat-to is for both directions: leave out 'in' and 'out'"));
        }
        Ok(())
    }
}

/// The rule for packets that come the other way, if the source is `source`. The rule is for the way out from then on.
pub(crate) fn way_back(rule: &mut Rule, source: &Host) -> Option<Rule> {
    let nat = rule.nat.clone()?;
    let mut back = rule.clone();
    rule.direction = Some(Direction::Out);
    back.direction = Some(Direction::In);
    back.nat = None;
    back.source = rule.destination.clone();
    let address = match nat.address {
        PoolAddress::Host(host, _) => AddressMatch::Host(host),
        PoolAddress::Table(name) => AddressMatch::Table(name),
        PoolAddress::Interface(_) => return None,
    };
    back.destination = Endpoint { address, port: rule.source.port, ..Endpoint::default() };
    let is_network = usual_choice(source) != PoolChoice::Single;
    back.redirect = Some(Pool {
        address: PoolAddress::Host(source.host()?.clone(), None),
        choice: if is_network { PoolChoice::Bitmask } else { PoolChoice::Single },
        is_sticky: false,
        has_static_port: false,
        ports: None,
    });
    Some(back)
}

/// Networks answer each other address by address, and ports stay.
fn settle_binat(pool: &mut Pool, text: &PoolText) {
    (pool.has_static_port, pool.ports) = (true, None);
    let is_network = matches!(pool.address, PoolAddress::Host(HostAddress::Network(..), _));
    if text.choice.is_none() && is_network && pool.choice == PoolChoice::RoundRobin {
        pool.choice = PoolChoice::Bitmask;
    }
}

/// How an address is chosen if nothing is said: in turn, unless there is but one.
fn usual_choice(host: &Host) -> PoolChoice {
    let is_single = match &host.address {
        AddressMatch::Host(HostAddress::Network(address, length)) => bits(*address) == *length,
        AddressMatch::Host(HostAddress::Dynamic { interface, without_aliases, .. }) => {
            *without_aliases && interface.0.ends_with(|c: char| c.is_ascii_digit())
        }
        _ => false,
    };
    if is_single { PoolChoice::Single } else { PoolChoice::RoundRobin }
}
