//! Sessions of BFD as JSON.
use super::bfd_peers::{Peer, Peers, local_address};
use super::json::{port_name, to_json};
use artery_forward::shared::SharedRouter;
use artery_l3::bfd::SessionView;
use artery_l3::router::PortView;
use artery_wire::BfdState;
use serde::Serialize;
use std::net::IpAddr;
use std::time::Duration;

#[derive(Serialize)]
struct SessionsJson {
    schema_version: u32,
    sessions: Vec<SessionJson>,
}

/// Times are in milliseconds, unless their names give another unit.
#[derive(Serialize)]
struct SessionJson {
    peer: IpAddr,
    port: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    local: Option<IpAddr>,
    state: &'static str,
    remote_state: &'static str,
    /// The path's state for routes: `up`, `down`, or `unknown`, which counts as up.
    path: &'static str,
    diagnostic: String,
    remote_diagnostic: String,
    discriminator: u32,
    remote_discriminator: u32,
    interval_ms: f64,
    multiplier: u8,
    tx_interval_ms: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    remote_min_tx_ms: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    remote_min_rx_ms: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    remote_multiplier: Option<u8>,
    #[serde(skip_serializing_if = "Option::is_none")]
    detection_time_ms: Option<f64>,
    /// Since the epoch, in seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    up_since: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    uptime_s: Option<u64>,
    flaps: u64,
    packets_in: u64,
    packets_out: u64,
}

/// Serves the handler `sessions_json`.
pub(super) fn sessions_json(router: &SharedRouter, peers: &Peers, now: Duration) -> String {
    let ports = router.lock_tables().ports();
    let sessions = peers.lock().iter().map(|peer| session_json(peer, &ports, now)).collect();
    to_json(&SessionsJson { schema_version: 1, sessions })
}

fn session_json(peer: &Peer, ports: &[PortView], now: Duration) -> SessionJson {
    let view = peer.session.view();
    let timers = view.remote_timers;
    SessionJson {
        peer: peer.address,
        port: port_name(ports, peer.port),
        local: ports.get(usize::from(peer.port.0)).and_then(|port| local_address(port, peer.address)),
        state: view.state.name(),
        remote_state: view.remote_state.name(),
        path: path_state(&view),
        diagnostic: view.diagnostic.to_string(),
        remote_diagnostic: view.remote_diagnostic.to_string(),
        discriminator: view.discriminator,
        remote_discriminator: view.remote_discriminator,
        interval_ms: to_millis(view.settings.interval),
        multiplier: view.settings.multiplier,
        tx_interval_ms: to_millis(view.tx_interval),
        remote_min_tx_ms: timers.map(|(min_tx, _, _)| to_millis(min_tx)),
        remote_min_rx_ms: timers.map(|(_, min_rx, _)| to_millis(min_rx)),
        remote_multiplier: timers.map(|(_, _, multiplier)| multiplier),
        detection_time_ms: view.detection_time.map(to_millis),
        up_since: view.up_since.map(|since| since.as_secs_f64()),
        uptime_s: view.up_since.map(|since| now.saturating_sub(since).as_secs()),
        flaps: view.flaps,
        packets_in: view.received,
        packets_out: view.sent,
    }
}

fn path_state(view: &SessionView) -> &'static str {
    match view.state {
        BfdState::Up => "up",
        _ if view.is_path_down => "down",
        _ => "unknown",
    }
}

fn to_millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1000.0
}
