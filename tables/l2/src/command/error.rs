//! What is wrong with words, and what helps.
use std::error::Error;
use std::fmt;

/// Why words are no commands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CommandError {
    /// A word is none of those that can stand where it stands.
    Unknown {
        /// The word that was read.
        word: String,
        /// What it should have been, such as `command of a switch`.
        place: &'static str,
        /// A word that is like it.
        meant: Option<&'static str>,
    },
    /// A word of ifconfig that does not apply to a switch.
    Elsewhere {
        /// The word that was read.
        word: String,
        /// What does what it would.
        remedy: &'static str,
    },
    /// The words end before all is said.
    Missing {
        /// The command as far as it was said.
        command: String,
        /// What must follow, with an example.
        wants: String,
    },
    /// A word is not what the command needs there.
    Wrong {
        /// The command as far as it was said.
        command: String,
        /// The word that was read.
        word: String,
        /// What must stand there, with an example.
        wants: String,
    },
    /// Something is said twice.
    Twice {
        /// What is said again.
        word: String,
    },
}

impl CommandError {
    /// Returns the word that is wrong, or behind which one is missing.
    pub fn word(&self) -> &str {
        match self {
            CommandError::Unknown { word, .. }
            | CommandError::Elsewhere { word, .. }
            | CommandError::Wrong { word, .. }
            | CommandError::Twice { word } => word,
            CommandError::Missing { command, .. } => command.rsplit(' ').next().unwrap_or(command),
        }
    }
}

impl fmt::Display for CommandError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CommandError::Unknown { word, place, meant: Some(meant) } => {
                write!(f, "'{word}' is not a {place}; did you mean '{meant}'?")
            }
            CommandError::Unknown { word, place, meant: None } => write!(f, "'{word}' is not a {place}"),
            CommandError::Elsewhere { word, remedy } => {
                write!(f, "'{word}' is not a command of a switch: {remedy}")
            }
            CommandError::Missing { command, wants } if command.is_empty() => write!(f, "missing is {wants}"),
            CommandError::Wrong { command, word, wants } if command.is_empty() => {
                write!(f, "not '{word}', but {wants}")
            }
            CommandError::Missing { command, wants } => write!(f, "'{command}' needs {wants}"),
            CommandError::Wrong { command, word, wants } => {
                write!(f, "'{command} {word}': not '{word}', but {wants}")
            }
            CommandError::Twice { word } => write!(f, "'{word}' is said twice; leave one of them out"),
        }
    }
}

impl Error for CommandError {}

/// Which of `names` is so like `wanted` that it may have been meant.
pub(super) fn nearest(wanted: &str, names: impl IntoIterator<Item = &'static str>) -> Option<&'static str> {
    // What is longer than any name is none, and need not be compared letter by letter.
    if wanted.len() > 32 {
        return None;
    }
    let (distance, name) = names.into_iter().map(|name| (edit_distance(wanted, name), name)).min()?;
    (distance <= 1 + wanted.chars().count() / 4).then_some(name)
}

/// How many letters must be put in, left out, changed, or swapped with the next, to make `b` of `a`.
fn edit_distance(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    // Row i has what the first i letters of `a` need.
    let mut rows: Vec<Vec<usize>> = vec![(0..=b.len()).collect()];
    for i in 1..=a.len() {
        let mut row = vec![i];
        for j in 1..=b.len() {
            let changed = rows[i - 1][j - 1] + usize::from(a[i - 1] != b[j - 1]);
            let mut least = changed.min(rows[i - 1][j] + 1).min(row[j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                least = least.min(rows[i - 2][j - 2] + 1);
            }
            row.push(least);
        }
        rows.push(row);
    }
    rows[a.len()][b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn edits_are_counted_each_once() {
        let pairs = [("", "abc"), ("abc", "abc"), ("kitten", "sitting"), ("ab", ""), ("scr", "src")];
        assert_eq!(pairs.map(|(a, b)| edit_distance(a, b)), [3, 0, 3, 2, 1]);
    }
}
