//! What the experiment of 2016 claims, and whether it holds here.
use super::heaps::Heaps;
use super::report::Report;
use super::scenario::{AS_RUN, FULL};
use super::tables::Levels;
use artery_bench::fib::engine::Mode;
use artery_bench::results::{Finding, Verdict};

/// Rates closer than this are the same: machines that others use too are no more exact.
const SAME: f64 = 1.05;

pub(super) fn judge(report: &Report) -> Vec<Verdict> {
    let mut verdicts = Vec::new();
    verdicts.push(compare(report, "1. every ART is faster than the radix tree", |of| {
        let radix = of("bsd-radix")?;
        let least = of("art 8/4x6")?.min(of("art 8/8/8/8")?).min(of("art 16/8/8")?);
        Some((least > radix, format!("slowest ART {:.2}x", least / radix)))
    }));
    verdicts.push(compare(report, "2. greater strides are faster", |of| {
        let small = of("art 8/4x6")?;
        let [eights, sixteen] = [of("art 8/8/8/8")?, of("art 16/8/8")?].map(|great| great / small);
        let why = format!("8/8/8/8 {eights:.2}x, 16/8/8 {sixteen:.2}x 8/4x6");
        Some((eights.min(sixteen) > SAME, why))
    }));
    verdicts.push(compare(report, "3. 8/8/8/8 has no advantage over 16/8/8 (speed)", |of| {
        let (eights, sixteen) = (of("art 8/8/8/8")?, of("art 16/8/8")?);
        Some((eights <= sixteen * SAME, format!("{:.2}x 16/8/8", eights / sixteen)))
    }));
    verdicts.extend(
        [same_memory(report), like_radix(report), fifty_more(report), unfragmented(report)]
            .into_iter()
            .flatten(),
    );
    verdicts.push(while_others_forward(report.heaps));
    verdicts
}

/// Rates of engines in one scenario, by name.
type Rates<'a> = &'a dyn Fn(&str) -> Option<f64>;

/// A claim about rates holds if it does in every scenario; the reason says where it does not.
fn compare(
    report: &Report,
    claim: &'static str,
    judge: impl Fn(Rates<'_>) -> Option<(bool, String)>,
) -> Verdict {
    let mut reasons = Vec::new();
    let (mut held, mut all) = (0, 0);
    for scenario in report.scenarios() {
        for mode in [Mode::Independent, Mode::Batch] {
            let rate = |engine: &str| report.rate(scenario, engine, mode);
            let Some((holds, why)) = judge(&rate) else { continue };
            all += 1;
            held += usize::from(holds);
            let sign = if holds { "yes" } else { "no" };
            let table = scenario.table.split(',').next().unwrap_or("");
            reasons.push(format!("{table} {} {}: {sign}, {why}", scenario.destinations.name(), mode.name()));
        }
    }
    Verdict::new(claim, held == all, format!("in {held} of {all} cases; {}", reasons.join("; ")))
}

fn levels<'a>(report: &'a Report, table: &str, strides: &str) -> Option<&'a Levels> {
    let (_, levels) = report.levels.iter().find(|(name, _)| *name == table)?;
    levels.iter().find(|levels| levels.strides == strides)
}

fn megabytes(bytes: u64) -> f64 {
    bytes as f64 / 1e6
}

fn same_memory(report: &Report) -> Option<Verdict> {
    let (eights, sixteen) = (levels(report, FULL, "8/8/8/8")?.bytes, levels(report, FULL, "16/8/8")?.bytes);
    let holds = eights.abs_diff(sixteen) * 50 < sixteen;
    let why = format!("heaps of {:.1} and {:.1} MB", megabytes(eights), megabytes(sixteen));
    Some(Verdict::new("3. 8/8/8/8 takes as much memory as 16/8/8, with a level more", holds, why))
}

fn like_radix(report: &Report) -> Option<Verdict> {
    // A route of BSD's tree has two nodes of 48 bytes, one of ART's had one of 32 (with 64-bit pointers).
    let prefixes = report.prefixes as u64;
    let art = levels(report, FULL, "8/4x6")?.bytes_2016 + prefixes * 32;
    let radix = prefixes * 96;
    let ratio = art as f64 / radix as f64;
    Some(Verdict::new(
        "4. 8/4x6 takes as much memory as the radix tree on a full feed",
        (0.67..1.5).contains(&ratio),
        format!(
            "with pointers and nodes as then {:.1} and {:.1} MB: {ratio:.2}; here ART takes {:.1} MB",
            megabytes(art),
            megabytes(radix),
            megabytes(levels(report, FULL, "8/4x6")?.bytes)
        ),
    ))
}

fn fifty_more(report: &Report) -> Option<Verdict> {
    let (small, great) = (levels(report, FULL, "8/4x6")?, levels(report, FULL, "16/8/8")?);
    let then = megabytes(great.bytes_2016.saturating_sub(small.bytes_2016));
    let here = megabytes(great.bytes.saturating_sub(small.bytes));
    Some(Verdict::new(
        "5. on a full feed 16/8/8 takes 50 MB more than 8/4x6 (180 and 130 MB with everything)",
        (25.0..100.0).contains(&then),
        format!("{then:.1} MB more with the pointers of then and the routes of now; {here:.1} MB with ours"),
    ))
}

fn unfragmented(report: &Report) -> Option<Verdict> {
    let (small, great) = (levels(report, AS_RUN, "8/4x6")?, levels(report, AS_RUN, "16/8/8")?);
    let more = great.bytes_2016.abs_diff(small.bytes_2016);
    Some(Verdict::new(
        "6. 11/16 does not fragment the table: memory hardly differs",
        more < 2 << 20,
        format!(
            "{:.3} and {:.3} MB then, of which one root of 16 bits is 1.049; {:.3} and {:.3} MB here",
            megabytes(small.bytes_2016),
            megabytes(great.bytes_2016),
            megabytes(small.bytes),
            megabytes(great.bytes)
        ),
    ))
}

fn while_others_forward(heaps: Option<Heaps>) -> Verdict {
    let claim = "7. a heap of 16 bits (1 MiB) can't be allocated while other processors forward";
    let Some(Heaps { came_and_went, refused, lookups, inside, missed, wrong }) = heaps else {
        return Verdict::new(claim, Finding::NotMeasured, "a writer and a reader need a processor each");
    };
    let is_in_order = refused == 0 && missed == 0 && wrong == 0;
    let finding = match is_in_order && (came_and_went == 0 || inside == 0) {
        true => Finding::NotMeasured, // the threads never met
        false => (!is_in_order).into(),
    };
    let why = format!(
        "{came_and_went} heaps came and went (of 4-byte words, so of 512 KiB), {refused} were refused; of \
         {lookups} lookups on another thread meanwhile, {inside} found the route in such a heap, {missed} \
         found none, {wrong} a wrong one"
    );
    Verdict::new(claim, finding, why)
}

#[cfg(test)]
mod tests {
    use super::*;

    const FINE: Heaps =
        Heaps { came_and_went: 1000, refused: 0, lookups: 64_000, inside: 9000, missed: 0, wrong: 0 };

    #[test]
    fn heaps_that_came_and_went_refute_that_they_can_not() {
        let verdict = while_others_forward(Some(FINE));
        assert_eq!(verdict.finding, Finding::DoesNotHold);
        for figure in ["1000 heaps", "64000 lookups", "9000 found"] {
            assert!(verdict.why.contains(figure), "{}", verdict.why);
        }
    }

    #[test]
    fn a_heap_that_was_refused_or_a_lookup_without_its_route_bears_the_claim_out() {
        for heaps in [
            Heaps { refused: 1, ..FINE },
            Heaps { missed: 1, ..FINE },
            Heaps { wrong: 1, ..FINE },
            Heaps { came_and_went: 0, inside: 0, refused: 5, ..FINE },
        ] {
            assert_eq!(while_others_forward(Some(heaps)).finding, Finding::Holds, "{heaps:?}");
        }
    }

    #[test]
    fn nothing_is_said_of_heaps_that_nobody_saw_or_that_never_came() {
        let unseen = Heaps { inside: 0, ..FINE };
        let none = Heaps { came_and_went: 0, ..FINE };
        for heaps in [None, Some(unseen), Some(none)] {
            assert_eq!(while_others_forward(heaps).finding, Finding::NotMeasured, "{heaps:?}");
        }
    }
}
