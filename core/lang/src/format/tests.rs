use super::*;
use crate::testing::*;

#[track_caller]
fn formats(text: &str, wanted: &str) {
    let once = format(text).unwrap();
    assert_eq!(once, wanted);
    assert_eq!(format(&once).unwrap(), once);
}

#[test]
fn white_space_around_tokens_is_made_even() {
    formats(
        "a::Idle;b :: Null( x )\na->[ 0,1 ]b[1 ]   ->c::{->Null->};",
        "a :: Idle;\nb :: Null( x );\na -> [0, 1] b [1] -> c :: { -> Null -> };\n",
    );
    formats("", "");
    formats("require(a)define($x 1)elementclass A B", "require(a);\ndefine($x 1);\nelementclass A B;\n");
}

#[test]
fn line_breaks_in_chains_and_single_empty_lines_stay() {
    formats("a -> b\n  ->c;\n\n\n\nd ->\n e", "a -> b\n    -> c;\n\nd -> e;\n");
}

#[test]
fn compounds_keep_to_one_line_or_many() {
    formats(
        "elementclass X {$a,K $b|->Null;Idle->Discard||...}",
        "elementclass X { $a, K $b | -> Null; Idle -> Discard || ... }\n",
    );
    formats(
        "elementclass X {$a|\n->Null->; Idle->\nDiscard||->\n}\n(a;\nb)",
        "elementclass X { $a |\n    -> Null ->;\n    Idle -> Discard;\n||\n    ->;\n}\n(\n    a;\n    b;\n\
         );\n",
    );
}

#[test]
fn comments_stay_and_hashes_become_slashes() {
    formats(
        "# one\na :: Idle; # two\n  /* three */\nb -> // four\n c;",
        "// one\na :: Idle; // two\n/* three */\nb // four\n    -> c;\n",
    );
    formats("a /* x */ :: Idle // y\n;\n{ // z\n}", "a :: Idle; /* x */\n// y\n{ // z\n};\n");
}

#[test]
fn preprocessor_lines_stay_in_column_0() {
    formats("  a;\n# 12 \"f\"\n  b;", "a;\n# 12 \"f\"\nb;\n");
}

#[test]
fn configuration_strings_are_copied() {
    formats("a :: Idle(x, // c )\n   y # z\n)", "a :: Idle(x, // c )\n   y # z\n);\n");
}

#[test]
fn what_does_not_parse_is_refused() {
    assert_eq!(format("a -> -> b").unwrap_err().len(), 1);
}

#[test]
fn the_configuration_of_1999_means_the_same_when_laid_out() {
    let text = include_str!("../elaborate/tests/kbm-1999.click");
    let laid_out = format(text).unwrap();
    assert_eq!(format(&laid_out).unwrap(), laid_out);
    assert_eq!(crate::print_flat(&graph(text)), crate::print_flat(&graph(&laid_out)));
}
