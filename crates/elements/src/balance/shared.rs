//! What the copies of a balancer on several workers share: its members, behind a lock that no packet takes.
use super::nat_flows::NatFlows;
use super::service::Service;
use artery_engine::{ArgError, Args, HandlerError};
use artery_table::balance::{Balancer, Check, Member, Members, Method, Probe, Settings};
use artery_table::flow::Seed;
use std::fmt::Display;
use std::net::IpAddr;
use std::str::FromStr;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// A balancer, as its copies know it.
pub(super) struct SharedBalancer {
    pub(super) services: Vec<Service>,
    /// Of the hash that members are chosen by: the same on all machines that are to agree.
    pub(super) seed: Seed,
    /// What is asked of members, if anything.
    pub(super) check: Option<Check>,
    /// The flows that were translated, where packets are.
    pub(super) nat: Option<NatFlows>,
    members: Mutex<Members>,
    balancer: Balancer,
}

impl SharedBalancer {
    pub(super) fn new(args: &Args<'_>, nat: Option<NatFlows>) -> Result<SharedBalancer, ArgError> {
        let services = services(args)?;
        let method: Method = parsed("METHOD", &args.read::<String>("METHOD")?)?;
        let check = match args.read::<Option<String>>("CHECK")? {
            Some(text) => Some(check(&text, &services)?),
            None => None,
        };
        // One that is to be checked takes nothing before it has passed, unless nobody has.
        let settings = Settings { method, starts_up: check.is_none(), ..Settings::default() };
        let mut members =
            Members::new(args.domain(), settings).map_err(|why| ArgError::wrong(why.to_string()))?;
        for text in args.rest("MEMBER") {
            let member: Member = parsed("MEMBER", text)?;
            fits(&member, &services).map_err(|why| wrong("MEMBER", text, why))?;
            can_be_asked(&member, &services, check.as_ref()).map_err(|why| wrong("MEMBER", text, why))?;
            members.add(member, Duration::ZERO).map_err(|why| wrong("MEMBER", text, why))?;
        }
        let seed = Seed::new([args.read("SEED")?, 0]);
        let balancer = members.balancer();
        Ok(SharedBalancer { services, seed, check, nat, members: Mutex::new(members), balancer })
    }

    /// For a worker.
    pub(super) fn balancer(&self) -> Balancer {
        self.balancer.clone()
    }
    /// For who changes them.
    pub(super) fn members(&self) -> MutexGuard<'_, Members> {
        // Members publish what they are last: a panic before leaves what workers see as it was.
        self.members.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a member, `NAME ADDRESS[:PORT] [weight N]`.
    pub(super) fn add(&self, text: &str, now: Duration) -> Result<(), HandlerError> {
        let member: Member = text.trim().parse().map_err(refused)?;
        fits(&member, &self.services).map_err(HandlerError::refused)?;
        can_be_asked(&member, &self.services, self.check.as_ref()).map_err(HandlerError::refused)?;
        self.members().add(member, now).map(drop).map_err(refused)
    }
    /// Removes a member, `NAME`.
    pub(super) fn remove(&self, text: &str, now: Duration) -> Result<(), HandlerError> {
        self.members().remove(text.trim(), now).map_err(refused)
    }
    /// Sets a weight, `NAME N`.
    pub(super) fn weigh(&self, text: &str, now: Duration) -> Result<(), HandlerError> {
        let (name, weight) = text.trim().split_once(' ').ok_or_else(|| refused("NAME WEIGHT are wanted"))?;
        let weight = weight.trim();
        let weight = weight.parse().map_err(|_| refused(format!("'{weight}' is not a weight; 0 drains")))?;
        self.members().set_weight(name, weight, now).map_err(refused)
    }
    /// Chooses another method.
    pub(super) fn choose_by(&self, text: &str, now: Duration) -> Result<(), HandlerError> {
        let method = text.trim().parse().map_err(refused)?;
        let mut members = self.members();
        let settings = members.settings();
        members.set(Settings { method, ..settings }, now).map_err(refused)
    }
}

fn refused(why: impl Display) -> HandlerError {
    HandlerError::refused(why.to_string())
}

fn wrong(argument: &str, text: &str, why: impl Display) -> ArgError {
    ArgError::wrong_at(text, format!("{argument} {text}: {why}"))
}

fn parsed<T: FromStr<Err: Display>>(argument: &str, text: &str) -> Result<T, ArgError> {
    text.trim().parse().map_err(|why| wrong(argument, text, why))
}

fn services(args: &Args<'_>) -> Result<Vec<Service>, ArgError> {
    let mut services: Vec<Service> = Vec::new();
    for text in args.rest("SERVICE") {
        let service = text.parse().map_err(|wants| wrong("SERVICE", text, format!("wants {wants}")))?;
        if let Some(other) = services.iter().find(|other| other.meets(&service)) {
            return Err(wrong("SERVICE", text, format!("packets to it are for {other}, too")));
        }
        services.push(service);
    }
    match services.is_empty() {
        true => {
            Err(ArgError::wrong("there is no SERVICE; say what to balance, as in SERVICE 192.0.2.1:80 tcp"))
        }
        false => Ok(services),
    }
}

fn check(text: &str, services: &[Service]) -> Result<Check, ArgError> {
    let check: Check = parsed("CHECK", text)?;
    let is_for_tcp = services.iter().any(|service| service.takes_tcp());
    match check.probe {
        Probe::Tcp | Probe::Http { .. } if !is_for_tcp => {
            Err(wrong("CHECK", text, "no SERVICE is of TCP; use ping"))
        }
        _ => Ok(check),
    }
}

/// Where there is no port, connections can't be tried.
fn can_be_asked(member: &Member, services: &[Service], check: Option<&Check>) -> Result<(), String> {
    let needs_port = check.is_some_and(|check| check.probe != Probe::Ping);
    let has_port = member.port.is_some() || services.iter().any(|service| service.port.is_some());
    match needs_port && !has_port {
        true => Err(format!("has no port to be checked at; write {}:PORT", member.address)),
        false => Ok(()),
    }
}

/// Members take packets of one family as the service's are.
fn fits(member: &Member, services: &[Service]) -> Result<(), String> {
    let is_alike = |service: &&Service| service.address.is_ipv4() == member.address.is_ipv4();
    let family = |address: IpAddr| if address.is_ipv4() { "an IPv4" } else { "an IPv6" };
    match services.iter().find(|service| !is_alike(service)) {
        None => Ok(()),
        Some(service) => {
            Err(format!("{} address takes no packets to {}", family(member.address), service.address))
        }
    }
}
