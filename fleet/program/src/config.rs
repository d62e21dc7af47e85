//! The configuration file. `docs/fleet.md` describes it.

use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use serde::Deserialize;

use crate::probe;
use crate::service_address::ServiceAddress;

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
    pub(crate) announce: Option<Announce>,
    pub(crate) etcd: Option<Etcd>,
}

/// Where the fleet's configuration is, and who of its machines lives.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Etcd {
    /// `http://ADDRESS:PORT` or `https://…` of each server.
    pub(crate) endpoints: Vec<String>,
    /// Where the router's part of the fleet's configuration is written: the file that it is started with.
    pub(crate) router_file: PathBuf,
    /// How long a machine that is silent lives.
    #[serde(default = "default_lease")]
    pub(crate) lease_seconds: u64,
    /// None: that of peers.
    pub(crate) tls: Option<Tls>,
}

/// How this machine is announced to the network, and when.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Announce {
    /// `ADDRESS/LENGTH` of what an interface has while this machine is announced.
    #[serde(default)]
    pub(crate) addresses: Vec<String>,
    #[serde(default = "default_device")]
    pub(crate) device: String,
    /// A program that is called with `announce` or `withdraw` instead.
    pub(crate) command: Option<PathBuf>,
    /// How long peers are waited for that were not heard.
    #[serde(default = "default_peer_wait")]
    pub(crate) peer_wait_seconds: u64,
    /// How long the router may be silent.
    #[serde(default = "default_router_timeout")]
    pub(crate) router_timeout_ms: u64,
    /// How long the network may take to send nothing here any more.
    #[serde(default = "default_settle")]
    pub(crate) settle_seconds: u64,
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

fn default_device() -> String {
    "lo".into()
}

fn default_peer_wait() -> u64 {
    10
}

/// With it a machine is withdrawn within 300 ms after its router fails.
fn default_router_timeout() -> u64 {
    250
}

fn default_settle() -> u64 {
    2
}

fn default_lease() -> u64 {
    5
}

impl Etcd {
    pub(crate) fn lease(&self) -> Duration {
        Duration::from_secs(self.lease_seconds)
    }

    pub(crate) fn has_tls(&self) -> bool {
        self.endpoints.iter().any(|endpoint| endpoint.starts_with("https://"))
    }

    fn check(&self, config: &Config) -> Result<()> {
        ensure!(!self.endpoints.is_empty(), "etcd.endpoints is empty; name a server");
        for endpoint in &self.endpoints {
            let parts = endpoint.split_once("://").filter(|(scheme, _)| ["http", "https"].contains(scheme));
            let Some((scheme, (host, _))) = parts.and_then(|(s, rest)| Some((s, split_endpoint(rest)?)))
            else {
                bail!("etcd.endpoints: '{endpoint}' is not http://ADDRESS:PORT or https://ADDRESS:PORT");
            };
            ensure!(
                scheme == "https" || config.insecure || is_loopback(host),
                "etcd.endpoints: '{endpoint}' is not a loopback address: use https, or insecure = true on a \
                 network that no one else reaches"
            );
        }
        ensure!(
            !self.has_tls() || self.tls.is_some() || config.tls.is_some(),
            "etcd.endpoints have https: add [etcd.tls] or [tls] with ca, certificate and key"
        );
        ensure!(self.router_file.is_absolute(), "etcd.router_file: write the whole path");
        ensure!(
            (2..=60).contains(&self.lease_seconds),
            "etcd.lease_seconds = {}: use 2 to 60",
            self.lease_seconds
        );
        Ok(())
    }
}

impl Announce {
    pub(crate) fn parse_addresses(&self) -> Result<Vec<ServiceAddress>> {
        let parse = |text: &String| {
            ServiceAddress::parse(text).with_context(|| {
                format!(
                    "announce.addresses: '{text}' is not ADDRESS/LENGTH of a service, as 192.0.2.1/32 or \
                     2001:db8::1/128"
                )
            })
        };
        self.addresses.iter().map(parse).collect()
    }

    fn check(&self) -> Result<()> {
        ensure!(
            self.addresses.is_empty() == self.command.is_some(),
            "[announce] needs either addresses or command"
        );
        let addresses = self.parse_addresses()?;
        for (at, address) in addresses.iter().enumerate() {
            ensure!(!addresses[..at].contains(address), "announce.addresses: {address} is there twice");
        }
        let least = 2 * probe::PAUSE.as_millis() as u64;
        ensure!(
            (least..=60_000).contains(&self.router_timeout_ms),
            "announce.router_timeout_ms = {}: use {least} to 60000",
            self.router_timeout_ms
        );
        for (key, seconds) in
            [("peer_wait_seconds", self.peer_wait_seconds), ("settle_seconds", self.settle_seconds)]
        {
            ensure!(seconds <= 3600, "announce.{key} = {seconds}: use 3600 at most");
        }
        Ok(())
    }
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
        self.announce.as_ref().map_or(Ok(()), Announce::check)?;
        self.etcd.as_ref().map_or(Ok(()), |etcd| etcd.check(self))
    }

    fn check_endpoint(&self, endpoint: &str) -> Result<()> {
        let Some((host, _)) = split_endpoint(endpoint) else {
            bail!("'{endpoint}' is not ADDRESS:PORT");
        };
        ensure!(
            self.tls.is_some() || self.insecure || is_loopback(host),
            "'{endpoint}' is not a loopback address, and there is no TLS: add [tls] with ca, certificate and \
             key, or insecure = true on a network that no one else reaches"
        );
        Ok(())
    }

    pub(crate) fn refresh(&self) -> Duration {
        Duration::from_secs(self.refresh_seconds)
    }

    pub(crate) fn peer_wait(&self) -> Duration {
        let announce = self.announce.as_ref();
        Duration::from_secs(announce.map_or_else(default_peer_wait, |announce| announce.peer_wait_seconds))
    }

    /// How long the router may be silent.
    pub(crate) fn router_timeout(&self) -> Duration {
        let announce = self.announce.as_ref();
        Duration::from_millis(
            announce.map_or_else(default_router_timeout, |announce| announce.router_timeout_ms),
        )
    }

    pub(crate) fn settle(&self) -> Duration {
        let announce = self.announce.as_ref();
        Duration::from_secs(announce.map_or_else(default_settle, |announce| announce.settle_seconds))
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
    fn an_announcement_has_defaults_and_either_addresses_or_a_command() {
        let announce = |lines: &str| format!("{LEAST}[announce]\n{lines}\n");
        let config = Config::parse(&announce("addresses = [\"192.0.2.1/32\"]")).unwrap();
        let settings = config.announce.unwrap();
        assert_eq!((settings.device.as_str(), settings.command), ("lo", None));
        assert_eq!((settings.peer_wait_seconds, settings.router_timeout_ms), (10, 250));
        assert!(Config::parse(&announce("command = \"/bin/true\"")).is_ok());
        for (lines, part) in [
            ("", "either addresses or command"),
            ("addresses = []", "either addresses or command"),
            ("command = \"/x\"\naddresses = [\"192.0.2.1/32\"]", "either addresses or command"),
            ("addresses = [\"192.0.2.1\"]", "'192.0.2.1' is not ADDRESS/LENGTH"),
            ("addresses = [\"192.0.2.1/32\", \"192.0.2.1/32\"]", "192.0.2.1/32 is there twice"),
            ("command = \"/x\"\nrouter_timeout_ms = 99", "use 100 to 60000"),
            ("command = \"/x\"\npeer_wait_seconds = 3601", "use 3600 at most"),
            ("command = \"/x\"\ndevise = \"lo\"", "devise"),
        ] {
            let said = refusal(&announce(lines));
            assert!(said.contains(part), "{lines}: {said}");
        }
    }

    #[test]
    fn servers_of_etcd_have_a_scheme_and_need_tls_or_loopback_or_the_word_insecure() {
        let etcd = |lines: &str| format!("{LEAST}[etcd]\n{lines}\n");
        let file = "router_file = \"/etc/artery/r.toml\"";
        let config = Config::parse(&etcd(&format!("endpoints = [\"http://127.0.0.1:2379\"]\n{file}")));
        assert_eq!(config.unwrap().etcd.unwrap().lease_seconds, 5);
        for (endpoints, more, part) in [
            ("[]", file, "endpoints is empty"),
            ("[\"127.0.0.1:2379\"]", file, "is not http://ADDRESS:PORT"),
            ("[\"http://127.0.0.1\"]", file, "is not http://ADDRESS:PORT"),
            ("[\"http://10.0.0.1:2379\"]", file, "is not a loopback address"),
            ("[\"https://10.0.0.1:2379\"]", file, "add [etcd.tls] or [tls]"),
            ("[\"http://127.0.0.1:1\"]", "router_file = \"r.toml\"", "the whole path"),
            ("[\"http://127.0.0.1:1\"]", &format!("{file}\nlease_seconds = 1"), "use 2 to 60"),
            ("[\"http://127.0.0.1:1\"]", "", "router_file"),
        ] {
            let said = refusal(&etcd(&format!("endpoints = {endpoints}\n{more}")));
            assert!(said.contains(part), "{endpoints}: {said}");
        }
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
