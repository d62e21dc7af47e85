//! What was said in 1999, judged.

use super::report::Ratios;
use artery_bench::results::Verdict;

/// The rate of the configuration to that of Linux, as published: 24,000 to 33,000 packets a second.
pub(super) const PUBLISHED: f64 = 24.0 / 33.0;

/// Ratios closer than this are the same: machines that others use too are no more exact.
const SAME: f64 = 0.05;

/// Judges what the author of the configuration said, and what this project says of graphs.
pub(super) fn judge(ratios: &Ratios) -> Vec<Verdict> {
    let Ratios { one_by_one, roomy, batches, completed, tcp, flood, .. } = *ratios;
    vec![
        at_least("over a wire, TCP by the configuration has 0.727 of Linux's rate", tcp, PUBLISHED),
        at_least("over a wire, a flood by the configuration has 0.727 of Linux's rate", flood, PUBLISHED),
        at_least(
            "in memory, packet by packet, the graph has 0.727 of one function's rate",
            one_by_one,
            PUBLISHED,
        ),
        at_least("in batches of 64, the graph has 0.95 of one function's rate", roomy, 0.95),
        at_least("batches make the graph faster", batches, 1.0 + SAME),
        at_least(
            "what the configuration leaves out (lookup, options, fragments) won't impact performance",
            completed,
            1.0 - SAME,
        ),
    ]
}

fn at_least(claim: &str, ratio: Option<f64>, least: f64) -> Verdict {
    Verdict::judged(
        claim,
        ratio.map(|ratio| (ratio >= least, format!("{ratio:.3}"))),
        "one of both did not run",
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use artery_bench::results::Finding;

    fn as_published() -> Ratios {
        let all = Ratios {
            one_by_one: Some(PUBLISHED),
            roomy: Some(0.96),
            batches: Some(2.0),
            ..Ratios::default()
        };
        Ratios { completed: Some(0.98), tcp: Some(0.73), flood: Some(0.8), ..all }
    }

    fn findings(ratios: &Ratios) -> Vec<Finding> {
        judge(ratios).into_iter().map(|verdict| verdict.finding).collect()
    }

    #[test]
    fn each_claim_stands_and_falls_with_its_own_ratio() {
        assert_eq!(findings(&as_published()), [Finding::Holds; 6]);
        let slower = [
            Ratios { tcp: Some(0.7), ..as_published() },
            Ratios { flood: Some(0.7), ..as_published() },
            Ratios { one_by_one: Some(0.7), ..as_published() },
            Ratios { roomy: Some(0.9), ..as_published() },
            Ratios { batches: Some(1.0), ..as_published() },
            Ratios { completed: Some(0.9), ..as_published() },
        ];
        for (number, ratios) in slower.iter().enumerate() {
            let fallen: Vec<usize> =
                (0..6).filter(|claim| findings(ratios)[*claim] == Finding::DoesNotHold).collect();
            assert_eq!(fallen, [number]);
        }
        assert_eq!(findings(&Ratios::default()), [Finding::NotMeasured; 6]);
    }
}
