//! Has the router on this machine take the records of peers: what changed first, and parts of all exceptions
//! of a machine while nothing else is there.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use artery_flow::stream::StreamError;
use tokio::runtime::Handle;
use tokio::sync::mpsc::{Receiver, Sender, channel};

use crate::config::Config;
use crate::control::{Control, Refused};
use crate::envelope::Refusal;
use crate::owner::Owner;
use crate::peers::Peers;
use crate::records::{Arrival, Tombstones, read_incoming};

/// Most bytes of a message: no writer makes half as many.
pub(crate) const MOST_BYTES: usize = 256 << 10;
/// Most messages of changes that wait.
const CHANGES: usize = 256;
/// Most messages of fetches that wait: those who answer wait meanwhile.
const PARTS: usize = 16;
/// How often the router gets the list of machines that live, and for how long it may take that as true.
const KEEP: Duration = Duration::from_secs(1);
const LEASE: Duration = Duration::from_secs(5);
/// The longest time since a fetch that the router takes, in seconds.
const LONGEST_AGO: u64 = 24 * 3600;
/// The pause after the router could not be reached.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// Messages of peers for the importer.
pub(crate) enum Delivery {
    Records {
        /// The machine that sent them.
        machine: String,
        /// Of the flows: the sender's run, or an owner that is gone.
        owner: Owner,
        stream: Vec<u8>,
        came: Instant,
        /// Of changes, their number; none of a part.
        number: Option<u64>,
    },
    /// A fetch has ended; it is complete if all that came before is imported.
    FetchEnd { machine: String, is_complete: bool },
}

/// Where deliveries are left.
#[derive(Clone)]
pub(crate) struct Inbox {
    pub(crate) changes: Sender<Delivery>,
    pub(crate) parts: Sender<Delivery>,
}

/// The receiving ends of an [`Inbox`].
pub(crate) struct Outbox {
    changes: Receiver<Delivery>,
    parts: Receiver<Delivery>,
}

pub(crate) fn queues() -> (Inbox, Outbox) {
    let ((changes, changes_out), (parts, parts_out)) = (channel(CHANGES), channel(PARTS));
    (Inbox { changes, parts }, Outbox { changes: changes_out, parts: parts_out })
}

#[derive(Default)]
pub(crate) struct ImportCounts {
    pub(crate) records: AtomicU64,
    /// Messages that found no room, or no router.
    pub(crate) dropped: AtomicU64,
    /// Imports that the router refused.
    pub(crate) refused: AtomicU64,
}

pub(crate) struct Importer {
    config: Arc<Config>,
    peers: Arc<Peers>,
    counts: Arc<ImportCounts>,
    control: Option<Control>,
    tried_at: Option<Instant>,
    has_reported: bool,
    tombstones: HashMap<String, Tombstones>,
    kept_at: Option<Instant>,
}

impl Importer {
    pub(crate) fn new(config: Arc<Config>, peers: Arc<Peers>, counts: Arc<ImportCounts>) -> Importer {
        Importer {
            config,
            peers,
            counts,
            control: None,
            tried_at: None,
            has_reported: false,
            tombstones: HashMap::new(),
            kept_at: None,
        }
    }

    /// Imports until all senders are gone.
    pub(crate) fn run(&mut self, mut outbox: Outbox, runtime: &Handle) {
        let next = |outbox: &mut Outbox| {
            runtime.block_on(async {
                tokio::select! {
                    biased;
                    delivery = outbox.changes.recv() => delivery.map(Some),
                    delivery = outbox.parts.recv() => delivery.map(Some),
                    () = tokio::time::sleep(KEEP) => Some(None),
                }
            })
        };
        while let Some(delivery) = next(&mut outbox) {
            if self.kept_at.is_none_or(|at| at.elapsed() >= KEEP) {
                self.kept_at = Some(Instant::now());
                self.keep_copies();
            }
            match delivery {
                None => {}
                Some(Delivery::Records { machine, owner, stream, came, number }) => {
                    let arrival = match (number, self.peers.is_fetching(&machine)) {
                        (None, _) => Arrival::Part,
                        (Some(_), true) => Arrival::ChangeDuringFetch,
                        (Some(_), false) => Arrival::Change,
                    };
                    self.import_stream(&machine, &owner, &stream, arrival, came);
                    // What was not taken is fetched before anything counts as there.
                    let run = owner.run;
                    number.into_iter().for_each(|number| self.peers.note_applied(&machine, run, number));
                }
                Some(Delivery::FetchEnd { machine, is_complete }) => {
                    let holds = self.tombstones.remove(&machine).is_none_or(|mut ended| ended.finish());
                    let is_complete = is_complete && holds && self.connected().is_some();
                    self.peers.finish_fetch(&machine, is_complete, Instant::now());
                }
            }
        }
    }

    /// Tells the router which machines live, so that copies of their flows stay.
    fn keep_copies(&mut self) {
        self.tombstones.retain(|machine, _| self.peers.is_known(machine));
        for living in self.peers.living(Instant::now()) {
            let seconds_ago = |ago: Duration| (ago.as_secs() + 2).min(LONGEST_AGO);
            let confirmed = living.fetched.map(|ago| format!(" {}", seconds_ago(ago)));
            let text = format!("{} {}{}", living.owner, LEASE.as_secs(), confirmed.unwrap_or_default());
            self.write("keep_copies", &text);
        }
    }

    fn import_stream(
        &mut self,
        machine: &str,
        owner: &Owner,
        stream: &[u8],
        arrival: Arrival,
        came: Instant,
    ) {
        let tombstones = self.tombstones.entry(machine.to_string()).or_default();
        let incoming = match read_incoming(stream, &owner.to_string(), arrival, tombstones) {
            Ok(incoming) => incoming,
            Err(error) => {
                let is_version = matches!(error, StreamError::Version(_));
                self.peers
                    .refuse(machine, if is_version { Refusal::OtherVersion } else { Refusal::Malformed });
                match arrival {
                    Arrival::Part => tombstones.mark_incomplete(),
                    _ => self.peers.request_fetch(machine, Instant::now() + RETRY_AFTER),
                }
                return;
            }
        };
        if incoming.records == 0 {
            return;
        }
        let is_taken = incoming.imports.iter().all(|import| self.write("import_flows", import));
        if is_taken {
            self.counts.records.fetch_add(incoming.records, Relaxed);
            self.peers.note_imported(machine, incoming.records, came.elapsed());
        } else {
            self.counts.dropped.fetch_add(1, Relaxed);
            self.peers.request_fetch(machine, Instant::now() + RETRY_AFTER);
        }
    }

    /// Whether the router took it, or never will.
    fn write(&mut self, handler: &str, text: &str) -> bool {
        let Some(control) = self.connected() else { return false };
        let Err(error) = control.write(handler, text) else { return true };
        self.report(&error);
        if error.is::<Refused>() {
            self.counts.refused.fetch_add(1, Relaxed);
            return true;
        }
        (self.control, self.tried_at) = (None, Some(Instant::now()));
        false
    }

    fn connected(&mut self) -> Option<&mut Control> {
        self.control.take_if(|control| !control.is_fresh());
        if self.control.is_none() && self.tried_at.is_none_or(|at| at.elapsed() >= RETRY_AFTER) {
            self.tried_at = Some(Instant::now());
            match Control::connect(&self.config.control, &self.config.balancer) {
                Ok(control) => {
                    self.control = Some(control);
                    (self.has_reported, self.tried_at) = (false, None);
                }
                Err(error) => self.report(&error),
            }
        }
        self.control.as_mut()
    }

    /// Once until the router is reached again.
    fn report(&mut self, error: &anyhow::Error) {
        if !std::mem::replace(&mut self.has_reported, true) {
            eprintln!("artery-fleet: records of peers are not imported: {error:#}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::envelope::{Envelope, Kind};

    const CONFIG: &str = r#"
        fleet = "web"
        id = "1"
        machine = "m1"
        listen = ["127.0.0.1:7447"]
        peers = ["127.0.0.1:7448"]
        control = "/nowhere.sock"
        balancer = "b"
    "#;

    #[test]
    fn a_machine_whose_changes_or_parts_were_refused_is_fetched_before_all_of_it_counts_as_there() {
        let config = Arc::new(Config::parse(CONFIG).unwrap());
        let (now, peers) = (Instant::now(), Arc::new(Peers::new("m1", config.refresh())));
        let mut importer = Importer::new(config, peers.clone(), Arc::default());
        peers
            .note_changes("m2", &Envelope { kind: Kind::Changes, run: 1, number: 7, leaves: false }, now)
            .unwrap();
        assert_eq!(peers.begin_fetches(now), ["m2"]);
        let owner = Owner { machine: "m2".to_string(), run: 1 };
        importer.import_stream("m2", &owner, b"garbage", Arrival::Part, now);
        assert!(!importer.tombstones.get_mut("m2").unwrap().finish(), "the fetch is not complete");
        peers.finish_fetch("m2", true, now);
        peers.note_applied("m2", 1, 7);
        assert!(peers.has_all("m2", 1, 7) && peers.begin_fetches(now).is_empty());
        importer.import_stream("m2", &owner, b"garbage", Arrival::Change, now);
        assert!(!peers.has_all("m2", 1, 7));
        assert_eq!(peers.begin_fetches(Instant::now() + 2 * RETRY_AFTER), ["m2"]);
    }
}
