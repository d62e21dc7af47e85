//! What a machine asks of its peers before it leaves, and before a planned change counts: whether they have
//! all that it said.

use std::time::{Duration, Instant};

use anyhow::Result;
use tokio::runtime::Handle;
use tokio::task::JoinHandle;
use zenoh::Wait;
use zenoh::handlers::FifoChannel;
use zenoh::query::Query;

use crate::config::is_word;
use crate::envelope::{Envelope, Kind, Refusal};
use crate::mesh::{Local, envelope_of, failure, key};

/// The pause before peers are asked again.
const ASK_AGAIN: Duration = Duration::from_millis(200);
/// How long a router that was followed may be out of reach before it counts as gone.
const ROUTER_GONE: Duration = Duration::from_secs(3);
/// How long an answer may take.
const ANSWER_LIMIT: Duration = Duration::from_secs(2);

/// Asks machines for a thread, which looks now and then what came of it.
pub(crate) struct Confirmations {
    session: zenoh::Session,
    local: Local,
    runtime: Handle,
}

impl Confirmations {
    pub(crate) fn new(session: zenoh::Session, local: Local) -> Confirmations {
        Confirmations { session, local, runtime: Handle::current() }
    }

    /// Whether all events of the router's worker before this number were sent.
    pub(crate) fn has_sent(&self, worker: u16, before: u64) -> bool {
        is_followed(&self.local) && self.local.own.has_sent(worker, before)
    }

    /// Finds which of these machines have not all that was sent until now.
    pub(crate) fn begin(&self, machines: &[String]) -> JoinHandle<Vec<String>> {
        let question = question(&self.local);
        let asked = machines.iter().cloned().map(|machine| {
            let (session, local) = (self.session.clone(), self.local.clone());
            self.runtime.spawn(async move {
                let has_all = has_all(&session, &local, &machine, question).await;
                (!has_all).then_some(machine)
            })
        });
        let asked: Vec<_> = asked.collect();
        self.runtime.spawn(async move {
            let mut lacking = Vec::new();
            for answer in asked {
                lacking.extend(answer.await.ok().flatten());
            }
            lacking
        })
    }

    /// The outcome of [`begin`](Self::begin), which has ended.
    pub(crate) fn finish(&self, asked: JoinHandle<Vec<String>>) -> Option<Vec<String>> {
        self.runtime.block_on(asked).ok()
    }
}

/// Answers peers that ask whether this machine has all of them.
pub(crate) async fn answer_askers(session: &zenoh::Session, local: &Local) -> Result<()> {
    let own = local.config.machine.clone();
    let queryable = session.declare_queryable(key(&local.config, "has", &format!("{own}/*")));
    let local = local.clone();
    let queryable = queryable.callback(move |query| answer(&query, &local)).background();
    queryable.await.map_err(failure("cannot answer peers"))
}

/// Confirms that all was taken; without an answer, the leaver asks again. What was taken is gone with the
/// router.
fn answer(query: &Query, local: &Local) {
    let asker = query.key_expr().as_str().rsplit('/').next().unwrap_or_default();
    let envelope = envelope_of(query.attachment()).and_then(|envelope| {
        let is_question = envelope.kind == Kind::HasAll && is_word(asker);
        if is_question { Ok(envelope) } else { Err(Refusal::Malformed) }
    });
    match envelope {
        Err(refusal) => local.peers.refuse(query.key_expr().as_str(), refusal),
        Ok(envelope) if is_followed(local) && local.peers.has_all(asker, envelope.run, envelope.number) => {
            let reply = query.reply(query.key_expr().clone(), Vec::new()).attachment(envelope.to_bytes());
            // A confirmation that is lost is asked for again.
            let _ = reply.wait();
        }
        Ok(_) => {}
    }
}

/// Waits until this machine shall hand over, and then until each peer that is present and stays has
/// confirmed, and at least one has.
pub(crate) async fn hand_over(session: &zenoh::Session, local: &Local) {
    let mut reports = local.announcement.reports();
    // It fails if this process ends.
    let _ = reports.wait_for(|report| report.is_handing_over).await;
    let mut question = question(local);
    let mut confirmed = Vec::new();
    let mut followed = Instant::now();
    loop {
        if local.own.position().0 != question.run {
            // The router was started again.
            (question, confirmed) = (self::question(local), Vec::new());
        }
        let staying = local.peers.staying(Instant::now());
        let lacking: Vec<_> = staying.into_iter().filter(|peer| !confirmed.contains(peer)).collect();
        let has_taker = !confirmed.is_empty() || !needs_taker(local);
        if is_followed(local) {
            followed = Instant::now();
        }
        // A router that is gone has nothing that peers could fetch.
        if (lacking.is_empty() && has_taker) || followed.elapsed() >= ROUTER_GONE {
            let taken_over = confirmation(&confirmed);
            eprintln!("artery-fleet: left; {taken_over}");
            return local.announcement.finish(taken_over);
        }
        local.announcement.set_lack(match lacking.is_empty() {
            true => "no peer is present that stays".to_string(),
            false => format!("{} has not all yet", names(&lacking)),
        });
        for peer in lacking {
            if has_all(session, local, &peer.0, question).await {
                confirmed.push(peer);
            }
        }
        tokio::time::sleep(ASK_AGAIN).await;
    }
}

/// Whether all was taken that was said up to now.
fn question(local: &Local) -> Envelope {
    let (run, number) = local.own.position();
    let leaves = local.own.leaves.load(std::sync::atomic::Ordering::Relaxed);
    Envelope { kind: Kind::HasAll, run, number, leaves }
}

/// Whether some peer must have confirmed: peers may have become absent since the machine began to leave.
fn needs_taker(local: &Local) -> bool {
    !local.config.peers.is_empty() && !local.announcement.leaves_alone()
}

fn is_followed(local: &Local) -> bool {
    local.own.is_router_connected.load(std::sync::atomic::Ordering::Relaxed)
}

fn confirmation(peers: &[(String, u64)]) -> String {
    match peers {
        [] => "no peer has confirmed that it has all".to_string(),
        peers => format!("all was handed over to {}", names(peers)),
    }
}

/// Machines, of which each has a run.
fn names(peers: &[(String, u64)]) -> String {
    peers.iter().map(|(machine, _)| machine.as_str()).collect::<Vec<_>>().join(", ")
}

async fn has_all(session: &zenoh::Session, local: &Local, machine: &str, question: Envelope) -> bool {
    let asked = key(&local.config, "has", &format!("{machine}/{}", local.config.machine));
    let query = session.get(asked).attachment(question.to_bytes()).timeout(ANSWER_LIMIT);
    let Ok(replies) = query.with(FifoChannel::new(1)).await else { return false };
    let mut is_confirmed = false;
    while let Ok(reply) = replies.recv_async().await {
        let envelope = reply.result().map(|sample| envelope_of(sample.attachment()));
        is_confirmed |= matches!(envelope, Ok(Ok(envelope)) if envelope == question);
    }
    is_confirmed
}
