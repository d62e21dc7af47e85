use super::*;
use crate::testing::*;

fn checked(text: &str) -> Vec<String> {
    all_messages(text)
}

#[test]
fn ports_out_of_range_are_reported() {
    let found = checked("a :: Idle; a [0,1] -> Discard; n :: Null; a [2] -> [0] n [1] -> Discard");
    assert_eq!(found, ["'n :: Null' has no output 1"]);
    let found = checked("a :: Idle; a [0] -> d :: Discard; a [1] -> [2] d");
    assert_eq!(found, ["'d :: Discard' has no input 2"]);
}

#[test]
fn a_push_output_and_a_pull_input_clash() {
    let found = checked("s :: InfiniteSource -> d :: ToDevice");
    assert_eq!(found, ["'s :: InfiniteSource' push output 0 connected to 'd :: ToDevice' pull input 0"]);
    let found = checked("InfiniteSource -> q :: Queue -> d :: ToHost");
    assert_eq!(found, ["'q :: Queue' pull output 0 connected to 'd :: ToHost' push input 0"]);
}

#[test]
fn an_agnostic_element_cannot_be_both() {
    let found = checked("InfiniteSource -> n :: Null -> ToDevice");
    assert_eq!(found, ["agnostic 'n :: Null' in mixed context: push input 0, pull output 0"]);
}

#[test]
fn modes_spread_through_agnostic_elements_as_the_flow_code_says() {
    let ir =
        graph("InfiniteSource -> n :: Null -> Queue -> m :: Null -> ToDevice; Idle -> i :: Idle -> Discard");
    let (processing, errors) = check(&ir, &Classes);
    assert!(errors.is_empty());
    let node = |name| ir.find_node(name).unwrap();
    assert_eq!(processing.inputs[node("n")], [Mode::Push]);
    assert_eq!(processing.outputs[node("m")], [Mode::Pull]);
    assert_eq!(processing.outputs[node("i")], [Mode::Push]);
}

#[test]
fn push_outputs_and_pull_inputs_have_one_connection() {
    let found = checked("s :: InfiniteSource; s -> Discard; s -> Discard");
    assert_eq!(found, ["illegal reuse of 's :: InfiniteSource' push output 0"]);
    let found = checked("d :: ToDevice; InfiniteSource -> Queue -> d; InfiniteSource -> Queue -> d");
    assert_eq!(found, ["illegal reuse of 'd :: ToDevice' pull input 0"]);
    assert_eq!(checked("d :: Discard; InfiniteSource -> d; InfiniteSource -> d"), [""; 0]);
    assert_eq!(checked("q :: Queue; InfiniteSource -> q; q -> ToDevice; q -> ToDevice"), [""; 0]);
}

#[test]
fn ports_in_range_must_be_used() {
    assert_eq!(checked("n :: Null"), ["'n :: Null' input 0 unused", "'n :: Null' output 0 unused"]);
    assert_eq!(checked("t :: Tee; InfiniteSource -> t; t[1] -> Discard"), ["'t :: Tee' output 0 unused"]);
}

#[test]
fn elements_of_unknown_class_have_any_ports() {
    let found = checked("f :: Foo; Idle -> [3] f [2] -> ToDevice; f -> ToHost");
    assert_eq!(found, ["unknown element class 'Foo'"]);
}

#[test]
fn five_different_mistakes_are_five_messages() {
    let text = "a :: Idle -> ? Discard;
        b :: InfiniteSource;
        b => => Discard;
        c :: Diskard;
        Idle -> c;
        Idle -> [1] Discard;
        InfiniteSource -> ToDevice;
        Idle -> Null -> Discard;";
    assert_eq!(
        checked(text),
        [
            "syntax error near '?'",
            "syntax error near '=>'",
            "unknown element class 'Diskard'",
            "'Discard@6 :: Discard' has no input 1",
            "'InfiniteSource@7 :: InfiniteSource' push output 0 connected to 'ToDevice@8 :: ToDevice' pull \
             input 0",
        ]
    );
}

#[test]
fn a_mistake_does_not_spread() {
    for text in [
        "a : Idle; a -> Discard;",
        "a :: ; a -> Discard;",
        "q :: Queue; InfiniteSource -> q -> -> ToDevice;",
        "Idle -> quue; quue2 :: Discard; Idle -> quue2;",
        "elementclass C { input [1] -> Discard } Idle -> [1] c :: C;",
        "elementclass C { -> Null -> } Idle -> c :: C;",
        "elementclass C { $a | -> Null -> } Idle -> C -> Discard;",
        "a :: Idle; b :: Idle; Tee(2) [0,1] => [0,1,2] Idle;",
        "Idle -> Discard; elementclass 7;",
        "Idle -> { -> Null -> { -> Null",
        "Idle -> Null(x -> Discard;",
    ] {
        assert_eq!(checked(text).len(), 1, "{text}: {:?}", checked(text));
    }
}
