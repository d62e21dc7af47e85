//! What is promised of flows: judged by figures alone.

use super::churn::RATES;
use super::crossover::{self, Who};
use super::moved;
use super::report::Figures;
use crate::results::{Summary, Verdict, number};
use artery_flow::Scope;
use artery_flow::balance::Method;

pub(super) fn judge(figures: &Figures) -> Vec<Verdict> {
    vec![
        memory(figures),
        installs(figures),
        maglev(figures),
        state(figures),
        share(figures, "the path of known flows reaches 0.5 y with 100,000 flows", 100_000, 0.5),
        share(figures, "the path of known flows reaches 0.43 y with a million flows", 1_000_000, 0.43),
        pauses(figures),
        flood(figures),
        no_accelerator(figures),
        renewals(figures),
    ]
}

pub(super) fn median(runs: &[f64]) -> f64 {
    if runs.is_empty() { f64::NAN } else { Summary::of(runs).median }
}

fn least(figures: impl Iterator<Item = f64>) -> Option<f64> {
    figures.min_by(f64::total_cmp)
}
fn greatest(figures: impl Iterator<Item = f64>) -> Option<f64> {
    figures.max_by(f64::total_cmp)
}

fn memory(figures: &Figures) -> Verdict {
    let claim = "16 million flows take less than 1.3 GB";
    let row =
        figures.sizes.iter().find(|row| row.flows == 16_000_000 && row.family == 4 && !row.on_huge_pages);
    let found = row.map(|row| {
        let bytes = median(&row.bytes);
        (bytes < 1.3e9, format!("{} MB, {:.1} bytes a flow", number(bytes / 1e6), bytes / 16e6))
    });
    Verdict::judged(claim, found, "so many were not made")
}

fn installs(figures: &Figures) -> Verdict {
    let claim = "at least 5 million flows a second are looked for, added and proven";
    let rows = || figures.sizes.iter().filter(|row| row.family == 4 && !row.on_huge_pages);
    let found = least(rows().map(|row| median(&row.installs))).map(|slowest| {
        let text = rows().map(|row| {
            format!("{} up to {} flows", number(median(&row.installs)), number(f64::from(row.flows)))
        });
        (slowest >= 5.0, text.collect::<Vec<_>>().join(", "))
    });
    Verdict::judged(claim, found, "no figures")
}

fn of_maglev(figures: &Figures) -> impl Iterator<Item = &moved::Row> {
    figures.moved.iter().filter(|row| matches!(row.method, Method::Maglev(_)))
}

fn maglev(figures: &Figures) -> Verdict {
    let claim = "a member that goes moves at most 1 % of other members' flows under Maglev";
    let gone = || of_maglev(figures).filter_map(|row| Some((row.members, row.alone?[0])));
    let found = greatest(gone().map(|(_, percent)| percent)).map(|most| {
        let text = gone().map(|(members, percent)| format!("{percent:.2} % with {members} members"));
        (most <= 1.0, text.collect::<Vec<_>>().join(", "))
    });
    Verdict::judged(claim, found, "no figures")
}

fn state(figures: &Figures) -> Verdict {
    let claim = "with the flow table no flow of a living member moves, whatever the method";
    let remembered = || figures.moved.iter().filter_map(|row| row.remembered);
    let found = greatest(remembered().flatten()).map(|most| {
        let cases = remembered().count();
        (
            most == 0.0,
            format!("{} % at most, in {cases} cases of a method and a number of members", number(most)),
        )
    });
    Verdict::judged(claim, found, "no figures")
}

fn share(figures: &Figures, claim: &'static str, flows: u32, goal: f64) -> Verdict {
    let row = figures.routers.rows.iter().find(|row| row.flows == flows && row.remembers);
    let shares = row.map(|row| figures.routers.shares(row)).filter(|shares| !shares.is_empty());
    let found = shares.map(|shares| {
        let Summary { median, min, max, .. } = Summary::of(&shares);
        (median >= goal, format!("{median:.2} ({min:.2} to {max:.2})"))
    });
    Verdict::judged(claim, found, "DPDK's testpmd is not installed, or there are no huge pages")
}

fn pauses(figures: &Figures) -> Verdict {
    let claim = "no batch waits for 50 us while a table grows to 4 million flows and forgets them";
    let found = (!figures.pauses.is_empty()).then(|| {
        let text = figures.pauses.iter().map(|row| format!("{:.1} us on {}", row.longest(), row.storage));
        (
            figures.pauses.iter().all(|row| row.longest() < 50.0),
            format!("at most {}", text.collect::<Vec<_>>().join(", ")),
        )
    });
    Verdict::judged(claim, found, "no figures")
}

fn flood(figures: &Figures) -> Verdict {
    let claim = "in a flood known flows keep 90 % of their rate";
    let rates = figures.floods.iter().filter(|row| row.strangers > 0).filter_map(|row| {
        let mut quiet =
            figures.floods.iter().filter(|quiet| quiet.strangers == 0 && quiet.young == row.young);
        Some((row, 100.0 * quiet.next()?.known / row.known))
    });
    let rates: Vec<_> = rates.collect();
    let found = least(rates.iter().map(|(_, percent)| *percent)).map(|least| {
        let text = rates.iter().map(|(row, percent)| {
            format!("{percent:.0} % with {} strangers a packet and {} young", row.strangers, row.young)
        });
        (least >= 90.0, text.collect::<Vec<_>>().join(", "))
    });
    Verdict::judged(claim, found, "no figures")
}

/// How many times as long a packet takes by a table with room for all, of this scope, as by the FIB alone.
fn ratios(figures: &Figures, scope: Scope) -> Vec<(&crossover::Row, f64)> {
    let rows = figures.crossover.iter().filter(|row| row.who == Who::Table(scope, None));
    rows.filter_map(|row| Some((row, median(&row.nanos) / median(&figures.bare(row)?.nanos)))).collect()
}

fn no_accelerator(figures: &Figures) -> Verdict {
    let claim = "as a cache of the FIB the table is slower than the FIB alone at every number of flows";
    let all: Vec<_> = [Scope::Connection, Scope::Destination]
        .into_iter()
        .flat_map(|scope| ratios(figures, scope))
        .collect();
    let range = least(all.iter().map(|(_, ratio)| *ratio)).zip(greatest(all.iter().map(|(_, ratio)| *ratio)));
    let found = range.map(|(fewest, most)| {
        let faster = all.iter().filter(|(_, ratio)| *ratio < 1.0).map(|(row, ratio)| {
            let flows = number(f64::from(row.flows));
            format!("; {ratio:.2} at {flows} flows, {}, {}", row.distribution.name(), row.who.name())
        });
        let times =
            format!("a packet takes {fewest:.2} to {most:.2} times as long, every flow being in the table");
        (fewest >= 1.0, times + &faster.collect::<String>())
    });
    Verdict::judged(claim, found, "no figures")
}

fn renewals(figures: &Figures) -> Verdict {
    let claim = "10,000 changes of routes a second cost a table less than half of its rate";
    let row = |rate: u32, flows: u32| {
        figures.churn.iter().find(|row| row.rate == rate && row.flows == flows && row.who != Who::Fib)
    };
    let ratios = figures.churn.iter().filter(|busy| busy.rate == RATES[2] && busy.who != Who::Fib);
    let ratios: Vec<(u32, f64)> = ratios
        .filter_map(|busy| Some((busy.flows, median(&row(0, busy.flows)?.nanos) / median(&busy.nanos))))
        .collect();
    let found = least(ratios.iter().map(|(_, ratio)| *ratio)).map(|least| {
        let text = ratios.iter().map(|(flows, ratio)| {
            format!("{:.0} % are left with {} flows", 100.0 * ratio, number(f64::from(*flows)))
        });
        (least >= 0.5, text.collect::<Vec<_>>().join(", "))
    });
    Verdict::judged(claim, found, "no figures")
}

#[cfg(test)]
mod tests {
    use super::super::churn;
    use super::super::flood;
    use super::super::pauses;
    use super::super::routers::{self, Routers};
    use super::super::sizes;
    use super::super::traffic::Distribution;
    use super::*;
    use crate::results::Finding;

    /// Figures by which every claim holds.
    fn as_promised() -> Figures {
        let nanos = |who: &Who| vec![if *who == Who::Fib { 2.0 } else { 10.0 }];
        let whos = [Who::Fib, Who::Table(Scope::Connection, None)];
        let distribution = Distribution::Uniform;
        Figures {
            crossover: whos
                .map(|who| crossover::Row { flows: 1000, distribution, who, nanos: nanos(&who), hits: None })
                .to_vec(),
            churn: RATES
                .iter()
                .flat_map(|rate| {
                    whos.map(|who| {
                        let nanos = nanos(&who);
                        churn::Row { flows: 100_000, rate: *rate, who, nanos, renewed: None }
                    })
                })
                .collect(),
            sizes: vec![sizes::Row {
                family: 4,
                on_huge_pages: false,
                flows: 16_000_000,
                installs: vec![6.0],
                bytes: vec![1.2e9],
                find: vec![1.0],
                touch: vec![1.0],
                uncounted: vec![1.0],
            }],
            pauses: vec![pauses::testing::of(30_000)],
            floods: [0, 1]
                .map(|strangers| flood::Row {
                    young: 8,
                    strangers,
                    known: 10.0,
                    stranger: Some(50.0),
                    so_far: 9,
                })
                .to_vec(),
            moved: vec![moved::Row {
                method: Method::MAGLEV,
                members: 4,
                alone: Some([0.5, 1.0]),
                remembered: Some([0.0, 0.0]),
                pick: 1.0,
                known: 1.0,
                change: 1.0,
            }],
            routers: Routers {
                rows: [100_000, 1_000_000]
                    .map(|flows| routers::Row { flows, remembers: true, rates: vec![30.0] })
                    .to_vec(),
                yardstick: vec![60.0],
            },
        }
    }

    fn failing(figures: &Figures) -> Vec<String> {
        let verdicts = judge(figures).into_iter();
        verdicts.filter(|verdict| verdict.finding != Finding::Holds).map(|verdict| verdict.claim).collect()
    }

    #[test]
    fn promises_that_are_kept_hold() {
        assert_eq!(failing(&as_promised()), Vec::<String>::new());
    }

    #[test]
    fn every_claim_can_fall() {
        type Change = fn(&mut Figures);
        let cases: [(&str, Change); 10] = [
            ("1.3 GB", |f| f.sizes[0].bytes = vec![1.4e9]),
            ("5 million", |f| f.sizes[0].installs = vec![4.0]),
            ("Maglev", |f| f.moved[0].alone = Some([1.5, 0.0])),
            ("living member", |f| f.moved[0].remembered = Some([0.0, 0.1])),
            ("0.5 y", |f| f.routers.rows[0].rates = vec![29.0]),
            ("0.43 y", |f| f.routers.rows[1].rates = vec![20.0]),
            ("50 us", |f| f.pauses.push(pauses::testing::of(60_000))),
            ("flood", |f| f.floods[1].known = 12.0),
            ("as a cache", |f| f.crossover[1].nanos = vec![1.5]),
            ("changes of routes", |f| {
                f.churn.iter_mut().for_each(|row| row.nanos[0] *= 1.0 + f64::from(row.rate))
            }),
        ];
        for (claim, change) in cases {
            let mut figures = as_promised();
            change(&mut figures);
            let fallen = failing(&figures);
            assert!(fallen.len() == 1 && fallen[0].contains(claim), "{claim}: {fallen:?}");
        }
    }

    #[test]
    fn what_was_not_measured_is_said_not_to_be() {
        let verdicts = judge(&Figures::default());
        assert!(verdicts.iter().all(|verdict| verdict.finding == Finding::NotMeasured), "{verdicts:?}");
    }
}
