//! The path "graph": a graph made for the ports, and programs in front of it that choose what it forwards.
use super::facts::Facts;
use crate::classes::classes;
use crate::load::{Reading, load};
use crate::output::Output;
use anyhow::{Context as _, ensure};
use artery_adopt::fast::Mode;
use artery_adopt::graph::Graph;
use artery_common::ROUTER_HANDLERS;
use artery_device::Interface;
use artery_engine::{Router, RouterSettings, Running};
use artery_forward::shared::RouterTables;
use artery_l3::PortId;
use std::fmt::Write as _;

/// A graph at work, and what its ports are reached by.
pub(super) struct Engine {
    running: Running,
    host_ports: Vec<u32>,
}

/// A port as its graph names it.
struct Place {
    name: String,
    /// The interface by which frames come to the graph.
    host_port: String,
    mtu: u32,
}

impl Engine {
    /// Starts the graph. It gets no packets before programs redirect some to it.
    pub(super) fn start(ports: &[Facts], voice: Output) -> anyhow::Result<(Engine, Graph)> {
        let places = ports.iter().map(Place::of).collect::<anyhow::Result<Vec<_>>>()?;
        let loaded = load("adopt.click", &configuration(&places), &Reading::default());
        let mut settings = RouterSettings {
            handlers: ROUTER_HANDLERS,
            chatter: voice.product_sink(),
            ..RouterSettings::default()
        };
        settings.names.set_device_lookup(Interface::mac_of);
        let router =
            Router::build(&loaded.ir, &loaded.processing, classes(), settings).map_err(|problems| {
                let lines: Vec<String> = problems.into_iter().map(|problem| problem.message).collect();
                anyhow::anyhow!("the graph can't start: {}", lines.join("; "))
            })?;
        router.accept_calls();
        let running = router.start();
        let tables =
            RouterTables::of(&running.handle().resources(), "ip").context("the graph has no router")?;
        let numbers =
            ports.iter().enumerate().map(|(number, facts)| (facts.port.index, PortId(number as u16)));
        let graph = Graph::new(numbers.collect(), Box::new(move |act| act(&mut tables.lock())));
        let host_ports = places.iter().map(|place| Ok(Interface::find(&place.host_port)?.index));
        let host_ports = host_ports.collect::<anyhow::Result<Vec<_>>>()?;
        Ok((Engine { running, host_ports }, graph))
    }

    /// How a port's program sends to the graph, by the number of the port.
    pub(super) fn mode(&self, port: usize) -> Mode {
        Mode::HostPort(self.host_ports[port])
    }

    /// Whether a worker has ended, which none should.
    pub(super) fn has_ended(&self) -> bool {
        self.running.has_ended()
    }

    /// Ends the graph. Programs must not send to it any more.
    pub(super) fn end(self) -> anyhow::Result<()> {
        self.running.handle().end_run();
        let ended = self.running.wait();
        ended.map(|_| ()).map_err(|worker| anyhow::anyhow!("{worker} failed; this is a defect"))
    }
}

impl Place {
    fn of(facts: &Facts) -> anyhow::Result<Place> {
        let name = facts.port.name.clone();
        ensure!(
            facts.port.vlan_on.is_none(),
            "{name}: the graph knows no VLANs; adopt the interface it is on"
        );
        let mtu = Interface::find(&name)?.mtu;
        // Another process may have one for the port, and be about to hand over.
        let host_port = format!("art{}-{:x}", facts.port.index, std::process::id());
        Ok(Place { name, host_port, mtu })
    }
}

/// The graph: the router's tables forward what arrives by a port's host interface. A packet that they
/// can't forward, although it was chosen, was overtaken by a change; it is dropped, as it would have
/// been on the wire.
fn configuration(places: &[Place]) -> String {
    let mut text = String::from("ip :: IPRouter(");
    for Place { name, mtu, .. } in places {
        let _ = write!(text, "PORT {name} MTU {mtu} REDIRECTS false ONLINK true, ");
    }
    text += "NEIGHBORS external);\nf4 :: IPForward(ip);\nf6 :: IP6Forward(ip);\n";
    for (number, Place { name, host_port, mtu }) in places.iter().enumerate() {
        let _ = writeln!(
            text,
            "FromHost({host_port}, MTU {mtu}) -> kind{number} :: Classifier(12/0800, 12/86dd, -);\n\
             kind{number}[0] -> [{number}] f4;\nkind{number}[1] -> [{number}] f6;\n\
             kind{number}[2] -> Discard;\n\
             f4[{number}], f6[{number}] -> ToDevice({name});\nIdle -> [{number}] ip;\n\
             ip[{number}] -> Discard;"
        );
    }
    let aside = places.len();
    let _ = writeln!(text, "f4[{aside}], f6[{aside}] -> aside :: Discard;");
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_graph_has_no_mistake() {
        let place = |number: u32| Place {
            name: format!("lo{number}"),
            host_port: format!("artery{number}"),
            mtu: 1500,
        };
        let text = configuration(&[place(2), place(7), place(9)]);
        let loaded = load("adopt.click", &text, &Reading::default());
        assert!(!loaded.has_errors(), "{:?}", loaded.diagnostics);
        assert_eq!(text.matches("FromHost(artery7, MTU 1500)").count(), 1);
        assert_eq!(text.matches("f4[3], f6[3] -> aside").count(), 1);
    }
}
