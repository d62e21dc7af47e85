//! Running the cases of a file: both sides are given the same packets, round by round.

use super::bed::Bed;
use super::compare::{beyond, expected, line};
use super::side::Side;
use super::text::{Case, CaseFile, Round, Who};
use super::update::Update;
use artery_rig::{Result, Rig};
use std::time::{Duration, Instant};

/// How long an expected packet may take.
const LIMIT: Duration = Duration::from_secs(10);

/// What became of a file.
#[derive(Debug, Default)]
pub(crate) struct Outcome {
    /// Names of the cases that passed.
    pub(crate) passed: Vec<String>,
    /// What is wrong, each with the file, the line and what to do.
    pub(crate) failures: Vec<String>,
}

/// Runs the cases of a file; with `update` writes what comes out into the file instead of comparing it.
pub(crate) fn run_file(file: &CaseFile, update: bool) -> Result<Outcome> {
    let rig = Rig::new(&file.path.display().to_string())?;
    let mut bed = Bed::make(file, &rig)?;
    for side in &mut bed.sides {
        side.until_ready(file)?;
    }
    let (mut outcome, mut updated) = (Outcome::default(), Update::default());
    for case in &file.cases {
        let failures = run_case(file, case, &mut bed.sides, update.then_some(&mut updated))?;
        if failures.is_empty() {
            outcome.passed.push(case.name.clone());
        } else {
            let place = format!("{}:{}: case '{}'", file.path.display(), case.line, case.name);
            outcome.failures.extend(failures.into_iter().map(|failure| format!("{place}: {failure}")));
        }
    }
    bed.sides.iter_mut().try_for_each(Side::end)?;
    if update {
        updated.write(file);
    }
    Ok(outcome)
}

fn run_case(
    file: &CaseFile,
    case: &Case,
    sides: &mut [Side],
    mut update: Option<&mut Update>,
) -> Result<Vec<String>> {
    let count = if case.has_kernel(&file.setup) { sides.len() } else { 1 };
    let sides = &mut sides[..count];
    let counters = |side: &Side| -> Result<Vec<u64>> {
        case.counters.iter().map(|counter| side.counter(counter)).collect()
    };
    let before = counters(&sides[0])?;
    let mut failures = Vec::new();
    if update.is_none() {
        failures.extend(case.unexplained());
    }
    for round in &case.rounds {
        let came = play(file, case, round, sides, update.is_some())?;
        match &mut update {
            Some(update) if !differences(file, round, &came).is_empty() => update.round(round, &came),
            Some(_) => {}
            None => failures.extend(differences(file, round, &came)),
        }
    }
    let after = counters(&sides[0])?;
    for (counter, (before, after)) in case.counters.iter().zip(before.iter().zip(&after)) {
        let growth = after - before;
        match &mut update {
            Some(update) => update.counter(counter, growth),
            None if growth != counter.growth => failures.push(format!(
                "line {}: counter {} grew by {growth}, not by {}",
                counter.line, counter.name, counter.growth
            )),
            None => {}
        }
    }
    for show in &case.shows {
        if let Some(text) = sides[0].show(show)? {
            let (line, command, wanted) = (show.line, &show.command, &show.text);
            failures
                .push(format!("line {line}: 'artery show {command}' has no line with '{wanted}':\n{text}"));
        }
    }
    Ok(failures)
}

/// Plays one round; gives what came out of each side, as lines.
fn play(
    file: &CaseFile,
    case: &Case,
    round: &Round,
    sides: &mut [Side],
    is_update: bool,
) -> Result<Vec<(Who, Vec<String>)>> {
    for side in sides.iter_mut() {
        round.commands.iter().try_for_each(|command| side.run(command))?;
        side.send(round)?;
    }
    let limit = if is_update { Duration::from_millis(case.settle_ms) } else { LIMIT };
    let deadline = Instant::now() + limit;
    for side in sides.iter_mut() {
        let wanted = if is_update { usize::MAX } else { expected(round, side.who, file).len() };
        side.wait(deadline, |side| side.outputs.len() >= wanted)?;
        side.send(&file.setup.fence)?;
    }
    sides.iter_mut().map(|side| collect(file, side)).collect()
}

/// What came out of a side up to the fence.
fn collect(file: &CaseFile, side: &mut Side) -> Result<(Who, Vec<String>)> {
    let passed = side.wait_fence(file, Instant::now() + LIMIT)?;
    let mut lines: Vec<String> = side.outputs.drain(..).map(|output| line(&output, file)).collect();
    if !passed {
        lines.push("(the fence does not pass any more)".to_owned());
    }
    Ok((side.who, lines))
}

fn differences(file: &CaseFile, round: &Round, came: &[(Who, Vec<String>)]) -> Vec<String> {
    let of_side = |(who, came): &(Who, Vec<String>)| {
        let wanted = expected(round, *who, file);
        let (more, less) = (beyond(came, &wanted), beyond(&wanted, came));
        if more.is_empty() && less.is_empty() {
            return None;
        }
        let name = if *who == Who::Artery { "Artery" } else { "the kernel" };
        let lines = less.iter().map(|line| format!("    - {line}"));
        let lines = lines.chain(more.iter().map(|line| format!("    + {line}")));
        let list = lines.collect::<Vec<_>>().join("\n");
        let line = round.output_lines.start;
        Some(format!("after line {line} {name} sends other packets (- expected, + came):\n{list}"))
    };
    came.iter().filter_map(of_side).collect()
}
