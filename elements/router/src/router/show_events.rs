//! Events as JSON, each with a sentence for people.
use super::json::{SCHEMA, Schema, port_name, to_json};
use artery_forward::events::{AddressEvent, Event, NumberedEvent, PortEvent, RecentEvents, RouteEvent};
use artery_forward::shared::SharedRouter;
use artery_l3::PortId;
use artery_l3::neighbor::Happened;
use artery_l3::router::PortView;
use artery_lpm::load::AnyPrefix;
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
    about: EventSubject,
    text: String,
}

/// The object of an event; fields that don't apply are None.
#[derive(Default, Serialize)]
struct EventSubject {
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

/// Serves the handler `events_json`.
pub(super) fn events_json(router: &SharedRouter, text: &str) -> Result<String, String> {
    let since = match text.trim() {
        "" => Some(0),
        "now" => None,
        number => Some(number.parse().map_err(|_| {
            format!(
                "'{number}' is not a number of an event; take 'next' of the last answer, 'now', or \
                 nothing for all"
            )
        })?),
    };
    let ports = router.lock_tables().ports();
    let lately = {
        let events = router.lock_events();
        since.map_or_else(
            || RecentEvents { next: events.next_number(), ..RecentEvents::default() },
            |since| events.events_since(since),
        )
    };
    let RecentEvents { events, lost, next } = lately;
    let events = events.iter().map(|event| event_json(event, &ports)).collect();
    Ok(to_json(&EventsJson { schema: SCHEMA, next, lost, events }))
}

fn event_json(numbered: &NumberedEvent, ports: &[PortView]) -> EventJson {
    let NumberedEvent { seq, time, event } = numbered;
    let EventText { kind, what, about, detail } = match event {
        Event::Neighbor { port, address, what } => {
            describe_neighbor(EventSubject::of(address, *port, ports), *what)
        }
        Event::Address { port, address, what } => own_address(EventSubject::of(address, *port, ports), *what),
        Event::Route { prefix, what } => describe_route(prefix, *what),
        Event::Port { port, what } => port_news(port_name(ports, *port), *what),
        Event::NextHop { port, gateway, is_up } => next_hop(EventSubject::of(gateway, *port, ports), *is_up),
        Event::Bfd { port, peer, state, diagnostic } => {
            describe_bfd(EventSubject::of(peer, *port, ports), *state, *diagnostic)
        }
    };
    let text = event_text(kind, &about, &detail);
    EventJson { seq: *seq, time: time.as_secs_f64(), kind, what, about, text }
}

/// The text of an event.
struct EventText {
    kind: &'static str,
    what: &'static str,
    about: EventSubject,
    detail: String,
}

impl EventSubject {
    /// An address on the link of a port.
    fn of(address: &IpAddr, port: PortId, ports: &[PortView]) -> EventSubject {
        EventSubject {
            dst: Some(address.to_string()),
            port: Some(port_name(ports, port)),
            ..EventSubject::default()
        }
    }
}

fn describe_neighbor(about: EventSubject, what: Happened) -> EventText {
    let (lladdr, old_lladdr) = link_addresses(what);
    let [lladdr, old_lladdr] = [lladdr, old_lladdr].map(|link| link.map(|link| link.to_string()));
    let about = EventSubject { lladdr, old_lladdr, ..about };
    EventText { kind: "neighbor", what: what.name(), about, detail: what.to_string() }
}

fn own_address(about: EventSubject, what: AddressEvent) -> EventText {
    let station = match what {
        AddressEvent::Duplicate(station) | AddressEvent::Defended(station) => station,
        _ => None,
    };
    let lladdr = station.map(|link| link.to_string());
    let detail = match &lladdr {
        Some(lladdr) => format!("{}, {lladdr} uses it", what.name()),
        None => what.name().to_string(),
    };
    EventText { kind: "address", what: what.name(), about: EventSubject { lladdr, ..about }, detail }
}

fn describe_route(prefix: &AnyPrefix, what: RouteEvent) -> EventText {
    let about = EventSubject { dst: Some(prefix.to_string()), ..EventSubject::default() };
    EventText { kind: "route", what: what.name(), about, detail: what.name().to_string() }
}

fn port_news(port: String, what: PortEvent) -> EventText {
    let (lladdr, mtu) = match what {
        PortEvent::LinkAddress(link) => (Some(link.to_string()), None),
        PortEvent::Mtu(mtu) => (None, Some(mtu)),
        PortEvent::Up | PortEvent::Down => (None, None),
    };
    let value = lladdr.clone().or(mtu.map(|mtu| mtu.to_string()));
    let detail = value.map_or(what.name().to_string(), |value| format!("{} {value}", what.name()));
    let about = EventSubject { port: Some(port), lladdr, mtu, ..EventSubject::default() };
    EventText { kind: "port", what: what.name(), about, detail }
}

fn next_hop(about: EventSubject, is_up: bool) -> EventText {
    let what = if is_up { "up" } else { "down" };
    EventText { kind: "nexthop", what, about, detail: what.to_string() }
}

fn describe_bfd(about: EventSubject, state: BfdState, diagnostic: BfdDiagnostic) -> EventText {
    let detail = match diagnostic {
        BfdDiagnostic::NONE => state.name().to_string(),
        diagnostic => format!("{}, {diagnostic}", state.name()),
    };
    EventText { kind: "bfd", what: state.name(), about, detail }
}

/// Such as `neighbor 10.0.1.9 eth1: resolved 02:00:00:00:00:09`.
fn event_text(kind: &str, about: &EventSubject, detail: &str) -> String {
    let things = [about.dst.as_deref(), about.port.as_deref()].into_iter().flatten();
    let subject = things.fold(kind.to_string(), |text, thing| text + " " + thing);
    format!("{subject}: {detail}")
}

/// The link addresses that an event names: that which counts, and another.
fn link_addresses(what: Happened) -> (Option<EtherAddr>, Option<EtherAddr>) {
    match what {
        Happened::Resolved(link) => (Some(link), None),
        Happened::Moved { from, to } => (Some(to), Some(from)),
        Happened::Contested { kept, heard } | Happened::Refused { kept, heard } => (Some(heard), Some(kept)),
        _ => (None, None),
    }
}
