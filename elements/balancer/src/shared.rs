//! State that the copies of a balancer on several workers share: its members, under a lock
//! that no packet takes.
use super::by_hand::carry_changes;
use super::computed::AnswerRule;
use super::nat_flows::NatFlows;
use super::service::Service;
use artery_engine::{ArgError, Args, HandlerError};
use artery_flow::balance::{Balancer, Check, Choice, Member, Members, Method, Probe, Settings};
use artery_flow::{Flow4, FlowKey, Seed};
use std::fmt::Display;
use std::net::IpAddr;
use std::str::FromStr;
use std::sync::{Mutex, MutexGuard, Once, PoisonError};
use std::time::Duration;

/// The part of a balancer that its copies share.
pub(super) struct SharedBalancer {
    pub(super) services: Vec<Service>,
    /// Of the hash that members are chosen by: the same on all machines that are to agree.
    pub(super) seed: Seed,
    /// What it was made of.
    pub(super) seed_number: u64,
    /// The health check of members, if there is one.
    pub(super) check: Option<Check>,
    /// The flows that were translated, where packets are.
    pub(super) nat: Option<NatFlows>,
    /// Of which other flows packets of members are answers.
    pub(super) answers: AnswerRule,
    /// The members that the arguments name.
    configured: Vec<Member>,
    members: Mutex<Members>,
    balancer: Balancer,
    /// Done once what the balancer that this one replaces has was taken over.
    has_taken_over: Once,
}

impl SharedBalancer {
    pub(super) fn new(args: &Args<'_>, nat: Option<NatFlows>) -> Result<SharedBalancer, ArgError> {
        let services = parse_services(args)?;
        let method: Method = parse_argument("METHOD", &args.read::<String>("METHOD")?)?;
        let check = match args.read::<Option<String>>("CHECK")? {
            Some(text) => Some(parse_check(&text, &services)?),
            None => None,
        };
        let answers = parse_answers(args, method, nat.is_some(), check.is_some())?;
        // A member with a health check takes packets only after it has passed, unless no member has.
        let settings = Settings { method, starts_up: check.is_none(), ..Settings::default() };
        let members =
            Members::new(args.domain(), settings).map_err(|why| ArgError::wrong(why.to_string()))?;
        let texts = args.rest("MEMBER");
        let mut list = Vec::with_capacity(texts.len());
        for text in texts {
            let member: Member = parse_argument("MEMBER", text)?;
            check_family(&member, &services).map_err(|why| argument_error("MEMBER", text, why))?;
            check_probe_target(&member, &services, check.as_ref())
                .map_err(|why| argument_error("MEMBER", text, why))?;
            list.push(member);
        }
        let configured = list.clone();
        let members = members
            .with_members(list)
            .map_err(|(index, why)| argument_error("MEMBER", &texts[index], why))?;
        let seed_number = args.read("SEED")?;
        let balancer = members.balancer();
        Ok(SharedBalancer {
            services,
            seed: seed_of(seed_number),
            seed_number,
            check,
            nat,
            answers,
            configured,
            members: Mutex::new(members),
            balancer,
            has_taken_over: Once::new(),
        })
    }

    /// A reader of the choice, for a worker.
    pub(super) fn balancer(&self) -> Balancer {
        self.balancer.clone()
    }
    /// A digest of how members are chosen for flows: machines with the same one choose alike. The seed is in
    /// it where the method uses that, so a guess of the seed can be checked against it. None if the method is
    /// not the same everywhere.
    pub(super) fn table_digest(&self, choice: &Choice) -> Option<u64> {
        let digest = choice.table_digest()?;
        Some(match choice.method() {
            Method::Xor => digest,
            _ => Flow4::from_words(|n| [digest, 0][n]).hash(&self.seed),
        })
    }
    /// Locks the members for a change.
    pub(super) fn lock_members(&self) -> MutexGuard<'_, Members> {
        // Members publish what they are last: a panic before leaves what workers see as it was.
        self.members.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes over from the balancer that this one replaces which members are up, and what handlers changed in
    /// it, as [`carry_changes`] says. Only the first call does anything; each copy calls it first of all.
    pub(super) fn take_over(&self, old: &SharedBalancer, now: Duration) {
        self.has_taken_over.call_once(|| {
            let old_members = old.lock_members();
            let running: Vec<Member> =
                old_members.view_members().map(|view| (*view.member).clone()).collect();
            let mut list = carry_changes(&self.configured, &old.configured, &running);
            list.retain(|member| self.check_member(member).is_ok());
            let mut members = self.lock_members();
            // Too many in all for the method, which those of the arguments alone are not.
            if members.replace_members(list, now).is_err() {
                return;
            }
            members.adopt_health(&old_members, self.check.is_some() && old.check.is_some(), now);
        });
    }

    /// Whether this balancer could have the member.
    pub(super) fn check_member(&self, member: &Member) -> Result<(), String> {
        check_family(member, &self.services)?;
        check_probe_target(member, &self.services, self.check.as_ref())
    }

    /// Adds a member, `NAME ADDRESS[:PORT] [weight N]`.
    pub(super) fn add_member(&self, text: &str, now: Duration) -> Result<(), HandlerError> {
        let member: Member = text.trim().parse().map_err(to_handler_error)?;
        self.check_member(&member).map_err(HandlerError::refused)?;
        self.lock_members().add_member(member, now).map(drop).map_err(to_handler_error)
    }
    /// Removes a member, `NAME`.
    pub(super) fn remove_member(&self, text: &str, now: Duration) -> Result<(), HandlerError> {
        self.lock_members().remove(text.trim(), now).map_err(to_handler_error)
    }
    /// Sets a weight, `NAME N`.
    pub(super) fn set_weight(&self, text: &str, now: Duration) -> Result<(), HandlerError> {
        let (name, weight) =
            text.trim().split_once(' ').ok_or_else(|| to_handler_error("NAME WEIGHT are wanted"))?;
        let weight = weight.trim();
        let weight =
            weight.parse().map_err(|_| to_handler_error(format!("'{weight}' is not a weight; 0 drains")))?;
        self.lock_members().set_weight(name, weight, now).map_err(to_handler_error)
    }
    pub(super) fn set_method(&self, text: &str, now: Duration) -> Result<(), HandlerError> {
        let method = text.trim().parse().map_err(to_handler_error)?;
        let refuse = |why: String| to_handler_error(format!("with ANSWERS computed, {why}"));
        check_answers_method(&self.answers, method).map_err(refuse)?;
        let mut members = self.lock_members();
        let settings = members.settings();
        members.update_settings(Settings { method, ..settings }, now).map_err(to_handler_error)
    }
}

/// The seed that SEED makes.
pub(super) fn seed_of(number: u64) -> Seed {
    Seed::new([number, 0])
}

pub(super) fn to_handler_error(why: impl Display) -> HandlerError {
    HandlerError::refused(why.to_string())
}

fn argument_error(argument: &str, text: &str, why: impl Display) -> ArgError {
    ArgError::wrong_at(text, format!("{argument} {text}: {why}"))
}

fn parse_argument<T: FromStr<Err: Display>>(argument: &str, text: &str) -> Result<T, ArgError> {
    text.trim().parse().map_err(|why| argument_error(argument, text, why))
}

fn parse_services(args: &Args<'_>) -> Result<Vec<Service>, ArgError> {
    let mut services: Vec<Service> = Vec::new();
    for text in args.rest("SERVICE") {
        let service =
            text.parse().map_err(|wants| argument_error("SERVICE", text, format!("wants {wants}")))?;
        if let Some(other) = services.iter().find(|other| other.overlaps_with(&service)) {
            return Err(argument_error("SERVICE", text, format!("packets to it are for {other}, too")));
        }
        services.push(service);
    }
    match services.is_empty() {
        true => Err(ArgError::wrong(
            "SERVICE is missing; give a service to balance, as in SERVICE 192.0.2.1:80 tcp",
        )),
        false => Ok(services),
    }
}

fn parse_answers(
    args: &Args<'_>,
    method: Method,
    is_nat: bool,
    has_check: bool,
) -> Result<AnswerRule, ArgError> {
    let text: String = args.read("ANSWERS")?;
    let rule: AnswerRule = parse_argument("ANSWERS", &text)?;
    let refuse = |why: &str| Err(argument_error("ANSWERS", &text, why));
    match &rule {
        AnswerRule::Computed(_) if !is_nat => {
            return refuse("is for FORWARD nat: other answers are not translated");
        }
        // Members answer checks as they answer flows: some of these would be taken for answers to a flow.
        AnswerRule::Computed(except) if has_check && except.is_empty() => {
            return refuse("CHECK needs 'except' with the router's own addresses: checks come from them");
        }
        _ => {}
    }
    check_answers_method(&rule, method).map_err(|why| argument_error("ANSWERS", &text, why))?;
    Ok(rule)
}

/// Refuses a method by which answers can't be computed, if they are to be.
fn check_answers_method(rule: &AnswerRule, method: Method) -> Result<(), String> {
    match rule {
        AnswerRule::Computed(_) if !method.is_pure() => Err(format!(
            "METHOD {method} does not give a flow the same member everywhere; use maglev, hash or xor"
        )),
        _ => Ok(()),
    }
}

fn parse_check(text: &str, services: &[Service]) -> Result<Check, ArgError> {
    let check: Check = parse_argument("CHECK", text)?;
    let is_for_tcp = services.iter().any(|service| service.takes_tcp());
    match check.probe {
        Probe::Tcp | Probe::Http { .. } if !is_for_tcp => {
            Err(argument_error("CHECK", text, "no SERVICE is of TCP; use ping"))
        }
        _ => Ok(check),
    }
}

/// Refuses a check by connection for a member without a port.
fn check_probe_target(member: &Member, services: &[Service], check: Option<&Check>) -> Result<(), String> {
    let needs_port = check.is_some_and(|check| check.probe != Probe::Ping);
    let has_port = member.port.is_some() || services.iter().any(|service| service.port.is_some());
    match needs_port && !has_port {
        true => Err(format!("has no port to be checked at; write {}:PORT", member.address)),
        false => Ok(()),
    }
}

/// Refuses a member whose address family differs from the services'.
fn check_family(member: &Member, services: &[Service]) -> Result<(), String> {
    let is_alike = |service: &&Service| service.address.is_ipv4() == member.address.is_ipv4();
    let family = |address: IpAddr| if address.is_ipv4() { "an IPv4" } else { "an IPv6" };
    match services.iter().find(|service| !is_alike(service)) {
        None => Ok(()),
        Some(service) => {
            Err(format!("{} address takes no packets to {}", family(member.address), service.address))
        }
    }
}
