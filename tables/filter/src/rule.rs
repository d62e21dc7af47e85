//! Rules as they are after expansion: each says one thing, lists and macros are gone.
//!
//! This is what the parser makes, the printer prints (`pfctl -n -v`), and the evaluator compiles.
use crate::facts::{Direction, Family};
use crate::options::{Limits, OptionLine, SetOption, Timeout};
use artery_wire::IpProtocol;
use std::net::IpAddr;

/// A rule set: the main one, or that of an anchor.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Ruleset {
    /// Its options, in the order of the file; only the main rule set has any.
    pub options: Vec<OptionLine>,
    /// Its tables, in the order of the file.
    pub tables: Vec<TableDefinition>,
    /// Its queues, in the order of the file; printed and otherwise not supported.
    pub queues: Vec<String>,
    /// Its rules, in the order of their evaluation.
    pub rules: Vec<Rule>,
    /// Its `load anchor` lines, in order.
    pub loads: Vec<AnchorLoad>,
}

/// `load anchor NAME from FILE`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AnchorLoad {
    /// The anchor, as it is written.
    pub name: String,
    /// The file's name, as it is written.
    pub file: String,
    /// Where the line stands, for messages.
    pub place: SourceLocation,
}

/// Where a rule stands in the text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SourceLocation {
    /// The file's name; `stdin` for standard input.
    pub file: std::sync::Arc<str>,
    /// The line, from 1.
    pub line: u32,
}

/// A statement `table <name> …`, or a table made for a list.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TableDefinition {
    /// The table's name, without angle brackets.
    pub name: String,
    /// Whether it can't be changed later.
    pub is_const: bool,
    /// Whether it stays when no rule refers to it.
    pub is_persistent: bool,
    /// Whether each address is counted.
    pub has_counters: bool,
    /// Whether it was made for a list of addresses of a rule.
    pub is_automatic: bool,
    /// Whether `{ }` was given, though it may be empty.
    pub has_list: bool,
    /// Its addresses as written, those of files among them.
    pub addresses: Vec<TableAddress>,
    /// The names of its files.
    pub files: Vec<String>,
    /// Where the statement stands, for messages.
    pub place: SourceLocation,
}

/// An address of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableAddress {
    /// Whether it is an exception: `!address`.
    pub is_negated: bool,
    /// The address, network, or interface.
    pub address: HostAddress,
    /// `weight`, how often a pool chooses it beside others; 0 where none was written.
    pub weight: u16,
}

/// What decides about packets, and on which.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Rule {
    /// What it does with packets that match.
    pub action: Action,
    /// The direction of the packets; both if None.
    pub direction: Option<Direction>,
    /// Whether and how packets are logged.
    pub log: Option<Log>,
    /// Whether evaluation ends here.
    pub is_quick: bool,
    /// `on`: the interface or routing domain of the packets; any if None.
    pub on: Option<On>,
    /// `inet` or `inet6`; both if None.
    pub family: Option<Family>,
    /// The protocol of `proto`; any if None.
    pub protocol: Option<IpProtocol>,
    /// `from`: the source address and port.
    pub source: Endpoint,
    /// `to`: the destination address and port.
    pub destination: Endpoint,
    /// `received-on` an interface; whether it is negated.
    pub received_on: Option<(bool, InterfaceName)>,
    /// `user` and `group`, which are printed and otherwise refused, but where
    /// the rule [never matches](Rule::is_of_account_only).
    pub user: Option<Comparison<u32>>,
    /// See `user`: the same for groups.
    pub group: Option<Comparison<u32>>,
    /// `flags`: those that must be set, of those that are looked at. None is what the kind of rule implies.
    pub flags: Flags,
    /// `icmp-type` and its code.
    pub icmp: Option<(u8, Option<u8>)>,
    /// `tos`: the value of the TOS field; any if None.
    pub tos: Option<u8>,
    /// `prio` of received packets.
    pub priority: Option<u8>,
    /// `max-pkt-rate`: packets, in seconds.
    pub max_packet_rate: Option<(u32, u32)>,
    /// `set (…)`: fields and priority that packets get.
    pub set: Set,
    /// What is remembered of packets that pass.
    pub state: State,
    /// `probability`: of 2³² packets so many; None is all.
    pub probability: Option<u32>,
    /// `fragment`: only fragments of packets match.
    pub is_fragment: bool,
    /// `scrub (…)`: normalization of packets.
    pub scrub: Scrub,
    /// `allow-opts`: packets with IP options may pass.
    pub allows_options: bool,
    /// `label`, with what `$…` stands for put in.
    pub label: String,
    /// `once`: the rule expires with its first match.
    pub is_once: bool,
    /// `tag`: the tag that packets get; empty is none.
    pub tag: String,
    /// `tagged`; whether it is negated.
    pub tagged: Option<(bool, String)>,
    /// `rtable`: the routing table for packets that match.
    pub routing_table: Option<u32>,
    /// `divert-to` and others that are printed and otherwise refused.
    pub divert: Option<String>,
    /// `nat-to`: new source addresses.
    pub nat: Option<Pool>,
    /// `rdr-to`: new destination addresses.
    pub redirect: Option<Pool>,
    /// `af-to` as written, printed and otherwise refused.
    pub family_to: Option<String>,
    /// `route-to`, `reply-to` or `dup-to`.
    pub route: Option<(RouteKind, Pool)>,
    /// Where it stands in the text.
    pub place: SourceLocation,
}

/// What a rule does with the packets that it matches.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Action {
    /// `pass` and `match` rules: packets are not dropped.
    #[default]
    Pass,
    /// They are dropped, with this reply to the sender.
    Block(BlockReturn),
    /// Nothing is decided, but what else the rule says is done.
    Match,
    /// The rules of an anchor are evaluated.
    Anchor(AnchorCall),
}

/// The reply to the sender of a blocked packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum BlockReturn {
    /// `drop`: without a reply to the sender.
    #[default]
    Drop,
    /// `return`: a reset for TCP, an error for UDP and others.
    Return,
    /// `return-rst`, with the time to live.
    Reset(Option<u8>),
    /// `return-icmp` with type and code for IPv4, and for IPv6.
    Icmp((u8, u8), (u8, u8)),
    /// `return-icmp6`: an ICMPv6 error of this type and code.
    Icmp6((u8, u8)),
}

/// A call of an `anchor`, with the rules in its braces.
#[derive(Clone, Debug, PartialEq)]
pub struct AnchorCall {
    /// Its name as written; None where it has none. May end in `/*`.
    pub name: Option<String>,
    /// The rules written in its braces.
    pub inline: Option<Box<Ruleset>>,
}

/// The options of `log`, whether by itself or in parentheses.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Log {
    /// `all`: each packet, not only the one that makes a state.
    pub is_all: bool,
    /// `matches`: each rule from here on.
    pub is_matches: bool,
    /// `user`: logs the user that owns the socket.
    pub is_user: bool,
    /// `to` an interface; 0 is pflog0.
    pub interface: u16,
}

/// Where a packet must be.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum On {
    /// At an interface, or one of a group; whether it is negated.
    Interface(bool, InterfaceName),
    /// At any interface except loopbacks: `any`.
    Any,
    /// In a routing domain; whether it is negated.
    Domain(bool, u32),
}

/// The name of an interface, or of a group of them (`em` is all of `em0`, `em1`…).
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct InterfaceName(pub String);

/// One end of a packet.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Endpoint {
    /// Whether the address must not be so.
    pub is_negated: bool,
    /// The address, network, or table.
    pub address: AddressMatch,
    /// The port; any if None.
    pub port: Option<Comparison<u16>>,
    /// `os`, which is printed and otherwise refused.
    pub os: Option<String>,
}

/// The address condition of a rule.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub enum AddressMatch {
    /// `any`, and where nothing is said.
    #[default]
    Any,
    /// An address, a network or more.
    Host(HostAddress),
    /// `address - address`: both are included.
    Range(IpAddr, IpAddr),
    /// `<table>`, by the table's name.
    Table(String),
    /// `no-route`: addresses that the routing table has no route for.
    NoRoute,
    /// `urpf-failed`: sources whose route leads through another interface.
    UrpfFailed,
    /// `route "label"`, by the label of a route.
    RouteLabel(String),
}

/// An address, or what addresses are taken from as they change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HostAddress {
    /// An address with a mask of so many bits. Bits behind it are zero in rules, and may be set
    /// in tables and pools.
    Network(IpAddr, u8),
    /// An address with a mask that isn't a prefix: the address, the mask.
    Masked(IpAddr, IpAddr),
    /// `(interface)` with what behind it, and its length if one was written.
    Dynamic {
        /// The interface or group of interfaces.
        interface: InterfaceName,
        /// Which of its addresses.
        part: InterfacePart,
        /// `:0`: only the first address of each family, no aliases.
        without_aliases: bool,
        /// `/length`, the prefix length if one was written.
        length: Option<u8>,
    },
}

/// Which addresses of an interface are meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum InterfacePart {
    /// The interface's own addresses, without a modifier.
    #[default]
    Address,
    /// `:network`: the networks it is in.
    Network,
    /// `:broadcast`: the broadcast addresses of its networks.
    Broadcast,
    /// `:peer`: the other ends of point-to-point links.
    Peer,
}

/// A test of a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Comparison<T> {
    /// Equal to the number: `= n`.
    Equal(T),
    /// Not equal to the number: `!= n`.
    Unequal(T),
    /// Less than the number: `< n`.
    Less(T),
    /// At most the number: `<= n`.
    LessOrEqual(T),
    /// Greater than the number: `> n`.
    Greater(T),
    /// At least the number: `>= n`.
    GreaterOrEqual(T),
    /// From one number to the other, both included: `n:m`.
    Range(T, T),
    /// `n >< m`: between, neither included.
    Between(T, T),
    /// `n <> m`: below or above.
    Except(T, T),
}

impl<T: PartialOrd> Comparison<T> {
    /// Whether a number passes.
    pub fn matches_value(&self, n: T) -> bool {
        match self {
            Comparison::Equal(a) => n == *a,
            Comparison::Unequal(a) => n != *a,
            Comparison::Less(a) => n < *a,
            Comparison::LessOrEqual(a) => n <= *a,
            Comparison::Greater(a) => n > *a,
            Comparison::GreaterOrEqual(a) => n >= *a,
            Comparison::Range(a, b) => n >= *a && n <= *b,
            Comparison::Between(a, b) => n > *a && n < *b,
            Comparison::Except(a, b) => n < *a || n > *b,
        }
    }
}

/// `flags set/of`: of the TCP flags `of`, exactly those in `set` must be set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Flags {
    /// Those that must be set.
    pub set: u8,
    /// Those that are looked at; none is all packets.
    pub of: u8,
    /// Whether `flags any` was written, or is what it means.
    pub is_any: bool,
}

/// `set (…)`, and single `set` options of rules.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Set {
    /// `prio`: of all, and of those with low delay and empty acknowledgements.
    pub priority: Option<(u8, u8)>,
    /// `queue`: of all, and of those with low delay; printed and otherwise refused.
    pub queue: Option<(String, String)>,
    /// `tos`: the value that packets get.
    pub tos: Option<u8>,
    /// `delay`, in milliseconds; None if not set.
    pub delay: Option<u16>,
}

/// What becomes a state.
#[derive(Clone, Debug, PartialEq, Default)]
pub struct State {
    /// How packets of the rule are remembered.
    pub keep: StateKeeping,
    /// `(max …)` and others.
    pub options: StateOptions,
}

/// The kind of state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum StateKeeping {
    /// None: `no state`, and all rules that can't keep any.
    #[default]
    No,
    /// `keep state`, which is the default of `pass` rules.
    Keep,
    /// `modulate state`: with randomized initial sequence numbers.
    Modulate,
    /// `synproxy state`: with the handshake done by the filter first.
    Synproxy,
}

/// What is said of a rule's states in parentheses.
#[derive(Clone, Debug, PartialEq, Default)]
pub struct StateOptions {
    /// `max`: the most states of the rule.
    pub max: Option<u32>,
    /// `no-sync`: states are not sent by pfsync.
    pub is_not_synchronised: bool,
    /// `source-track`; whether it is that of the rule.
    pub source_track: Option<SourceTrack>,
    /// `max-src-nodes`: the most sources of the rule.
    pub max_source_nodes: Option<u32>,
    /// `max-src-states`: the most states of one source.
    pub max_source_states: Option<u32>,
    /// `max-src-conn`: the most established connections of one source.
    pub max_source_connections: Option<u32>,
    /// `max-src-conn-rate`: connections, in seconds.
    pub max_source_rate: Option<(u32, u32)>,
    /// `overload <table>`, and `flush`.
    pub overload: Option<(String, Flush)>,
    /// `if-bound` or `floating`; None is what `set state-policy` said.
    pub binding: Option<Binding>,
    /// `sloppy`: TCP is tracked without sequence numbers.
    pub is_sloppy: bool,
    /// `pflow`: states are exported by pflow.
    pub is_pflow: bool,
    /// Timeouts of these states, in seconds.
    pub timeouts: Vec<(Timeout, u32)>,
}

/// Whom sources are counted for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SourceTrack {
    /// `source-track global`, or without more.
    Global,
    /// `source-track rule`: sources are counted for each rule.
    Rule,
}

/// What overload does with states of the source.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Flush {
    /// `flush` is absent: no state of the source ends.
    #[default]
    No,
    /// Those of the rule go.
    Rule,
    /// `flush global`: all states of the source end.
    Global,
}

/// Whether a state is bound to its interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Binding {
    /// It holds at any.
    #[default]
    Floating,
    /// It holds at the one it was made at.
    Bound,
}

/// The options of `scrub (…)`: normalization of packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Scrub {
    /// Whether there is one at all.
    pub is_given: bool,
    /// `no-df`: clears the don't-fragment bit of IPv4.
    pub clears_df: bool,
    /// `random-id`: sets the IPv4 identification to a random number.
    pub randomises_id: bool,
    /// `min-ttl`: the least time to live that packets leave with.
    pub min_ttl: Option<u8>,
    /// `set-tos`, the spelling of old files; printed as part of `scrub`.
    pub tos: Option<u8>,
    /// `max-mss`: the greatest MSS of TCP, in bytes.
    pub max_mss: Option<u16>,
    /// `reassemble tcp`: checks TTL and timestamps of TCP.
    pub reassembles_tcp: bool,
}

/// Addresses that packets are translated or routed to.
#[derive(Clone, Debug, PartialEq)]
pub struct Pool {
    /// Its addresses: one, or the name of a table.
    pub address: PoolAddress,
    /// How one of several is chosen.
    pub choice: PoolChoice,
    /// Whether a source keeps its address.
    pub is_sticky: bool,
    /// `static-port`: the port stays.
    pub has_static_port: bool,
    /// The port or ports; of `nat-to` 50001:65535 if not said, of `rdr-to` the packet's own.
    pub ports: Option<PoolPorts>,
}

/// What a pool consists of.
#[derive(Clone, Debug, PartialEq)]
pub enum PoolAddress {
    /// An address or network, with the interface behind `@` if there is one.
    Host(HostAddress, Option<InterfaceName>),
    /// The addresses of a table.
    Table(String),
    /// An interface only, as in `route-to (em0)`.
    Interface(InterfaceName),
}

/// How an address of a pool is chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum PoolChoice {
    /// There is but one.
    #[default]
    Single,
    /// `bitmask`: the host part stays.
    Bitmask,
    /// `random`: a random address of the pool for each state.
    Random,
    /// `round-robin`: the addresses in turn.
    RoundRobin,
    /// `source-hash` with its key, if one was written.
    SourceHash(Option<[u32; 4]>),
    /// `least-states`: the address with the fewest states.
    LeastStates,
    /// Nothing was said of a network: as `round-robin`, and printed without a word, as pfctl does.
    Usual,
    /// Nothing was said of a network of `binat-to`: as `bitmask`, and printed without a word.
    Paired,
}

/// Ports of a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PoolPorts {
    /// The same port for all.
    One(u16),
    /// Those of a range: for `nat-to` any that is free; for `rdr-to` one for one, around
    /// where there are fewer.
    Range(u16, u16),
    /// `p:*`: the packet's own, moved so that the first of the rule becomes p.
    Moved(u16),
}

/// Ways around the routing table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RouteKind {
    /// `route-to`: packets in the direction of the state's first.
    RouteTo,
    /// `reply-to`: packets against the direction of the state's first.
    ReplyTo,
    /// `dup-to`, which is printed and otherwise refused.
    DupTo,
}

impl Rule {
    /// Whether it blocks nothing but what single users or groups of the host send: a packet that is forwarded
    /// has no socket, so that it never matches.
    pub fn is_of_account_only(&self) -> bool {
        let is_known =
            |test: &Comparison<u32>| matches!(test, Comparison::Equal(account) if *account != u32::MAX);
        let accounts = [&self.user, &self.group];
        matches!(self.action, Action::Block(_))
            && self.direction != Some(Direction::In)
            && accounts.iter().any(|account| account.is_some())
            && accounts.iter().all(|account| account.as_ref().is_none_or(is_known))
    }
}

impl Ruleset {
    /// Whether there is a rule of a kind, here or in the anchors that are written here.
    pub fn has_rule(&self, is_it: &dyn Fn(&Rule) -> bool) -> bool {
        self.rules.iter().any(|rule| {
            let inner = match &rule.action {
                Action::Anchor(call) => call.inline.as_deref(),
                _ => None,
            };
            is_it(rule) || inner.is_some_and(|inner| inner.has_rule(is_it))
        })
    }

    /// The limits and timeouts that its options say, over those that hold otherwise.
    pub fn effective_limits(&self) -> Limits {
        let mut limits = Limits::default();
        self.options.iter().for_each(|line| limits.apply_option(&line.option));
        limits.scale_adaptive_timeouts(|timeout| {
            self.options
                .iter()
                .any(|line| matches!(line.option, SetOption::Timeout(set, _) if set == timeout))
        });
        limits
    }
}
