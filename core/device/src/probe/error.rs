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
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProbeFailure {
    /// The machine takes no connection there.
    #[error("refused")]
    Refused,
    /// No route leads to the machine, or it does not answer ARP or Neighbor Discovery.
    #[error("unreachable")]
    Unreachable,
    /// There was no answer in time.
    #[error("no answer within {} s", .within.as_secs_f64())]
    NoAnswer {
        /// For how long it was waited.
        within: Duration,
    },
    /// The connection was closed before there was an answer.
    #[error("closed without an answer")]
    Closed,
    /// The answer has a status that is not good.
    #[error("status {0}")]
    Status(u16),
    /// The answer is not one of HTTP.
    #[error("the answer is not HTTP")]
    NotHttp,
    /// The system refused for another reason, which may be a local one.
    #[error("{0}")]
    System(Errno),
}

/// Why no probe was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoProbe {
    /// As many are under way as may be.
    #[error("{limit} probes are under way, which is the limit")]
    TooMany {
        /// The most that may be pending.
        limit: usize,
    },
    /// The path does not begin with `/`, or path or host have characters that no request may have.
    #[error("path or host can't be in a request of HTTP")]
    BadRequest,
    /// Neither kind of socket that can send echo requests may be opened.
    #[error("may not ping; allow it with CAP_NET_RAW or 'sysctl net.ipv4.ping_group_range=\"0 2147483647\"'")]
    PingNotPermitted,
    /// The system gives no socket.
    #[error("no probe can be sent: {0}")]
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
impl std::error::Error for ProbeError {}
