//! A rule's line: its parts in the order that they are always printed in, whatever order
//! they were written in.
use super::address::{format_comparison, format_ends};
use super::pool::{Purpose, format_pool};
use super::{Style, bare_words, quote_if_needed, quote_name, state};
use crate::facts::{Direction, Family};
use crate::rule::{Action, AnchorCall, BlockReturn, Comparison, Log, On, RouteKind, Rule, StateKeeping};
use crate::syntax::numbers::{flag_letters, icmp_code_name, icmp_type_name};
use artery_wire::IpProtocol;

/// The line of a rule.
pub(super) fn rule_line(rule: &Rule, number: usize, style: &Style) -> String {
    let mut text = if style.is_debugging { format!("@{number} ") } else { String::new() };
    text += &format_action(rule);
    text += &format_place(rule, style);
    text += &format_ends(&rule.source, &rule.destination, rule.family, rule.protocol, style);
    text += &format_conditions(rule);
    text += &state::set(&rule.set);
    text += &format_states(rule);
    text += &format_marks(rule);
    text + &format_routes(rule, style)
}

/// What is done, and on which way.
fn format_action(rule: &Rule) -> String {
    let mut text = match &rule.action {
        Action::Pass => "pass".to_string(),
        Action::Match => "match".to_string(),
        Action::Block(how) => format!("block {}", format_return(*how, rule.family)),
        Action::Anchor(AnchorCall { name: Some(name), .. }) => format!("anchor {}", quote_name(name)),
        Action::Anchor(AnchorCall { name: None, .. }) => "anchor".to_string(),
    };
    text += match rule.direction {
        Some(Direction::In) => " in",
        Some(Direction::Out) => " out",
        None => "",
    };
    text += &rule.log.as_ref().map_or(String::new(), format_log);
    text + if rule.is_quick { " quick" } else { "" }
}

/// The reply to the sender: of both families' codes the one that applies, or both.
fn format_return(answer: BlockReturn, family: Option<Family>) -> String {
    let v4 = |(of, code)| name_or(icmp_code_name(of, code, Family::Inet), code);
    let v6 = |(of, code)| name_or(icmp_code_name(of, code, Family::Inet6), code);
    match (answer, family) {
        (BlockReturn::Drop, _) => "drop".into(),
        (BlockReturn::Return, _) => "return".into(),
        (BlockReturn::Reset(None), _) => "return-rst".into(),
        (BlockReturn::Reset(Some(ttl)), _) => format!("return-rst(ttl {ttl})"),
        (BlockReturn::Icmp(code, _), Some(Family::Inet)) => format!("return-icmp({})", v4(code)),
        (BlockReturn::Icmp(_, code) | BlockReturn::Icmp6(code), Some(Family::Inet6)) => {
            format!("return-icmp6({})", v6(code))
        }
        (BlockReturn::Icmp(code, code6), None) => format!("return-icmp({}, {})", v4(code), v6(code6)),
        (BlockReturn::Icmp6(code), _) => format!("return-icmp6({})", v6(code)),
    }
}

fn name_or(name: Option<&str>, number: u8) -> String {
    name.map_or_else(|| number.to_string(), str::to_string)
}

fn format_log(log: &Log) -> String {
    let words = [(log.is_all, "all"), (log.is_matches, "matches"), (log.is_user, "user")];
    let mut said: Vec<String> =
        words.iter().filter(|(is_said, _)| *is_said).map(|(_, word)| word.to_string()).collect();
    if log.interface != 0 {
        said.push(format!("to pflog{}", log.interface));
    }
    if said.is_empty() { " log".into() } else { format!(" log ({})", said.join(", ")) }
}

/// Where, in which family and of which protocol.
fn format_place(rule: &Rule, style: &Style) -> String {
    let not = |is_negated: &bool| if *is_negated { "! " } else { "" };
    let mut text = match &rule.on {
        None => String::new(),
        Some(On::Any) => " on any".into(),
        Some(On::Interface(negated, name)) => format!(" on {}{}", not(negated), format_interface(&name.0)),
        Some(On::Domain(negated, n)) => format!(" on {}rdomain {n}", not(negated)),
    };
    text += match rule.family {
        Some(Family::Inet) => " inet",
        Some(Family::Inet6) => " inet6",
        None => "",
    };
    if let Some(IpProtocol(number)) = rule.protocol {
        let name = style.names.protocol_name(number);
        text += &format!(" proto {}", name.map_or_else(|| number.to_string(), quote_if_needed));
    }
    text
}

/// The name of an interface; `any` is all of them, and no name.
fn format_interface(name: &str) -> String {
    if name == "any" { name.to_string() } else { quote_if_needed(name) }
}

/// The other conditions on a packet.
fn format_conditions(rule: &Rule) -> String {
    let mut text = String::new();
    if let Some((is_negated, name)) = &rule.received_on {
        text += &format!(" {}received-on {}", if *is_negated { "!" } else { "" }, format_interface(&name.0));
    }
    text += &rule.user.as_ref().map_or(String::new(), |user| format!(" user {}", format_account(user)));
    text += &rule.group.as_ref().map_or(String::new(), |group| format!(" group {}", format_account(group)));
    text += &format_flags(rule);
    if let Some((of, code)) = rule.icmp {
        text += &format_icmp(of, code, rule.family.unwrap_or(Family::Inet));
    }
    text += &rule.tos.map_or(String::new(), |tos| format!(" tos 0x{tos:02x}"));
    text += &rule.priority.map_or(String::new(), |priority| format!(" prio {priority}"));
    let rate = rule.max_packet_rate;
    text + &rate.map_or(String::new(), |(n, seconds)| format!(" max-pkt-rate {n}/{seconds}"))
}

/// A test of who owns a socket; the greatest number means unknown.
fn format_account(test: &Comparison<u32>) -> String {
    match test {
        Comparison::Equal(u32::MAX) => "= unknown".into(),
        Comparison::Unequal(u32::MAX) => "!= unknown".into(),
        other => format_comparison(other),
    }
}

/// Flags; where a state implies a test of some, `flags any` is printed for none.
fn format_flags(rule: &Rule) -> String {
    if rule.flags.set != 0 || rule.flags.of != 0 {
        return format!(" flags {}/{}", flag_letters(rule.flags.set), flag_letters(rule.flags.of));
    }
    let would_ask = matches!(rule.action, Action::Pass | Action::Match)
        && rule.protocol.is_none_or(|protocol| protocol == IpProtocol::TCP)
        && !rule.is_fragment
        && rule.state.keep != StateKeeping::No;
    if would_ask { " flags any".into() } else { String::new() }
}

fn format_icmp(of: u8, code: Option<u8>, family: Family) -> String {
    let word = if family == Family::Inet6 { "icmp6-type" } else { "icmp-type" };
    let code = code.map(|code| name_or(icmp_code_name(of, code, family), code));
    let code = code.map_or(String::new(), |code| format!(" code {code}"));
    format!(" {word} {}{code}", name_or(icmp_type_name(of, family), of))
}

/// The kind of state with its options, around how often the rule applies at all.
fn format_states(rule: &Rule) -> String {
    let options = state::options(&rule.state.options);
    let mut text = match rule.state.keep {
        StateKeeping::No if rule.action == Action::Pass => " no state",
        StateKeeping::No => "",
        StateKeeping::Keep if options.is_empty() => "",
        StateKeeping::Keep => " keep state",
        StateKeeping::Modulate => " modulate state",
        StateKeeping::Synproxy => " synproxy state",
    }
    .to_string();
    if let Some(of) = rule.probability {
        let percent = format!("{:.6}", f64::from(of) * 100.0 / (f64::from(u32::MAX) + 1.0));
        text += &format!(" probability {}%", percent.trim_end_matches('0').trim_end_matches('.'));
    }
    if rule.state.keep == StateKeeping::No { text } else { text + &options }
}

/// What is cleaned, allowed and written on packets.
fn format_marks(rule: &Rule) -> String {
    let mut text = if rule.is_fragment { " fragment".to_string() } else { String::new() };
    text += &state::scrub(&rule.scrub);
    text += if rule.allows_options { " allow-opts" } else { "" };
    if !rule.label.is_empty() {
        text += &format!(" label {}", quote_name(&rule.label));
    }
    text += if rule.is_once { " once" } else { "" };
    if !rule.tag.is_empty() {
        text += &format!(" tag {}", bare_words(&rule.tag));
    }
    if let Some((is_negated, tag)) = &rule.tagged {
        text += &format!("{} tagged {}", if *is_negated { " !" } else { "" }, bare_words(tag));
    }
    let table = rule.routing_table;
    text + &table.map_or(String::new(), |table| format!(" rtable {table}"))
}

/// Prints where packets are routed, and what their addresses become.
fn format_routes(rule: &Rule, style: &Style) -> String {
    let mut text = rule.divert.as_ref().map_or(String::new(), |divert| format!(" {divert}"));
    if let Some(to) = &rule.family_to {
        text += &format!(" af-to {to}");
    }
    if let Some(nat) = &rule.nat {
        text += &format!(" nat-to {}", format_pool(nat, Purpose::Nat, rule.family, style));
    }
    if let Some(redirect) = rule.redirect.as_ref().filter(|_| rule.nat.is_none() || style.is_for_reading) {
        let purpose = Purpose::Redirect(rule.destination.port);
        text += &format!(" rdr-to {}", format_pool(redirect, purpose, rule.family, style));
    }
    if let Some((kind, to)) = &rule.route {
        let word = match kind {
            RouteKind::RouteTo => "route-to",
            RouteKind::ReplyTo => "reply-to",
            RouteKind::DupTo => "dup-to",
        };
        text += &format!(" {word} {}", format_pool(to, Purpose::Route, rule.family, style));
    }
    text
}
