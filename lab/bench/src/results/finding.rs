//! Claims of others, or promises of our own, and whether they hold here.

use serde::{Deserialize, Serialize};
use std::fmt;

/// Whether a claim holds, and why.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Verdict {
    /// The claim, in one sentence.
    pub claim: String,
    /// Whether the claim holds here.
    pub finding: Finding,
    /// The figures that say so.
    pub why: String,
}

impl Verdict {
    /// A verdict, with the figures that say so.
    pub fn new(claim: &str, finding: impl Into<Finding>, why: impl Into<String>) -> Verdict {
        Verdict { claim: claim.into(), finding: finding.into(), why: why.into() }
    }

    /// The verdict of what was found, or else why the claim was not measured.
    pub fn judged(claim: &str, found: Option<(bool, String)>, missing: &str) -> Verdict {
        match found {
            Some((holds, why)) => Verdict::new(claim, holds, why),
            None => Verdict::new(claim, Finding::NotMeasured, missing),
        }
    }
}

/// Claims as a list in Markdown, under a heading.
pub fn list(verdicts: &[Verdict]) -> String {
    let line = |verdict: &Verdict| {
        let Verdict { claim, finding, why } = verdict;
        format!("\n- {claim}: **{finding}**; {why}.\n")
    };
    "\n## Claims\n".to_string() + &verdicts.iter().map(line).collect::<String>()
}

/// What was found of a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Finding {
    /// It is so here.
    Holds,
    /// It is not so here.
    DoesNotHold,
    /// It was not measured, so it is open.
    NotMeasured,
}

impl From<bool> for Finding {
    fn from(holds: bool) -> Finding {
        if holds { Finding::Holds } else { Finding::DoesNotHold }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Finding::Holds => "holds",
            Finding::DoesNotHold => "does not hold",
            Finding::NotMeasured => "not measured",
        })
    }
}
