use super::shared::{FpmServer, FpmServers};
use super::target::Target;
use crate::router::port_names::parse_port_names;
use artery_engine::element::StartError;
use artery_engine::{Arg, ArgError, Args, Class, Context, Element, Handler, Interest, Show};
use artery_forward::shared;
use artery_packet::Batch;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

pub static CLASS: Class = Class {
    name: "FPMServer",
    group: "router",
    summary: "takes routes for a router from FRR's zebra, by its Forwarding Plane Manager protocol",
    manual: "
Listens on LISTEN for zebra's module dplane_fpm_nl, and puts the routes that it sends into ROUTER, an
IPRouter: IPv4 and IPv6, with one next hop or several, with or without next-hop groups, blackhole, unreachable
and prohibit. The protocol that a route is from is kept. Each route is answered once it is in the table, by
RTM_F_OFFLOAD, or by RTM_F_OFFLOAD_FAILED where it was refused, which zebra reads from FRR 8.5 on. Packets do
not wait for any of this: a thread does it.

For one prefix, a static route of ROUTER, or one of its own addresses, comes before one of FPM, which then
waits. Routes of the sender's kernel, of other tables than the main one, MAC tables and MPLS are ignored and
counted. Routes with encapsulation are refused.

A next hop's port is the one whose prefix its gateway is in. An interface that zebra names counts if
zebra runs on this host: if it is a port, or stands for one by PORT, the next hop is there; if it is
HOST, or there is none with the number, the prefix decides; a route by any other is refused. A link-local
gateway without a port is refused where ROUTER has several ports.

One connection feeds ROUTER; others are refused meanwhile. When it ends, its routes stay and are stale. Those
that the next connection does not send again are removed HOLD after it began, or five seconds after it last
sent a stale one, if that is later. Bytes that are not FPM end the connection. Routes and connection outlive a
replacement of the configuration.",
    example: "ip :: IPRouter(PORT eth1 10.0.1.1/24 ETHER 2:0:0:0:0:1);
FPMServer(ip, LISTEN 127.0.0.1:2620, HOLD 60s);
Idle -> ip -> Discard;",
    ports: "0/0",
    args: &[
        Arg::required("ROUTER", "element", "the IPRouter that gets the routes"),
        Arg::keyword(
            "LISTEN",
            "address:port",
            "127.0.0.1:2620",
            "where zebra connects; the port may be left out",
        ),
        Arg::keyword("HOLD", "time", "60s", "how long stale routes stay after a connection began"),
        Arg::keyword(
            "HOST",
            "interface",
            "artery0",
            "the host's interface to the router, which zebra names for gateways",
        ),
        Arg::keyword(
            "PORT",
            "port, interface",
            "",
            "a port, and the host's interface that stands for it; any number of them",
        ),
    ],
    handlers: &[Handler::read(
        "status_json",
        "the connection, messages, and routes by state, as JSON",
        &Show(|fpm: &mut Fpm| fpm.server.status_json()),
    )],
    build: |args| Ok(Box::new(Fpm::new(args)?)),
    ..Class::DEFAULT
};

/// The port of FPM (fpm/fpm.h).
const PORT: u16 = 2620;

struct Fpm {
    server: Arc<FpmServer>,
}

impl Fpm {
    fn new(args: &Args<'_>) -> Result<Fpm, ArgError> {
        let router = shared::find_router(args)?;
        let text: String = args.read("LISTEN")?;
        let listen = parse_address(&text).ok_or_else(|| ArgError::Invalid {
            arg: "LISTEN",
            value: text.clone(),
            fault: "is not a valid address".into(),
            wants: "an IP address with or without a port, such as 127.0.0.1:2620".into(),
        })?;
        let (hold, host): (Duration, String) = (args.read("HOLD")?, args.read("HOST")?);
        let server = FpmServer::open_server(&args.resource::<FpmServers>(), listen).map_err(|error| {
            ArgError::wrong_at(
                text,
                format!("can't listen on {listen}: {error}; choose another address or port"),
            )
        })?;
        let host_ports = parse_port_names(args)?;
        server.add_router(Target::new(&router, Some(&host), &host_ports), hold);
        Ok(Fpm { server })
    }
}

/// Parses `ADDRESS` or `ADDRESS:PORT`.
fn parse_address(text: &str) -> Option<SocketAddr> {
    let alone = || text.parse::<IpAddr>().ok().map(|address| SocketAddr::new(address, PORT));
    text.parse().ok().or_else(alone)
}

impl Element for Fpm {
    fn push(&mut self, _: usize, _: &mut Batch, _: &mut Context<'_>) {
        unreachable!("it has no inputs")
    }

    fn start(&mut self, cx: &mut Context<'_>) -> Result<(), StartError> {
        cx.schedule();
        Ok(())
    }

    fn run_task(&mut self, cx: &mut Context<'_>) -> bool {
        let lines = self.server.drain_lines();
        for line in &lines {
            cx.print_message(&format!("{}: {line}", cx.name()));
        }
        cx.watch_file(self.server.lines_fd(), Interest::Readable);
        !lines.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_may_lack_its_port() {
        let read = |text| parse_address(text).map(|address| address.to_string());
        assert_eq!(read("127.0.0.1").as_deref(), Some("127.0.0.1:2620"));
        assert_eq!(read("[::1]:7").as_deref(), Some("[::1]:7"));
        assert_eq!(read("::1").as_deref(), Some("[::1]:2620"));
        assert_eq!((read("localhost"), read("2620"), read("1.2.3.4:99999")), (None, None, None));
    }
}
