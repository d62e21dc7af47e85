use super::balancer_worker::FlowBalancer;
use super::handlers::HANDLERS;
use artery_engine::{Arg, Class};

pub static CLASS: Class = Class {
    name: "FlowBalancer",
    group: "balance",
    summary: "shares the flows of a service out among servers, and keeps each with its server",
    manual: "
Expects IPv4 or IPv6 packets, data starting at the IP header or the header marked by an earlier element. A
packet to a SERVICE goes to one of the members, by output 0: to the one that has its flow, as long as that
lives, and a new flow to one that METHOD chooses. With FORWARD `direct` the packet stays as it is and gets the
member's address as destination annotation, which ARPQuerier sends it to and IPEncap takes as `DST_ANNO`;
members answer by themselves, with the service's address. With `nat` the member's address and port (or the
packet's) take the place of the service's, and answers come back by input 1, to leave by output 2 in the
service's name; there is one SERVICE then. An answer belongs to a flow that was translated. All else that
members send passes as it is: answers to health checks, and to clients that use a member's own address (from
another address or port than those from which they use the service).

With ANSWERS `computed` packets of members are also answers to flows that are not known here, if METHOD
(`maglev`, `hash` or `xor`) gives such a flow to their sender: balancers with the same members, METHOD and
SEED may get the answers to each other's flows then. What members send to the prefixes behind `except` stays
as it is. List every host that uses members' own addresses, including this and the other balancers if they
have CHECK.

With FRAMES true it stands in front of the IPForward and IP6Forward of a router: whole frames come by input I
and leave by output I, those of the service with the member's address as destination annotation, which leads
them to the member. So the router's routes and neighbors serve members, too, and ICMP errors are sent by it.
With `nat` answers are translated at whatever input they come by. Those that it sends itself about answers
don't reach members: let no port that leads to clients have a smaller MTU than members have.

With ROUTER, the IPRouter that frames are on their way through, plain frames of a service take a shortcut:
each is checked and rewritten as IPForward or IP6Forward does it, in the pass that finds its member, and
leaves at once, by output N + P for port P of ROUTER where N inputs are connected. Input I takes frames of its
port I then. All that is an exception for these two goes on to them by output I as before, with a destination
annotation, and so do frames to members behind several next hops, frames that came by a port with RPF, and for
a moment after a neighbor became known all. Frames of a port that is monitored (see FromDevice) end here at l3
where they would take the shortcut. There is none with `nat`.

Without FRAMES all other packets leave by output 1 as they are: those to something else, and those that no
member can take. Without output 1 they are dropped, and so are frames that no member can take.

An ICMP error about an answer (unreachable, too big, time exceeded, parameter problem) goes to the member that
has the flow which it quotes, so that members find the MTU of paths to clients (RFC 7690); one about a flow
that is not known to the worker goes where its hash says. With `nat` what it quotes is translated too (RFC
5508, 4.2), and errors about packets to members come from the service. Fragments follow the first of their
datagram for 2 s, of 1024 datagrams at most; those that come before it pass as packets to something else do
(put IPReassembler before where that happens).

Flows are remembered by each worker for itself: at most FLOWS of each family, YOUNG of which may be unproven
(TCP by a packet without SYN after its SYN, others by a third packet), so that attempts never push out flows
that live. With STATE false nothing is remembered, and a flow goes where its hash says. Members are chosen by
a hash whose SEED and members' names are all that machines must share to agree (`status_json` has a digest).

METHOD is `maglev[=SLOTS]`, `resilient[=BUCKETS]`, `hash`, `xor`, `per-packet`, `flowlet[=GAP]` or
`least-loaded`. A member of weight 0 is drained: it keeps its flows and takes no new ones. What CHECK says is
asked of every member, `tcp`, `http PATH [STATUS|FIRST-LAST]` or `ping`, then any of `every TIME`,
`timeout TIME`, `fall N` and `rise N`; the host's own stack does the asking. A member that fails has its flows
given to others until it is back; when all fail, all are taken for well.

One that takes the place of another in a new configuration (same name) keeps flows of members with the same
name, address and port, and what checks found out about them. What handlers changed stays, too: weights and
removed members where MEMBER is as before, and added members unless a MEMBER has their name now.",
    example: "\
Idle -> b :: FlowBalancer(SERVICE 192.0.2.1:80 tcp, MEMBER web1 10.0.2.11, MEMBER web2 10.0.2.12 weight 2);
b -> Discard; b[1] -> Discard;",
    ports: "1-/1-",
    processing: "h/h",
    args: &[
        Arg::keyword(
            "SERVICE",
            "ADDRESS[:PORT] [tcp|udp]",
            "",
            "what packets are sent to; any number of them",
        ),
        Arg::keyword("MEMBER", "NAME ADDRESS[:PORT] [weight N]", "", "a server; any number of them"),
        Arg::keyword("METHOD", "method", "maglev", "how a new flow's member is chosen"),
        Arg::keyword("FORWARD", "direct or nat", "direct", "how packets get to members"),
        Arg::keyword(
            "ANSWERS",
            "known or computed [except PREFIX …]",
            "known",
            "with `nat`, of which flows packets of members are answers; `computed` is for several balancers",
        ),
        Arg::keyword(
            "FRAMES",
            "bool",
            "false",
            "whether packets are whole frames, on their way to IPForward and IP6Forward",
        ),
        Arg::keyword(
            "ROUTER",
            "element",
            "",
            "the IPRouter that frames are on their way through; plain ones leave at once then",
        ),
        Arg::keyword(
            "CHECK",
            "check",
            "",
            "what is asked of members, such as `tcp`, `http /health 200 every 5s` or `ping fall 2`; nothing \
             if not given",
        ),
        Arg::keyword("STATE", "bool", "true", "whether flows are remembered"),
        Arg::keyword("SEED", "number", "0", "of the hash that members are chosen by"),
        Arg::keyword("FLOWS", "flows", "1048576", "most flows that are remembered, of a family and worker"),
        Arg::keyword("YOUNG", "flows", "65536", "most of them that are not proven"),
        Arg::keyword(
            "RESERVE",
            "flows",
            "0",
            "of how many of them the memory is taken at the start, in huge pages where the system has some",
        ),
        Arg::keyword(
            "PRESET",
            "default or paper",
            "default",
            "after what time a flow is idle: by its state, or always 30 s",
        ),
    ],
    handlers: HANDLERS,
    build: |args| Ok(Box::new(FlowBalancer::new(args)?)),
    ..Class::PER_WORKER
};

#[cfg(test)]
mod tests;
