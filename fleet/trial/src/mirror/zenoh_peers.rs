//! Records by zenoh: peers that connect to one another, without a server.
//!
//! | key | holds |
//! |---|---|
//! | `NAME/ID/changes/MACHINE` | batches, as they are published |
//! | `NAME/ID/state/MACHINE` | answers queries with all records of the machine |
//! | `NAME/ID/alive/MACHINE` | a liveliness token |

use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use bytes::Bytes;
use serde_json::{Value, json};
use tokio::runtime::Handle;
use zenoh::Wait;
use zenoh::liveliness::LivelinessToken;
use zenoh::pubsub::Publisher;
use zenoh::qos::CongestionControl;
use zenoh::query::{ConsolidationMode, Query, QueryTarget};
use zenoh::sample::SampleKind;

use super::{Congestion, FLEET, Inbox, MirrorOptions};
use crate::own::Own;

const PORT: u16 = 7447;

/// A whole state must have come within this time.
const FETCH_LIMIT: Duration = Duration::from_secs(30);

pub(crate) struct ZenohPeers {
    session: zenoh::Session,
    publisher: Publisher<'static>,
    inbox: Inbox,
    _alive: LivelinessToken,
}

impl ZenohPeers {
    pub(super) async fn start(options: &MirrorOptions, inbox: Inbox) -> Result<ZenohPeers> {
        let session = zenoh::open(config(options)?).await.map_err(failure("cannot open a session"))?;
        let machine = options.machine.to_string();
        let publisher = session
            .declare_publisher(key("changes", &machine))
            .congestion_control(options.congestion.into())
            .await
            .map_err(failure("cannot declare a publisher"))?;
        subscribe(&session, &inbox).await?;
        answer_queries(&session, &inbox, &machine).await?;
        watch_presence(&session, &inbox).await?;
        let token = session.liveliness().declare_token(key("alive", &machine)).await;
        let _alive = token.map_err(failure("cannot declare a liveliness token"))?;
        Ok(ZenohPeers { session, publisher, inbox, _alive })
    }

    /// Waits in place while the queue is full: zenoh's own wait blocks the thread.
    pub(super) fn publish(&self, batch: Bytes) -> Result<()> {
        tokio::task::block_in_place(|| self.publisher.put(batch).wait()).map_err(failure("cannot publish"))
    }

    pub(super) async fn fetch(&self, machine: u32) -> Result<()> {
        let replies = self
            .session
            .get(key("state", &machine.to_string()))
            .target(QueryTarget::All)
            // The other modes keep replies until all have come.
            .consolidation(ConsolidationMode::None)
            .timeout(FETCH_LIMIT)
            .await
            .map_err(failure("cannot query"))?;
        while let Ok(reply) = replies.recv_async().await {
            let Ok(sample) = reply.into_result() else { bail!("machine {machine} answered with an error") };
            if self.inbox.replica.receive_copy(&sample.payload().to_bytes())? {
                return Ok(());
            }
        }
        bail!("the state of machine {machine} ended early")
    }
}

async fn subscribe(session: &zenoh::Session, inbox: &Inbox) -> Result<()> {
    let inbox = inbox.clone();
    let subscriber = session
        .declare_subscriber(key("changes", "*"))
        .callback(move |sample| inbox.receive(&sample.payload().to_bytes()))
        .background();
    subscriber.await.map_err(failure("cannot subscribe"))
}

async fn answer_queries(session: &zenoh::Session, inbox: &Inbox, machine: &str) -> Result<()> {
    let (own, runtime) = (inbox.own.clone(), Handle::current());
    let queryable = session
        .declare_queryable(key("state", machine))
        .callback(move |query| {
            let own = own.clone();
            drop(runtime.spawn_blocking(move || send_state(&query, &own)));
        })
        .background();
    queryable.await.map_err(failure("cannot answer queries"))
}

fn send_state(query: &Query, own: &Own) {
    for part in own.copy() {
        if let Err(error) = query.reply(query.key_expr().clone(), part).wait() {
            eprintln!("a query was not answered to its end: {error}");
            return;
        }
    }
}

async fn watch_presence(session: &zenoh::Session, inbox: &Inbox) -> Result<()> {
    let replica = inbox.replica.clone();
    let subscriber = session
        .liveliness()
        .declare_subscriber(key("alive", "*"))
        .history(true)
        .callback(move |sample| {
            let machine = sample.key_expr().as_str().rsplit('/').next().unwrap_or_default();
            replica.note_presence(machine, sample.kind() == SampleKind::Put);
        })
        .background();
    subscriber.await.map_err(failure("cannot watch which machines are there"))
}

fn key(what: &str, machine: &str) -> String {
    [FLEET[0], FLEET[1], what, machine].join("/")
}

fn config(options: &MirrorOptions) -> Result<zenoh::Config> {
    let protocol = if options.certificates.is_some() { "tls" } else { "tcp" };
    let endpoint = |address| format!("{protocol}/{address}:{PORT}");
    let peers: Vec<String> = options.peers.iter().map(endpoint).collect();
    let mut settings = vec![
        ("mode", json!("peer")),
        ("scouting/multicast/enabled", json!(false)),
        ("scouting/gossip/enabled", json!(false)),
        ("listen/endpoints", json!([endpoint(&options.address)])),
        ("connect/endpoints", json!(peers)),
        ("connect/retry", json!({"period_init_ms": 200, "period_max_ms": 500, "period_increase_factor": 2})),
        ("transport/link/tx/lease", json!(options.lease_ms)),
        ("transport/unicast/open_timeout", json!(1000)),
        ("transport/unicast/accept_timeout", json!(1000)),
    ];
    if let Some(folder) = &options.certificates {
        settings.push(("transport/link/tls", tls(&|name| folder.join(name).display().to_string())));
    }
    let mut config = zenoh::Config::default();
    for (name, value) in settings {
        let inserted = config.insert_json5(name, &value.to_string());
        inserted.map_err(failure("zenoh refuses a setting")).with_context(|| format!("{name} = {value}"))?;
    }
    Ok(config)
}

fn tls(path: &dyn Fn(&str) -> String) -> Value {
    json!({
        "root_ca_certificate": path("ca.pem"),
        "enable_mtls": true,
        "listen_certificate": path("machine.pem"),
        "listen_private_key": path("machine.key"),
        "connect_certificate": path("machine.pem"),
        "connect_private_key": path("machine.key"),
    })
}

/// Errors of zenoh are boxed, which `anyhow` does not take by `?`.
fn failure(what: &'static str) -> impl Fn(zenoh::Error) -> anyhow::Error {
    move |error| anyhow!(error).context(what)
}

impl From<Congestion> for CongestionControl {
    fn from(congestion: Congestion) -> CongestionControl {
        match congestion {
            Congestion::Drop => CongestionControl::Drop,
            Congestion::Block => CongestionControl::Block,
        }
    }
}
