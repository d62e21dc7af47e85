//! Classes and shorthands for the tests of this crate.

use crate::*;

/// Name, ports, processing, flow.
const CLASSES: &[[&str; 4]] = &[
    ["Idle", "-/-", "a/a", "x/y"],
    ["Discard", "1/0", "a/a", "x/x"],
    ["InfiniteSource", "0/1", "h/h", "x/x"],
    ["Null", "1/1", "a/a", "x/x"],
    ["Queue", "1/1-2", "h/lh", "x/x"],
    ["Unqueue", "1/1", "l/h", "x/x"],
    ["Tee", "1/-", "h/h", "x/x"],
    ["Counter", "1/1-2", "a/a", "x/x"],
    ["Switch", "1/-", "h/h", "x/x"],
    ["RoundRobinSched", "-/1", "l/l", "x/x"],
    ["Classifier", "1/-", "h/h", "x/x"],
    ["FromDevice", "0/1", "h/h", "x/x"],
    ["ToDevice", "1/0", "l/l", "x/x"],
    ["ToHost", "1/0", "h/h", "x/x"],
    ["ARPQuerier", "2/1-2", "h/h", "xy/x"],
    ["Strip", "1/1", "a/a", "x/x"],
    ["CheckIPHeader", "1/1-2", "a/ah", "x/x"],
    ["DecIPTTL", "1/1-2", "a/ah", "x/x"],
    ["SetIPChecksum", "1/1", "a/a", "x/x"],
    ["GetIPAddress", "1/1", "a/a", "x/x"],
    ["Print", "1/1", "a/a", "x/x"],
    ["Error", "-/-", "a/a", "x/x"],
    ["Script", "-/-", "a/a", "x/y"],
];

const ALIASES: &[(&str, &str)] = &[
    ("Filter", "Classifier"),
    ("KernelReader", "FromDevice"),
    ("KernelWriter", "ToDevice"),
    ("ToLinux", "ToHost"),
    ("ArpQuerier", "ARPQuerier"),
    ("CheckIPChecksum", "CheckIPHeader"),
    ("DecTTL", "DecIPTTL"),
];

pub(crate) struct Classes;

impl ClassLookup for Classes {
    fn find_class(&self, name: &str) -> Option<ClassInfo> {
        let name = ALIASES.iter().find(|(alias, _)| *alias == name).map_or(name, |(_, name)| name);
        let [name, ports, processing, flow] = *CLASSES.iter().find(|class| class[0] == name)?;
        Some(ClassInfo { name, ports, processing, flow })
    }

    fn class_names(&self) -> Vec<&str> {
        CLASSES.iter().map(|class| class[0]).collect()
    }

    fn provides_package(&self, package: &str) -> bool {
        package != "missing"
    }
}

pub(crate) fn compile_with(text: &str, options: &Options<'_>) -> (Ir, Vec<Diagnostic>, Sources) {
    let mut sources = Sources::default();
    let file = sources.add_file("", text);
    let (ir, diagnostics) = compile(&mut sources, file, options, &Classes);
    (ir, diagnostics, sources)
}

/// The graph of a text without mistakes.
pub(crate) fn graph(text: &str) -> Ir {
    let (ir, diagnostics, sources) = compile_with(text, &Options::default());
    let messages: Vec<String> = diagnostics.iter().map(|diagnostic| diagnostic.render(&sources)).collect();
    assert!(messages.is_empty(), "{text}\n{}", messages.join("\n"));
    ir
}

/// The flat text of a text without mistakes, in one line.
pub(crate) fn flat(text: &str) -> String {
    print_flat(&graph(text)).replace("\n    -> ", " -> ").replace("\n\n", "\n").trim_end().replace('\n', " ")
}

/// The connections of a text without mistakes.
pub(crate) fn edges(text: &str) -> Vec<String> {
    let ir = graph(text);
    let name = |node: usize| ir.nodes[node].name.as_str();
    let edge =
        |edge: &Edge| format!("{}[{}] -> [{}]{}", name(edge.from.0), edge.from.1, edge.to.1, name(edge.to.0));
    ir.edges.iter().map(edge).collect()
}

/// Names and configurations of the elements of a text without mistakes.
pub(crate) fn names(text: &str) -> Vec<String> {
    graph(text).nodes.into_iter().map(|node| node.name).collect()
}

/// What compiling says in Click's style; every error must also render and have a remedy.
pub(crate) fn messages(text: &str) -> Vec<String> {
    messages_in(Dialect::Artery, text)
}

pub(crate) fn messages_in(dialect: Dialect, text: &str) -> Vec<String> {
    let (_, diagnostics, sources) = compile_with(text, &Options { dialect, ..Options::default() });
    diagnostics.iter().map(|diagnostic| diagnostic.click_style(&sources)).collect()
}

/// What compiling and checking say, without places.
pub(crate) fn all_messages(text: &str) -> Vec<String> {
    let (ir, mut diagnostics, sources) = compile_with(text, &Options::default());
    diagnostics.extend(check(&ir, &Classes).1);
    for diagnostic in &diagnostics {
        let rendered = diagnostic.render(&sources);
        assert!(rendered.contains('^'), "{rendered}");
        assert!(diagnostic.help.is_some() || !diagnostic.is_error(), "{rendered}");
    }
    diagnostics.into_iter().map(|diagnostic| diagnostic.message).collect()
}
