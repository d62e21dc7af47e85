//! One statement becomes many rules: one for each combination of its lists that makes sense.
//!
//! The last list varies fastest: interfaces, protocols, types of ICMP, sources, destinations, the ports of
//! the sources, those of the destinations, systems, users, groups.
use super::consistency::{find_contradiction, find_problems};
use super::endpoints::EndpointLists;
use super::hosts::Host;
use super::label::substitute_values;
use super::parser::{Parser, Step};
use super::rule_options::{Divert, IcmpType, RuleOptions};
use super::rule_pools::reverse_nat;
use crate::facts::{Direction, Family};
use crate::rule::{
    Action, AddressMatch, Binding, Comparison, Endpoint, Flags, HostAddress, InterfaceName, On, Rule,
    StateKeeping,
};
use artery_wire::IpProtocol;

/// The most rules that one statement may become.
const MOST_COMBINATIONS: usize = 100_000;

/// The most rules of all statements.
const MOST_RULES: usize = 300_000;

/// SYN, of SYN and ACK.
const FIRST_OF_CONNECTION: (u8, u8) = (0x02, 0x12);

/// A statement with its lists.
#[derive(Clone, Debug)]
pub(crate) struct Template {
    /// What all its rules have in common.
    pub(crate) rule: Rule,
    pub(crate) on: Vec<On>,
    pub(crate) protocols: Vec<IpProtocol>,
    pub(crate) source: EndpointLists,
    pub(crate) destination: EndpointLists,
    pub(crate) options: RuleOptions,
}

/// One choice from each list.
#[derive(Clone, Copy)]
pub(crate) struct Combination<'t> {
    on: Option<&'t On>,
    protocol: Option<IpProtocol>,
    icmp: Option<IcmpType>,
    pub(crate) source: &'t Host,
    source_port: Option<Comparison<u16>>,
    system: Option<&'t String>,
    destination: &'t Host,
    destination_port: Option<Comparison<u16>>,
    user: Option<Comparison<u32>>,
    group: Option<Comparison<u32>>,
}

/// What came of the combinations so far.
#[derive(Default)]
struct Run {
    added: usize,
    has_faults: bool,
}

impl Template {
    fn icmp_types(&self) -> &[IcmpType] {
        self.options.icmp.as_ref().map_or(&[], |(_, types)| types)
    }

    fn combination_count(&self) -> usize {
        let lists = [
            self.on.len(),
            self.protocols.len(),
            self.icmp_types().len(),
            self.source.hosts.len(),
            self.source.ports.len(),
            self.source.systems.len(),
            self.destination.hosts.len(),
            self.destination.ports.len(),
            self.options.users.len(),
            self.options.groups.len(),
        ];
        lists.iter().fold(1, |product: usize, length| product.saturating_mul(*length.max(&1)))
    }
}

impl Parser<'_> {
    /// Adds the rules of a statement.
    pub(crate) fn expand_template(&mut self, mut template: Template) -> Step<()> {
        if let Some(why) = find_contradiction(&template) {
            return Err(self.fail_statement(why));
        }
        self.report_deferred()?;
        self.resolve_states(&mut template);
        resolve_family(&mut template);
        self.resolve_divert(&mut template)?;
        let count = template.combination_count();
        if count > MOST_COMBINATIONS || self.rule_count + count > MOST_RULES {
            let most = format!("{MOST_COMBINATIONS} of one rule or {MOST_RULES} of all");
            return Err(
                self.fail_statement(format!("the rule has {count} combinations; there may be {most}"))
            );
        }
        let mut run = Run::default();
        let any = Host::new(AddressMatch::Any);
        for number in 0..count {
            let choice = pick_combination(&template, &any, number);
            self.add_choice(&template, &choice, &mut run);
        }
        if run.added == 0 {
            self.report_error("rule expands to no valid combination");
        }
        Ok(())
    }

    /// Decides on states: `pass` keeps them if nothing is said, with the options that are said for all.
    fn resolve_states(&mut self, template: &mut Template) {
        let is_pass = template.rule.action == Action::Pass;
        let state = &mut template.rule.state;
        match template.options.keep.take() {
            Some((keep, options)) => (state.keep, state.options) = (keep, options.unwrap_or_default()),
            None if is_pass => {
                state.keep = StateKeeping::Keep;
                state.options = self.defaults.state.clone().unwrap_or_default();
            }
            None => (),
        }
        let binding = &mut state.options.binding;
        *binding = match (state.keep, *binding, self.defaults.is_bound) {
            (StateKeeping::No, ..) => None,
            (_, None, true) => Some(Binding::Bound),
            (_, Some(Binding::Floating), false) => None,
            (_, said, _) => said,
        };
        let takes_flags = is_pass && state.keep != StateKeeping::No && !template.options.is_fragment;
        if takes_flags {
            template.options.flags.get_or_insert(FIRST_OF_CONNECTION);
        }
    }

    /// Adds the rule of a combination if it makes sense. Pools are made for those as well that make none.
    fn add_choice(&mut self, template: &Template, choice: &Combination, run: &mut Run) {
        let mut family = template.rule.family;
        let addresses = self.pool_addresses(&template.options, &mut family);
        run.has_faults |= addresses.have_failed;
        let Some(family) = common_family(family, choice) else { return };
        let Some(on) = scoped_interface(choice) else { return };
        let mut rule = rule_of(template, choice, family);
        rule.on = on;
        let before = self.faults.len();
        self.check_choice(template, &rule, choice);
        if template.options.is_binat {
            self.check_binat(&rule, choice, addresses.nat.as_ref());
            rule.direction = Some(Direction::Out);
        }
        self.set_routes(template, &mut rule, addresses);
        run.has_faults |= self.faults.len() > before;
        let problems = find_problems(&rule);
        let is_wrong = run.has_faults || !problems.is_empty();
        problems.into_iter().for_each(|problem| self.report_error(problem));
        // What was wrong with a combination spoils those behind it.
        if is_wrong {
            return self.report_error("skipping rule due to errors");
        }
        if let (Action::Anchor(call), true) = (&mut rule.action, run.added > 0) {
            // Further calls of a named anchor find the rules that the first one brought.
            call.inline = call.inline.take().filter(|_| call.name.is_none());
        }
        let back = match template.options.is_binat {
            true => reverse_nat(&rule, choice.source, template.options.nat.as_ref()),
            false => None,
        };
        self.add_named(template, rule);
        if let Some(back) = back {
            self.add_named(template, back);
        }
        run.added += 1;
    }

    fn check_choice(&mut self, template: &Template, rule: &Rule, choice: &Combination) {
        if rule.family == Some(Family::Inet) {
            for length in [choice.source, choice.destination].iter().filter_map(|host| host.excess) {
                self.report_unplaced(format!("netmask {length} invalid for IPv4 address"));
            }
        }
        if let Some((family, _)) = &template.options.icmp {
            let wanted = if *family == Family::Inet { IpProtocol::ICMP } else { IpProtocol::ICMPV6 };
            if rule.protocol != Some(wanted) {
                let name = if *family == Family::Inet { "icmp" } else { "icmp6" };
                self.report_error(format!("icmp-type mismatch\nwrite 'proto {name}'"));
            }
        }
    }

    /// Takes of the addresses of `divert-to` the first one of the rule's family, or takes the family
    /// of the first one.
    fn resolve_divert(&mut self, template: &mut Template) -> Step<()> {
        let direction = template.rule.direction;
        match &mut template.options.divert {
            Some(Divert::To(..)) if direction == Some(Direction::Out) => {
                Err(self.fail_statement("divert-to used with outgoing rule"))
            }
            Some(Divert::To(hosts, _)) => {
                let family = &mut template.rule.family;
                hosts.retain(|host| family.is_none() || host.family == *family);
                hosts.truncate(1);
                let Some(host) = hosts.first() else {
                    return Err(self.fail_statement("divert-to address family mismatch"));
                };
                *family = host.family;
                Ok(())
            }
            Some(Divert::Reply) if direction == Some(Direction::In) => {
                Err(self.fail_statement("divert-reply used with incoming rule"))
            }
            _ => Ok(()),
        }
    }

    /// Adds a rule, with its values put into its label and tags.
    fn add_named(&mut self, template: &Template, mut rule: Rule) {
        let names = &self.environment.names;
        let options = &template.options;
        let put_in = |text: &Option<String>| substitute_values(text.as_deref().unwrap_or(""), &rule, names);
        let (label, tag) = (put_in(&options.label), put_in(&options.tag));
        let tagged = options.tagged.as_ref().map(|(not, tag)| (*not, substitute_values(tag, &rule, names)));
        (rule.label, rule.tag, rule.tagged) = (label, tag, tagged);
        rule.place = self.token_location();
        self.add_rule(rule);
    }
}

/// Takes the family that all addresses of an end have for the rule's.
fn resolve_family(template: &mut Template) {
    for end in [&template.source, &template.destination] {
        template.rule.family = template.rule.family.or_else(|| shared_family(&end.hosts));
    }
}

fn shared_family(hosts: &[Host]) -> Option<Family> {
    let family = hosts.first()?.family?;
    hosts.iter().all(|host| host.family == Some(family)).then_some(family)
}

/// The combination of a number, the last list varying fastest.
fn pick_combination<'t>(template: &'t Template, any: &'t Host, mut number: usize) -> Combination<'t> {
    let mut pick = |length: usize| {
        let place = number % length.max(1);
        number /= length.max(1);
        place
    };
    let options = &template.options;
    let (source, destination) = (&template.source, &template.destination);
    let group = options.groups.get(pick(options.groups.len()));
    let user = options.users.get(pick(options.users.len()));
    let system = source.systems.get(pick(source.systems.len()));
    let destination_port = destination.ports.get(pick(destination.ports.len()));
    let source_port = source.ports.get(pick(source.ports.len()));
    let destination_host = destination.hosts.get(pick(destination.hosts.len()));
    let source_host = source.hosts.get(pick(source.hosts.len()));
    let icmp = template.icmp_types().get(pick(template.icmp_types().len()));
    let protocol = template.protocols.get(pick(template.protocols.len()));
    let on = template.on.get(pick(template.on.len()));
    Combination {
        on,
        protocol: protocol.copied(),
        icmp: icmp.copied(),
        source: source_host.unwrap_or(any),
        source_port: source_port.copied(),
        system,
        destination: destination_host.unwrap_or(any),
        destination_port: destination_port.copied(),
        user: user.copied(),
        group: group.copied(),
    }
}

/// The family that the rule and both addresses have, if any has one; None outside if they differ.
fn common_family(of_rule: Option<Family>, choice: &Combination) -> Option<Option<Family>> {
    let families = [of_rule, choice.source.family, choice.destination.family];
    let mut said = families.into_iter().flatten();
    let first = said.next();
    said.all(|family| Some(family) == first).then_some(first)
}

/// The place of the rule: addresses of a link hold at its interface only. None outside if it is another.
fn scoped_interface(choice: &Combination) -> Option<Option<On>> {
    let scopes = [choice.source.scope.as_ref(), choice.destination.scope.as_ref()];
    let named = match choice.on {
        Some(On::Interface(_, name)) => Some(&name.0),
        Some(On::Any) => return scopes.iter().all(Option::is_none).then_some(Some(On::Any)),
        _ => None,
    };
    let mut places = named.into_iter().chain(scopes.into_iter().flatten());
    let first = places.next();
    if !places.all(|place| Some(place) == first) {
        return None;
    }
    let of_scope = first.map(|name| On::Interface(false, InterfaceName(name.clone())));
    Some(choice.on.cloned().or(of_scope))
}

fn rule_of(template: &Template, choice: &Combination, family: Option<Family>) -> Rule {
    let options = &template.options;
    let mut rule = template.rule.clone();
    rule.family = family;
    rule.protocol = choice.protocol;
    rule.source = build_endpoint(choice.source, choice.source_port);
    rule.source.os = choice.system.cloned();
    rule.destination = build_endpoint(choice.destination, choice.destination_port);
    rule.received_on = options.received_on.clone();
    (rule.user, rule.group) = (choice.user, choice.group);
    rule.icmp = choice.icmp;
    rule.tos = options.tos.filter(|tos| *tos != 0);
    rule.priority = options.priority;
    rule.max_packet_rate = options.max_packet_rate;
    rule.set = options.set.clone();
    rule.probability = options.probability;
    rule.is_fragment = options.is_fragment;
    rule.scrub = options.scrub;
    rule.allows_options = options.allows_options;
    rule.is_once = options.is_once;
    rule.routing_table = options.routing_table;
    let may_be_tcp = choice.protocol.is_none_or(|protocol| protocol == IpProtocol::TCP);
    if !may_be_tcp && rule.state.keep != StateKeeping::No {
        rule.state.keep = StateKeeping::Keep;
    }
    rule.flags = rule_flags(&rule, options.flags.filter(|_| may_be_tcp), may_be_tcp);
    rule
}

fn rule_flags(rule: &Rule, said: Option<(u8, u8)>, may_be_tcp: bool) -> Flags {
    let (set, of) = said.unwrap_or_default();
    let keeps = rule.state.keep != StateKeeping::No && !rule.is_fragment;
    Flags { set, of, is_any: set == 0 && of == 0 && may_be_tcp && keeps }
}

/// An end of a rule. All addresses of a family are any address, in that family.
fn build_endpoint(host: &Host, port: Option<Comparison<u16>>) -> Endpoint {
    let address = match &host.address {
        AddressMatch::Host(HostAddress::Network(address, 0)) if address.is_unspecified() => AddressMatch::Any,
        other => other.clone(),
    };
    Endpoint { is_negated: host.is_negated, address, port, os: None }
}
