use super::handlers;
use super::router_worker::IpRouter;
use artery_engine::{Arg, Class, Phase};

pub static CLASS: Class = Class {
    name: "IPRouter",
    group: "router",
    summary: "holds the ports, routes and neighbors of a router",
    manual: "
Holds the ports, routes and neighbors of a router. It is the router's slow path: IPForward and IP6Forward
forward by what it holds, and pass all exceptions on to it. Ports are numbered in the order of PORT, from 0.
Input I takes whole frames that port I received: ARP, and what IPForward and IP6Forward turn aside. It handles
all other packets, too, but more slowly. Output I leads to port I. The input and the output behind them belong
to the host, if there is one. A last input, behind the host's, takes frames that elements of the router itself
send, as BFD does, each to a neighbor on the link of the port whose number is its paint: IPRouter writes the
MAC addresses.

PORT is `NAME ADDRESS/LENGTH… [ETHER ADDRESS] [MTU BYTES] [MTU_LIMIT BYTES] [RPF off|loose|strict] [PROXY_ARP
BOOL] [STATIC_ARP BOOL] [REDIRECTS BOOL] [ONLINK BOOL] [VIP ADDRESS]…`. Without ETHER, NAME is an interface of
this machine, which has an address. RPF is what is demanded of the source of packets (RFC 3704): nothing, that
a route leads there, or that it leaves by the same port. With ONLINK, gateways are believed to be on its link
whatever its addresses are. A VIP is a virtual address in one of the port's prefixes, that of a service of
FlowBalancer: the port announces it, and answers ARP and Neighbor Discovery for it. Of what is sent to it and
not balanced, pings are answered, and datagrams refused; the host does not get it. Where NAME is an interface
of this machine, the router follows it: its link that goes down and comes up, another MTU, another Ethernet
address, another name. When it is deleted or moved to another network namespace the port is absent, which
counts as down, until there is an interface NAME again. So it does with the interface of a VLAN, `eth1` for a
port `eth1.10` that is not an interface itself; there ETHER is needed, and the tags are put in and taken off
by other elements. MTU counts until the interface gets another one; MTU_LIMIT is an upper bound that stays.
NEIGHBOR is `PORT ADDRESS ETHER`: a neighbor that need not be asked for. ROUTE is `PREFIX WAY… [by METHOD]`,
where a way is the address of a gateway (with `%PORT` behind it, if that does not tell the port), the name of
a port, or one of `blackhole`, `unreachable` and `prohibited`. Behind a gateway or port may stand `mtu BYTES`
and, where several share packets, `weight N`. Methods are `hash` of the flow, `resilient` (the same, but flows
stay where they are when another gateway dies), `xor` of addresses and ports as in 2008, and `per-packet`.
TABLE is `FILE [GATEWAY…]`: routes from a file, as text or an MRT dump; those of which it does not say where
they lead are dealt out to the gateways. What ROUTE says goes before that.

Packets are checked in the order of RFC 1812 section 5.2 and RFC 8200: MAC address, header, source, route,
options, hops left, length. Each dropped packet is counted under its own reason. Where the standards require
it, its sender gets an ICMP error, of IPv4 with an address of the port that the error leaves by; no errors
are sent about errors, about fragments other than the first, or about multicast. IPv4 source routes and IPv6
routing headers are refused.
Packets that are too long are fragmented, or their sender gets the MTU in an ICMP error. A packet that leaves
by the port it came by is forwarded, and its sender redirected. One with a destination annotation, as
FlowBalancer gives it, goes where that leads instead of to its destination, and its sender is not redirected.

Packets to an unknown neighbor wait for it: up to HOLD for each neighbor, after which the oldest is dropped,
and HOLD_ALL in all. They are sent before later ones, which the fast path turns aside meanwhile. If the
neighbor never answers, their senders get ICMP errors. Neighbors are found by ARP (RFC 826) and Neighbor
Discovery (RFC 4861), and those in use are verified by the rules of RFC 4861 section 7.3 for both: a silent
one is noticed within a minute. Silent next hops are not used where a route has others; else senders get ICMP
errors. The router announces and defends its own addresses. With ACD or DAD they are not used before it is
clear that no other host has them, and an address that another host has is not used at all.

Echo requests to the router are answered, also in fragments. All other packets for the router go to HOST, the
MAC address of the host, whose frames come by the last input: its ARP requests and neighbor solicitations are
answered with the MAC address of the first port, and its packets keep their time to live. Without HOST they
end as `local`.

With HOST_PORTS each port has an interface of its own on the host, as FromHost with HOST_PORT makes it.
The outputs behind the host's lead there, that of port 0 first, and the inputs behind the one for the
router's own elements come from there. The host gets frames as they came: what is for the router's
addresses or to groups and all of the link, answers of ARP and Neighbor Discovery, advertisements of
routers, and frames of other protocols to groups and the port. IPRouter alone answers for its addresses.
What the host sends leaves by the port as it is, unless it is sent from an address that the router may
not use yet.

What the router says itself is limited by ICMP_RATE, ICMP_EACH and MESSAGE_RATE, which workers share evenly.

A router that takes the place of another takes over the neighbors that were learnt, the packets that wait for
others, the claims of its addresses, and the routes that handlers have set and of which it has not the prefix
itself; ports are the same if their names are.",
    example:
        "ip :: IPRouter(PORT eth1 10.0.1.1/24 ETHER 2:0:0:0:0:1, PORT eth2 10.0.2.1/24 ETHER 2:0:0:0:0:2,
    NEIGHBOR eth2 10.0.2.254 2:0:0:0:2:fe, ROUTE 0.0.0.0/0 10.0.2.254);
f4 :: IPForward(ip);
Idle -> f4; Idle -> [1] f4;
f4[0] -> Discard; f4[1] -> Discard;
f4[2] -> slow :: PaintSwitch; slow[0] -> ip; slow[1] -> [1] ip;
ip[0] -> Discard; ip[1] -> Discard; ip[2] -> Discard;",
    ports: "-/-",
    processing: "h/h",
    args: &[
        Arg::keyword("PORT", "name, addresses", "", "a port; any number of them"),
        Arg::keyword("ROUTE", "prefix, ways", "", "a route; any number of them"),
        Arg::keyword("NEIGHBOR", "port, IP address, Ethernet address", "", "a neighbor; any number of them"),
        Arg::keyword("TABLE", "file, gateways", "", "a file of routes; any number of them"),
        Arg::keyword(
            "NEIGHBORS",
            "own or external",
            "own",
            "whether neighbors are found on the links, or set by handlers alone (external): then the router \
             asks for none, and 169.254.0.0/16 is forwarded as any other prefix",
        ),
        Arg::keyword(
            "HOST",
            "Ethernet address",
            "",
            "the host's MAC address, for packets to the router that it does not answer itself",
        ),
        Arg::keyword(
            "HOST_PORTS",
            "bool",
            "false",
            "whether each port has an interface of its own on the host",
        ),
        Arg::keyword(
            "ACD",
            "bool",
            "false",
            "whether IPv4 addresses are used only when no other host has them (RFC 5227)",
        ),
        Arg::keyword(
            "DAD",
            "bool",
            "true",
            "whether IPv6 addresses are used only when no other host has them (RFC 4862)",
        ),
        Arg::keyword("HOLD", "packets", "16", "most packets that wait for one neighbor, on each worker"),
        Arg::keyword("HOLD_ALL", "packets", "1024", "most packets that wait for neighbors in all"),
        Arg::keyword(
            "ICMP_RATE",
            "errors per second",
            "1000",
            "most errors, redirects and echo replies in all",
        ),
        Arg::keyword("ICMP_EACH", "errors per second", "100", "most of them to one destination"),
        Arg::keyword(
            "MESSAGE_RATE",
            "messages per second",
            "10000",
            "most ARP and ND messages that are looked at, and as many of those from known neighbors, and of \
             those that packets wait for",
        ),
    ],
    handlers: handlers::HANDLERS,
    // Created before other elements, which look the router up when they are created, but after
    // its workers are assigned.
    phase: Phase::Privileged,
    build: |args| Ok(Box::new(IpRouter::new(args)?)),
    ..Class::PER_WORKER
};
