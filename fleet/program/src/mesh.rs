//! Messages between machines by zenoh: peers that connect to one another, without a server.
//!
//! | key | holds |
//! |---|---|
//! | `artery/FLEET/ID/flows/MACHINE` | batches of changes, as they are published |
//! | `artery/FLEET/ID/all/MACHINE` | answers queries with all exceptions of the machine |
//! | `artery/FLEET/ID/has/MACHINE/OTHER` | answers whether MACHINE has all that OTHER said |
//!
//! Changes have a session that listens and connects; what is fetched comes by connections of another session,
//! so that changes do not wait behind it.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, ensure};
use serde_json::{Value, json};
use tokio::runtime::Handle;
use tokio::sync::Semaphore;
use zenoh::Wait;
use zenoh::bytes::ZBytes;
use zenoh::handlers::FifoChannel;
use zenoh::pubsub::Publisher;
use zenoh::qos::CongestionControl;
use zenoh::query::{ConsolidationMode, Query, QueryTarget};
use zenoh::sample::{Locality, Sample};

use crate::announce::Announcement;
use crate::config::{Config, Tls, is_word};
use crate::envelope::{Envelope, Kind, Refusal};
use crate::etcd::View;
use crate::follow::{Outlet, Own};
use crate::hand_over::{self, Confirmations};
use crate::import::{Delivery, ImportCounts, Inbox, MOST_BYTES};
use crate::owner::Owner;
use crate::peers::Peers;

/// All exceptions of a machine must have come within this time.
const FETCH_LIMIT: Duration = Duration::from_secs(120);
/// Queries that are answered at a time; others are refused and come again.
const ANSWERS: usize = 4;
/// Replies of a fetch that wait here.
const REPLIES: usize = 16;
/// How often it is looked for machines that are to be fetched.
const FETCH_PAUSE: Duration = Duration::from_millis(50);

/// What the sessions need of this machine.
#[derive(Clone)]
pub(crate) struct Local {
    pub(crate) config: Arc<Config>,
    pub(crate) own: Arc<Own>,
    pub(crate) peers: Arc<Peers>,
    pub(crate) counts: Arc<ImportCounts>,
    pub(crate) inbox: Inbox,
    pub(crate) announcement: Arc<Announcement>,
    /// What is known of etcd, if the configuration has it.
    pub(crate) view: Option<Arc<View>>,
}

impl Local {
    fn asker(&self) -> Asker {
        Asker(Owner { machine: self.config.machine.clone(), run: self.own.position().0 })
    }

    /// The owner of this name, if it can't send its flows itself to who asks.
    fn gone(&self, name: &str, asker: Option<&Asker>) -> Option<Owner> {
        let owner: Owner = name.parse().ok()?;
        let is_gone =
            asker.is_some_and(|asker| asker.had(&owner)) || !self.peers.lives(&owner, Instant::now());
        is_gone.then_some(owner)
    }

    /// Whether flows of an owner that others say is gone are known better here.
    fn knows_better(&self, owner: &Owner) -> bool {
        *owner == self.asker().0 || self.peers.is_known_firsthand(owner, Instant::now())
    }
}

/// Who fetches: `machine=NAME;run=NUMBER`, as parameters of a query.
#[derive(Debug, PartialEq, Eq)]
struct Asker(Owner);

impl Asker {
    /// Whether it is the owner of flows by an earlier run, whose flows it has lost.
    fn had(&self, owner: &Owner) -> bool {
        owner.machine == self.0.machine && owner.run != self.0.run
    }
}

impl std::fmt::Display for Asker {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "machine={};run={}", self.0.machine, self.0.run)
    }
}

impl std::str::FromStr for Asker {
    type Err = Refusal;

    fn from_str(text: &str) -> Result<Asker, Refusal> {
        let (machine, run) = text
            .strip_prefix("machine=")
            .and_then(|rest| rest.split_once(";run="))
            .filter(|(machine, _)| is_word(machine))
            .ok_or(Refusal::Malformed)?;
        let run = run.parse().map_err(|_| Refusal::Malformed)?;
        Ok(Asker(Owner { machine: machine.to_string(), run }))
    }
}

pub(crate) struct Mesh {
    changes: zenoh::Session,
    fetches: zenoh::Session,
    local: Local,
}

impl Mesh {
    pub(crate) async fn open(local: Local) -> Result<Mesh> {
        let changes = open_session(changes_config(&local.config)).await?;
        let fetches = open_session(fetches_config(&local.config)).await?;
        subscribe(&changes, &local).await?;
        answer_queries(&changes, &local).await?;
        hand_over::answer_askers(&changes, &local).await?;
        Ok(Mesh { changes, fetches, local })
    }

    pub(crate) async fn publisher(&self) -> Result<ChangesPublisher> {
        let config = &self.local.config;
        let publisher = self.changes.declare_publisher(key(config, "flows", &config.machine));
        let publisher = publisher.congestion_control(CongestionControl::Drop).await;
        Ok(ChangesPublisher(publisher.map_err(failure("cannot declare a publisher"))?))
    }

    /// Fetches whatever is to be fetched, each machine by a task of its own. Once the router is followed all
    /// are requested: a fetch that began before would be repeated.
    pub(crate) async fn fetch_on(&self) {
        loop {
            if self.local.own.is_router_connected.load(Relaxed) {
                for machine in self.local.peers.begin_fetches(Instant::now()) {
                    tokio::spawn(fetch(self.fetches.clone(), self.local.clone(), machine));
                }
            }
            tokio::time::sleep(FETCH_PAUSE).await;
        }
    }

    /// What asks peers whether they have all of this machine.
    pub(crate) fn confirmations(&self) -> Confirmations {
        Confirmations::new(self.fetches.clone(), self.local.clone())
    }

    /// Hands over to the peers once this machine shall leave; returns when they have all.
    pub(crate) async fn hand_over(&self) {
        hand_over::hand_over(&self.fetches, &self.local).await;
    }

    pub(crate) async fn close(self) {
        // The process ends in any case.
        let _ = self.changes.close().await;
        let _ = self.fetches.close().await;
    }
}

pub(crate) struct ChangesPublisher(Publisher<'static>);

impl Outlet for ChangesPublisher {
    fn send(&self, envelope: Envelope, bytes: Vec<u8>) {
        // A message that can't be sent is missing in the numbers.
        let _ = self.0.put(bytes).attachment(envelope.to_bytes()).wait();
    }
}

/// All fleets are subscribed to, so that a machine of another one is noticed.
async fn subscribe(session: &zenoh::Session, local: &Local) -> Result<()> {
    let local = local.clone();
    let subscriber = session
        .declare_subscriber("artery/*/*/flows/*")
        .callback(move |sample| receive(&local, &sample))
        .allowed_origin(Locality::Remote)
        .background();
    subscriber.await.map_err(failure("cannot subscribe"))
}

fn receive(local: &Local, sample: &Sample) {
    let sender = sample.key_expr().as_str();
    if let Err(refusal) = receive_changes(local, sample) {
        local.peers.refuse(sender, refusal);
    }
}

fn receive_changes(local: &Local, sample: &Sample) -> Result<(), Refusal> {
    let machine = sender(&local.config, sample.key_expr().as_str())?;
    let envelope = envelope_of(sample.attachment())?;
    if envelope.kind != Kind::Changes || sample.payload().len() > MOST_BYTES {
        return Err(Refusal::Malformed);
    }
    let now = Instant::now();
    local.peers.note_changes(machine, &envelope, now)?;
    let (machine, stream) = (machine.to_string(), sample.payload().to_bytes().into_owned());
    let (owner, number) = (Owner { machine: machine.clone(), run: envelope.run }, Some(envelope.number));
    let delivery = Delivery::Records { machine: machine.clone(), owner, stream, came: now, number };
    if local.inbox.changes.try_send(delivery).is_err() {
        local.counts.dropped.fetch_add(1, Relaxed);
        local.peers.request_fetch(&machine, now);
    }
    Ok(())
}

/// The machine that a key of changes belongs to.
fn sender<'a>(config: &Config, key: &'a str) -> Result<&'a str, Refusal> {
    let words: Vec<&str> = key.split('/').collect();
    let ["artery", fleet, id, "flows", machine] = words[..] else { return Err(Refusal::Malformed) };
    if (fleet, id) != (&config.fleet, &config.id) {
        return Err(Refusal::OtherFleet);
    }
    if !is_word(machine) {
        return Err(Refusal::Malformed);
    }
    Ok(machine)
}

pub(crate) fn envelope_of(attachment: Option<&ZBytes>) -> Result<Envelope, Refusal> {
    let attachment = attachment.filter(|bytes| bytes.len() <= MOST_BYTES).ok_or(Refusal::Malformed)?;
    Envelope::parse(&attachment.to_bytes())
}

async fn answer_queries(session: &zenoh::Session, local: &Local) -> Result<()> {
    let (local, runtime) = (local.clone(), Handle::current());
    let places = Arc::new(Semaphore::new(ANSWERS));
    let queryable = session
        .declare_queryable(key(&local.config, "all", &local.config.machine))
        .callback(move |query| {
            // Without a place, the query ends without the message that says the end, and comes again.
            let Ok(place) = places.clone().try_acquire_owned() else { return };
            let local = local.clone();
            drop(runtime.spawn_blocking(move || {
                answer(&query, &local);
                drop(place);
            }));
        })
        .background();
    queryable.await.map_err(failure("cannot answer queries"))
}

fn answer(query: &Query, local: &Local) {
    // Copies whose owner is gone come from here alone, also those of an earlier run of the machine that asks.
    let asker = query.parameters().as_str().parse::<Asker>().ok();
    let gone = |name: &str| local.gone(name, asker.as_ref());
    let reply = |envelope: Envelope, owner: Option<&Owner>, bytes: Vec<u8>| {
        let reply = query.reply(query.key_expr().clone(), bytes).attachment(envelope.with_owner(owner));
        reply.wait().map_err(failure("a reply was not sent"))
    };
    if let Err(error) = local.own.export(&local.config, gone, reply) {
        eprintln!("artery-fleet: a peer does not get all exceptions: {error:#}");
    }
}

async fn fetch(session: zenoh::Session, local: Local, machine: String) {
    let is_complete = fetch_parts(&session, &local, &machine).await.is_ok();
    // It fails if this process ends.
    let _ = local.inbox.parts.send(Delivery::FetchEnd { machine, is_complete }).await;
}

async fn fetch_parts(session: &zenoh::Session, local: &Local, machine: &str) -> Result<()> {
    let replies = session
        .get(format!("{}?{}", key(&local.config, "all", machine), local.asker()))
        .target(QueryTarget::All)
        // The other modes keep replies until all have come.
        .consolidation(ConsolidationMode::None)
        .congestion_control(CongestionControl::Block)
        .timeout(FETCH_LIMIT)
        .with(FifoChannel::new(REPLIES))
        .await
        .map_err(failure("cannot query"))?;
    let mut parts = 0;
    while let Ok(reply) = replies.recv_async().await {
        let sample = reply.into_result().map_err(|_| anyhow!("{machine} answered with an error"))?;
        let (envelope, owner) = part_of(&sample).map_err(|refusal| {
            local.peers.refuse(machine, refusal);
            anyhow!("{machine} answered: {}", refusal.explanation())
        })?;
        if envelope.kind == Kind::End {
            ensure!(envelope.number == parts, "{parts} of {} parts came", envelope.number);
            return Ok(());
        }
        parts += 1;
        if owner.as_ref().is_some_and(|owner| local.knows_better(owner)) {
            continue;
        }
        let stream = sample.payload().to_bytes().into_owned();
        let (machine, came) = (machine.to_string(), Instant::now());
        let owner = owner.unwrap_or_else(|| Owner { machine: machine.clone(), run: envelope.run });
        let delivery = Delivery::Records { machine, owner, stream, came, number: None };
        local.inbox.parts.send(delivery).await.context("this process ends")?;
    }
    Err(anyhow!("the exceptions of {machine} ended early"))
}

/// A part of all exceptions, and who has its flows if that is not the sender; or the end.
fn part_of(sample: &Sample) -> Result<(Envelope, Option<Owner>), Refusal> {
    let envelope = envelope_of(sample.attachment())?;
    let is_part = matches!(envelope.kind, Kind::Part | Kind::End) && sample.payload().len() <= MOST_BYTES;
    let attachment = sample.attachment().filter(|_| is_part).ok_or(Refusal::Malformed)?;
    Ok((envelope, Envelope::parse_owner(&attachment.to_bytes())?))
}

pub(crate) fn key(config: &Config, what: &str, machine: &str) -> String {
    ["artery", &config.fleet, &config.id, what, machine].join("/")
}

async fn open_session(settings: Vec<(&str, Value)>) -> Result<zenoh::Session> {
    let session = zenoh::open(zenoh_config(settings)?).await;
    session.map_err(failure("cannot open a session; is an address of listen in use?"))
}

fn zenoh_config(settings: Vec<(&str, Value)>) -> Result<zenoh::Config> {
    let mut config = zenoh::Config::default();
    for (name, value) in settings {
        let inserted = config.insert_json5(name, &value.to_string());
        inserted.map_err(failure("zenoh refuses a setting")).with_context(|| format!("{name} = {value}"))?;
    }
    Ok(config)
}

fn changes_config(config: &Config) -> Vec<(&'static str, Value)> {
    let mut settings = common_config(config, connections_of_changes(config));
    settings.push(("listen/endpoints", endpoints(config, &config.listen)));
    settings
}

fn fetches_config(config: &Config) -> Vec<(&'static str, Value)> {
    let mut settings = common_config(config, connections_of_fetches(config));
    settings.push(("listen/endpoints", json!([])));
    settings
}

fn common_config(config: &Config, connections: usize) -> Vec<(&'static str, Value)> {
    let mut settings = vec![
        ("mode", json!("peer")),
        ("scouting/multicast/enabled", json!(false)),
        ("scouting/gossip/enabled", json!(false)),
        ("connect/endpoints", endpoints(config, &config.peers)),
        // An attempt that began before a cut ended must not keep the next one waiting for long.
        ("connect/retry", json!({"period_init_ms": 200, "period_max_ms": 300, "period_increase_factor": 2})),
        ("transport/link/tx/lease", json!(3000)),
        ("transport/link/rx/max_message_size", json!(2 * MOST_BYTES)),
        ("transport/unicast/max_sessions", json!(connections)),
        ("transport/unicast/open_timeout", json!(1000)),
        ("transport/unicast/accept_timeout", json!(2000)),
    ];
    if let Some(tls) = &config.tls {
        settings.push(("transport/link/tls", tls_settings(tls)));
    }
    settings
}

fn endpoints(config: &Config, addresses: &[String]) -> Value {
    let protocol = if config.tls.is_some() { "tls" } else { "tcp" };
    addresses.iter().map(|address| format!("{protocol}/{address}")).collect()
}

fn tls_settings(tls: &Tls) -> Value {
    json!({
        "root_ca_certificate": tls.ca,
        "enable_mtls": true,
        "listen_certificate": tls.certificate,
        "listen_private_key": tls.key,
        "connect_certificate": tls.certificate,
        "connect_private_key": tls.key,
        "verify_name_on_connect": true,
    })
}

/// Each peer has two connections here, of its changes and its fetches; two more while old ones end.
fn connections_of_changes(config: &Config) -> usize {
    2 * config.peers.len() + 2
}

fn connections_of_fetches(config: &Config) -> usize {
    config.peers.len() + 1
}

/// Threads of zenoh: more than connections. zenoh closes a connection on such a thread, and close(2) waits
/// for up to 10 s where the peer was cut off; with fewer threads that would stop the other peers.
pub(crate) fn threads(config: &Config) -> usize {
    connections_of_changes(config) + connections_of_fetches(config) + 1
}

/// Errors of zenoh are boxed, which `anyhow` does not take by `?`.
pub(crate) fn failure(what: &'static str) -> impl Fn(zenoh::Error) -> anyhow::Error {
    move |error| anyhow!(error).context(what)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::tests::LEAST;

    #[test]
    fn keys_of_other_fleets_and_with_strange_words_are_refused() {
        let config = Config::parse(LEAST).unwrap();
        assert_eq!(sender(&config, "artery/web/1/flows/m2"), Ok("m2"));
        for (key, refusal) in [
            ("artery/mail/1/flows/m2", Refusal::OtherFleet),
            ("artery/web/2/flows/m2", Refusal::OtherFleet),
            ("artery/web/1/flows/m 2", Refusal::Malformed),
            ("artery/web/1/flows", Refusal::Malformed),
            ("artery/web/1/flows/m2/x", Refusal::Malformed),
        ] {
            assert_eq!(sender(&config, key), Err(refusal), "{key}");
        }
    }

    #[test]
    fn who_fetches_has_lost_the_flows_of_its_earlier_runs_and_of_no_other_machine() {
        let asker: Asker = "machine=m1;run=7".parse().unwrap();
        let owner = |text: &str| text.parse::<Owner>().unwrap();
        assert_eq!(asker.to_string().parse(), Ok::<_, Refusal>(Asker(owner("m1@7"))));
        assert!(asker.had(&owner("m1@6")) && asker.had(&owner("m1@8")));
        assert!(!["m1@7", "m11@6", "m2@6"].iter().any(|text| asker.had(&owner(text))));
        for text in ["", "machine=m 1;run=7", "machine=m1", "machine=m1;run=x"] {
            assert_eq!(text.parse::<Asker>(), Err(Refusal::Malformed), "{text}");
        }
    }

    #[test]
    fn a_message_without_an_envelope_is_malformed() {
        assert_eq!(envelope_of(None), Err(Refusal::Malformed));
        assert_eq!(envelope_of(Some(&ZBytes::from(b"x".to_vec()))), Err(Refusal::Malformed));
    }

    #[test]
    fn zenoh_takes_the_settings_and_has_more_threads_than_connections() {
        let tls = "[tls]\nca = \"ca.pem\"\ncertificate = \"m1.pem\"\nkey = \"m1.key\"\n";
        for text in [LEAST.to_string(), format!("{LEAST}{tls}")] {
            let config = Config::parse(&text).unwrap();
            let connections: usize = [changes_config(&config), fetches_config(&config)]
                .into_iter()
                .map(|settings| {
                    let zenoh = zenoh_config(settings).unwrap();
                    let sessions = zenoh.get_json("transport/unicast/max_sessions").unwrap();
                    sessions.parse::<usize>().unwrap()
                })
                .sum();
            assert!(threads(&config) > connections, "{connections}");
        }
    }
}
