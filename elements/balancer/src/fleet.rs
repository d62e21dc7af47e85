//! What machines of a fleet say to a balancer: how members will be by a planned change, and which of them
//! most machines find down.
use super::balancer_worker::FlowBalancer;
use super::shared::{SharedBalancer, seed_of, to_handler_error};
use artery_engine::HandlerError;
use artery_flow::balance::{Check, Choice, MOST_MEMBERS, Member, Method, PlannedChange, Settings};
use serde_json::json;
use std::time::Duration;

/// Longest time that a plan or a member's state can be said for.
const MOST_SECONDS: u64 = 3600;

/// A plan as it was written, before it is known whether it fits.
#[derive(Default)]
struct PlanText {
    members: Vec<Member>,
    method: Method,
    seed: u64,
}

impl PlanText {
    fn parse(lines: &str) -> Result<PlanText, String> {
        let mut plan = PlanText::default();
        for line in lines.lines() {
            let wrong = |why: String| format!("{line}: {why}");
            match line.split_once(' ') {
                Some(("METHOD", method)) => {
                    plan.method = method.parse().map_err(|why| wrong(format!("{why}")))?
                }
                Some(("SEED", seed)) => {
                    plan.seed = seed.parse().map_err(|_| wrong("a number is wanted".to_string()))?;
                }
                Some(("MEMBER", text)) => {
                    plan.members.push(text.parse().map_err(|why| wrong(format!("{why}")))?);
                }
                _ => return Err(format!("'{line}' is not METHOD, SEED or MEMBER with a value")),
            }
        }
        Ok(plan)
    }
}

/// `SECONDS`, and lines of a [`PlanText`].
pub(super) fn plan_change(shared: &SharedBalancer, text: &str, now: Duration) -> Result<(), HandlerError> {
    let (head, lines) = text.split_once('\n').unwrap_or((text, ""));
    let lasts = parse_seconds(head)?;
    if lasts.is_zero() {
        shared.lock_members().abandon_plan(now);
        return Ok(());
    }
    let PlanText { members: list, method, seed } = PlanText::parse(lines).map_err(to_handler_error)?;
    for member in &list {
        shared.check_member(member).map_err(HandlerError::refused)?;
    }
    let mut members = shared.lock_members();
    let settings = Settings { method, ..members.settings() };
    let seed = (seed != shared.seed_number).then(|| seed_of(seed));
    let change = PlannedChange { members: list, settings, seed };
    members.plan_change(change, now.saturating_add(lasts), now).map_err(to_handler_error)
}

/// How far a worker is with the planned change, a line of JSON.
pub(super) fn progress_json(b: &FlowBalancer, choice: &Choice, worker: usize) -> String {
    let exceptions = &b.followed.exceptions;
    let members = b.shared.lock_members();
    let is_current = members.generation() == choice.generation();
    let line = json!({
        "worker": worker, "is_planned": members.has_plan(), "has_exceptions": choice.method().is_pure(),
        "has_compared_all": is_current && exceptions.has_compared_all(choice.generation()),
        "has_checked_all": !members.awaits_planned(), "next_exception": exceptions.next_number(),
    });
    format!("{line}\n")
}

/// Reads `SECONDS NAME …`, and holds these members down.
pub(super) fn hold_down(shared: &SharedBalancer, text: &str, now: Duration) -> Result<(), HandlerError> {
    let mut words = text.split_ascii_whitespace();
    let lasts = parse_seconds(words.next().unwrap_or_default())?;
    let names: Vec<&str> = words.collect();
    if let Some(wrong) = names.iter().find(|name| !Member::is_name(name)) {
        return Err(to_handler_error(format!("'{wrong}' is not the name of a member")));
    }
    if names.len() > MOST_MEMBERS {
        return Err(to_handler_error(format!("{} members: there can be {MOST_MEMBERS}", names.len())));
    }
    shared.lock_members().hold_down(names.into_iter(), now.saturating_add(lasts), now);
    Ok(())
}

fn parse_seconds(word: &str) -> Result<Duration, HandlerError> {
    let seconds = word.trim().parse().ok().filter(|seconds| *seconds <= MOST_SECONDS);
    let wants = || to_handler_error(format!("'{word}' is not a number of seconds up to {MOST_SECONDS}"));
    seconds.map(Duration::from_secs).ok_or_else(wants)
}

/// How much later than another machine this one may find what has become of a member.
pub(super) fn detection_ms(check: &Check) -> u64 {
    check.every.saturating_add(check.timeout).as_millis().try_into().unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;
