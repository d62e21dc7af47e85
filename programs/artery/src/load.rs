//! From a file, standard input or the command line to a checked graph, with everything that is wrong with it.
mod faults;

use crate::classes::classes;
use crate::output::Output;
use artery_engine::{BuildStage, Problem, Router, RouterSettings};
use artery_lang::{
    Diagnostic, Dialect, FileId, Ir, Node, Options, Processing, Sources, Span, check, compile,
};
use std::cell::RefCell;
use std::path::{Path, PathBuf};

/// How a configuration is read.
#[derive(Clone, Debug, Default)]
pub(crate) struct Reading {
    pub(crate) dialect: Dialect,
    pub(crate) variables: Vec<(String, String)>,
    /// Folders that are searched for libraries, joined by colons; an empty one is the configuration's own.
    pub(crate) clickpath: Option<String>,
}

/// A configuration that was read and checked.
pub(crate) struct Loaded {
    pub(crate) sources: Sources,
    file: FileId,
    pub(crate) ir: Ir,
    pub(crate) processing: Processing,
    pub(crate) diagnostics: Vec<Diagnostic>,
    /// Whether the text became a graph: then all mistakes are the graph's.
    pub(crate) compiled: bool,
    /// The mistakes that elements found in their arguments and at their start.
    pub(crate) problems: Vec<Problem>,
    /// Variables that were given values and that the text does not name.
    unused_variables: Vec<String>,
}

impl Loaded {
    /// How many errors were found.
    pub(crate) fn error_count(&self) -> usize {
        let problems = self.problems.iter().filter(|problem| !problem.is_warning).count();
        self.diagnostics.iter().filter(|diagnostic| diagnostic.is_error()).count() + problems
    }

    /// Warns of values for variables that the text does not name: they change nothing, and may be mistyped.
    pub(crate) fn say_unused_variables(&self, voice: Output) {
        if voice.is_own() {
            let name = self.sources.name(self.file);
            let say = |v: &String| {
                voice.print_warning(&format!("{name} has no variable ${v}; its value is not used"))
            };
            self.unused_variables.iter().for_each(say);
        }
    }

    /// `1 error`, `2 errors`.
    pub(crate) fn error_count_in_words(&self) -> String {
        let count = self.error_count();
        format!("{count} error{}", if count == 1 { "" } else { "s" })
    }

    /// Whether the configuration can't be used.
    pub(crate) fn has_errors(&self) -> bool {
        self.error_count() > 0
    }

    /// Where an element's problem is: the argument that is meant if that is known, or else all
    /// arguments, or the declaration.
    pub(crate) fn place(&self, node: &Node, problem: &Problem) -> Span {
        if problem.stage != BuildStage::Configuring {
            return node.span;
        }
        let arguments = node.config_span;
        let text = self.sources.snippet(arguments);
        let alike = |other: &&Problem| other.node == problem.node && other.texts == problem.texts;
        let all: Vec<&Problem> = self.problems.iter().filter(alike).collect();
        let rank = all.iter().take_while(|other| !std::ptr::eq(**other, problem)).count();
        // The same text may be there, and wrong, several times.
        let find = |part: &String| {
            let places = [whole_arguments(text, part), places_in(text, part)];
            let at = *places.iter().find(|places| places.len() == all.len().max(1))?.get(rank)?;
            Some((at, part.len()))
        };
        let at = problem.texts.iter().find_map(find);
        at.map_or(arguments, |(at, length)| {
            let start = arguments.start as usize + at;
            Span::new(arguments.file, start, start + length)
        })
    }
}

/// Where `text` holds `part` as a word of its own.
fn places_in(text: &str, part: &str) -> Vec<usize> {
    if part.is_empty() {
        return Vec::new();
    }
    let in_word = |c: char| !c.is_whitespace() && c != ',';
    let by_itself =
        |at: usize| !text[..at].ends_with(in_word) && !text[at + part.len()..].starts_with(in_word);
    text.match_indices(part).map(|(at, _)| at).filter(|at| by_itself(*at)).collect()
}

/// Where `part` is all of an argument.
fn whole_arguments(text: &str, part: &str) -> Vec<usize> {
    let opens = |before: &str| before.is_empty() || before.ends_with(',');
    let closes = |after: &str| after.is_empty() || after.starts_with(',');
    let is_whole = |at: &usize| opens(text[..*at].trim_end()) && closes(text[at + part.len()..].trim_start());
    places_in(text, part).into_iter().filter(is_whole).collect()
}

/// Compiles and checks a text.
pub(crate) fn load(name: &str, text: &str, reading: &Reading) -> Loaded {
    let mut sources = Sources::default();
    let file = sources.add_file(name, text);
    let unused: RefCell<Vec<String>> =
        RefCell::new(reading.variables.iter().map(|(name, _)| name.clone()).collect());
    let look_in = |text: &str| unused.borrow_mut().retain(|name| !names_variable(text, name));
    look_in(text);
    let library = |from: &str, wanted: &str| {
        find_library(reading.clickpath.as_deref(), from, wanted).inspect(|(_, text)| look_in(text))
    };
    let options =
        Options { dialect: reading.dialect, variables: reading.variables.clone(), library: Some(&library) };
    let (ir, mut diagnostics) = compile(&mut sources, file, &options, &classes());
    let compiled = !diagnostics.iter().any(Diagnostic::is_error);
    let mut processing = Processing::default();
    if compiled || reading.dialect == Dialect::Artery {
        let (modes, more) = check(&ir, &classes());
        processing = modes;
        diagnostics.extend(more);
    }
    let unused_variables = unused.take();
    let problems = Vec::new();
    let mut loaded =
        Loaded { sources, file, ir, processing, diagnostics, compiled, problems, unused_variables };
    if reading.dialect == Dialect::Artery && loaded.has_errors() {
        loaded.problems = problems_of_the_sound_part(&loaded);
    }
    loaded
}

/// Whether `text` has `$name` or `${name`, wherever that is.
fn names_variable(text: &str, name: &str) -> bool {
    let goes_on = |rest: &str| rest.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '_');
    let follows = |rest: &str| rest.strip_prefix(name).is_some_and(|rest| !goes_on(rest));
    text.split('$').skip(1).any(|rest| follows(rest.strip_prefix('{').unwrap_or(rest)))
}

/// The mistakes in arguments of the elements that exist, although other elements don't. Where some are
/// missing, sentences about other elements are left out, since these may be the missing ones; they
/// come without a remedy.
fn problems_of_the_sound_part(loaded: &Loaded) -> Vec<Problem> {
    let (ir, modes) = (&loaded.ir, &loaded.processing);
    let is_sound = |node: &usize| classes().find_class(&ir.nodes[*node].class).is_some();
    let kept: Vec<usize> = (0..ir.nodes.len()).filter(is_sound).collect();
    let number = |node: usize| kept.binary_search(&node).ok();
    let edge = |edge: &artery_lang::Edge| {
        let exists =
            edge.from.1 < modes.outputs[edge.from.0].len() && edge.to.1 < modes.inputs[edge.to.0].len();
        if !exists {
            return None;
        }
        let (from, to) = (number(edge.from.0)?, number(edge.to.0)?);
        Some(artery_lang::Edge { from: (from, edge.from.1), to: (to, edge.to.1), span: edge.span })
    };
    let part = Ir {
        nodes: kept.iter().map(|&node| ir.nodes[node].clone()).collect(),
        edges: ir.edges.iter().filter_map(edge).collect(),
        requirements: Vec::new(),
    };
    let part_modes = Processing {
        inputs: kept.iter().map(|&node| modes.inputs[node].clone()).collect(),
        outputs: kept.iter().map(|&node| modes.outputs[node].clone()).collect(),
    };
    let found =
        Router::configure(&part, &part_modes, classes(), RouterSettings::default()).err().unwrap_or_default();
    let in_whole = |problem: Problem| Problem { node: problem.node.map(|node| kept[node]), ..problem };
    let concerns_one = |problem: &Problem| {
        problem.stage == BuildStage::Configuring && (loaded.compiled || problem.help.is_some())
    };
    found.into_iter().filter(concerns_one).map(in_whole).collect()
}

/// The file of `require(library "wanted")` and its text: searched in the folder of the requiring file,
/// then along the path.
fn find_library(clickpath: Option<&str>, from: &str, wanted: &str) -> Option<(String, String)> {
    let candidates = library_candidates(clickpath, from, wanted);
    candidates.into_iter().find_map(|path| {
        let bytes = artery_device::files::read(&path).ok()?;
        Some((path.display().to_string(), String::from_utf8_lossy(&bytes).into_owned()))
    })
}

fn library_candidates(clickpath: Option<&str>, from: &str, wanted: &str) -> Vec<PathBuf> {
    if wanted.starts_with('/') {
        return vec![wanted.into()];
    }
    let own = Path::new(from).parent().filter(|folder| !folder.as_os_str().is_empty());
    let own = own.unwrap_or(Path::new(".")).join(wanted);
    let in_folder = |folder: &str| match folder {
        "" => vec![own.clone()],
        folder => ["conf/click", "conf", ""].map(|sub| Path::new(folder).join(sub).join(wanted)).to_vec(),
    };
    std::iter::once(own.clone()).chain(clickpath.unwrap_or("").split(':').flat_map(in_folder)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_library_is_sought_beside_the_file_that_asks_and_along_the_path() {
        let paths = library_candidates(Some("/a:/b"), "dir/r.click", "l.click");
        let names: Vec<String> = paths.iter().map(|path| path.display().to_string()).collect();
        assert_eq!(
            names,
            [
                "dir/l.click",
                "/a/conf/click/l.click",
                "/a/conf/l.click",
                "/a/l.click",
                "/b/conf/click/l.click",
                "/b/conf/l.click",
                "/b/l.click"
            ]
        );
        assert_eq!(library_candidates(None, "r.click", "/x"), [PathBuf::from("/x")]);
    }

    #[test]
    fn the_argument_that_is_wrong_is_pointed_at() {
        let place = |text: &str| {
            let mut loaded = load("f", text, &Reading::default());
            assert!(!loaded.has_errors(), "{:?}", loaded.diagnostics);
            let built =
                Router::configure(&loaded.ir, &loaded.processing, classes(), RouterSettings::default());
            loaded.problems = built.err().unwrap();
            let problem = &loaded.problems[0];
            let span = loaded.place(&loaded.ir.nodes[problem.node.unwrap()], problem);
            (loaded.sources.snippet(span).to_string(), span.start as usize)
        };
        for (text, meant) in [
            ("Idle -> Queue(10, FROB 3) -> Discard;", "FROB"),
            ("Idle -> Queue(10, 20) -> Discard;", "20"),
            ("Idle -> Queue(CAPACITY many) -> Discard;", "CAPACITY many"),
            ("Idle -> Queue(many) -> Discard;", "many"),
            ("InfiniteSource(LIMIT 12, BURST x, DATA 12) -> Discard;", "BURST x"),
            // A variable's value is not in the text, even where the text looks like it.
            ("define($n x10); Idle -> Queue($n /* x10x */) -> Discard;", "$n /* x10x */"),
            ("Idle -> CheckIPHeader(1 1, 1 1) -> Discard;", "1 1, 1 1"),
        ] {
            let (pointed_at, start) = place(text);
            assert_eq!(pointed_at, meant, "{text}");
            assert_eq!(text.find(meant), Some(start), "{text}");
        }
    }

    #[test]
    fn what_is_wrong_several_times_is_pointed_at_every_time() {
        let text = "Script(frob 1, print x,\n goto lost, frob 1, goto lost $x, frob 12)";
        let mut loaded = load("f", text, &Reading::default());
        let built = Router::configure(&loaded.ir, &loaded.processing, classes(), RouterSettings::default());
        loaded.problems = built.err().unwrap();
        let span = |problem| loaded.place(&loaded.ir.nodes[0], problem);
        let starts: Vec<usize> = loaded.problems.iter().map(|problem| span(problem).start as usize).collect();
        let texts: Vec<&str> = loaded.problems.iter().map(|p| loaded.sources.snippet(span(p))).collect();
        assert_eq!(texts, ["frob 1", "frob 1", "frob 12", "goto lost", "goto lost $x"]);
        assert_eq!(starts, [7, 36, 58, 25, 44]);
    }

    #[test]
    fn variables_that_no_text_names_are_unused() {
        let unused = |text: &str| {
            let variables = ["A", "AB"].map(|name| (name.to_string(), "1".to_string())).to_vec();
            load("f", text, &Reading { variables, ..Reading::default() }).unused_variables
        };
        assert_eq!(unused("define($A 5); Idle -> Queue(${AB-3}) -> Discard;"), Vec::<String>::new());
        assert_eq!(unused("Idle -> Queue($A) -> Discard; // AB"), ["AB"]);
        assert_eq!(unused("Idle -> Queue($AB) -> Discard; Script(print $ABC)"), ["A"]);
    }

    #[test]
    fn mistakes_of_text_graph_and_arguments_show_together() {
        let text = "c :: Counter(NO 1); x :: Nonsuch; c -> x;";
        let loaded = load("f", text, &Reading::default());
        assert_eq!(loaded.problems.len(), 1, "{:?}", loaded.problems);
        assert!(loaded.diagnostics.iter().any(|d| d.message.contains("Nonsuch")), "{:?}", loaded.diagnostics);
    }
}
