use super::shared::FollowedRouter;
use super::threads::{AllHostPorts, HostPorts};
use crate::router::port_names::parse_port_names;
use artery_engine::element::StartError;
use artery_engine::{Arg, ArgError, Args, Class, Context, Element, Handler, Interest, Show};
use artery_forward::shared::{self, SharedRouter};
use artery_packet::Batch;
use std::sync::Arc;

pub static CLASS: Class = Class {
    name: "HostPorts",
    group: "router",
    summary: "keeps the host's interfaces that stand for a router's ports, and forwards by the host's routes",
    manual: "
PORT is `PORT INTERFACE`: a port of ROUTER, an IPRouter with HOST_PORTS, and the interface of the host
that stands for it, which a FromHost with HOST_PORT makes. What daemons of the host see of the interface
is the port: HostPorts gives it the port's Ethernet address, MTU, link state and addresses, its
link-local address included, and follows them. Addresses that others gave it stay. Whether it is up is
the host's affair.

ROUTER forwards by the routes of the host's main table that lead by these interfaces, and by those that
end packets: blackhole, unreachable and prohibit. They are routes of both families, with one next hop or
several, with next-hop objects or without them, and keep their protocol. Of several routes for a prefix,
the one with the lowest metric of those that lead by these interfaces counts. Not read are routes that
the kernel makes of addresses, or learns from others on the link (redirects, router advertisements),
those for some sources or types of service, and those that HostRoutes puts there. Static routes of ROUTER
come first. With ROUTES false the host's routes are not read.

Threads do this, for which no packet waits. Interfaces and routes outlive a replacement of the
configuration.",
    example: "ip :: IPRouter(PORT eth1 10.0.1.1/24 ETHER 2:0:0:0:0:1, HOST_PORTS true);
HostPorts(ip, PORT eth1 hp-eth1);
Idle -> ip -> Discard;
Idle -> [1] ip; ip[1] -> Discard;
Idle -> [2] ip;
FromHost(hp-eth1, ETHER 2:0:0:0:0:1, HOST_PORT true) -> [3] ip;
ip[2] -> ToHost(hp-eth1);",
    ports: "0/0",
    args: &[
        Arg::required("ROUTER", "element", "the IPRouter whose ports the host gets"),
        Arg::keyword(
            "PORT",
            "port, interface",
            "",
            "a port, and the host's interface that stands for it; any number of them",
        ),
        Arg::keyword("ROUTES", "bool", "true", "whether the router forwards by the host's routes"),
    ],
    handlers: &[Handler::read(
        "status_json",
        "the interfaces, and the host's routes by state, as JSON",
        &Show(|ports: &mut HostPortsElement| ports.host_ports.status_json()),
    )],
    build: |args| Ok(Box::new(HostPortsElement::new(args)?)),
    ..Class::DEFAULT
};

struct HostPortsElement {
    host_ports: Arc<HostPorts>,
    router: Arc<SharedRouter>,
    followed: FollowedRouter,
}

impl HostPortsElement {
    fn new(args: &Args<'_>) -> Result<HostPortsElement, ArgError> {
        let router = shared::find_router(args)?;
        let names = parse_port_names(args)?;
        let has_routes: bool = args.read("ROUTES")?;
        let host_ports = HostPorts::open(&args.resource::<AllHostPorts>(), router.name())
            .map_err(|error| ArgError::wrong(format!("can't follow the host's interfaces: {error}")))?;
        if has_routes {
            host_ports.add_router(&router, &names);
        }
        Ok(HostPortsElement { host_ports, router, followed: FollowedRouter { names, has_routes } })
    }
}

impl Element for HostPortsElement {
    fn push(&mut self, _: usize, _: &mut Batch, _: &mut Context<'_>) {
        unreachable!("it has no inputs")
    }

    fn start(&mut self, cx: &mut Context<'_>) -> Result<(), StartError> {
        self.host_ports.follow_router(&self.router, &self.followed);
        cx.schedule();
        Ok(())
    }

    fn run_task(&mut self, cx: &mut Context<'_>) -> bool {
        let lines = self.host_ports.drain_lines();
        for line in &lines {
            cx.print_message(&format!("{}: {line}", cx.name()));
        }
        cx.watch_file(self.host_ports.lines_fd(), Interest::Readable);
        !lines.is_empty()
    }
}
