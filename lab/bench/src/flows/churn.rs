//! Routes that change while packets arrive: the cost of comparing each cached answer with the generation of
//! routes, and of looking it up again.

use super::crossover::{Contender, Who};
use super::feed::Feed;
use super::plan::Plan;
use super::timing::by_turns;
use super::traffic::{Distribution, Packets};
use artery_flow::Scope;
use artery_rig::console::progress;

/// Changes in a second of the packets' time.
pub(super) const RATES: [u32; 3] = [0, 1000, 10_000];
const FLOWS: [u32; 2] = [100_000, 1_000_000];

#[derive(Clone, Debug)]
pub(super) struct Row {
    pub(super) flows: u32,
    pub(super) rate: u32,
    pub(super) who: Who,
    /// Nanoseconds a packet, run by run.
    pub(super) nanos: Vec<f64>,
    /// Percent of packets whose flow's answer had to be looked up again.
    pub(super) renewed: Option<f64>,
}

pub(super) fn measure(plan: &Plan, feed: &mut Feed) -> anyhow::Result<Vec<Row>> {
    let mut rows = Vec::new();
    for flows in FLOWS.into_iter().filter(|flows| plan.sizes.contains(flows)) {
        let packets = Packets::new(feed.prefixes(), flows, Distribution::Uniform);
        let mut contenders = [Who::Fib, Who::Table(Scope::Connection, None)]
            .into_iter()
            .map(|who| Contender::new(who, &packets))
            .collect::<anyhow::Result<Vec<_>>>()?;
        contenders.iter_mut().try_for_each(|contender| contender.warm_up(feed, &packets))?;
        for rate in RATES {
            progress(&format!("{flows} flows, {rate} changes of routes a second"));
            let nanos = by_turns(plan, &mut contenders, |one| run(plan, one, feed, &packets, rate))?;
            rows.extend(contenders.iter_mut().zip(nanos).map(|(contender, nanos)| Row {
                flows,
                rate,
                who: contender.who(),
                nanos,
                renewed: contender.counts().map(|counts| counts.percent(counts.renewals)),
            }));
        }
    }
    Ok(rows)
}

/// Changes routes between slices, in packets' time: what a change itself takes does not count. Afterwards the
/// answers have to be those of the routes as they are.
fn run(
    plan: &Plan,
    contender: &mut Contender,
    feed: &mut Feed,
    packets: &Packets,
    rate: u32,
) -> anyhow::Result<f64> {
    let mut made = 0;
    let nanos = contender.run_among(feed, packets, plan.changing, |feed, taken| {
        let due = (taken.as_secs_f64() * f64::from(rate)) as u32;
        (made..due).try_for_each(|_| feed.change())?;
        made = due;
        Ok(())
    })?;
    contender.checked_slice(feed, packets)?;
    Ok(nanos)
}

#[cfg(test)]
mod tests {
    use super::super::feed::testing::small;
    use super::*;
    use std::time::Duration;

    #[test]
    fn answers_are_renewed_as_often_as_routes_change() {
        let mut feed = small();
        let changing = Duration::from_millis(10);
        let plan = Plan { sizes: &[100_000], rounds: 2, changing, ..Plan::QUICK };
        let rows = measure(&plan, &mut feed).unwrap();
        let renewed: Vec<f64> = rows.iter().filter_map(|row| row.renewed).collect();
        assert_eq!((rows.len(), renewed.len()), (6, 3));
        assert_eq!(renewed[0], 0.0);
        assert!(renewed[2] >= renewed[1] && renewed[2] > 1.0, "{renewed:?}");
    }
}
