//! Control sockets on the command line: their access, and how a client finds one.
use super::values::seconds;
use crate::control_socket::{ControlSettings, Group, TcpWrites, default_token_file};
use clap::Args;
use std::path::PathBuf;
use std::time::Duration;

/// Who may do what by the control sockets of a router.
#[derive(Args, Clone)]
pub(crate) struct ControlOptions {
    /// Let members of GROUP connect to the control sockets and read; only root and the router's user write
    #[arg(long, value_name = "GROUP")]
    read_group: Option<Group>,
    /// End a control connection that asks nothing for TIME
    #[arg(long, value_name = "TIME", default_value = "300", value_parser = seconds)]
    control_timeout: Duration,
}

impl ControlOptions {
    pub(crate) fn settings(&self, sockets: Vec<PathBuf>) -> ControlSettings {
        let (read_group, idle) = (self.read_group.clone(), self.control_timeout);
        ControlSettings { sockets, read_group, idle, ..ControlSettings::default() }
    }
}

/// Who may write by TCP.
#[derive(Args, Clone)]
pub(crate) struct TcpOptions {
    /// With --port: allow writes to whoever gives the token in FILE, which is made if there is none;
    /// otherwise in artery-PORT.token in /run, or in $XDG_RUNTIME_DIR of a user that is not root
    #[arg(long, value_name = "FILE", requires = "port")]
    token_file: Option<PathBuf>,
    /// With --port: allow writes to every local user without a token
    #[arg(long, requires = "port", conflicts_with = "token_file")]
    insecure: bool,
}

impl TcpOptions {
    pub(crate) fn writes(self) -> TcpWrites {
        if self.insecure { TcpWrites::Open } else { TcpWrites::Token(self.token_file) }
    }
}

/// Where a command finds the running router that it is for.
#[derive(Args, Clone)]
pub(crate) struct Reach {
    // Commands that have commands of their own take both behind these, too, as all others do.
    /// The router's Unix socket; otherwise $ARTERY_SOCKET, or /run/artery.sock
    #[arg(short = 'u', long, value_name = "PATH", global = true)]
    socket: Option<PathBuf>,
    /// The router's TCP port on 127.0.0.1
    #[arg(short = 'p', long, value_name = "PORT", conflicts_with = "socket", global = true)]
    pub(crate) port: Option<u16>,
    /// With --port: the file with the token that allows writes; otherwise $ARTERY_TOKEN_FILE, or where
    /// the router puts it
    #[arg(long, value_name = "FILE", conflicts_with = "socket", global = true)]
    token_file: Option<PathBuf>,
}

impl Reach {
    /// The socket, unless a TCP port was given.
    pub(crate) fn socket(&self) -> Option<PathBuf> {
        self.port.is_none().then(|| self.socket.clone().unwrap_or_else(default_socket))
    }

    /// The file with the token for a TCP port, and whether the user named it.
    pub(crate) fn token_file(&self) -> Option<(PathBuf, bool)> {
        let port = self.port?;
        let told = std::env::var_os("ARTERY_TOKEN_FILE").filter(|path| !path.is_empty());
        let named = self.token_file.clone().or_else(|| told.map(PathBuf::from));
        named.map(|file| (file, true)).or_else(|| Some((default_token_file(port)?, false)))
    }
}

/// The default path of a router's control socket: `$ARTERY_SOCKET`, or `/run/artery.sock`.
pub(crate) fn default_socket() -> PathBuf {
    let told = std::env::var_os("ARTERY_SOCKET").filter(|path| !path.is_empty());
    told.map_or("/run/artery.sock".into(), PathBuf::from)
}
