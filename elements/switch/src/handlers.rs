//! Read and write handlers of Veb.
use super::veb::Veb;
use artery_common::frame_filter::{PF, PF_LOAD, PF_WORKER};
use artery_engine::{Handler, Read, Write};

pub(super) static HANDLERS: &[Handler] = &[
    Handler::write(
        "ifconfig",
        "words as of `ifconfig veb0 …`, such as `add em0` or `static em1 02:00:00:00:00:01`: changes the \
         switch, command by command until one is refused",
        &Write(|v: &mut Veb, words, cx| v.ifconfig(words, cx)),
    )
    .once(),
    Handler::read("show", "the switch as `ifconfig veb0` prints it", &Read(|v: &mut Veb, _, cx| v.show(cx))),
    Handler::read(
        "addr",
        "known addresses as `ifconfig veb0 addr` prints them: a line each, `MAC[@VID] IF AGE flags=N<…>`",
        &Read(|v: &mut Veb, _, cx| v.list_addresses(cx)),
    ),
    Handler::read(
        "groups",
        "with `snoop`: members of groups, a line each, `GROUP[@VID] IF SECONDS`, and ports with routers, \
         `router[@VID] ipv4|ipv6 IF SECONDS`; after the seconds they are forgotten",
        &Read(|v: &mut Veb, _, cx| v.list_groups(cx)),
    ),
    Handler::read(
        "rules",
        "rules as `ifconfig veb0 rules IF` prints them, a line each; without parameters those of all ports",
        &Read(|v: &mut Veb, port, _| v.list_rules(port)),
    )
    .parameters(),
    Handler::read(
        "config",
        "the commands that make a switch with the same ports what this one is, a line each",
        &Read(|v: &mut Veb, _, cx| v.list_commands(cx)),
    ),
    Handler::read(
        "drops",
        "dropped frames, a line `REASON PORT COUNT` for each reason and port that there were any of",
        &Read(|v: &mut Veb, _, _| v.list_drops()),
    ),
    Handler::read(
        "stats",
        "what was counted, a line each: `PORT in FRAMES BYTES out FRAMES BYTES` for ports, then `NAME COUNT`",
        &Read(|v: &mut Veb, _, _| v.stats()),
    ),
    Handler::read(
        "moves",
        "addresses that moved lately, a line each: `AGE MAC[@VID] FROM TO`, with `damped` where it wasn't \
         believed",
        &Read(|v: &mut Veb, _, cx| v.list_moves(cx)),
    ),
    Handler::read(
        "explain",
        "`IF DST SRC [VID] [TYPE]`: what becomes of such a frame, step by step; nothing is learned by it",
        &Read(|v: &mut Veb, frame, cx| v.explain_frame(frame, cx)),
    )
    .parameters(),
    Handler::write(
        "pf_load",
        PF_LOAD,
        &Write(|v: &mut Veb, text, cx| v.filter_commands()?.load_rules(text, cx)),
    )
    .once(),
    Handler::read(
        "pf_worker",
        PF_WORKER,
        &Read(|v: &mut Veb, text, cx| v.filter_commands()?.query_worker(text, cx)),
    )
    .parameters()
    .join(),
    Handler::read("pf", PF, &Read(|v: &mut Veb, text, cx| v.filter_commands()?.query_shared(text, cx)))
        .parameters(),
];
