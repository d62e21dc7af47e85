//! What the controller tells a machine, and what the machine answers: a line of JSON each, by stdin and
//! stdout.

use serde::{Deserialize, Serialize};

/// What a machine has to do.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Order {
    /// Publish records; [`Answer::Published`] comes at the end, and other orders are carried out meanwhile.
    Publish(Publish),
    /// Make records of its own and store them where joiners find them, without telling the others.
    Load {
        /// How many records in all.
        records: u64,
    },
    /// Fetch the whole state of another machine.
    Join {
        /// The number of that machine, from 1.
        from: u32,
    },
    /// Say what was seen; lag is counted from here on.
    Report,
}

/// A stream of new exceptions.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(crate) struct Publish {
    /// Records a second, or as many as the engine takes.
    pub(crate) rate: Option<u32>,
    /// For how long, in seconds.
    pub(crate) seconds: f64,
    /// Records in a batch.
    pub(crate) batch: u32,
}

/// What a machine answers.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Answer {
    /// It has started and is connected.
    Ready,
    /// A stream has ended.
    Published {
        /// Records that went to the engine.
        records: u64,
        /// The longest time that the engine kept the publisher waiting, in microseconds.
        longest_wait_us: u64,
        /// Batches that the engine refused.
        refused: u64,
    },
    /// All records so far are stored.
    Loaded,
    /// The state of another machine has arrived.
    Joined {
        /// How many records it has.
        records: u64,
        /// From the request until the last of them was in the map.
        seconds: f64,
    },
    /// What was counted since the last question.
    Report(Report),
    /// An order could not be carried out.
    Failed(String),
}

/// What a machine has seen.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct Report {
    /// Records of others that it holds.
    pub(crate) held: u64,
    /// Records that came, whether new or not, without those of whole states.
    pub(crate) received: u64,
    /// From the scheduled time of a batch until its records were in the map, since the last report.
    pub(crate) lag: Lag,
    /// Batches that were missing when a later one came.
    pub(crate) missed: u64,
    /// Whole states that were fetched to repair that.
    pub(crate) repairs: u64,
    /// Times that such a fetch failed, and was tried again.
    pub(crate) failed_repairs: u64,
    /// Whether batches are missing now.
    pub(crate) is_behind: bool,
    /// When machines left and came, as the engine tells it.
    pub(crate) presence: Vec<Presence>,
    /// Records of its own.
    pub(crate) own: u64,
}

/// A machine has come or left.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Presence {
    /// The end of the key that says so.
    pub(crate) machine: String,
    /// Whether it is there now.
    pub(crate) is_there: bool,
    /// When this machine heard, in microseconds since 1970.
    pub(crate) at_us: u64,
}

/// How late records came, in microseconds.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
pub(crate) struct Lag {
    pub(crate) records: u64,
    pub(crate) p50_us: u64,
    pub(crate) p99_us: u64,
    pub(crate) max_us: u64,
}
