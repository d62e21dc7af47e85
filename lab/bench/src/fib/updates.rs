//! What updates cost: how many a second, what readers lose meanwhile, and how long the worst ones take.
use super::engine::{Engine, Mode, Reader};
use super::family::Family;
use super::timing::{pin, thread_time, trial};
use crate::results::Summary;
use artery_lpm::{Group, Prefix};
use artery_wire::Random;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering::SeqCst};
use std::time::{Duration, Instant};

/// Routes with their groups, in order.
pub type Routes<A> = [(Prefix<A>, Group)];

/// Updates a second: random routes are withdrawn and announced again, each counting as two.
pub(super) fn rate<A: Family>(
    engine: &mut dyn Engine<A>,
    routes: &Routes<A>,
    budget: Duration,
    seed: u64,
) -> f64 {
    churn(engine, routes, seed, |elapsed| elapsed < budget)
}

fn churn<A: Family>(
    engine: &mut dyn Engine<A>,
    routes: &Routes<A>,
    seed: u64,
    mut goes_on: impl FnMut(Duration) -> bool,
) -> f64 {
    let mut random = Random::new(seed);
    let (start, busy, mut updates) = (Instant::now(), thread_time(), 0u64);
    while goes_on(start.elapsed()) {
        for _ in 0..16 {
            let (prefix, group) = routes[random.below(routes.len() as u64) as usize];
            engine.withdraw(prefix);
            engine.announce(prefix, group);
            updates += 2;
        }
    }
    updates as f64 / (thread_time() - busy).as_secs_f64()
}

/// What became of readers and of the writer while both were at work.
pub(super) struct Together {
    /// Updates a second while another thread looked up.
    pub(super) rates: Vec<f64>,
    /// By how many percent lookups were slower than without updates, one figure of each pair of trials.
    pub(super) losses: Vec<f64>,
}

const WAIT: u8 = 0;
const READ: u8 = 1;
const END: u8 = 2;

/// Measures a reader on another thread, alternately with and without updates on this one. `None` if the
/// engine has no readers for other threads.
pub(super) fn together<A: Family>(
    engine: &mut dyn Engine<A>,
    routes: &Routes<A>,
    addresses: &[A],
    budget: Duration,
    pairs: usize,
) -> Option<Together> {
    let mut reader = engine.reader_elsewhere()?;
    let command = AtomicU8::new(WAIT);
    let is_done = AtomicBool::new(false);
    let mut outcome = Together { rates: Vec::new(), losses: Vec::new() };
    std::thread::scope(|scope| {
        let (answers, figures) = std::sync::mpsc::channel();
        let (command, is_done) = (&command, &is_done);
        scope.spawn(move || {
            pin(1);
            while let Some(nanos) = on_command(command, &mut *reader, addresses, budget) {
                is_done.store(true, SeqCst);
                // The other side is there until it has said END.
                let _ = answers.send(nanos);
            }
        });
        let start = || {
            is_done.store(false, SeqCst);
            command.store(READ, SeqCst);
        };
        for pair in 0..2 * pairs {
            // Either kind comes first every other time.
            let with_updates = pair % 4 == 1 || pair % 4 == 2;
            start();
            if with_updates {
                let rate = churn(engine, routes, pair as u64, |_| !is_done.load(SeqCst));
                outcome.rates.push(rate);
            } else {
                // An idle processor may give clock rate to its neighbor or, where both are threads of one
                // core, all its execution units. That has nothing to do with updates, so this one keeps busy.
                while !is_done.load(SeqCst) {
                    std::hint::spin_loop();
                }
            }
            let Ok(nanos) = figures.recv() else { break };
            outcome.losses.push(if with_updates { -nanos } else { nanos });
        }
        command.store(END, SeqCst);
    });
    outcome.losses = outcome.losses.chunks(2).map(loss).collect();
    Some(outcome)
}

/// Percent by which the rate of the trial with updates, whose time is negative, fell behind the other.
fn loss(pair: &[f64]) -> f64 {
    let with = pair.iter().copied().filter(|nanos| *nanos < 0.0).sum::<f64>().abs();
    let without: f64 = pair.iter().copied().filter(|nanos| *nanos > 0.0).sum();
    100.0 * (1.0 - without / with)
}

fn on_command<A: Family>(
    command: &AtomicU8,
    reader: &mut dyn Reader<A>,
    addresses: &[A],
    budget: Duration,
) -> Option<f64> {
    loop {
        match command.swap(WAIT, SeqCst) {
            READ => return Some(trial(reader, Mode::Batch, addresses, budget)),
            END => return None,
            _ => std::hint::spin_loop(),
        }
    }
}

/// An interval that holds the median of what 95 % of such experiments would find, from the
/// order of the figures.
pub(super) fn interval(figures: &[f64]) -> (f64, f64) {
    let mut sorted = figures.to_vec();
    sorted.sort_by(f64::total_cmp);
    let count = sorted.len();
    // How many figures lie below the median is binomial: half of them, give or take 1.96 deviations.
    let reach = 1.96 * (count as f64).sqrt() / 2.0;
    let below = ((count as f64 / 2.0 - reach).floor().max(0.0)) as usize;
    (sorted[below.min(count - 1)], sorted[count - 1 - below.min(count - 1)])
}

/// What happens to one route, in the order in which it is timed.
pub(super) const KINDS: [&str; 3] = ["add", "change", "withdraw"];

/// Microseconds of adding one route, giving it another group, and withdrawing it, each many times over. The
/// table does not have the route afterwards.
pub(super) fn single<A: Family>(engine: &mut dyn Engine<A>, prefix: Prefix<A>, times: usize) -> [Summary; 3] {
    let mut micros = KINDS.map(|_| Vec::with_capacity(times));
    engine.withdraw(prefix);
    for _ in 0..times.max(1) {
        micros[0].push(timed(|| engine.announce(prefix, 1)));
        micros[1].push(timed(|| engine.announce(prefix, 2)));
        micros[2].push(timed(|| engine.withdraw(prefix)));
    }
    micros.map(|micros| Summary::of(&micros))
}

fn timed(update: impl FnOnce()) -> f64 {
    let start = Instant::now();
    update();
    start.elapsed().as_nanos() as f64 / 1000.0
}

/// Gives a prefix back what the routes say of it, be it nothing.
pub(super) fn restore<A: Family>(engine: &mut dyn Engine<A>, routes: &Routes<A>, prefix: Prefix<A>) {
    match routes.iter().find(|route| route.0 == prefix) {
        Some(&(_, group)) => engine.announce(prefix, group),
        None => engine.withdraw(prefix),
    }
}

/// The prefixes whose single updates are timed: the default route, and of some lengths that
/// with most routes below.
pub(super) fn worst<A: Family>(routes: &Routes<A>) -> Vec<(String, Prefix<A>)> {
    let busy = |&len: &u8| busiest(routes, len).map(|prefix| (format!("/{len}"), prefix));
    std::iter::once(("default".into(), Prefix::ALL)).chain(A::BUSY.iter().filter_map(busy)).collect()
}

/// The prefix of so many bits that has most routes below it.
pub fn busiest<A: Family>(routes: &Routes<A>, len: u8) -> Option<Prefix<A>> {
    let mut best: Option<(usize, Prefix<A>)> = None;
    let longer: Vec<Prefix<A>> =
        routes.iter().map(|route| route.0).filter(|prefix| prefix.len() >= len).collect();
    for group in longer.chunk_by(|a, b| a.first().network(len) == b.first().network(len)) {
        if best.is_none_or(|(count, _)| group.len() > count) {
            best = Some((group.len(), Prefix::of(group[0].first(), len)));
        }
    }
    best.map(|(_, prefix)| prefix)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn losses_are_taken_between_neighbours() {
        assert_eq!(loss(&[10.0, -20.0]), 50.0);
        assert_eq!(loss(&[-20.0, 10.0]), 50.0);
        assert_eq!(loss(&[10.0, -10.0]), 0.0);
    }

    #[test]
    fn the_interval_of_15_pairs_leaves_out_three_on_either_side() {
        let figures: Vec<f64> = (0..15).map(f64::from).collect();
        assert_eq!(interval(&figures), (3.0, 11.0));
        assert_eq!(interval(&[5.0]), (5.0, 5.0));
    }

    #[test]
    fn the_busiest_prefix_has_most_below_it() {
        let routes = [("10.0.0.0/8", 1), ("10.1.0.0/16", 1), ("10.2.0.0/16", 1), ("11.0.0.0/16", 1)];
        let routes = routes.map(|(prefix, group)| (prefix.parse::<Prefix<u32>>().unwrap(), group));
        assert_eq!(busiest(&routes, 8), "10.0.0.0/8".parse().ok());
        assert_eq!(busiest::<u32>(&[], 8), None);
    }

    /// Writes down what happens to it.
    struct Diary(Vec<(&'static str, Prefix<u32>, Group)>);

    impl Engine<u32> for Diary {
        fn name(&self) -> String {
            "diary".into()
        }
        fn reader(&mut self) -> &mut dyn Reader<u32> {
            unreachable!("no lookups here")
        }
        fn announce(&mut self, prefix: Prefix<u32>, group: Group) {
            self.0.push(("announce", prefix, group));
        }
        fn withdraw(&mut self, prefix: Prefix<u32>) {
            self.0.push(("withdraw", prefix, 0));
        }
        fn bytes(&self) -> u64 {
            0
        }
    }

    #[test]
    fn single_updates_add_change_and_withdraw_a_route_that_was_not_there() {
        let prefix = "10.0.0.0/8".parse().unwrap();
        let mut diary = Diary(Vec::new());
        let micros = single(&mut diary, prefix, 2);
        let withdraw = ("withdraw", prefix, 0);
        let once = [("announce", prefix, 1), ("announce", prefix, 2), withdraw];
        assert_eq!(diary.0, [&[withdraw][..], &once, &once].concat());
        assert!(micros.iter().all(|summary| summary.min <= summary.median && summary.median <= summary.max));
    }

    #[test]
    fn a_prefix_gets_back_the_route_it_had_or_none() {
        let prefix = |text: &str| text.parse::<Prefix<u32>>().unwrap();
        let routes = [(Prefix::ALL, 5), (prefix("10.0.0.0/8"), 7)];
        let mut diary = Diary(Vec::new());
        for one in [Prefix::ALL, prefix("10.0.0.0/8"), prefix("0.0.0.0/1")] {
            restore(&mut diary, &routes, one);
        }
        assert_eq!(
            diary.0,
            [
                ("announce", Prefix::ALL, 5),
                ("announce", prefix("10.0.0.0/8"), 7),
                ("withdraw", prefix("0.0.0.0/1"), 0)
            ]
        );
    }

    #[test]
    fn the_worst_updates_are_of_the_default_route_and_of_short_busy_prefixes() {
        let prefix = |text: &str| text.parse::<Prefix<u32>>().unwrap();
        let routes = [(prefix("10.1.0.0/16"), 1), (prefix("200.1.0.0/16"), 1), (prefix("200.2.0.0/16"), 1)];
        let wanted = [("default", Prefix::ALL), ("/8", prefix("200.0.0.0/8")), ("/1", prefix("128.0.0.0/1"))];
        assert_eq!(worst(&routes), wanted.map(|(name, prefix)| (name.to_string(), prefix)));
        let one = [("2a00::/32".parse::<Prefix<u128>>().unwrap(), 1)];
        let names: Vec<String> = worst(&one).into_iter().map(|(name, _)| name).collect();
        assert_eq!(names, ["default", "/20", "/12", "/3"]);
    }
}
