//! What of a running router is measured: its ports, and packets and drops by element.
use super::exposition::{Exposition, Kind};
use crate::export;
use crate::netstat;
use artery_device::DELAY_BOUNDS;
use artery_engine::graph::Counts;
use artery_engine::{Handle, Plan};

/// All metrics of a router that the command `mode` started.
pub(crate) fn of_router(handle: &Handle, mode: &str) -> Result<String, String> {
    let mut text = Exposition::default();
    let version = crate::report::VERSION;
    text.family("artery_build_info", Kind::Gauge, "The program.");
    text.sample("artery_build_info", &[("version", version), ("mode", mode)], 1);
    let ports = handle.read_handler("ports", "").map_err(|error| error.to_string())?;
    let ports = netstat::parse(&ports).unwrap_or_default();
    states_of(&ports, &mut text);
    ports_of(&ports, &mut text);
    delays_of(&ports, &mut text);
    let plan = handle.plan();
    let counts = handle.counts().map_err(|error| error.to_string())?;
    // A graph that was replaced in between has other elements.
    if counts.len() == plan.len() {
        elements(&plan, &counts, &mut text);
    }
    export::write_metrics(&handle.resources(), &mut text);
    text.single(
        "artery_lost_to_replacement_total",
        Kind::Counter,
        "Packets that ended because an element had no successor when the configuration was replaced.",
        handle.lost_to_replacement(),
    );
    Ok(text.into_text())
}

fn states_of(ports: &[netstat::Port], text: &mut Exposition) {
    let families = [
        ("artery_port_up", "up", "Whether a port's interface is up and has a carrier: 1 or 0."),
        ("artery_port_absent", "absent", "Whether a port has no interface any more: 1 or 0."),
    ];
    for (name, state, help) in families {
        text.family(name, Kind::Gauge, help);
        ports.iter().for_each(|port| {
            text.sample(name, &[("port", &port.name)], u64::from(port.state == state));
        });
    }
    let name = "artery_port_info";
    text.family(name, Kind::Gauge, "What the interface behind a port is called now.");
    for port in ports.iter().filter(|port| !port.interface.is_empty()) {
        text.sample(name, &[("port", &port.name), ("interface", &port.interface)], 1);
    }
}

fn ports_of(ports: &[netstat::Port], text: &mut Exposition) {
    type Value = fn(&artery_device::TrafficCounts) -> u64;
    let values: [(&str, &str, Value); 3] = [
        ("packets", "Packets", |traffic| traffic.packets),
        ("bytes", "Bytes", |traffic| traffic.bytes),
        ("errors", "Packets with errors", |traffic| traffic.errors),
    ];
    for (unit, what, value) in values {
        for (way, done) in [("received", "received"), ("sent", "sent")] {
            let name = format!("artery_port_{way}_{unit}_total");
            text.family(&name, Kind::Counter, &format!("{what} {done} by a port."));
            for port in ports {
                let traffic = if way == "received" { &port.received } else { &port.sent };
                text.sample(&name, &[("port", &port.name)], value(traffic));
            }
        }
    }
}

/// Of ports whose kernel says when frames came.
fn delays_of(ports: &[netstat::Port], text: &mut Exposition) {
    let name = "artery_port_receive_delay_seconds";
    let help = "How long the oldest frame of each received batch had waited in the kernel's queue.";
    text.family(name, Kind::Histogram, help);
    for port in ports.iter().filter(|port| port.delays.total() > 0) {
        let mut passed = 0;
        let bounds = DELAY_BOUNDS.map(|micros| (micros as f64 / 1e6).to_string());
        let bounds = bounds.iter().map(String::as_str).chain(["+Inf"]);
        for (bound, count) in bounds.zip(port.delays.counts) {
            passed += count;
            text.sample(&format!("{name}_bucket"), &[("port", &port.name), ("le", bound)], passed);
        }
        text.sample(&format!("{name}_sum"), &[("port", &port.name)], port.delays.sum as f64 / 1e6);
        text.sample(&format!("{name}_count"), &[("port", &port.name)], port.delays.total());
    }
}

fn elements(plan: &Plan, counts: &[Counts], text: &mut Exposition) {
    let name = "artery_element_packets_total";
    text.family(name, Kind::Counter, "Packets that came to an element.");
    for (node, count) in counts.iter().enumerate() {
        text.sample(name, &[("element", plan.name(node)), ("class", plan.class(node).name)], count.packets);
    }
    let name = "artery_drops_total";
    text.family(name, Kind::Counter, "Packets that ended in an element, by reason.");
    for (node, count) in counts.iter().enumerate() {
        for (reason, drops) in count.drops.iter() {
            let labels =
                [("element", plan.name(node)), ("class", plan.class(node).name), ("reason", reason.name())];
            text.sample(name, &labels, drops);
        }
    }
}
