//! Random routers, and what happens to them.
use super::frames::{V4, V6, pick};
use super::path::Path;
use artery_wire::Random;
use artery_wire::build::{arp_reply, neighbor_advertisement};
use std::time::Duration;

/// Ports `a` to `d`. Neighbors have 10.0.PORT.2 to .40 and 2001:db8:PORT::2 to ::40.
pub(crate) const NAMES: [&str; 4] = ["a", "b", "c", "d"];

/// The link address of neighbor `host` on a port.
fn station(port: u64, host: u64) -> String {
    format!("2:0:0:0:{:x}:{host:x}", port + 1)
}

/// The arguments of a router.
pub(crate) fn config(random: &mut Random) -> String {
    let port = |(number, name): (usize, &&str), random: &mut Random| {
        let n = number + 1;
        // Per-packet balancing uses the first two ports, which have the same MTU, so the choice does
        // not affect the result.
        let mtu = if number < 2 { 1500 } else { pick(random, &[576, 1280, 1500]) };
        let rpf = pick(random, &["off", "off", "off", "off", "off", "loose", "strict"]);
        let redirects = random.percent(70);
        format!(
            "PORT {name} 10.0.{n}.1/24 2001:db8:{n}::1/64 ETHER 2:0:0:0:0:{n} MTU {mtu} RPF {rpf} REDIRECTS \
             {redirects}, "
        )
    };
    let ports: String = NAMES.iter().enumerate().map(|at| port(at, random)).collect();
    let host = if random.percent(75) { "HOST 2:0:0:0:9:9, " } else { "" };
    format!("{ports} DAD false, {host}HOLD 3, HOLD_ALL 40, ICMP_RATE 1000000, ICMP_EACH 1000000")
}

/// Makes one random change: to routes, neighbors, ports, or only the time.
pub(crate) fn change(path: &mut Path, random: &mut Random) {
    (0..4).for_each(|_| route(path, random));
    (0..20).for_each(|_| neighbor(path, random));
    if random.percent(15) {
        let up = if random.percent(60) { "up" } else { "down" };
        path.write("port", &format!("{} {up}", pick(random, &NAMES[2..])));
    }
    path.pass(Duration::from_millis(pick(random, &[10, 900, 2500, 6000, 40_000, 1_300_000])));
}

fn route(path: &mut Path, random: &mut Random) {
    let is_v4 = random.percent(50);
    let prefix = if is_v4 { pick(random, &V4.prefixes) } else { pick(random, &V6.prefixes) };
    if random.percent(10) {
        // It may not be there.
        return path.try_write("remove_route", prefix);
    }
    let gateway = |random: &mut Random| {
        let (port, host) = (1 + random.below(4), 2 + random.below(6));
        if is_v4 && random.percent(80) {
            format!("10.0.{port}.{host}")
        } else {
            format!("2001:db8:{port}::{host:x}")
        }
    };
    let mtu = if random.percent(20) { " mtu 600" } else { "" };
    let targets = match random.below(10) {
        0 => "blackhole".to_string(),
        1 => "unreachable".to_string(),
        2 => "prohibited".to_string(),
        3 => format!("{}{mtu}", pick(random, &NAMES)),
        4 | 5 => {
            let targets: Vec<String> = (0..2 + random.below(4))
                .map(|_| format!("{} weight {}", gateway(random), 1 + random.below(3)))
                .collect();
            format!("{} by {}", targets.join(" "), pick(random, &["hash", "xor", "resilient"]))
        }
        // Members of the same kind, so that it makes no difference which one a packet takes.
        6 if is_v4 => "10.0.1.50 10.0.2.50 by per-packet".to_string(),
        _ => format!("{}{mtu}", gateway(random)),
    };
    path.write("set_route", &format!("{prefix} {targets}"));
}

fn neighbor(path: &mut Path, random: &mut Random) {
    // Half of them are gateways of routes.
    let most = if random.percent(50) { 6 } else { 39 };
    let (port, host) = (random.below(4), 2 + random.below(most));
    let (name, number) = (NAMES[port as usize], port as usize);
    let is_v4 = random.percent(50);
    let n = port + 1;
    let address = if is_v4 { format!("10.0.{n}.{host}") } else { format!("2001:db8:{n}::{host:x}") };
    let ether = station(port, host);
    match random.below(8) {
        0 => path.write("add_neighbor", &format!("{name} {address} {ether}")),
        1 | 2 => path.write("add_neighbor", &format!("{name} {address} {ether} temporary")),
        3 => path.try_write("remove_neighbor", &format!("{name} {address}")),
        4 if random.percent(30) => path.write("flush_neighbors", name),
        4..=6 => {
            let (us, you) = (format!("10.0.{n}.1"), format!("2001:db8:{n}::1"));
            let own = format!("2:0:0:0:0:{n}");
            let frame = if is_v4 {
                arp_reply(&ether[..], &address[..], &own[..], &us[..])
            } else {
                neighbor_advertisement(&ether[..], &address[..], &own[..], &you[..])
            };
            path.feed(number, &frame.bytes());
        }
        // Nothing but a question brings it into being; then it answers, or does not.
        _ => path.ask_for(&address, is_v4),
    }
}

/// Adds the neighbors that per-packet routes use.
pub(crate) fn always(path: &mut Path) {
    path.write("add_neighbor", "a 10.0.1.50 2:0:0:0:1:50");
    path.write("add_neighbor", "b 10.0.2.50 2:0:0:0:2:50");
}
