//! etcd as this program uses it: keys of one fleet, by one server at a time. A request that fails is made
//! again at the next server.

use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use etcd_client::{
    Certificate, Client, Compare, CompareOp, ConnectOptions, GetOptions, Identity, PutOptions, TlsOptions,
    Txn, TxnOp, WatchOptions, WatchStream,
};
use tokio::time::timeout;

use crate::config::{Config, Etcd};

const CONNECT_LIMIT: Duration = Duration::from_secs(1);
pub(crate) const REQUEST_LIMIT: Duration = Duration::from_secs(2);
/// How often each server is asked before a request has failed.
const ROUNDS: usize = 2;
/// The pause before the next server is asked.
const PAUSE: Duration = Duration::from_millis(200);

pub(crate) struct Store {
    endpoints: Vec<String>,
    /// The place of the server that is asked.
    place: usize,
    options: ConnectOptions,
    prefix: String,
    client: Option<Client>,
}

/// All keys of a fleet at one time, without the prefix.
pub(crate) struct Snapshot {
    pub(crate) pairs: Vec<Pair>,
    /// That of etcd, to watch from.
    pub(crate) at: i64,
}

pub(crate) struct Pair {
    pub(crate) key: String,
    pub(crate) value: Vec<u8>,
    /// The revision of etcd that changed it.
    pub(crate) changed: i64,
    /// That of the process which put it; 0 for a key that stays until someone deletes it.
    pub(crate) lease: i64,
}

impl Store {
    pub(crate) fn new(config: &Config, etcd: &Etcd) -> Result<Store> {
        let mut options = ConnectOptions::new().with_connect_timeout(CONNECT_LIMIT).with_require_leader(true);
        if etcd.has_tls() {
            options = options.with_tls(tls_options(config, etcd)?);
        }
        let prefix = format!("/artery/{}/{}/", config.fleet, config.id);
        Ok(Store { endpoints: etcd.endpoints.clone(), place: 0, options, prefix, client: None })
    }

    pub(crate) fn endpoint(&self) -> &str {
        &self.endpoints[self.place]
    }

    /// A client of the present server.
    pub(crate) async fn client(&mut self) -> Result<Client> {
        if let Some(client) = &self.client {
            return Ok(client.clone());
        }
        let connecting = Client::connect([self.endpoint()], Some(self.options.clone()));
        let connected = timeout(REQUEST_LIMIT, connecting).await.context("no answer")?;
        let client = connected.map_err(to_error)?;
        self.client = Some(client.clone());
        Ok(client)
    }

    /// Has the next server asked from now on.
    pub(crate) fn turn_to_next(&mut self) {
        self.client = None;
        self.place = (self.place + 1) % self.endpoints.len();
    }

    async fn repeat<T>(&mut self, ask: impl AsyncFn(Client) -> Result<T, etcd_client::Error>) -> Result<T> {
        let mut last = anyhow!("no server was asked");
        for _ in 0..ROUNDS * self.endpoints.len() {
            let answer = match self.client().await {
                Ok(client) => match timeout(REQUEST_LIMIT, ask(client)).await {
                    Ok(answer) => answer.map_err(to_error),
                    Err(_) => Err(anyhow!("no answer within {} s", REQUEST_LIMIT.as_secs())),
                },
                Err(error) => Err(error),
            };
            match answer {
                Ok(value) => return Ok(value),
                Err(error) => last = error.context(format!("etcd at {}", self.endpoint())),
            }
            self.turn_to_next();
            tokio::time::sleep(PAUSE).await;
        }
        Err(last)
    }

    pub(crate) async fn all(&mut self) -> Result<Snapshot> {
        let prefix = self.prefix.clone();
        let answer = self
            .repeat(async |mut client| {
                client.get(prefix.as_str(), Some(GetOptions::new().with_prefix())).await
            })
            .await?;
        let at = answer.header().map(etcd_client::ResponseHeader::revision);
        let at = at.context("an answer of etcd has no header")?;
        let pairs = answer.kvs().iter().filter_map(|pair| self.pair(pair)).collect();
        Ok(Snapshot { pairs, at })
    }

    /// A pair of this fleet; keys that are not text are none.
    pub(crate) fn pair(&self, pair: &etcd_client::KeyValue) -> Option<Pair> {
        let key = pair.key_str().ok()?.strip_prefix(&self.prefix)?.to_string();
        let (value, changed, lease) = (pair.value().to_vec(), pair.mod_revision(), pair.lease());
        Some(Pair { key, value, changed, lease })
    }

    pub(crate) async fn put_key(&mut self, key: &str, value: Vec<u8>, lease: i64) -> Result<()> {
        let key = format!("{}{key}", self.prefix);
        let put = async |mut client: Client| {
            let options = PutOptions::new().with_lease(lease);
            client.put(key.as_str(), value.clone(), Some(options)).await
        };
        self.repeat(put).await.map(drop)
    }

    /// Puts a value if no one changed the key since `changed`, 0 for one that is not there; whether that was
    /// so. No two values are the same, so that a lost answer is not taken for a refusal.
    pub(crate) async fn replace(
        &mut self,
        key: &str,
        changed: i64,
        value: Vec<u8>,
        lease: i64,
    ) -> Result<bool> {
        let full = format!("{}{key}", self.prefix);
        let transaction = Txn::new()
            .when([Compare::mod_revision(full.as_str(), CompareOp::Equal, changed)])
            .and_then([TxnOp::put(full.as_str(), value.clone(), Some(PutOptions::new().with_lease(lease)))]);
        let answer = self.repeat(async |mut client| client.txn(transaction.clone()).await).await?;
        if answer.succeeded() {
            return Ok(true);
        }
        let now = self.repeat(async |mut client| client.get(full.as_str(), None).await).await?;
        Ok(now.kvs().first().is_some_and(|pair| pair.value() == value))
    }

    pub(crate) async fn grant(&mut self, seconds: u64) -> Result<i64> {
        let answer = self.repeat(async |mut client| client.lease_grant(seconds as i64, None).await).await?;
        Ok(answer.id())
    }

    /// Prolongs a lease once.
    pub(crate) async fn keep_alive(&mut self, lease: i64) -> Result<()> {
        let keep = async |mut client: Client| {
            let (mut keeper, mut answers) = client.lease_keep_alive(lease).await?;
            keeper.keep_alive().await?;
            answers.message().await
        };
        self.repeat(keep).await.map(drop)
    }

    pub(crate) async fn revoke(&mut self, lease: i64) -> Result<()> {
        self.repeat(async |mut client| client.lease_revoke(lease).await).await.map(drop)
    }

    /// All changes from a revision of etcd on.
    pub(crate) async fn watch(&mut self, from: i64) -> Result<WatchStream> {
        let options = WatchOptions::new().with_prefix().with_start_revision(from);
        let mut client = self.client().await?;
        let watching = client.watch(self.prefix.as_str(), Some(options));
        timeout(REQUEST_LIMIT, watching).await.context("no answer to a watch")?.map_err(to_error)
    }
}

/// The error in words: that of a request is a dump of the libraries' structures, with the cause innermost.
pub(crate) fn to_error(error: etcd_client::Error) -> anyhow::Error {
    let outer: &dyn std::error::Error = match &error {
        etcd_client::Error::GRpcStatus(status) => status,
        etcd_client::Error::TransportError(error) => error,
        _ => return error.into(),
    };
    match std::iter::successors(outer.source(), |error| error.source()).last() {
        Some(cause) => anyhow!("{cause}"),
        None => match &error {
            etcd_client::Error::GRpcStatus(status) => anyhow!("{}", status.message()),
            _ => error.into(),
        },
    }
}

fn tls_options(config: &Config, etcd: &Etcd) -> Result<TlsOptions> {
    let Some(tls) = etcd.tls.as_ref().or(config.tls.as_ref()) else {
        bail!("etcd.endpoints have https: add [etcd.tls] or [tls] with ca, certificate and key");
    };
    let read = |path: &std::path::Path| {
        std::fs::read(path).with_context(|| format!("can't read {}", path.display()))
    };
    Ok(TlsOptions::new()
        .ca_certificate(Certificate::from_pem(read(&tls.ca)?))
        .identity(Identity::from_pem(read(&tls.certificate)?, read(&tls.key)?)))
}
