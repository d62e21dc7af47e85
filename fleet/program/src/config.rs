//! The configuration file. `docs/fleet.md` describes it.

use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use serde::Deserialize;

/// Most peers of a machine: each connection has a thread, so that one that closes stops no other.
pub(crate) const MOST_PEERS: usize = 32;
/// Most bytes of a word of a key.
const LONGEST_WORD: usize = 64;

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Config {
    pub(crate) fleet: String,
    /// Distinguishes fleets of the same name, as an old and a new one.
    pub(crate) id: String,
    /// The name of this machine.
    pub(crate) machine: String,
    /// `ADDRESS:PORT` of each listener.
    pub(crate) listen: Vec<String>,
    /// `ADDRESS:PORT` of all other machines.
    pub(crate) peers: Vec<String>,
    /// The control socket of the router.
    pub(crate) control: PathBuf,
    /// The name of the FlowBalancer.
    pub(crate) balancer: String,
    #[serde(default = "default_status")]
    pub(crate) status: PathBuf,
    /// How often all exceptions of each peer are fetched, which keeps idle times of copies true.
    #[serde(default = "default_refresh")]
    pub(crate) refresh_seconds: u64,
    /// Allows addresses other than loopback without TLS.
    #[serde(default)]
    pub(crate) insecure: bool,
    pub(crate) tls: Option<Tls>,
}

/// Names of files in PEM format (RFC 7468).
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Tls {
    /// Certificate of the authority that peers' certificates are signed by.
    pub(crate) ca: PathBuf,
    pub(crate) certificate: PathBuf,
    pub(crate) key: PathBuf,
}

fn default_status() -> PathBuf {
    "/run/artery-fleet.sock".into()
}

/// A quarter of the shortest idle time that matters, that of UDP in use.
fn default_refresh() -> u64 {
    45
}

impl Config {
    pub(crate) fn read(path: &Path) -> Result<Config> {
        let text = std::fs::read_to_string(path).with_context(|| format!("can't read {}", path.display()))?;
        Config::parse(&text).with_context(|| format!("{} is not a configuration", path.display()))
    }

    pub(crate) fn parse(text: &str) -> Result<Config> {
        let config: Config = toml::from_str(text)?;
        config.check()?;
        Ok(config)
    }

    fn check(&self) -> Result<()> {
        for (key, word) in [("fleet", &self.fleet), ("id", &self.id), ("machine", &self.machine)] {
            ensure!(is_word(word), "{key} = {word:?}: use letters, digits, '-', '_' and '.', at most 64");
        }
        ensure!(!self.listen.is_empty(), "listen is empty; name an address and a port");
        ensure!(
            self.peers.len() <= MOST_PEERS,
            "{} peers; at most {MOST_PEERS} are possible",
            self.peers.len()
        );
        ensure!(self.refresh_seconds > 0, "refresh_seconds = 0; the least is 1");
        for endpoint in self.listen.iter().chain(&self.peers) {
            self.check_endpoint(endpoint)?;
        }
        Ok(())
    }

    fn check_endpoint(&self, endpoint: &str) -> Result<()> {
        let Some((host, _)) = split_endpoint(endpoint) else {
            bail!("'{endpoint}' is not ADDRESS:PORT");
        };
        ensure!(
            self.tls.is_some() || self.insecure || is_loopback(host),
            "'{endpoint}' is not a loopback address, and there is no TLS: add [tls] with ca, certificate and \
             key, or insecure = true on a network that nobody else reaches"
        );
        Ok(())
    }

    pub(crate) fn refresh(&self) -> Duration {
        Duration::from_secs(self.refresh_seconds)
    }
}

/// Whether it can be a word of a key: no wildcard, no separator.
pub(crate) fn is_word(word: &str) -> bool {
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    (1..=LONGEST_WORD).contains(&word.len()) && word.bytes().all(is_allowed)
}

/// Host and port; addresses of IPv6 have brackets.
fn split_endpoint(endpoint: &str) -> Option<(&str, u16)> {
    let (host, port) = endpoint.rsplit_once(':')?;
    let port = port.parse().ok().filter(|port| *port != 0)?;
    let is_v6 = |host: &str| host.parse::<std::net::Ipv6Addr>().is_ok();
    match host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
        Some(inner) => is_v6(inner).then_some((inner, port)),
        // What is neither an address nor a name could be settings of zenoh's endpoints.
        None => is_word(host).then_some((host, port)),
    }
}

fn is_loopback(host: &str) -> bool {
    host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) const LEAST: &str = r#"
fleet = "web"
id = "1"
machine = "m1"
listen = ["127.0.0.1:7447"]
peers = ["127.0.0.2:7447", "[::1]:7447"]
control = "/run/artery.sock"
balancer = "b"
"#;

    fn refusal(text: &str) -> String {
        format!("{:#}", Config::parse(text).unwrap_err())
    }

    #[test]
    fn the_least_configuration_has_defaults() {
        let config = Config::parse(LEAST).unwrap();
        assert_eq!(config.status, Path::new("/run/artery-fleet.sock"));
        assert_eq!((config.refresh_seconds, config.insecure), (45, false));
    }

    #[test]
    fn an_unknown_key_is_refused_with_its_line() {
        let said = refusal(&format!("{LEAST}baancer = \"x\"\n"));
        assert!(said.contains("line 9") && said.contains("baancer"), "{said}");
        let said =
            refusal(&format!("{LEAST}[tls]\nca = \"a\"\ncertificate = \"b\"\nkey = \"c\"\nkex = \"d\"\n"));
        assert!(said.contains("line 13") && said.contains("kex"), "{said}");
    }

    #[test]
    fn addresses_other_than_loopback_need_tls_or_the_word_insecure() {
        for endpoint in ["192.0.2.1:7447", "[2001:db8::1]:7447", "peer.example:7447", "localhost:7447"] {
            let text = LEAST.replace("127.0.0.2:7447", endpoint);
            assert!(refusal(&text).contains("no TLS"), "{endpoint}");
            assert!(Config::parse(&format!("{text}insecure = true\n")).is_ok());
            let tls = "[tls]\nca = \"a\"\ncertificate = \"b\"\nkey = \"c\"\n";
            assert!(Config::parse(&format!("{text}{tls}")).is_ok());
            let listening = LEAST.replace("127.0.0.1:7447", endpoint);
            assert!(refusal(&listening).contains("no TLS"), "{endpoint}");
        }
    }

    #[test]
    fn what_is_no_endpoint_or_no_word_is_refused() {
        for endpoint in
            ["127.0.0.2", "127.0.0.2:0", "127.0.0.2:x", "tcp/127.0.0.1:1", "[::1:1", "::1:1", "a?b:1"]
        {
            let said = refusal(&LEAST.replace("127.0.0.2:7447", endpoint));
            assert!(said.contains("is not ADDRESS:PORT"), "{endpoint}: {said}");
        }
        for word in ["", "a/b", "*", "a b", &"x".repeat(65)] {
            let said = refusal(&LEAST.replace("\"m1\"", &format!("{word:?}")));
            assert!(said.contains("machine = "), "{word}: {said}");
        }
        assert!(refusal(&LEAST.replace("[\"127.0.0.1:7447\"]", "[]")).contains("listen is empty"));
        assert!(refusal(&format!("{LEAST}refresh_seconds = 0\n")).contains("least is 1"));
    }
}
