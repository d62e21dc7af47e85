//! What packets of known flows cost while millions of strangers come, each with one packet.

use super::tables::{ACK, BATCH, BUDGET, Numbered, SYN, at, install, table};
use artery_flow::{Answer, Flow4, FlowId, FlowLimits, FlowSettings, FlowTable};
use artery_storage::Pages;
use artery_wire::Random;
use std::time::{Duration, Instant};

const KNOWN: u32 = 100_000;
/// Strangers for each packet of a known flow.
const STRANGERS: [usize; 3] = [0, 1, 3];
/// A flood is measured in parts, each of so many batches of known flows. The fastest part counts.
const PARTS: usize = 40;
const BATCHES: usize = 1320;
/// How many strangers may be young at a time.
const YOUNG: [u32; 2] = [1 << 16, 1 << 12];

#[derive(Clone, Debug)]
pub(super) struct Row {
    pub(super) young: u32,
    /// For each packet of a known flow.
    pub(super) strangers: usize,
    /// Nanoseconds of such a packet, and of a stranger if any came: the least of all parts.
    pub(super) known: f64,
    pub(super) stranger: Option<f64>,
    /// Strangers inserted since the flood began.
    pub(super) so_far: u32,
}

/// Measures all rows; that no known flow loses its place is made sure of with every batch.
pub(super) fn measure() -> anyhow::Result<Vec<Row>> {
    let mut rows = Vec::new();
    for young in YOUNG {
        let mut flood = Flood::new(young)?;
        for strangers in STRANGERS {
            rows.push(flood.row(young, strangers, PARTS, BATCHES)?);
        }
    }
    Ok(rows)
}

struct Flood {
    table: FlowTable<Flow4>,
    random: Random,
    stranger: u32,
    keys: Vec<Flow4>,
    found: Vec<Option<FlowId>>,
}

impl Flood {
    fn new(young: u32) -> anyhow::Result<Flood> {
        let limits = FlowLimits { flows: 1 << 20, young };
        let mut table = table(limits, FlowSettings::default(), &Pages)?;
        install(&mut table, KNOWN, Flow4::numbered)?;
        Ok(Flood { table, random: Random::new(9), stranger: KNOWN, keys: Vec::new(), found: Vec::new() })
    }

    fn row(&mut self, young: u32, strangers: usize, parts: usize, batches: usize) -> anyhow::Result<Row> {
        let mut row = Row { young, strangers, known: f64::MAX, stranger: None, so_far: 0 };
        for _ in 0..parts {
            let (mut known, mut stranger) = (Duration::ZERO, Duration::ZERO);
            for _ in 0..batches {
                known += self.known_batch()?;
                for _ in 0..strangers {
                    stranger += self.strangers()?;
                }
            }
            let each = |time: Duration, times: usize| time.as_nanos() as f64 / (times * BATCH) as f64;
            row.known = row.known.min(each(known, batches));
            if strangers > 0 {
                let each = each(stranger, batches * strangers);
                row.stranger = Some(row.stranger.map_or(each, |least| least.min(each)));
            }
        }
        row.so_far = self.stranger - KNOWN;
        Ok(row)
    }

    fn known_batch(&mut self) -> anyhow::Result<Duration> {
        self.keys.clear();
        let random = &mut self.random;
        self.keys.extend((0..BATCH).map(|_| Flow4::numbered(random.below(KNOWN.into()) as u32)));
        let begin = Instant::now();
        self.table.find_batch(&self.keys, &mut self.found);
        for id in self.found.iter().flatten() {
            self.table.touch_flow(*id, &ACK, at(1));
        }
        let taken = begin.elapsed();
        anyhow::ensure!(self.found.iter().all(Option::is_some), "a known flow lost its place");
        Ok(taken)
    }

    fn strangers(&mut self) -> anyhow::Result<Duration> {
        self.keys.clear();
        self.keys.extend((self.stranger..).take(BATCH).map(Flow4::numbered));
        self.stranger += BATCH as u32;
        let begin = Instant::now();
        self.table.find_batch(&self.keys, &mut self.found);
        for key in &self.keys {
            self.table.insert(key, Answer::default(), &SYN, at(1))?;
        }
        self.table.maintain_flows(at(1), BUDGET);
        Ok(begin.elapsed())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strangers_displace_one_another() {
        let mut flood = Flood::new(1 << 12).unwrap();
        let quiet = flood.row(1 << 12, 0, 1, 10).unwrap();
        assert!(quiet.known > 0.0 && quiet.stranger.is_none() && quiet.so_far == 0, "{quiet:?}");
        let row = flood.row(1 << 12, 3, 1, 100).unwrap();
        assert!(row.known > 0.0 && row.stranger > Some(0.0), "{row:?}");
        assert_eq!(row.so_far, 300 * BATCH as u32);
        assert_eq!(flood.table.len(), KNOWN + (1 << 12));
    }
}
