use super::follower::{HostRouteFollower, HostRouteFollowers};
use crate::router::shared::{self, SharedRouter};
use artery_engine::element::StartError;
use artery_engine::{Arg, ArgError, Args, Class, Context, Element, Handler, Interest, Read};
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

A thread does this, for which no packet waits.",
    example: "ip :: IPRouter(PORT eth1 10.0.1.1/24 ETHER 2:0:0:0:0:1, HOST 2:0:0:0:0:fe);
HostRoutes(ip, artery0);
Idle -> ip -> Discard;
FromHost(artery0, ETHER 2:0:0:0:0:fe) -> [1] ip;
ip[1] -> ToHost(artery0);",
    ports: "0/0",
    args: &[
        Arg::required("ROUTER", "element", "the IPRouter whose routes the host gets"),
        Arg::required("DEVNAME", "interface", "the host's interface to the router"),
    ],
    handlers: &[
        Handler::read(
            "routes",
            "routes that the host has",
            &Read(|f: &mut Routes, _, _| Ok(f.follower.status().routes.to_string())),
        ),
        Handler::read(
            "refused",
            "routes that the host refused, as it has others of the same prefix and metric",
            &Read(|f: &mut Routes, _, _| Ok(f.follower.status().refused.to_string())),
        ),
        Handler::read(
            "defaults_only",
            "whether the host has the default routes only, as there are too many others",
            &Read(|f: &mut Routes, _, _| Ok(f.follower.status().has_defaults_only.to_string())),
        ),
    ],
    build: |args| Ok(Box::new(Routes::new(args)?)),
    ..Class::DEFAULT
};

struct Routes {
    follower: Arc<HostRouteFollower>,
    router: Arc<SharedRouter>,
}

impl Routes {
    fn new(args: &Args<'_>) -> Result<Routes, ArgError> {
        let router = shared::router(args)?;
        let name: String = args.read("DEVNAME")?;
        let device = args.names().device(&name).to_string();
        let follower = HostRouteFollower::open(&args.resource::<HostRouteFollowers>(), &device)
            .map_err(|error| ArgError::wrong(format!("can't follow the host's interfaces: {error}")))?;
        Ok(Routes { follower, router })
    }
}

impl Element for Routes {
    fn push(&mut self, _: usize, _: &mut Batch, _: &mut Context<'_>) {
        unreachable!("it has no inputs")
    }

    fn start(&mut self, cx: &mut Context<'_>) -> Result<(), StartError> {
        self.follower.follow(&self.router);
        cx.schedule();
        Ok(())
    }

    fn run(&mut self, cx: &mut Context<'_>) -> bool {
        let lines = self.follower.take_lines();
        for line in &lines {
            cx.say(&format!("{}: {line}", cx.name()));
        }
        cx.watch(self.follower.news(), Interest::Readable);
        !lines.is_empty()
    }
}
