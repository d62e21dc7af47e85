use super::follower::{Devices, HostRouteFollower, HostRouteFollowers};
use crate::router::port_names::parse_port_names;
use artery_engine::element::StartError;
use artery_engine::{Arg, ArgError, Args, Class, Context, Element, Handler, Interest, Show};
use artery_forward::shared::{self, SharedRouter};
use artery_packet::Batch;
use std::sync::Arc;

pub static CLASS: Class = Class {
    name: "HostRoutes",
    group: "router",
    summary: "keeps the host's routes to a router in step with the router's table",
    manual: "
The host has routes by DEVNAME, its interface to the router as FromHost makes it, to what ROUTER, an
IPRouter, can reach: a default route for each family of which ROUTER has addresses or routes, and one for
each prefix of its static and dynamic routes. With more than 10,000 of these, the host has the default
routes only, which is said. Routes follow ROUTER's within a moment, and are gone when the router ends.

All of them have the protocol number 77 and the metric 4261412864. So routes of others for the same prefix
go first, and are never replaced. zebra of FRR takes them for routes of the kernel with administrative
distance 254. The gateway is the first of the route's in ROUTER, else 169.254.0.1 or fe80::1, for which
ROUTER answers.

DEVNAME also bears the link-local addresses of ROUTER's ports, and no other ones: what the host sends to a
link-local address leaves by the port whose address it is sent from.

With PORT, any number of times, the host has an interface for each port instead, as HostPorts keeps it.
Its routes lead by the interface of their first gateway's port; there are none for routes without a
gateway, no default route but ROUTER's, and none for dynamic routes, which daemons have put into the
host's table themselves.

A thread does this, for which no packet waits.",
    example: "ip :: IPRouter(PORT eth1 10.0.1.1/24 ETHER 2:0:0:0:0:1, HOST 2:0:0:0:0:fe);
HostRoutes(ip, artery0);
Idle -> ip -> Discard;
FromHost(artery0, ETHER 2:0:0:0:0:fe) -> [1] ip;
ip[1] -> ToHost(artery0);",
    ports: "0/0",
    args: &[
        Arg::required("ROUTER", "element", "the IPRouter whose routes the host gets"),
        Arg::optional("DEVNAME", "interface", "", "the host's interface to the router"),
        Arg::keyword(
            "PORT",
            "port, interface",
            "",
            "a port, and the host's interface that stands for it; any number of them",
        ),
    ],
    handlers: &[
        Handler::read(
            "routes",
            "routes that the host has",
            &Show(|f: &mut Routes| f.follower.status().routes),
        ),
        Handler::read(
            "refused",
            "routes that the host refused, as it has others of the same prefix and metric",
            &Show(|f: &mut Routes| f.follower.status().refused),
        ),
        Handler::read(
            "defaults_only",
            "whether the host has the default routes only, as there are too many others",
            &Show(|f: &mut Routes| f.follower.status().has_defaults_only),
        ),
    ],
    build: |args| Ok(Box::new(Routes::new(args)?)),
    ..Class::DEFAULT
};

struct Routes {
    follower: Arc<HostRouteFollower>,
    router: Arc<SharedRouter>,
    devices: Devices,
}

impl Routes {
    fn new(args: &Args<'_>) -> Result<Routes, ArgError> {
        let router = shared::find_router(args)?;
        let name: Option<String> = args.read("DEVNAME")?;
        let ports = parse_port_names(args)?;
        let (key, devices) = match name {
            Some(name) if ports.is_empty() => {
                let device = args.names().device_name(&name).to_string();
                (device.clone(), Devices::One(device))
            }
            // No interface is called so.
            None if !ports.is_empty() => (format!("ports of {}", router.name()), Devices::Ports(ports)),
            _ => return Err(ArgError::wrong("write either DEVNAME or PORT, as in HostRoutes(ip, artery0)")),
        };
        let follower = HostRouteFollower::open_follower(&args.resource::<HostRouteFollowers>(), &key)
            .map_err(|error| ArgError::wrong(format!("can't follow the host's interfaces: {error}")))?;
        Ok(Routes { follower, router, devices })
    }
}

impl Element for Routes {
    fn push(&mut self, _: usize, _: &mut Batch, _: &mut Context<'_>) {
        unreachable!("it has no inputs")
    }

    fn start(&mut self, cx: &mut Context<'_>) -> Result<(), StartError> {
        self.follower.follow_router(&self.router, &self.devices);
        cx.schedule();
        Ok(())
    }

    fn run_task(&mut self, cx: &mut Context<'_>) -> bool {
        let lines = self.follower.lines().drain_lines();
        for line in &lines {
            cx.print_message(&format!("{}: {line}", cx.name()));
        }
        cx.watch_file(self.follower.lines().lines_fd(), Interest::Readable);
        !lines.is_empty()
    }
}
