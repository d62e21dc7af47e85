//! What becomes of each line of a configuration that was written for another system.
use serde_json::{Value, json};
use std::fmt;

/// Where a line stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    /// The file, as messages name it.
    pub(crate) file: String,
    /// From 1; 0 for the file as a whole.
    pub(crate) line: usize,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            0 => f.write_str(&self.file),
            line => write!(f, "{}:{line}", self.file),
        }
    }
}

/// What becomes of a line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// It does what it says.
    Honoured,
    /// The router does something similar, as the text says.
    Approximated(String),
    /// Nothing starts with it; why, and what helps.
    Refused(String),
}

impl Verdict {
    /// The more severe of both verdicts; equally severe ones have their texts joined.
    pub(crate) fn and(self, other: Verdict) -> Verdict {
        use Verdict::{Approximated, Honoured, Refused};
        match (self, other) {
            (Honoured, other) => other,
            (one, Honoured) => one,
            (Refused(one), Refused(other)) => Refused(joined(one, &other)),
            (Refused(why), Approximated(_)) | (Approximated(_), Refused(why)) => Refused(why),
            (Approximated(one), Approximated(other)) => Approximated(joined(one, &other)),
        }
    }

    fn word(&self) -> &'static str {
        match self {
            Verdict::Honoured => "honoured",
            Verdict::Approximated(_) => "approximated",
            Verdict::Refused(_) => "refused",
        }
    }

    fn says(&self) -> Option<&str> {
        match self {
            Verdict::Honoured => None,
            Verdict::Approximated(how) => Some(how),
            Verdict::Refused(why) => Some(why),
        }
    }
}

/// Two sentences, or one where both are the same.
fn joined(one: String, other: &str) -> String {
    if one == other { one } else { format!("{one}; {other}") }
}

/// A line with its verdict.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Judged {
    pub(crate) place: Place,
    pub(crate) text: String,
    pub(crate) verdict: Verdict,
}

impl Judged {
    pub(crate) fn is_refused(&self) -> bool {
        matches!(self.verdict, Verdict::Refused(_))
    }

    /// How the line is done otherwise than it says.
    pub(crate) fn approximation(&self) -> Option<String> {
        match &self.verdict {
            Verdict::Approximated(how) => Some(format!("{}: {}: {how}", self.place, self.text)),
            _ => None,
        }
    }

    /// Why the line is refused.
    pub(crate) fn refusal(&self) -> Option<String> {
        match &self.verdict {
            Verdict::Refused(why) => Some(format!("{}: {why}", self.place)),
            _ => None,
        }
    }
}

/// A note on a file as a whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Note {
    pub(crate) file: String,
    pub(crate) text: String,
}

/// All of it for people: a line for each line, and a sum.
pub(crate) fn text(judged: &[Judged], notes: &[Note]) -> String {
    let mut text = String::new();
    for one in judged {
        let says = one.verdict.says().map_or(String::new(), |says| format!("\n    {says}"));
        text += &format!("{}: {}: {}{says}\n", one.place, one.verdict.word(), one.text);
    }
    for note in notes {
        text += &format!("{}: note: {}\n", note.file, note.text);
    }
    text + &format!("{}\n", sum(judged))
}

fn sum(judged: &[Judged]) -> String {
    let counts = ["honoured", "approximated", "refused"]
        .map(|word| format!("{} {word}", judged.iter().filter(|one| one.verdict.word() == word).count()));
    format!("{} lines: {}", judged.len(), counts.join(", "))
}

/// The same for programs.
pub(crate) fn json(judged: &[Judged], notes: &[Note]) -> Value {
    let line = |one: &Judged| {
        json!({
            "file": one.place.file,
            "line": one.place.line,
            "text": one.text,
            "verdict": one.verdict.word(),
            "says": one.verdict.says(),
        })
    };
    let note = |note: &Note| json!({ "file": note.file, "text": note.text });
    json!({
        "schema_version": 1, "version": crate::report::VERSION,
        "lines": judged.iter().map(line).collect::<Vec<_>>(),
        "notes": notes.iter().map(note).collect::<Vec<_>>(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use Verdict::{Approximated, Honoured, Refused};

    #[test]
    fn the_worst_verdict_is_that_of_the_line() {
        let (how, why) = (|| Approximated("how".into()), || Refused("why".into()));
        assert_eq!(Honoured.and(how()), how());
        assert_eq!(how().and(why()), why());
        assert_eq!(why().and(how()).and(Honoured), why());
        assert_eq!(why().and(Refused("more".into())), Refused("why; more".into()));
        assert_eq!(why().and(why()), why());
    }

    #[test]
    fn each_line_is_named_with_what_becomes_of_it() {
        let judged = [("up", 1, Honoured), ("inet 10.0.0.1", 2, Refused("why; remedy".into()))].map(
            |(text, line, verdict)| Judged {
                place: Place { file: "hostname.em0".into(), line },
                text: text.into(),
                verdict,
            },
        );
        let note = Note { file: "hostname.em0".into(), text: "of interest".into() };
        assert_eq!(
            text(&judged, &[note]),
            "hostname.em0:1: honoured: up\n\
             hostname.em0:2: refused: inet 10.0.0.1\n    why; remedy\n\
             hostname.em0: note: of interest\n\
             2 lines: 1 honoured, 0 approximated, 1 refused\n"
        );
        assert_eq!(json(&judged, &[])["lines"][1]["verdict"], "refused");
        assert_eq!(judged[1].refusal().as_deref(), Some("hostname.em0:2: why; remedy"));
    }
}
