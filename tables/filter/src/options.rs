//! `set …`: options of the filter, with what holds where nothing is said.
use crate::rule::{InterfaceName, SourceLocation, StateOptions};
use std::time::Duration;

/// A `set` line, one item of it.
#[derive(Clone, Debug, PartialEq)]
pub struct OptionLine {
    /// The option, with its value.
    pub option: SetOption,
    /// Where it stands, for messages.
    pub place: SourceLocation,
}

/// What a `set` line says.
#[derive(Clone, Debug, PartialEq)]
pub enum SetOption {
    /// `skip on`: interfaces that are not filtered.
    Skip(Vec<InterfaceName>),
    /// `timeout`, in seconds (of `adaptive.start` and `adaptive.end`: states).
    Timeout(Timeout, u32),
    /// `limit`: the most entries of a kind.
    Limit(Limit, u32),
    /// `state-policy`; whether states are bound to interfaces.
    StatePolicy(bool),
    /// `state-defaults`: options of states whose rules give none.
    StateDefaults(StateOptions),
    /// `block-policy`; whether senders get a reply.
    BlockPolicy(bool),
    /// `optimization`: a set of timeouts.
    Optimization(Optimization),
    /// `ruleset-optimization`: how pfctl optimizes the rules.
    RulesetOptimization(RulesetOptimization),
    /// `loginterface`; None is `none`.
    LogInterface(Option<InterfaceName>),
    /// `reassemble`; and whether fragments that must not be cut are put together, too.
    Reassemble(bool, bool),
    /// `hostid`, which tells filters apart in dumps of states.
    HostId(u32),
    /// `debug`, the level as written.
    Debug(String),
    /// `fingerprints`, a file; otherwise ignored.
    Fingerprints(String),
    /// `syncookies`: when SYN cookies are used.
    Syncookies(Syncookies),
}

/// The values of `set syncookies`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Syncookies {
    /// `never`: no SYN cookies at all.
    Never,
    /// `always`: every SYN is answered by a cookie.
    Always,
    /// `adaptive`, with the shares of the states in percent at which it starts and ends.
    Adaptive(u8, u8),
}

/// The values of `set optimization`, each a set of timeouts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Optimization {
    /// `normal`, which is the default.
    #[default]
    Normal,
    /// `high-latency` and `satellite`: longer timeouts.
    HighLatency,
    /// `aggressive`: shorter timeouts for idle connections.
    Aggressive,
    /// `conservative`: much longer timeouts for idle connections.
    Conservative,
}

/// The values of `set ruleset-optimization`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum RulesetOptimization {
    /// `none`: the rules stay as written.
    None,
    /// `basic`, which is pfctl's default.
    #[default]
    Basic,
    /// `profile`: by counters of the running rules.
    Profile,
}

/// Times after which entries expire, in the order of `pfctl -s timeouts`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs)] // their names are those of pf.conf(5)
pub enum Timeout {
    TcpFirst,
    TcpOpening,
    TcpEstablished,
    TcpClosing,
    TcpFinwait,
    TcpClosed,
    TcpTsdiff,
    UdpFirst,
    UdpSingle,
    UdpMultiple,
    IcmpFirst,
    IcmpError,
    OtherFirst,
    OtherSingle,
    OtherMultiple,
    Fragment,
    Interval,
    AdaptiveStart,
    AdaptiveEnd,
    SourceTrack,
}

impl Timeout {
    /// All, with their names.
    pub const NAMES: [(Timeout, &'static str); 20] = [
        (Timeout::TcpFirst, "tcp.first"),
        (Timeout::TcpOpening, "tcp.opening"),
        (Timeout::TcpEstablished, "tcp.established"),
        (Timeout::TcpClosing, "tcp.closing"),
        (Timeout::TcpFinwait, "tcp.finwait"),
        (Timeout::TcpClosed, "tcp.closed"),
        (Timeout::TcpTsdiff, "tcp.tsdiff"),
        (Timeout::UdpFirst, "udp.first"),
        (Timeout::UdpSingle, "udp.single"),
        (Timeout::UdpMultiple, "udp.multiple"),
        (Timeout::IcmpFirst, "icmp.first"),
        (Timeout::IcmpError, "icmp.error"),
        (Timeout::OtherFirst, "other.first"),
        (Timeout::OtherSingle, "other.single"),
        (Timeout::OtherMultiple, "other.multiple"),
        (Timeout::Fragment, "frag"),
        (Timeout::Interval, "interval"),
        (Timeout::AdaptiveStart, "adaptive.start"),
        (Timeout::AdaptiveEnd, "adaptive.end"),
        (Timeout::SourceTrack, "src.track"),
    ];

    /// That of a connection of UDP, by whether both ends have sent and were answered.
    #[inline(always)]
    pub(crate) fn of_datagrams(is_multiple: bool) -> Timeout {
        if is_multiple { Timeout::UdpMultiple } else { Timeout::UdpSingle }
    }

    /// The word that pf.conf(5) has for it.
    pub fn name(self) -> &'static str {
        Timeout::NAMES[self as usize].1
    }
}

/// What there may be only so many of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs)] // their names are those of pf.conf(5)
pub enum Limit {
    States,
    SourceNodes,
    Fragments,
    Tables,
    TableEntries,
    PacketDelays,
    Anchors,
}

impl Limit {
    /// All, with their names.
    pub const NAMES: [(Limit, &'static str); 7] = [
        (Limit::States, "states"),
        (Limit::SourceNodes, "src-nodes"),
        (Limit::Fragments, "frags"),
        (Limit::Tables, "tables"),
        (Limit::TableEntries, "table-entries"),
        (Limit::PacketDelays, "pktdelay-pkts"),
        (Limit::Anchors, "anchors"),
    ];

    /// The word that pf.conf(5) has for it.
    pub fn name(self) -> &'static str {
        Limit::NAMES[self as usize].1
    }
}

/// Timeouts and limits as they are after all options.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Seconds (of the adaptive ones: states), by [`Timeout`].
    pub timeouts: [u32; 20],
    /// The most entries, indexed by [`Limit`].
    pub limits: [u32; 7],
}

impl Default for Limits {
    /// The defaults of pf.conf(5).
    fn default() -> Limits {
        Limits {
            timeouts: [
                120, 30, 86400, 900, 45, 90, 30, 60, 30, 60, 20, 10, 60, 30, 60, 60, 10, 60_000, 120_000, 0,
            ],
            limits: [100_000, 10_000, 65_536, 1000, 200_000, 10_000, 512],
        }
    }
}

impl Limits {
    /// A timeout, as set or by default.
    pub fn timeout(&self, timeout: Timeout) -> Duration {
        Duration::from_secs(u64::from(self.timeouts[timeout as usize]))
    }

    /// A limit, as set or by default.
    pub fn limit(&self, limit: Limit) -> u32 {
        self.limits[limit as usize]
    }

    /// Makes adaptive timeouts follow the limit of states, as far as none were `set`.
    pub fn scale_adaptive_timeouts(&mut self, is_set: impl Fn(Timeout) -> bool) {
        let states = u64::from(self.limit(Limit::States));
        for (timeout, tenths) in [(Timeout::AdaptiveStart, 6), (Timeout::AdaptiveEnd, 12)] {
            if !is_set(timeout) {
                self.timeouts[timeout as usize] = (states * tenths / 10).min(u32::MAX.into()) as u32;
            }
        }
    }

    /// Makes an option hold.
    pub fn apply_option(&mut self, option: &SetOption) {
        match option {
            SetOption::Timeout(timeout, seconds) => self.timeouts[*timeout as usize] = *seconds,
            SetOption::Limit(limit, n) => self.limits[*limit as usize] = *n,
            SetOption::Optimization(optimization) => {
                let tcp = match optimization {
                    Optimization::Normal => [120, 30, 86400, 900, 45, 90, 30],
                    Optimization::HighLatency => [180, 35, 86400, 905, 50, 95, 60],
                    Optimization::Conservative => [3600, 900, 432_000, 3600, 600, 180, 60],
                    Optimization::Aggressive => [30, 5, 18000, 60, 30, 30, 10],
                };
                self.timeouts[..7].copy_from_slice(&tcp);
            }
            _ => (),
        }
    }
}
