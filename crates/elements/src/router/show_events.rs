//! Events as JSON, each with a sentence for people.
use super::events::{AddressEvent, Event, Lately, Numbered, PortEvent, RouteEvent};
use super::shared::SharedRouter;
use super::show_routes::{SCHEMA, Schema, json, name};
use artery_table::PortId;
use artery_table::load::AnyPrefix;
use artery_table::neighbor::Happened;
use artery_table::router::PortView;
use artery_wire::{BfdDiagnostic, BfdState, EtherAddr};
use serde::Serialize;
use std::net::IpAddr;

#[derive(Serialize)]
struct EventsJson {
    #[serde(flatten)]
    schema: Schema,
    next: u64,
    lost: u64,
    events: Vec<EventJson>,
}

#[derive(Serialize)]
struct EventJson {
    seq: u64,
    time: f64,
    kind: &'static str,
    what: &'static str,
    #[serde(flatten)]
    about: About,
    text: String,
}

/// What an event is about, as far as it is about such things.
#[derive(Default, Serialize)]
struct About {
    #[serde(skip_serializing_if = "Option::is_none")]
    dst: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    port: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    lladdr: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    old_lladdr: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    mtu: Option<u16>,
}

/// The handler `events_json`.
pub(super) fn events(router: &SharedRouter, text: &str) -> Result<String, String> {
    let since = match text.trim() {
        "" => Some(0),
        "now" => None,
        number => Some(number.parse().map_err(|_| {
            format!("'{number}' is no number of an event; take 'next' of the last answer, 'now', or nothing for all")
        })?),
    };
    let ports = router.tables().ports();
    let lately = {
        let events = router.events();
        since.map_or_else(|| Lately { next: events.next(), ..Lately::default() }, |since| events.since(since))
    };
    let Lately { events, lost, next } = lately;
    let events = events.iter().map(|event| told(event, &ports)).collect();
    Ok(json(&EventsJson { schema: SCHEMA, next, lost, events }))
}

fn told(numbered: &Numbered, ports: &[PortView]) -> EventJson {
    let Numbered { seq, time, event } = numbered;
    let Said { kind, what, about, detail } = match event {
        Event::Neighbor { port, address, what } => neighbor(About::of(address, *port, ports), *what),
        Event::Address { port, address, what } => own_address(About::of(address, *port, ports), *what),
        Event::Route { prefix, what } => route(prefix, *what),
        Event::Port { port, what } => port_news(name(ports, *port), *what),
        Event::NextHop { port, gateway, is_up } => next_hop(About::of(gateway, *port, ports), *is_up),
        Event::Bfd { port, peer, state, diagnostic } => {
            bfd(About::of(peer, *port, ports), *state, *diagnostic)
        }
    };
    let text = sentence(kind, &about, &detail);
    EventJson { seq: *seq, time: time.as_secs_f64(), kind, what, about, text }
}

/// What is said of an event.
struct Said {
    kind: &'static str,
    what: &'static str,
    about: About,
    detail: String,
}

impl About {
    /// An address on the link of a port.
    fn of(address: &IpAddr, port: PortId, ports: &[PortView]) -> About {
        About { dst: Some(address.to_string()), port: Some(name(ports, port)), ..About::default() }
    }
}

fn neighbor(about: About, what: Happened) -> Said {
    let (lladdr, old_lladdr) = links(what);
    let [lladdr, old_lladdr] = [lladdr, old_lladdr].map(|link| link.map(|link| link.to_string()));
    let about = About { lladdr, old_lladdr, ..about };
    Said { kind: "neighbor", what: what.name(), about, detail: what.to_string() }
}

fn own_address(about: About, what: AddressEvent) -> Said {
    let station = match what {
        AddressEvent::Duplicate(station) | AddressEvent::Defended(station) => station,
        _ => None,
    };
    let lladdr = station.map(|link| link.to_string());
    let detail = match &lladdr {
        Some(station) => format!("{}, {station} uses it", what.name()),
        None => what.name().to_string(),
    };
    Said { kind: "address", what: what.name(), about: About { lladdr, ..about }, detail }
}

fn route(prefix: &AnyPrefix, what: RouteEvent) -> Said {
    let about = About { dst: Some(prefix.to_string()), ..About::default() };
    Said { kind: "route", what: what.name(), about, detail: what.name().to_string() }
}

fn port_news(port: String, what: PortEvent) -> Said {
    let (lladdr, mtu) = match what {
        PortEvent::LinkAddress(link) => (Some(link.to_string()), None),
        PortEvent::Mtu(mtu) => (None, Some(mtu)),
        PortEvent::Up | PortEvent::Down => (None, None),
    };
    let value = lladdr.clone().or(mtu.map(|mtu| mtu.to_string()));
    let detail = value.map_or(what.name().to_string(), |value| format!("{} {value}", what.name()));
    let about = About { port: Some(port), lladdr, mtu, ..About::default() };
    Said { kind: "port", what: what.name(), about, detail }
}

fn next_hop(about: About, is_up: bool) -> Said {
    let what = if is_up { "up" } else { "down" };
    Said { kind: "nexthop", what, about, detail: what.to_string() }
}

fn bfd(about: About, state: BfdState, diagnostic: BfdDiagnostic) -> Said {
    let detail = match diagnostic {
        BfdDiagnostic::NONE => state.name().to_string(),
        diagnostic => format!("{}, {diagnostic}", state.name()),
    };
    Said { kind: "bfd", what: state.name(), about, detail }
}

/// Such as `neighbor 10.0.1.9 eth1: resolved 02:00:00:00:00:09`.
fn sentence(kind: &str, about: &About, detail: &str) -> String {
    let things = [about.dst.as_deref(), about.port.as_deref()].into_iter().flatten();
    let subject = things.fold(kind.to_string(), |text, thing| text + " " + thing);
    format!("{subject}: {detail}")
}

/// The link addresses that an event names: that which counts, and another.
fn links(what: Happened) -> (Option<EtherAddr>, Option<EtherAddr>) {
    match what {
        Happened::Resolved(link) => (Some(link), None),
        Happened::Moved { from, to } => (Some(to), Some(from)),
        Happened::Doubted { kept, heard } | Happened::Refused { kept, heard } => (Some(heard), Some(kept)),
        _ => (None, None),
    }
}

impl AddressEvent {
    fn name(self) -> &'static str {
        match self {
            AddressEvent::Duplicate(_) => "duplicate",
            AddressEvent::Defended(_) => "defended",
            AddressEvent::Claimed => "claimed",
            AddressEvent::Added => "added",
            AddressEvent::Removed => "removed",
        }
    }
}

impl RouteEvent {
    fn name(self) -> &'static str {
        match self {
            RouteEvent::Added => "added",
            RouteEvent::Replaced => "replaced",
            RouteEvent::Removed => "removed",
        }
    }
}

impl PortEvent {
    fn name(self) -> &'static str {
        match self {
            PortEvent::Up => "up",
            PortEvent::Down => "down",
            PortEvent::Mtu(_) => "mtu",
            PortEvent::LinkAddress(_) => "lladdr",
        }
    }
}
