//! Rules with those of the anchors that they load from files: `load anchor NAME from FILE`.
use super::{Environment, ParseSettings, ParsedText, SyntaxError, parse_lenient};
use crate::rule::{AnchorLoad, Ruleset, SourceLocation};

/// How deep files of anchors may load further ones.
const MOST_LOADS: usize = 16;

/// Rules of a file and where they go.
#[derive(Clone, Debug, PartialEq)]
pub struct LoadedFile {
    /// The path of the anchor.
    pub path: String,
    /// The file that they come from.
    pub file: String,
    /// The parsed text of the file.
    pub parsed: ParsedText,
}

/// Reads the files that the rules of a path load into anchors, and those that these load, each behind the one
/// that names it. All mistakes are reported.
pub fn read_anchors(
    path: &str,
    ruleset: &Ruleset,
    environment: &Environment,
    settings: &ParseSettings,
) -> (Vec<LoadedFile>, Vec<SyntaxError>) {
    let (mut all, mut faults) = (Vec::new(), Vec::new());
    let mut waiting = pending_loads(path, ruleset, 1);
    while let Some(next) = waiting.pop() {
        match text_of(&next, environment) {
            Ok(text) => {
                let (parsed, mut found) = parse_lenient(&next.file, &text, environment, settings);
                faults.append(&mut found);
                waiting.extend(self::pending_loads(&next.path, &parsed.ruleset, next.depth + 1));
                all.push(LoadedFile { path: next.path, file: next.file, parsed });
            }
            Err(fault) => faults.push(fault),
        }
    }
    (all, faults)
}

/// A file that is yet to be read.
struct PendingLoad {
    path: String,
    file: String,
    place: SourceLocation,
    depth: usize,
}

/// What a rule set loads, the first at the end.
fn pending_loads(path: &str, ruleset: &Ruleset, depth: usize) -> Vec<PendingLoad> {
    let of = |load: &AnchorLoad| PendingLoad {
        path: anchor_path(path, &load.name),
        file: load.file.clone(),
        place: load.place.clone(),
        depth,
    };
    ruleset.loads.iter().rev().map(of).collect()
}

/// The path of an anchor that rules of another one name.
fn anchor_path(path: &str, name: &str) -> String {
    match name.strip_prefix('/') {
        Some(absolute) => absolute.to_string(),
        None if path.is_empty() => name.to_string(),
        None => format!("{path}/{name}"),
    }
}

fn text_of(next: &PendingLoad, environment: &Environment) -> Result<Vec<u8>, SyntaxError> {
    let fault = |why: String| {
        let message = format!("cannot load anchor {} from \"{}\": {why}", next.path, next.file);
        SyntaxError { place: next.place.clone(), message }
    };
    if next.depth > MOST_LOADS {
        return Err(fault(format!("files of anchors load one another more than {MOST_LOADS} deep")));
    }
    (environment.read_file)(&next.file).map_err(fault)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(files: &'static [(&str, &str)], text: &str) -> (Vec<(String, String)>, Vec<String>) {
        let read_file = |name: &str| {
            let found = files.iter().find(|(known, _)| *known == name);
            found.map(|(_, text)| text.as_bytes().to_vec()).ok_or("no such file".to_string())
        };
        let environment = Environment { read_file: Box::new(read_file), ..Environment::fixture() };
        let settings = ParseSettings::default();
        let (main, _) = parse_lenient("pf.conf", text.as_bytes(), &environment, &settings);
        let (all, faults) = read_anchors("", &main.ruleset, &environment, &settings);
        let faults = faults.iter().map(ToString::to_string).collect();
        (all.into_iter().map(|one| (one.path, one.file)).collect(), faults)
    }

    #[test]
    fn files_of_anchors_are_read_and_those_that_they_load() {
        let files = &[
            ("a", "pass\nload anchor inner from b\nload anchor \"/c\" from c"),
            ("b", "pass"),
            ("c", "block"),
        ];
        let text = "anchor x\nload anchor x from a\nload anchor y from b\n";
        let (all, faults) = of(files, text);
        let expected = [("x", "a"), ("x/inner", "b"), ("c", "c"), ("y", "b")];
        assert_eq!(all, expected.map(|(path, file)| (path.to_string(), file.to_string())));
        assert_eq!(faults, [""; 0]);
    }

    #[test]
    fn what_is_wrong_is_told_where_it_stands() {
        let (_, faults) = of(&[("a", "pass\npass on")], "load anchor x from a\n\nload anchor y from b\n");
        assert!(faults[0].starts_with("a:2: "), "{faults:?}");
        assert_eq!(faults[1], "pf.conf:3: cannot load anchor y from \"b\": no such file");
        let (all, faults) = of(&[("a", "load anchor x from a")], "load anchor x from a");
        assert_eq!(all.len(), MOST_LOADS);
        assert!(faults[0].contains("more than 16 deep"), "{faults:?}");
    }
}
