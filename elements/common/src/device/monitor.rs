//! The state and counters that ports report, and monitor mode where packets come in.
use artery_device::{Port, PortState, Ports, TrafficCounts};
use artery_engine::{Arg, Batch, Context, DropReason, Level, Monitor, Monitors, Resources, RouterHandler};
use std::fmt::Write as _;
use std::hint::black_box;

/// The argument of a receiving element that says how far its packets come.
pub(crate) const MONITOR: Arg =
    Arg::keyword("MONITOR", "off, l0 … l4", "off", "how far received packets come before they end");

/// Ends what was received by a port at this level, if that is before the first element.
pub(super) fn end_at_port(level: Level, batch: &mut Batch, cx: &mut Context<'_>) {
    match level {
        Level::L0 => {}
        // The value is not used; reading the header is the purpose of this level.
        Level::L1 => batch.iter().for_each(|packet| {
            let _ = black_box(ether_type(packet.data()));
        }),
        Level::L2 | Level::L3 | Level::L4 => return,
    }
    cx.discard_all(batch, DropReason::Monitored);
}

fn ether_type(frame: &[u8]) -> Option<u16> {
    frame.get(12..14)?.first_chunk().map(|bytes| u16::from_be_bytes(*bytes))
}

/// What a port has counted, for one handler: a line for each count.
pub(super) fn format_counts(port: &Port) -> String {
    let mut text = String::new();
    for (way, TrafficCounts { packets, bytes, errors }) in [("in", port.received()), ("out", port.sent())] {
        // Writing to a string can't fail.
        let _ = writeln!(text, "{way}_packets {packets}\n{way}_bytes {bytes}\n{way}_errors {errors}");
    }
    text
}

/// The router's handler `ports`: all ports, one a line, below the names of the columns.
pub(crate) const PORTS: RouterHandler = RouterHandler { name: "ports", read: list_ports };

fn list_ports(resources: &Resources) -> String {
    let (ports, monitors) = (resources.get::<Ports>(), resources.get::<Monitors>());
    let mut text = String::from(
        "port\tmtu\taddress\tmonitor\tin_packets\tin_bytes\tin_errors\tout_packets\tout_bytes\tout_errors\t\
         in_delays\tin_delay_us\tstate\tinterface\n",
    );
    for port in ports.list() {
        let interface = port.interface();
        let mtu = interface.as_ref().map_or("-".to_string(), |interface| interface.mtu.to_string());
        let state = port.present_state();
        let called = interface.as_ref().filter(|_| state != PortState::Absent);
        let called = called.map_or("-".to_string(), |interface| interface.name.clone());
        let address = interface.and_then(|interface| interface.mac);
        let address = address.map_or("-".to_string(), |mac| artery_wire::EtherAddr(mac).to_string());
        let _ = write!(text, "{}\t{mtu}\t{address}\t{}", port.name(), monitors.monitor_of(port.id()));
        for TrafficCounts { packets, bytes, errors } in [port.received(), port.sent()] {
            let _ = write!(text, "\t{packets}\t{bytes}\t{errors}");
        }
        let delays = port.receive_delays();
        let counts = delays.counts.map(|count| count.to_string()).join(",");
        let _ = writeln!(text, "\t{counts}\t{}\t{}\t{called}", delays.sum, state.name());
    }
    text
}

/// The monitor mode that a receiving element was configured with.
#[derive(Default)]
pub(super) struct MonitorSetting {
    /// Its argument, until the element runs: then, and not before, it takes the place of a predecessor.
    pub(super) argument: Option<Monitor>,
}

impl MonitorSetting {
    /// Sets the port to what the argument says, once.
    #[inline]
    pub(super) fn apply_argument(&mut self, port: u16, cx: &mut Context<'_>) {
        if let Some(monitor) = self.argument.take() {
            cx.set_monitor(port, monitor);
        }
    }
    /// How far packets of the port come once this element runs.
    pub(super) fn current_monitor(&self, port: u16, cx: &Context<'_>) -> Monitor {
        self.argument.unwrap_or_else(|| cx.port_monitor(port))
    }
    /// Sets it in the run.
    pub(super) fn set_monitor(&mut self, port: u16, monitor: Monitor, cx: &mut Context<'_>) {
        self.argument = None;
        cx.set_monitor(port, monitor);
    }
}
