//! What is wrong with a configuration, as messages: in Artery's way or in Click's.
use super::Loaded;
use crate::output::{Output, without_numbers};
use artery_engine::{BuildStage, Problem};
use artery_lang::{Diagnostic, Severity, printable};

impl Output {
    /// Everything that is wrong with a configuration, each message with its line end.
    pub(crate) fn format_faults(self, loaded: &Loaded) -> String {
        match self {
            Output::Artery { colour } => artery_faults(loaded, colour),
            Output::Json => artery_faults(loaded, false),
            Output::Click { warnings } => click_faults(loaded, warnings),
        }
    }
}

/// All messages in the order of the text, those without a place last.
fn artery_faults(loaded: &Loaded, colour: bool) -> String {
    let mut all = loaded.diagnostics.clone();
    all.extend(loaded.problems.iter().filter_map(|problem| placed(loaded, problem)));
    all.sort_by_key(|diagnostic| (diagnostic.span.file, diagnostic.span.start));
    let unplaced = loaded.problems.iter().filter(|problem| placed(loaded, problem).is_none());
    let placed = all.iter().map(|diagnostic| diagnostic.render_on(&loaded.sources, colour) + "\n\n");
    placed.chain(unplaced.map(|problem| artery_problem(loaded, problem, colour))).collect()
}

fn artery_problem(loaded: &Loaded, problem: &Problem, colour: bool) -> String {
    match placed(loaded, problem) {
        Some(diagnostic) => diagnostic.render_on(&loaded.sources, colour) + "\n\n",
        None => {
            let kind = if problem.is_warning { "warning" } else { "error" };
            let help = problem.help.iter().map(|help| format!("  help: {help}\n")).collect::<String>();
            printable(&format!("{kind}: {}\n{help}", without_numbers(&problem.message))).into_owned()
        }
    }
}

/// A problem of an element as a diagnostic.
fn placed(loaded: &Loaded, problem: &Problem) -> Option<Diagnostic> {
    let node = loaded.ir.nodes.get(problem.node?)?;
    let mut diagnostic = Diagnostic::error(without_numbers(&problem.message), loaded.place(node, problem));
    diagnostic.label = Some(format!("{} '{} :: {}'", stage(problem.stage), node.name, node.class));
    diagnostic.help = problem.help.clone();
    if problem.is_warning {
        diagnostic.severity = Severity::Warning;
    }
    Some(diagnostic)
}

fn stage(stage: BuildStage) -> &'static str {
    match stage {
        BuildStage::Configuring => "while configuring",
        BuildStage::Initializing => "while initializing",
        BuildStage::Placing => "while placing",
    }
}

fn click_faults(loaded: &Loaded, warnings: bool) -> String {
    let shown = loaded.diagnostics.iter().filter(|diagnostic| warnings || diagnostic.is_error());
    let mut text: String = shown.map(|diagnostic| diagnostic.click_style(&loaded.sources) + "\n").collect();
    text += &click_problems(loaded, &loaded.problems, warnings);
    if loaded.compiled && loaded.has_errors() {
        text += "Router could not be initialized!\n";
    }
    text
}

/// Problems under one heading for each element.
fn click_problems(loaded: &Loaded, problems: &[Problem], warnings: bool) -> String {
    let mut text = String::new();
    let mut heading = None;
    for problem in problems.iter().filter(|problem| warnings || !problem.is_warning) {
        let kind = if problem.is_warning { "warning: " } else { "" };
        let Some(node) = problem.node.and_then(|node| loaded.ir.nodes.get(node)) else {
            text += &format!("{kind}{}\n", problem.message);
            continue;
        };
        if heading != Some((problem.node, problem.stage)) {
            heading = Some((problem.node, problem.stage));
            let stage = stage(problem.stage).replacen('w', "W", 1);
            let landmark = loaded.sources.landmark(node.span);
            text += &format!("{landmark}: {stage} '{} :: {}':\n", node.name, node.class);
        }
        problem.message.lines().for_each(|line| text += &format!("  {kind}{line}\n"));
    }
    text
}
