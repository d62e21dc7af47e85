//! Claims of others, or promises of our own, and whether they hold here.

use std::fmt;

/// Whether a claim holds, and why.
#[derive(Clone, Debug, PartialEq)]
pub struct Verdict {
    /// What is claimed.
    pub claim: &'static str,
    /// Whether it holds.
    pub finding: Finding,
    /// The figures that say so.
    pub why: String,
}

/// Claims as a list in Markdown, under a heading.
pub(crate) fn list(verdicts: &[Verdict]) -> String {
    let line = |verdict: &Verdict| {
        let Verdict { claim, finding, why } = verdict;
        format!("\n- {claim}: **{finding}**; {why}.\n")
    };
    "\n## Claims\n".to_string() + &verdicts.iter().map(line).collect::<String>()
}

/// What was found of a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Finding {
    /// It is so here.
    Holds,
    /// It is not.
    DoesNotHold,
    /// Nobody can say.
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
