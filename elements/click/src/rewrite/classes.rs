//! IPRewriter, TCPRewriter, UDPRewriter, IPAddrRewriter, IPAddrPairRewriter and ICMPPingRewriter: one
//! element, and for each class which packets it takes, its timeouts and its manual.
use super::apply::RewriteKind;
use super::rewriter::{PATTERN_N, Rewriter, Timeouts, arguments, handlers};
use artery_engine::{Arg, ArgError, Args, Class, Element, Handler, Read};
use std::time::Duration;

/// The manual of a rewriter: what it expects, what the argument of an input is about, what `keep` keeps, the
/// line about `pattern`, and what becomes of flows.
macro_rules! manual {
    ($expects:literal, $what:literal, $keeps:literal, $pattern:expr, $flows:expr) => {
        concat!(
            "\n",
            $expects,
            "\n\nEach input has an argument that says what becomes of its ",
            $what,
            " that belong to no flow yet:

- `drop`: they are dropped.
- `pass OUTPUT`: they leave by OUTPUT, unchanged.
- `keep FOUTPUT ROUTPUT`: they begin a flow that keeps its ",
            $keeps,
            ".\n- ",
            $pattern,
            "
- `pattern NAME FOUTPUT ROUTPUT`: the same, by a pattern that IPRewriterPatterns names.
- the name of a RoundRobinIPMapper: they begin a flow by one of its patterns.

",
            $flows
        )
    };
    (ports: $expects:literal) => {
        manual!(
            addresses: $expects,
            "addresses and ports",
            "\
`pattern SADDR SPORT DADDR DPORT FOUTPUT ROUTPUT`: they begin a flow that gets others. `-` keeps one. SPORT
  may be a range: a port in it that fits stays, else one is chosen by chance, after `1024-65535?` always,
  after `1024-65535#` in turn."
        )
    };
    (addresses: $expects:literal, $keeps:literal, $pattern:expr) => {
        manual!(
            $expects,
            "packets",
            $keeps,
            $pattern,
            "\
Packets of a flow leave rewritten by its FOUTPUT, replies, with their ends restored, by its ROUTPUT; whichever
input they come from. Checksums are adapted."
        )
    };
}

/// An example with this class and pattern.
macro_rules! example {
    ($class:literal, $pattern:literal) => {
        concat!(
            "Idle -> rw :: ",
            $class,
            "(pattern ",
            $pattern,
            " 0 1, drop) -> Discard;\nIdle -> [1]rw[1] -> Discard;"
        )
    };
}

const REWRITER: Class = Class {
    group: "rewrite",
    ports: "1-/1-",
    processing: "h/h",
    own_handlers: Some(&PATTERN_N),
    finished: true,
    ..Class::DEFAULT
};

pub static IP: Class = Class {
    name: "IPRewriter",
    summary: "rewrites addresses and ports of TCP and UDP packets",
    manual: manual!(
        ports: "\
Expects TCP and UDP packets with marked headers. Others, and later fragments, pass where the argument of their
input is `pass`, and are dropped elsewhere."
    ),
    example: example!("IPRewriter", "1.0.0.1 1024-65535 - -"),
    args: arguments![
        DST_ANNO,
        TCP_TIMEOUT,
        TCP_NODATA_TIMEOUT,
        TCP_DONE_TIMEOUT,
        TCP_GUARANTEE,
        UDP_TIMEOUT,
        UDP_STREAMING_TIMEOUT,
        UDP_GUARANTEE,
    ],
    handlers: handlers![
        Handler::read("tcp_table", "the TCP connections, a line for each direction", &FIRST_TABLE),
        Handler::read("udp_table", "the UDP flows, a line for each direction", &SECOND_TABLE),
        Handler::read("tcp_mappings", "the same as tcp_table", &FIRST_TABLE),
        Handler::read("udp_mappings", "the same as udp_table", &SECOND_TABLE),
        Handler::read(
            "tcp_lookup",
            "what TCP packets with the ends `SADDR SPORT DADDR DPORT` become",
            &LOOKUP
        )
        .parameters(),
    ],
    build: |args| build(RewriteKind::TcpAndUdp, [tcp_timeouts(args)?, udp_timeouts(args, false)?], args),
    ..REWRITER
};

pub static TCP: Class = Class {
    name: "TCPRewriter",
    summary: "rewrites addresses and ports of TCP packets",
    manual: manual!(
        ports: "\
Expects TCP packets with marked headers. Others, and later fragments, pass where the argument of their input
is `pass`, and are dropped elsewhere."
    ),
    example: example!("TCPRewriter", "1.0.0.1 1024-65535 - -"),
    args: arguments![DST_ANNO, TCP_TIMEOUT, TCP_NODATA_TIMEOUT, TCP_DONE_TIMEOUT, TCP_GUARANTEE],
    handlers: handlers![
        TABLE,
        MAPPINGS,
        Handler::read("lookup", "what packets with the ends `SADDR SPORT DADDR DPORT` become", &LOOKUP)
            .parameters(),
    ],
    build: |args| build(RewriteKind::TcpOnly, [tcp_timeouts(args)?; 2], args),
    ..REWRITER
};

pub static UDP: Class = Class {
    name: "UDPRewriter",
    summary: "rewrites addresses and ports of UDP and TCP packets",
    manual: manual!(
        ports: "\
Expects TCP and UDP packets with marked headers. Both share one table; IPRewriter keeps them apart. Others,
and later fragments, pass where the argument of their input is `pass`, and are dropped elsewhere."
    ),
    example: example!("UDPRewriter", "1.0.0.1 1024-65535 - -"),
    args: arguments![
        DST_ANNO,
        UDP_TIMEOUT,
        UDP_STREAMING_TIMEOUT,
        UDP_GUARANTEE,
        Arg::keyword("STREAMING_TIMEOUT", "seconds", "", "the same as UDP_STREAMING_TIMEOUT"),
    ],
    handlers: handlers![TABLE, MAPPINGS],
    build: |args| build(RewriteKind::AnyPorts, [udp_timeouts(args, true)?; 2], args),
    ..REWRITER
};

pub static ADDRESS: Class = Class {
    name: "IPAddrRewriter",
    summary: "rewrites source addresses, and destinations of replies",
    manual: manual!(
        addresses: "\
Expects IP packets with a marked header. A packet belongs to the flow of its source, or is a reply to that of
its destination. Replies have their destination annotation set.",
        "source",
        "\
`pattern SADDR - FOUTPUT ROUTPUT`: they begin a flow that gets others. `-` keeps one. SADDR may be a range
  or a prefix: one address is chosen by chance, after `#` in turn."
    ),
    example: example!("IPAddrRewriter", "1.0.0.0/24 -"),
    args: arguments![],
    handlers: handlers![TABLE, MAPPINGS],
    build: |args| build_setting(RewriteKind::Source, [timeouts(args, 7200)?; 2], true, args),
    ..REWRITER
};

pub static ADDRESS_PAIR: Class = Class {
    name: "IPAddrPairRewriter",
    summary: "rewrites both addresses of packets",
    manual: manual!(
        addresses: "\
Expects IP packets with a marked header, which it tells apart by both addresses. Packets have their
destination annotation set.",
        "addresses",
        "\
`pattern SADDR DADDR FOUTPUT ROUTPUT`: they begin a flow that gets others. `-` keeps one. SADDR may be a
  range or a prefix: one address is chosen by chance, after `#` in turn."
    ),
    example: example!("IPAddrPairRewriter", "1.0.0.1 2.0.0.2"),
    args: arguments![],
    handlers: handlers![TABLE, MAPPINGS],
    build: |args| build_setting(RewriteKind::Addresses, [timeouts(args, 7200)?; 2], true, args),
    ..REWRITER
};

pub static ICMP_PING: Class = Class {
    name: "ICMPPingRewriter",
    summary: "rewrites addresses and identifiers of ICMP echo requests and replies",
    manual: manual!(
        "\
Expects ICMP echo requests and replies with marked headers. A flow is identified by both addresses and the
identifier, which takes the place of the source's port. Other packets, later fragments, and replies to no
request of a flow pass where the argument of their input is `pass`, and are dropped elsewhere.",
        "requests",
        "addresses and identifier",
        "\
`pattern SADDR SPORT DADDR DPORT FOUTPUT ROUTPUT`: they begin a flow that gets others. `-` keeps one. SPORT
  stands for the identifier and may be a range: an identifier in it that fits stays, else one is chosen by
  chance, after `1024-65535?` always, after `1024-65535#` in turn. DPORT does not matter.",
        "\
Requests of a flow leave rewritten by its FOUTPUT, replies, with addresses and identifier restored, by its
ROUTPUT; whichever input they come from. Checksums are adapted. ICMPRewriter does the same for errors."
    ),
    example: example!("ICMPPingRewriter", "1.0.0.1 1024-65535# - -"),
    args: arguments![DST_ANNO],
    handlers: handlers![
        Handler::read(
            "table",
            "the flows, a line for each direction: `(SRC, DST, IDENTIFIER)`",
            &FIRST_TABLE
        ),
        MAPPINGS,
    ],
    build: |args| build(RewriteKind::Echo, [timeouts(args, 300)?; 2], args),
    ..REWRITER
};

const DST_ANNO: Arg = Arg::keyword("DST_ANNO", "bool", "true", "whether to set the destination annotation");
const TCP_TIMEOUT: Arg = Arg::keyword(
    "TCP_TIMEOUT",
    "seconds",
    "86400",
    "how long connections live on that have data in both directions",
);
const TCP_NODATA_TIMEOUT: Arg =
    Arg::keyword("TCP_NODATA_TIMEOUT", "seconds", "300", "how long others live on");
const TCP_DONE_TIMEOUT: Arg =
    Arg::keyword("TCP_DONE_TIMEOUT", "seconds", "240", "how long connections live on that are closed");
const TCP_GUARANTEE: Arg = Arg::keyword("TCP_GUARANTEE", "seconds", "", "GUARANTEE of connections");
const UDP_TIMEOUT: Arg =
    Arg::keyword("UDP_TIMEOUT", "seconds", "300", "how long UDP flows live on without packets");
const UDP_STREAMING_TIMEOUT: Arg = Arg::keyword(
    "UDP_STREAMING_TIMEOUT",
    "seconds",
    "",
    "how long those live on that have replies, after three packets",
);
const UDP_GUARANTEE: Arg = Arg::keyword("UDP_GUARANTEE", "seconds", "", "GUARANTEE of UDP flows");

const TABLE: Handler = Handler::read("table", "the flows, a line for each direction", &FIRST_TABLE);
const MAPPINGS: Handler = Handler::read("mappings", "the same", &FIRST_TABLE);
static FIRST_TABLE: Read<Rewriter> = Read(|r, _, cx| Ok(r.table_text(0, cx.now())));
static SECOND_TABLE: Read<Rewriter> = Read(|r, _, cx| Ok(r.table_text(1, cx.now())));
static LOOKUP: Read<Rewriter> = Read(|r, call, _| r.lookup_text(call));

/// An element that sets the destination annotation where its arguments say so.
fn build(
    kind: RewriteKind,
    timeouts: [Timeouts; 2],
    args: &mut Args<'_>,
) -> Result<Box<dyn Element>, ArgError> {
    let sets_annotation = args.read("DST_ANNO")?;
    build_setting(kind, timeouts, sets_annotation, args)
}

fn build_setting(
    kind: RewriteKind,
    timeouts: [Timeouts; 2],
    sets_annotation: bool,
    args: &mut Args<'_>,
) -> Result<Box<dyn Element>, ArgError> {
    Ok(Box::new(Rewriter::new(args, kind, timeouts, sets_annotation)?))
}

/// The timeout of all flows: TIMEOUT, or else so many seconds.
fn timeouts(args: &Args<'_>, default_secs: u64) -> Result<Timeouts, ArgError> {
    let timeout = args.read::<Option<Duration>>("TIMEOUT")?.unwrap_or(Duration::from_secs(default_secs));
    Ok(Timeouts::same_for_all(timeout, args.read("GUARANTEE")?))
}

/// The timeouts in the arguments about TCP.
fn tcp_timeouts(args: &Args<'_>) -> Result<Timeouts, ArgError> {
    let guarantee = args.read::<Option<Duration>>("TCP_GUARANTEE")?;
    let busy = args.read::<Option<Duration>>("TIMEOUT")?;
    Ok(Timeouts {
        idle: args.read("TCP_NODATA_TIMEOUT")?,
        busy: busy.map_or_else(|| args.read("TCP_TIMEOUT"), Ok)?,
        done: args.read("TCP_DONE_TIMEOUT")?,
        guarantee: guarantee.map_or_else(|| args.read("GUARANTEE"), Ok)?,
    })
}

/// The timeouts in the arguments about UDP; `alone` if TIMEOUT is about UDP, too.
fn udp_timeouts(args: &Args<'_>, alone: bool) -> Result<Timeouts, ArgError> {
    let read = |name| args.read::<Option<Duration>>(name);
    let idle = if alone { read("TIMEOUT")? } else { None };
    let idle = idle.map_or_else(|| args.read("UDP_TIMEOUT"), Ok)?;
    let streaming = if alone { read("STREAMING_TIMEOUT")? } else { None };
    let busy = read("UDP_STREAMING_TIMEOUT")?.or(streaming).unwrap_or(idle);
    let guarantee = read("UDP_GUARANTEE")?.map_or_else(|| args.read("GUARANTEE"), Ok)?;
    Ok(Timeouts { busy, ..Timeouts::same_for_all(idle, guarantee) })
}

#[cfg(test)]
mod tests;
