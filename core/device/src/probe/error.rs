//! Why a probe has failed, or was not sent.
use rustix::io::Errno;
use std::fmt;
use std::net::SocketAddr;
use std::time::Duration;

/// A probe that has failed: where, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProbeError {
    /// Where it was sent to; port 0 for an echo request.
    pub to: SocketAddr,
    /// Why it has failed.
    pub why: ProbeFailure,
}

/// Why a probe has failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProbeFailure {
    /// The machine takes no connection there.
    Refused,
    /// No route leads to the machine, or it does not answer ARP or Neighbor Discovery.
    Unreachable,
    /// There was no answer in time.
    NoAnswer {
        /// For how long it was waited.
        within: Duration,
    },
    /// The connection was closed before there was an answer.
    Closed,
    /// The answer has a status that is not good.
    Status(u16),
    /// The answer is not one of HTTP.
    NotHttp,
    /// The system refused for another reason, which may be a local one.
    System(Errno),
}

/// Why no probe was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoProbe {
    /// As many are under way as may be.
    TooMany {
        /// The most that may be pending.
        limit: usize,
    },
    /// The path does not begin with `/`, or path or host have characters that no request may have.
    BadRequest,
    /// Neither kind of socket that can send echo requests may be opened.
    PingNotPermitted,
    /// The system gives no socket.
    System(Errno),
}

impl From<Errno> for ProbeFailure {
    fn from(error: Errno) -> ProbeFailure {
        match error {
            Errno::CONNREFUSED => ProbeFailure::Refused,
            Errno::CONNRESET | Errno::PIPE => ProbeFailure::Closed,
            Errno::NETUNREACH | Errno::HOSTUNREACH | Errno::NETDOWN | Errno::HOSTDOWN | Errno::TIMEDOUT => {
                ProbeFailure::Unreachable
            }
            error => ProbeFailure::System(error),
        }
    }
}

impl fmt::Display for ProbeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.to.port() {
            0 => write!(f, "{}: {}", self.to.ip(), self.why),
            _ => write!(f, "{}: {}", self.to, self.why),
        }
    }
}

impl fmt::Display for ProbeFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ProbeFailure::Refused => f.write_str("refused"),
            ProbeFailure::Unreachable => f.write_str("unreachable"),
            ProbeFailure::NoAnswer { within } => write!(f, "no answer within {} s", within.as_secs_f64()),
            ProbeFailure::Closed => f.write_str("closed without an answer"),
            ProbeFailure::Status(status) => write!(f, "status {status}"),
            ProbeFailure::NotHttp => f.write_str("the answer is not HTTP"),
            ProbeFailure::System(error) => write!(f, "{error}"),
        }
    }
}

impl fmt::Display for NoProbe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NoProbe::TooMany { limit } => write!(f, "{limit} probes are under way, which is the limit"),
            NoProbe::BadRequest => f.write_str("path or host can't be in a request of HTTP"),
            NoProbe::PingNotPermitted => f.write_str(
                "may not ping; allow it with CAP_NET_RAW or 'sysctl net.ipv4.ping_group_range=\"0 \
                 2147483647\"'",
            ),
            NoProbe::System(error) => write!(f, "no probe can be sent: {error}"),
        }
    }
}

impl std::error::Error for ProbeError {}
impl std::error::Error for NoProbe {}
