use super::*;
use crate::testing::{messages, messages_in};

#[test]
fn the_separator_is_optional_before_whatever_can_start_a_statement() {
    for text in ["a b", "a { }", "a [0] [0] b", "a elementclass X { }", "a require(x)", "a define($x)"] {
        let mut sources = Sources::default();
        let file = sources.add_file("f", text);
        let (tree, diagnostics) = parse(&mut sources, file, Dialect::Click);
        assert!(diagnostics.is_empty(), "{text}: {diagnostics:?}");
        assert_eq!(tree.statements.len(), 2, "{text}");
    }
}

#[test]
fn provide_is_never_accepted() {
    let found = messages_in(Dialect::Click, "provide(x);");
    assert_eq!(found, ["config:1: syntax error near 'provide'", "config:1: undeclared element 'x'"]);
    assert_eq!(messages("provide;"), ["config:1: syntax error near 'provide'"]);
}

#[test]
fn what_is_not_closed_is_said_at_the_end_of_the_text() {
    assert_eq!(messages_in(Dialect::Click, "{\n{\n"), ["config:3: expected '}'", "config:3: expected '}'"]);
    assert_eq!(messages("{\n{\n"), ["config:3: expected '}'"]);
    assert_eq!(messages("Idle(x\n\n"), ["config:3: expected ')'"]);
    assert_eq!(messages("(\nIdle -> Discard"), ["config:2: expected ')'"]);
}

#[test]
fn ports_are_integers() {
    let found = messages("a :: Idle; a [x] -> Discard");
    assert_eq!(found, ["config:1: syntax error: port number should be integer"]);
    assert_eq!(messages("a :: Idle; a [0 -> Discard"), ["config:1: syntax error: expected ','"]);
    assert_eq!(messages("a :: Idle; a [-> Discard"), ["config:1: syntax error: expected port number"]);
    assert_eq!(messages("a :: Idle; a [99999999999] -> Discard"), ["config:1: port number out of range"]);
}

#[test]
fn formals_end_with_a_bar() {
    assert_eq!(messages("elementclass F { $a, $b Idle -> Discard }"), ["config:1: expected ',' or '|'"]);
    assert_eq!(messages("elementclass F { $a, Idle | Idle -> Discard }")[0], "config:1: expected variable");
}

#[test]
fn lines_count_from_preprocessor_marks() {
    assert_eq!(messages("# 12 \"f\"\nx;\n"), ["f:12: undeclared element 'x'"]);
    assert_eq!(messages("# 12 \"f\"\n# 3 \"\"\n\nx;\n"), ["config:4: undeclared element 'x'"]);
    assert_eq!(messages("i :: Idle(a,\n# 20 \"g\"\nb); x;\n"), ["g:20: undeclared element 'x'"]);
}

#[test]
fn a_chain_that_starts_at_input_after_another_chain_is_suspicious() {
    let found = messages("elementclass X { input -> n :: Null -> output; n -> Discard; -> Discard }");
    assert_eq!(found, ["config:1: warning: suggest 'input ->' or '[0] ->' to start connection"]);
}

#[test]
fn help_says_what_is_missing_rather_than_how_statements_are_separated() {
    let arrow = "an arrow needs an element on both sides";
    let class = "write `elementclass Name { … }` or `elementclass Name Other`";
    for (text, expected) in [
        ("Idle -> ;", arrow),
        ("-> Idle;", arrow),
        ("Idle -> -> Discard;", arrow),
        ("Idle -> require(x)", arrow),
        ("elementclass X;", class),
        ("Idle ! Discard;", "separate statements with `;`"),
    ] {
        for dialect in [Dialect::Artery, Dialect::Click] {
            let mut sources = Sources::default();
            let file = sources.add_file("f", text);
            let (_, diagnostics) = parse(&mut sources, file, dialect);
            assert_eq!(diagnostics[0].help.as_deref(), Some(expected), "{text}");
        }
    }
}
