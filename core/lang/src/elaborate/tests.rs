use crate::testing::*;
use crate::variables::MAX_LENGTH;
use crate::{Dialect, Options, print_flat};

#[test]
fn a_declaration_may_stand_anywhere_in_a_chain() {
    let found = flat("i :: Idle -> n :: Null -> d :: Discard");
    assert_eq!(found, "i :: Idle; n :: Null; d :: Discard; i -> n -> d;");
}

#[test]
fn statements_need_no_semicolons_between_them() {
    let found = names("a :: Idle b :: Idle\nelementclass C { } c :: C; define($x 1) d :: Idle");
    assert_eq!(found, ["a", "b", "d"]);
}

#[test]
fn a_bare_class_makes_an_anonymous_element_numbered_by_all_declared() {
    assert_eq!(names("Idle -> Null -> x :: Null -> Discard"), ["Idle@1", "Null@2", "x", "Discard@4"]);
}

#[test]
fn a_taken_anonymous_name_is_counted_up() {
    let found = names("Null@2 :: Idle; Null -> Discard; Null@3 :: Idle");
    assert_eq!(found, ["Null@2", "Null@4", "Discard@3", "Null@3"]);
}

#[test]
fn an_alias_keeps_the_used_word_in_the_name_and_has_the_real_class() {
    assert_eq!(
        flat("elementclass Nil Null; Idle -> Nil -> DecTTL -> Discard"),
        "Idle@1 :: Idle; Nil@2 :: Null; DecTTL@3 :: DecIPTTL; Discard@4 :: Discard; \
         Idle@1 -> Nil@2 -> DecTTL@3 -> Discard@4;"
    );
}

#[test]
fn contents_of_compounds_have_flattened_names() {
    let text = "elementclass C { input -> n :: Null -> Null -> output } Idle -> c :: C -> Discard";
    assert_eq!(names(text), ["Idle@1", "Discard@3", "c/n", "c/Null@2"]);
    assert_eq!(edges(text), ["c/Null@2[0] -> [0]Discard@3", "Idle@1[0] -> [0]c/n", "c/n[0] -> [0]c/Null@2"]);
}

#[test]
fn a_compound_without_name_is_called_at_n() {
    assert_eq!(names("Idle -> { -> Null -> } -> Discard"), ["Idle@1", "Discard@3", "@2/Null@1"]);
    assert_eq!(names("x :: { Idle -> Discard }"), ["x/Idle@1", "x/Discard@2"]);
}

#[test]
fn a_class_and_its_config_spread_over_bare_names_in_a_statement_alone() {
    assert_eq!(flat("a, b, c :: Idle(x)"), "a :: Idle(x); b :: Idle(x); c :: Idle(x);");
    assert_eq!(messages("a, b :: Null -> Discard"), ["config:1: undeclared element 'a'"]);
    let found = messages("a[0], b :: Null");
    assert_eq!(found, ["config:1: undeclared element 'a'", "config:1: output ports ignored at end of chain"]);
}

#[test]
fn a_class_wins_over_an_element_of_its_name() {
    assert_eq!(messages("Null :: Idle"), ["config:1: class 'Null' used as element name"]);
}

#[test]
fn unknown_words_are_undeclared_elements_or_unknown_classes() {
    assert_eq!(messages("\nIdle -> x"), ["config:2: undeclared element 'x'"]);
    assert_eq!(messages("x :: Foo"), ["config:1: unknown element class 'Foo'"]);
    let found = messages("Idle -> Foo -> Discard; Idle -> Foo -> Discard");
    assert_eq!(found, ["config:1: undeclared element 'Foo'"]);
}

#[test]
fn there_are_no_forward_references_and_each_is_one_error() {
    assert_eq!(all_messages("Idle -> x; x :: Discard; Idle -> x;"), ["undeclared element 'x'"]);
    let found = messages("c :: C; elementclass C { Idle -> Discard }");
    assert_eq!(found, ["config:1: unknown element class 'C'"]);
}

#[test]
fn a_config_on_a_reference_is_ignored_with_an_error() {
    let found = messages("a :: Idle; a(x) -> Discard");
    assert_eq!(found, ["config:1: configuration string ignored on element reference"]);
}

#[test]
fn all_digit_names_are_errors() {
    assert_eq!(messages("12 :: Idle"), ["config:1: element name '12' has all-digit component"]);
    assert_eq!(messages("a/1 :: Idle"), ["config:1: element name 'a/1' has all-digit component"]);
    assert_eq!(messages("1a :: Idle"), [""; 0]);
}

#[test]
fn redeclaring_names_both_places() {
    assert_eq!(
        messages("x :: Idle;\nx :: Null;"),
        ["config:2: redeclaration of element 'x'\nconfig:1: element 'x' previously declared here"]
    );
}

#[test]
fn ports_default_to_zero_and_may_be_lists_and_ranges() {
    assert_eq!(edges("a :: Idle; b :: Idle; a [1] -> [2] b"), ["a[1] -> [2]b"]);
    assert_eq!(edges("a :: Idle; b :: Discard; a [0-2] -> b").len(), 3);
    assert_eq!(edges("a :: Idle; b :: Idle; a -> [0,2] b"), ["a[0] -> [0]b", "a[0] -> [2]b"]);
}

#[test]
fn many_to_many_needs_the_double_arrow() {
    let error = "config:1: syntax error: many-to-many connections require '=>'";
    assert_eq!(messages("a :: Idle; b :: Idle; a [0,1] -> [0,1] b"), [error]);
    assert_eq!(edges("a :: Idle; b :: Idle; a [0,1] => [2,3] b"), ["a[0] -> [2]b", "a[1] -> [3]b"]);
}

#[test]
fn the_double_arrow_stretches_missing_ports() {
    assert_eq!(edges("a :: Idle; b :: Idle; c :: Idle; a => b, c"), ["a[0] -> [0]b", "a[1] -> [0]c"]);
    assert_eq!(edges("a :: Idle; b :: Idle; c :: Idle; b, c => a"), ["b[0] -> [0]a", "c[0] -> [1]a"]);
}

#[test]
fn expandable_ports_take_what_is_left() {
    let found = edges("a :: Idle; b :: Idle; a [] => [0,1,2] b");
    assert_eq!(found, ["a[0] -> [0]b", "a[1] -> [1]b", "a[2] -> [2]b"]);
    assert_eq!(edges("a :: Idle; b :: Idle; a [4,] => [0,1] b"), ["a[4] -> [0]b", "a[5] -> [1]b"]);
    let found = messages("a :: Idle; b :: Idle; a [] => [] b");
    assert_eq!(found, ["config:1: at most one expandable port allowed per connection"]);
}

#[test]
fn counts_that_disagree_are_a_mismatch() {
    let mismatch = |text: &str| messages(&format!("a :: Idle; b :: Idle; {text}"));
    let found = mismatch("a [0,1] => [0,1,2] b");
    assert_eq!(found, ["config:1: connection mismatch: 2 outputs connected to 3 inputs"]);
    let found = mismatch("a [0,1,2,] => [0,1] b;");
    assert_eq!(found, ["config:1: connection mismatch: 3 or more outputs connected to 2 inputs"]);
    assert_eq!(mismatch("a [0,1,] => [0] b;"), [""; 0]);
    let found = mismatch("a [0,1,2] => [0,1] b;");
    assert_eq!(found, ["config:1: connection mismatch: 3 outputs connected to 2 inputs"]);
}

#[test]
fn port_text_at_the_outer_ends_is_an_error() {
    assert_eq!(messages("a :: Idle; [1] a -> Discard"), ["config:1: input ports ignored at start of chain"]);
    assert_eq!(messages("a :: Idle; Idle -> a [1]"), ["config:1: output ports ignored at end of chain"]);
}

#[test]
fn repeated_connections_are_merged() {
    assert_eq!(edges("a :: Idle; b :: Discard; a -> b; a -> b"), ["a[0] -> [0]b"]);
}

#[test]
fn missing_ends_mean_input_and_output_inside_compounds_and_groups() {
    assert_eq!(edges("Idle -> { -> Null -> } -> Discard").len(), 2);
    assert_eq!(
        edges(
            "a :: Idle [0,1] => [0,1] { [1] -> Null -> [0]; [0] -> Null -> [1] } [0,1] => Discard, Discard"
        )
        .len(),
        4
    );
    assert_eq!(messages("-> Discard"), ["config:1: syntax error near '->'"]);
    assert_eq!(messages("Idle ->"), ["config:1: syntax error near ''"]);
}

#[test]
fn groups_join_the_scope_around_them() {
    assert_eq!(names("Idle -> ( -> x :: Null -> ) -> Discard; y :: Null; Idle -> y -> Discard")[1], "x");
    let found = edges("a :: Idle; d :: Discard; a => ( [0] -> Null -> [0]; [1] -> Null -> [1] ) -> d").len();
    assert_eq!(found, 4);
    assert_eq!(messages("g :: ( Idle -> Discard )").len(), 1);
}

#[test]
fn input_is_a_source_and_output_a_sink_without_gaps() {
    assert_eq!(messages("elementclass X { input [1] -> Discard }"), ["config:1: 'X' input 0 missing"]);
    let found = messages("elementclass X { Idle -> input }");
    assert_eq!(found, ["config:1: 'X' pseudoelement 'input' may only be used as output"]);
}

#[test]
fn every_port_of_a_compound_must_be_connected() {
    assert_eq!(messages("Idle -> { -> Null -> }"), ["config:1: '@2' output 0 unused"]);
    let found = messages("elementclass X { -> Discard } a :: Idle; a [0] -> x :: X; a [1] -> [1] x");
    assert_eq!(found, ["config:1: 'x' has no input 1"]);
}

#[test]
fn pass_through_compounds_vanish() {
    let found = edges("elementclass P { input -> output } Idle -> P -> P -> Discard");
    assert_eq!(found, ["Idle@1[0] -> [0]Discard@4"]);
    let long = format!("elementclass P {{ -> }} Idle {} -> Discard", "-> P ".repeat(20_000));
    assert_eq!(edges(&long).len(), 1);
}

#[test]
fn a_ring_of_pass_through_compounds_is_no_connection() {
    assert!(edges("elementclass P { input -> output } p :: P -> q :: P -> p").is_empty());
}

#[test]
fn alternatives_are_tried_in_order_by_ports_and_arguments() {
    let text = "elementclass F { $a | -> Null($a) -> || -> Counter -> || $a, $b | -> Print($a/$b) -> }
        Idle -> F(1) -> F -> F(2, 3) -> Discard";
    assert_eq!(
        flat(text).split("; ").take(5).collect::<Vec<_>>(),
        [
            "Idle@1 :: Idle",
            "Discard@5 :: Discard",
            "F@2/Null@1 :: Null(1)",
            "F@3/Counter@1 :: Counter",
            "F@4/Print@1 :: Print(2/3)"
        ]
    );
}

#[test]
fn no_match_lists_the_candidates() {
    assert_eq!(
        messages("elementclass F { $a | -> Discard || $a, K $k, __REST__ $r | Idle -> Discard }\n\nF(1);\n"),
        ["config:4: no match for 'F[1 argument, 0 inputs, 0 outputs]'\nconfig:1: candidates are:\n\
          config:1:   F(<arg>)[1 input, 0 outputs]\nconfig:1:   F(<arg>, K, ...)[0 inputs, 0 outputs]"]
    );
}

#[test]
fn dots_continue_with_the_previous_definition() {
    let text = "elementclass Null { $a | -> Counter -> || ... } Idle -> Null -> Null(1) -> Discard";
    assert_eq!(names(text), ["Idle@1", "Null@2", "Discard@4", "Null@3/Counter@1"]);
    let found = messages("elementclass Foo { -> Discard || ... }");
    assert_eq!(found, ["config:1: cannot extend unknown element class 'Foo'"]);
    let found = messages("elementclass Null { ... || -> Discard }");
    assert_eq!(found, ["config:1: '...' should occur last, after one or more compounds"]);
}

#[test]
fn arguments_bind_by_position_then_keyword_then_rest() {
    let text = |arguments: &str| {
        format!("elementclass F {{ $a, K $k, __REST__ $r | Idle($a; $k; $r) -> Discard }} F({arguments})")
    };
    let config = |arguments: &str| graph(&text(arguments)).nodes[0].config.clone();
    assert_eq!(config("1, K 2"), "1; 2; ");
    assert_eq!(config("1, x, K 2, y"), "1; 2; x, y");
    assert_eq!(config("1, L 5, K 2"), "1; 2; L 5");
    assert_eq!(messages(&text("K 2")).len(), 1);
}

#[test]
fn formals_have_an_order_and_distinct_names() {
    let messages = |formals: &str| messages(&format!("elementclass F {{ {formals} | Idle -> Discard }}"));
    assert!(messages("K $k, $a")[0].contains("parameters out of order"));
    assert_eq!(messages("$a, $a"), ["config:1: parameter '$a' multiply defined"]);
    assert_eq!(messages("K $a, K $b"), ["config:1: repeated keyword parameter 'K' in compound element"]);
}

#[test]
fn scope_is_lexical() {
    let text = "define($v outer); elementclass A { Idle($v) -> Discard }
        elementclass B { define($v inner); elementclass L { Idle($v) -> Discard } A; L } B";
    let configs: Vec<String> =
        graph(text).nodes.into_iter().map(|node| node.config).filter(|config| !config.is_empty()).collect();
    assert_eq!(configs, ["outer", "inner"]);
    assert_eq!(messages("elementclass A { elementclass L Idle } L"), ["config:1: undeclared element 'L'"]);
}

#[test]
fn a_later_class_shadows_and_earlier_uses_keep_theirs() {
    let text = "elementclass A { Idle -> Discard } elementclass B { A } elementclass A { Idle -> Null -> \
        Discard } B; A";
    let found = names(text);
    assert_eq!(found, ["B@1/A@1/Idle@1", "B@1/A@1/Discard@2", "A@2/Idle@1", "A@2/Null@2", "A@2/Discard@3"]);
}

#[test]
fn nesting_is_limited_to_50() {
    let nested = |depth: usize| format!("{}{}", "{".repeat(depth), "}".repeat(depth));
    assert_eq!(messages(&nested(49)), [""; 0]);
    assert_eq!(messages(&nested(400)), ["config:1: maximum compound element nesting depth exceeded"]);
    let groups = "(".repeat(100) + &")".repeat(100);
    assert_eq!(messages(&groups), ["config:1: maximum element group nesting depth exceeded"]);
}

#[test]
fn variables_are_expanded_in_configuration_strings_and_the_command_line_wins() {
    let options = Options { variables: vec![("v".into(), "9".into())], ..Options::default() };
    let (ir, diagnostics, _) = compile_with("define($v 1, $w $v); a :: Idle($w)", &options);
    assert!(diagnostics.is_empty());
    assert_eq!(ir.nodes[0].config, "9");
    assert_eq!(messages("define($v 1, $v 2)"), ["config:1: parameter '$v' multiply defined"]);
    assert_eq!(messages("define(v 1)"), ["config:1: bad 'define' declaration: not a variable"]);
}

#[test]
fn requirements_are_collected_and_missing_ones_reported() {
    assert_eq!(graph("require(a, package b, compact_config); i :: Idle").requirements, ["a", "b"]);
    assert_eq!(messages("require(missing)"), ["config:1: requirement 'missing' not available"]);
    assert_eq!(messages("require(a b c)"), ["config:1: syntax error at requirement"]);
}

#[test]
fn a_library_is_spliced_in_once_and_at_file_scope_only() {
    let find = |including: &str, name: &str| {
        assert_eq!(including, "config");
        (name == "l.click")
            .then(|| ("dir/l.click".to_string(), "elementclass L Idle; lib :: L; lib ->".to_string()))
    };
    let options = Options { library: Some(&find), ..Options::default() };
    let run = |text: &str| {
        let (ir, diagnostics, sources) = compile_with(text, &options);
        let messages: Vec<String> = diagnostics.iter().map(|one| one.click_style(&sources)).collect();
        (ir.nodes.len(), messages.join("|"))
    };
    let error = "dir/l.click:1: syntax error near ''".to_string();
    assert_eq!(run("require(library l.click) require(library \"l.click\"); x :: L"), (2, error));
    assert_eq!(run("require(library no)"), (0, "config:1: library 'no' not found in CLICKPATH/conf".into()));
    let nested = "config:1: 'require library' must be used at file scope";
    assert_eq!(run("elementclass C { require(library l.click) }"), (0, nested.into()));
}

#[test]
fn a_byte_order_mark_is_three_errors_for_click() {
    assert_eq!(
        messages_in(Dialect::Click, "\u{feff}a :: Idle"),
        [
            r"config:1: syntax error near '\357'",
            r"config:1: syntax error near '\273'",
            r"config:1: syntax error near '\277'"
        ]
    );
    assert_eq!(messages("\u{feff}a :: Idle").len(), 1);
}

#[test]
fn bombs_of_nested_compounds_are_defused() {
    let mut text = "elementclass C0 { Idle -> Discard }".to_string();
    for level in 1..40 {
        text += &format!("elementclass C{level} {{ C{}; C{} }}", level - 1, level - 1);
    }
    let too_many = ["config:1: configuration expands to too many elements"];
    // 2^13 elements with the compounds around them may be, 2^16 may not.
    assert_eq!(messages(&format!("{text}C12")), [""; 0]);
    assert_eq!(messages(&format!("{text}C15")), too_many);
    assert_eq!(messages(&format!("{text}C39")), too_many);
}

#[test]
fn bombs_of_growing_arguments_are_defused() {
    let too_much = ["config:1: configuration expands to too much text"];
    // An argument that grows fourfold from compound to compound.
    let mut text = "elementclass C0 { $x | Idle -> Print($x) -> Discard }".to_string();
    for level in 1..20 {
        text += &format!("elementclass C{level} {{ $x | C{}($x$x$x$x) }}", level - 1);
    }
    assert_eq!(messages(&format!("{text}C5(abcd)")), [""; 0]);
    assert_eq!(messages(&format!("{text}C19(abcd)")), too_much);
    // One that stays, in more and more compounds.
    let mut text = "elementclass C0 { $x | Idle -> Print($x) -> Discard }".to_string();
    for level in 1..15 {
        text += &format!("elementclass C{level} {{ $x | C{}($x); C{}($x) }}", level - 1, level - 1);
    }
    assert_eq!(messages(&format!("{text}C14({})", "a".repeat(1 << 16))), too_much);
    // Text of the file may be longer than what grows.
    assert_eq!(messages(&format!("{text}C0({})", "a".repeat(MAX_LENGTH + 1))), [""; 0]);
}

#[test]
fn the_configuration_of_1999_compiles_as_printed() {
    let ir = graph(include_str!("tests/kbm-1999.click"));
    assert_eq!(ir.nodes.len(), 12);
    assert!(crate::check(&ir, &Classes).1.is_empty());
    let text = print_flat(&ir);
    assert!(text.contains("fi :: Classifier(12/0800 30/121a04C8,"), "{text}");
    assert!(!messages_in(Dialect::Click, include_str!("tests/kbm-1999.click")).is_empty());
}
