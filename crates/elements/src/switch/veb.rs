use super::handlers::HANDLERS;
use super::shared::SharedSwitch;
use super::worker::Worker;
use artery_engine::{Arg, ArgError, Args, Batch, Class, Context, Element, StartError, Time};
use std::any::Any;
use std::sync::Arc;
use std::time::Duration;

pub static CLASS: Class = Class {
    name: "Veb",
    group: "switch",
    summary: "switches Ethernet frames between ports by their addresses, as veb(4) does",
    manual: "
Expects Ethernet frames. Frames that port I receives come by input I, and what it is to send leaves by output I; ports are
numbered in the order of the PORT arguments, and those of SPAN arguments come behind. A frame goes to the port that its
destination was last seen at, and to all others where that isn't known, or is a group; it never goes back to the port it
came from. Every frame belongs to a VLAN: that of its tag, if the port is in it (`tagged`), or else the port's own
(`untagged`, which is VNETID if nothing else was said). Addresses are known by VLAN.

What can be said of ports and of the switch are the words of ifconfig(8) for veb(4): by IFCONFIG at the start, and by the
handler of that name while it runs (see `artery ifconfig`). A PORT is `NAME [vport] [detached] [FLAG…]`. A `vport` is the
host's own door to the switch, such as a FromHost with its ToHost: filters see `in` and `out` reversed there. A `detached`
port becomes part of the switch when `add` names it. FLAG is `learn`, `discover`, `locked`, `blocknonip` or one of those
with a `-`.

With LINK0 tags of VLANs that the port is not in pass untouched, as part of a frame of the port's own VLAN, and so do frames to
those reserved addresses (01:80:c2:00:00:00 to 0f) that a bridge of providers passes on; RESERVED names further ones by
their last two digits. With LINK1 a packet filter sees IPv4 and IPv6 of untagged frames as they come in and as they go out.

With as many outputs again as there are ports, output N + I takes what came by port I and is the host's: everything
while the switch is down, frames of a port that is detached, and untagged ones of a port that says `passthrough`. Without
them such frames are dropped.

Addresses are forgotten TIMEOUT after they were last seen as a source. When MAXADDR are known no more are learned, and
frames to others go to all ports; with EVICT an old one makes room. Of an address that moves between ports more than five
times in DAMPING no move is believed for as long again.",
    example: "
veb0 :: Veb(PORT em0, PORT em1, PORT vport0 vport, IFCONFIG \"protected em0 1,2\");
Idle -> veb0 -> Discard; Idle -> [1] veb0; veb0[1] -> Discard; Idle -> [2] veb0; veb0[2] -> Discard;",
    ports: "1-/1-",
    processing: "h/h",
    args: &[
        Arg::keyword("PORT", "NAME [vport] [detached] [FLAG…]", "", "a port; any number of them"),
        Arg::keyword("SPAN", "NAME", "", "a port that gets a copy of every frame and takes none; any number of them"),
        Arg::keyword("VNETID", "VLAN", "1", "the VLAN of untagged frames, where the port says nothing else"),
        Arg::keyword("MAXADDR", "addresses", "100", "most addresses that are known"),
        Arg::keyword("TIMEOUT", "seconds", "240", "after how long addresses are forgotten; 0 for never"),
        Arg::keyword("UP", "bool", "true", "whether it switches from the start"),
        Arg::keyword("LINK0", "bool", "false", "whether tags that no port list names pass, and reserved addresses"),
        Arg::keyword("LINK1", "bool", "false", "whether a packet filter sees IP"),
        Arg::keyword("LINK2", "bool", "false", "accepted; IPsec is not looked into"),
        Arg::keyword("RESERVED", "hex digits", "", "reserved addresses that are forwarded, as `0e`; any number of them"),
        Arg::keyword("EVICT", "bool", "false", "whether a new address takes the place of an old one when there is no room"),
        Arg::keyword("LEARN_RATE", "addresses", "0", "most new addresses and moves a second; 0 for no limit"),
        Arg::keyword("DAMPING", "time", "10s", "in what time an address may move five times; 0 for no limit"),
        Arg::keyword("IFCONFIG", "words", "", "what ifconfig would say of the switch, as `\"rule block in on em0\"`; any number of them, done in order"),
    ],
    handlers: HANDLERS,
    per_worker: true,
    build: |args| Ok(Box::new(Veb::new(args)?)),
    ..Class::DEFAULT
};
