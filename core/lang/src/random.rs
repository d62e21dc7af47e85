//! Random programs: every one legal text, for the properties that hold for all of them.

use proptest::prelude::*;
use proptest::test_runner::TestCaseError;

use crate::testing::{Classes, compile_with};
use crate::{Dialect, Ir, Options, Sources, compile, format, parse, print_flat};

fn word() -> impl Strategy<Value = String> {
    "[a-z][a-z0-9_]{0,3}(/[a-z]{1,2})?"
}

fn config() -> impl Strategy<Value = String> {
    prop_oneof![
        3 => Just(String::new()),
        1 => Just("()".to_string()),
        1 => "\\((a|1, 2|\\$v|\\$\\{p-x\\}|'\\)'|\"\\(\\\\\"\"|\\\\<28>|/\\* \\) \\*/ x|b // \\)\n)\\)",
    ]
}

fn space() -> impl Strategy<Value = String> {
    prop_oneof![
        6 => Just(" ".to_string()),
        1 => Just("\n".to_string()),
        1 => Just("\r\n  ".to_string()),
        1 => Just(" // comment\n".to_string()),
        1 => Just("\n  # comment\n\n\n".to_string()),
        1 => Just(" /* comment\n two */ ".to_string()),
    ]
}

/// An element that has one input and one output.
fn through(depth: u32) -> BoxedStrategy<String> {
    let class = prop_oneof![Just("Null"), Just("Counter"), Just("Print"), Just("Nil")].prop_map(String::from);
    let leaf = (class, config()).prop_map(|(class, config)| class + &config).boxed();
    if depth == 0 {
        return leaf;
    }
    let inner = (space(), chain(depth - 1), space());
    let nested = (inner, prop_oneof![Just(("{", "}")), Just(("(", ")")), Just(("{ $a |", "}(9)"))]);
    let nested = nested.prop_map(|((before, inner, after), (open, close))| {
        format!("{open}{before} -> {inner} -> {after}{close}")
    });
    let ports = leaf.clone().prop_map(|element| format!("[0] {element} [0]"));
    prop_oneof![4 => leaf, 2 => nested, 1 => Just("F".to_string()), 1 => Just("F(1)".to_string()), 1 => ports]
        .boxed()
}

fn chain(depth: u32) -> BoxedStrategy<String> {
    let step = (through(depth), prop_oneof![Just("->"), Just("=>")], space());
    (prop::collection::vec(step, 0..3), through(depth))
        .prop_map(|(steps, last)| {
            let steps: String =
                steps.into_iter().map(|(part, arrow, space)| format!("{part}{space}{arrow} ")).collect();
            steps + &last
        })
        .boxed()
}

fn statement() -> impl Strategy<Value = (String, String)> {
    (word(), chain(2), space(), prop::bool::ANY).prop_map(|(name, chain, space, branches)| {
        let many = format!("Idle [0-2] =>{space} [] {name} :: Idle [] => Discard, Discard, [0] Discard");
        let one = format!("Idle -> {name} :: Null{space} -> {chain} -> Discard");
        (name, if branches { many } else { one })
    })
}

const PREFIX: &str = "elementclass Nil Null;\nelementclass F { -> Nil -> || $a | define($p q) -> Null($a$p) \
    -> Nil -> }\n\
    define($v 'w')\n";

fn program() -> impl Strategy<Value = String> {
    let separator = (space(), prop_oneof![Just(";"), Just(";\n")]);
    prop::collection::vec((statement(), separator), 0..6).prop_map(|statements| {
        let mut seen = std::collections::HashSet::new();
        let mut text = PREFIX.to_string();
        for ((name, statement), (space, end)) in statements {
            if seen.insert(name) {
                text += &(statement + &space + end);
            }
        }
        text
    })
}

fn legal(text: &str) -> Result<Ir, TestCaseError> {
    let (ir, diagnostics, sources) = compile_with(text, &Options::default());
    let messages: Vec<String> = diagnostics.iter().map(|one| one.render(&sources)).collect();
    prop_assert!(messages.is_empty(), "{text}\n{}", messages.join("\n"));
    Ok(ir)
}

/// A graph without places in the text.
fn bare(ir: &Ir) -> Vec<String> {
    let nodes = ir.nodes.iter().map(|node| format!("{} {} {}", node.name, node.class, node.config));
    let edges = ir.edges.iter().map(|edge| format!("{:?} {:?}", edge.from, edge.to));
    nodes.chain(edges).collect()
}

fn survives(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    for dialect in [Dialect::Artery, Dialect::Click] {
        let mut sources = Sources::default();
        let file = sources.add_file("f", text.as_ref());
        let (ir, diagnostics) =
            compile(&mut sources, file, &Options { dialect, ..Options::default() }, &Classes);
        let (_, more) = crate::check(&ir, &Classes);
        for diagnostic in diagnostics.iter().chain(&more) {
            diagnostic.render(&sources);
            diagnostic.click_style(&sources);
        }
        print_flat(&ir);
        let _ = format(&text);
    }
}

#[test]
fn every_prefix_of_a_program_is_read_without_panic() {
    let samples = [
        include_str!("elaborate/tests/kbm-1999.click").to_string(),
        format!(
            "{PREFIX}# 3 \"f\"\ni :: Idle(\"\\<28>\", '$v', ${{v[0]}}) [0,1-3,] => [] {{ [0] -> F -> [0] \
             || ... }} -> (a; b)é"
        ),
        "elementclass C { $a, K $k, __REST__ $r | input [1] -> Null; \
         || ... } require(library x) C(1, K 2) -> \r# x"
            .to_string(),
    ];
    for sample in samples {
        for end in 0..=sample.len() {
            survives(&sample.as_bytes()[..end]);
        }
    }
}

proptest! {
    #[test]
    fn a_printed_program_parses_to_the_same_graph(text in program()) {
        let ir = legal(&text)?;
        let printed = print_flat(&ir);
        let again = legal(&printed)?;
        prop_assert_eq!(bare(&ir), bare(&again), "{}", text);
        prop_assert_eq!(print_flat(&again), printed);
    }

    #[test]
    fn layout_changes_no_graph_loses_no_comment_and_is_final(text in program()) {
        let before = legal(&text)?;
        let laid_out = format(&text).unwrap();
        let after = legal(&laid_out)?;
        prop_assert_eq!(bare(&before), bare(&after), "{}\n-----\n{}", text, laid_out);
        prop_assert_eq!(text.matches("comment").count(), laid_out.matches("comment").count());
        let twice = format(&laid_out).unwrap();
        prop_assert_eq!(&twice, &laid_out, "{}", text);
    }

    #[test]
    fn random_tokens_never_panic(
        tokens in prop::collection::vec(
            prop_oneof![
                Just("->"), Just("=>"), Just("::"), Just("||"), Just("..."), Just("["), Just("]"), Just("{"),
                Just("}"), Just("("), Just(")"), Just(","), Just(";"), Just("$a"), Just("|"), Just("a"),
                Just("Null"), Just("0"), Just("3"), Just("-"), Just("elementclass"), Just("require"),
                Just("define"), Just("\n#"), Just("/*"), Just("'"), Just("input"), Just("output"), Just("X"),
                Just("é"),
            ],
            0..40,
        ),
    ) {
        survives(tokens.join(" ").as_bytes());
    }

    #[test]
    fn random_bytes_never_panic(bytes: Vec<u8>) {
        survives(&bytes);
    }

    #[test]
    fn parsing_alone_never_panics(text in "\\PC{0,60}") {
        let mut sources = Sources::default();
        let file = sources.add_file("f", text);
        parse(&mut sources, file, Dialect::Click);
    }
}
