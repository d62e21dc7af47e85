//! Scripts on the bench, by what they print.
use super::*;
use artery_engine::Bench;
use std::time::Duration;

fn script(config: &str) -> Bench {
    alone(config).unwrap_or_else(|errors| panic!("{config}: {errors:?}"))
}

fn alone(config: &str) -> Result<Bench, Vec<ArgError>> {
    Bench::setup(&CLASS, config).inputs(0).outputs(0).build()
}

fn refuses(config: &str) -> String {
    alone(config).err().expect("a refusal")[0].to_string()
}

/// What a script prints until it waits.
#[track_caller]
fn prints(config: &str, text: &str) {
    let mut bench = script(config);
    bench.run();
    assert_eq!(bench.stdout_text(), text);
    assert_eq!(bench.stderr_text(), "");
}

/// A passive script and what its `run` handler returns.
#[track_caller]
fn returns(config: &str, args: &str, value: &str) {
    let mut bench = script(&format!("TYPE PASSIVE, {config}"));
    assert_eq!(bench.read("run", args).as_deref(), Ok(value));
}

#[test]
fn counts_to_five() {
    prints("set x 0, label again, print $x, set x $(add $x 1), goto again $(lt $x 5)", "0\n1\n2\n3\n4\n");
    prints("set x 0, label again, print $x, set x $(e.add $x 1), goto again $(lt $x 2)", "0\n1\n");
}

#[test]
fn quotes_stay_unless_the_instruction_takes_them_away() {
    prints(r#"set x "a b", print $x"#, "\"a b\"\n");
    prints(r#"setq x "a b", print $x"#, "a b\n");
    prints(r#"print "e.name", print '"e.name"', print e.name"#, "e.name\n\"e.name\"\ne\n");
    prints("set x e.name, print $x, print $($x)", "e.name\ne\n");
    prints("printn 1, printn 2, print 3", "123\n");
}

#[test]
fn variables_have_defaults_and_words() {
    prints("set x a b c, print ${x[1]}, print ${y-none}, print \"$nope\"", "b\nnone\n$nope\n");
}

#[test]
fn arguments_of_a_call_are_variables() {
    returns("return $#: $1 $3 <$args>", "a b c", "3: a c <a b c>");
    returns("returnq \"$1\"", "'x y' z", "'x y'");
    returns("return $0", "", "run");
    returns("return $write", "", "false");
    returns("return $(shift)$(shift)$#", "a b c", "ab1");
    returns("end", "a", "");
}

#[test]
fn variables_are_set_from_outside_and_exported() {
    let mut bench = script("TYPE PASSIVE, init x 1, export y $(add $x 1)");
    assert_eq!(bench.read("get", "x").as_deref(), Ok("1"));
    bench.write("set", "x 7").unwrap();
    assert_eq!(bench.read("get", "x").as_deref(), Ok("7"));
    assert_eq!(bench.read("y", "").as_deref(), Ok("2"));
    assert!(bench.read("handlers", "").unwrap().contains("y\tr\n"));
    assert_eq!(bench.read("z", "").unwrap_err().to_string(), "no 'z' handler");
    assert_eq!(bench.read("get", "z").unwrap_err().to_string(), "undefined variable 'z'");
}

#[test]
fn waits_for_steps() {
    let mut bench = script("print 'a', pause 2, print 'b', wait, print 'c'");
    bench.run();
    assert_eq!(bench.stdout_text(), "a\n");
    bench.write("step", "").unwrap();
    assert_eq!(bench.stdout_text(), "");
    bench.write("step", "").unwrap();
    assert_eq!(bench.stdout_text(), "b\n");
    bench.write("step", "5").unwrap();
    assert_eq!(bench.stdout_text(), "c\n");
    assert_eq!(bench.write("step", "x").unwrap_err().to_string(), "syntax error");
}

#[test]
fn waits_for_time_or_a_step() {
    let mut bench = script("wait 1s, print 'a', wait $(div 1 2), print 'b', wait 9, print 'c'");
    bench.run();
    bench.advance_time(Duration::from_millis(999));
    assert_eq!(bench.stdout_text(), "");
    bench.advance_time(Duration::from_millis(1));
    assert_eq!(bench.stdout_text(), "a\n");
    bench.advance_time(Duration::from_millis(500));
    assert_eq!(bench.stdout_text(), "b\n");
    bench.write("step", "").unwrap();
    assert_eq!(bench.stdout_text(), "c\n");
    bench.advance_time(Duration::from_secs(10));
    assert_eq!(bench.stdout_text(), "");
}

#[test]
fn a_jump_from_outside_cancels_what_it_waited_for() {
    let mut bench = script("wait 1, print 'a', label there, print 'b'");
    bench.write("goto", "there").unwrap();
    assert_eq!(bench.stdout_text(), "b\n");
    bench.advance_time(Duration::from_secs(2));
    assert_eq!(bench.stdout_text(), "");
    let error = bench.write("goto", "nowhere").unwrap_err().to_string();
    assert_eq!(error, "jump to nonexistent label");
}

#[test]
fn a_loop_without_a_wait_is_given_up() {
    let mut bench = script("set x 0, label l, set x $(add $x 1), goto l");
    bench.run();
    assert_eq!(bench.stderr_text(), "e :: Script: too many jumps, giving up\n");
    assert_eq!(bench.read("get", "x").as_deref(), Ok("1000"));
}

#[test]
fn a_loop_with_a_wait_goes_on() {
    let mut bench = script("wait 1, print 'x', loop");
    bench.advance_time(Duration::from_secs(3));
    assert_eq!(bench.stdout_text(), "x\nx\nx\n");
}

#[test]
fn stop_asks_the_router_to_stop() {
    let mut bench = script("stop, print 'never'");
    bench.run();
    assert!(bench.stop_requested());
    assert_eq!(bench.stdout_text(), "");
    let mut bench = script("goto stop true, print 'never'");
    bench.run();
    assert!(bench.stop_requested());
    let mut bench = script("write stop");
    bench.run();
    assert!(bench.stop_requested());
}

#[test]
fn what_goes_wrong_is_said_with_its_place() {
    let mut bench =
        script("print x.y, write e.add, print $?, print $(nope.z)1, goto end maybe, print $(add x)");
    bench.run();
    // A handler that doesn't exist leaves `$?` unchanged, and a failed print adds no newline.
    assert_eq!(bench.stdout_text(), "0\n$(nope.z)1");
    let said = "While executing 'e :: Script':\n  no element named 'x'\n  no 'e.add' write handler\n  \
                no element named 'nope'\n  bad condition 'maybe'\n  expected list of numbers\n";
    assert_eq!(bench.stderr_text(), said);
}

#[test]
fn a_failing_call_has_its_own_context() {
    let mut bench = script("print add x, write set, print $?");
    bench.run();
    let said = "While executing 'e :: Script':\n  While calling 'e.add x':\n    expected list of numbers\n  \
                While calling 'e.set':\n    no variable\n";
    assert_eq!((bench.stdout_text().as_str(), bench.stderr_text().as_str()), ("-22\n", said));
}

#[test]
fn messages_come_in_the_order_of_the_instructions() {
    let mut bench = script("read class, print x.y, read name, print z.y");
    bench.run();
    let said = "e.class:\nScript\nWhile executing 'e :: Script':\n  no element named 'x'\n\
                e.name:\ne\n  no element named 'z'\n";
    assert_eq!(bench.stderr_text(), said);
}

#[test]
fn a_drivers_messages_come_without_heading() {
    let mut bench = script("TYPE DRIVER, print x.y, error oops");
    bench.run();
    assert_eq!(bench.stderr_text(), "no element named 'x'\noops\n");
}

#[test]
fn a_file_is_opened_before_what_is_printed_to_it_is_known() {
    let mut bench = script("print >/nonexistent/file x.y");
    bench.run();
    let said = "While executing 'e :: Script':\n  /nonexistent/file: No such file or directory\n";
    assert_eq!(bench.stderr_text(), said);
}

#[test]
fn reading_is_said_on_standard_error() {
    let mut bench = script("read add 1 2, read class");
    bench.run();
    assert_eq!(bench.stderr_text(), "e.add:\n3\ne.class:\nScript\n");
}

#[test]
fn a_read_that_fails_is_said_with_nothing() {
    let mut bench = script("read add x, read nope");
    bench.run();
    let said = "While executing 'e :: Script':\n  While calling 'e.add x':\n    expected list of numbers\n\
                e.add:\n\n  no 'nope' read handler\n";
    assert_eq!(bench.stderr_text(), said);
}

#[test]
fn what_goes_wrong_at_the_start_is_said_as_such() {
    let mut bench = script("wait soon, init x $(nope.y)");
    bench.run();
    let said = "While initializing 'e :: Script':\n  no element named 'nope'\n  syntax error at 'wait'\n";
    assert_eq!(bench.stderr_text(), said);
}

#[test]
fn a_condition_that_comes_to_nothing_is_none() {
    let mut bench = script("goto end $1, goto end $(neg), print 'on', goto end, print 'never'");
    bench.run();
    let said = "While executing 'e :: Script':\n  bad condition '$1'\n  expected one number\n  \
                bad condition '$(neg)'\n";
    assert_eq!((bench.stdout_text().as_str(), bench.stderr_text().as_str()), ("on\n", said));
}

#[test]
fn values_of_calls_keep_their_blanks() {
    prints("print $(length a b )", "4\n");
}

#[test]
fn parameters_are_refused_where_a_handler_takes_none() {
    let mut bench = script("export x 1, print now x, print x y, print set x");
    bench.run();
    let said = "While executing 'e :: Script':\n  read handler 'e.now' does not take parameters\n  \
                read handler 'e.x' does not take parameters\n  no 'e.set' read handler\n";
    assert_eq!(bench.stderr_text(), said);
}

#[test]
fn an_error_fails_the_call() {
    let mut bench = script("TYPE PASSIVE, errorq \"bad $1\"");
    assert_eq!(bench.read("run", "x").unwrap_err().to_string(), "bad x");
    let mut bench = script("TYPE PASSIVE, error");
    assert_eq!(bench.write("run", "").unwrap_err().to_string(), "'e.run' ended with an error");
}

#[test]
fn a_proxy_answers_to_every_name() {
    let config =
        "TYPE PROXY, goto nota $(ne $0 a), returnq \"you called 'a' $write\", label nota, error bad handler";
    let mut bench = script(config);
    assert_eq!(bench.read("a", "").as_deref(), Ok("you called 'a' false"));
    assert_eq!(bench.write("b", "x").unwrap_err().to_string(), "bad handler");
    assert_eq!(bench.read("class", "").as_deref(), Ok("Script"));
}

#[test]
fn a_packet_leaves_by_the_output_that_is_returned() {
    let setup = |config| Bench::setup(&CLASS, config).inputs(2).outputs(2).build().unwrap();
    let mut bench = setup("return $input");
    bench.push(1, b"one");
    bench.push(0, b"zero");
    bench.expect(0, b"zero");
    bench.expect(1, b"one");
    let mut bench = setup("goto exit $(eq $input 1)");
    bench.push(1, b"dropped");
    bench.push(0, b"kept");
    bench.expect(0, b"kept");
    bench.expect_dropped(DropReason::Discarded, 1);
    let mut bench = setup("return 7");
    bench.push(0, b"lost");
    bench.expect_dropped(DropReason::NoOutput, 1);
}

#[test]
fn a_packet_script_can_be_pulled_through() {
    let mut bench = Bench::setup(&CLASS, "print 'x'").inputs(1).outputs(1).pull().build().unwrap();
    bench.offer(0, b"p");
    assert_eq!(bench.pull(0, 8).len(), 1);
    assert_eq!(bench.stdout_text(), "x\n");
}

#[test]
fn a_signal_runs_the_script_until_it_exits() {
    let mut bench =
        script("TYPE SIGNAL USR2, init n 0, set n $(add $n 1), print $n, goto end $(lt $n 2), exit");
    for text in ["1\n", "2\n"] {
        signal_hook::low_level::raise(signal_hook::consts::SIGUSR2).unwrap();
        bench.run_once();
        assert_eq!(bench.stdout_text(), text);
        bench.run_once();
        assert_eq!(bench.stdout_text(), "");
    }
    assert!(!bench.run_once(), "no script waits for the signal now");
}

#[test]
fn files_are_written_appended_to_and_read() {
    let file = std::env::temp_dir().join(format!("artery-script-{}", std::process::id()));
    let path = file.display();
    let config = format!("print >{path} 1, print >>{path} 2, append class {path}, printn $(cat {path})");
    prints(&config, "1\n2\nScript\n");
    prints(&format!("print $(catq {path})"), "\"1\\n2\\nScript\\n\"\n");
    std::fs::remove_file(&file).unwrap();
    let mut bench = script("print >/nowhere/x 1");
    bench.run();
    assert!(bench.stderr_text().contains("/nowhere/x: No such file or directory"), "the reason is said");
}

#[test]
fn what_can_be_called_is_known() {
    prints("print $(readable add e.class list), print $(readable nope)", "true\nfalse\n");
    prints("print $(writable stop step), print $(writable e.add)", "true\nfalse\n");
}

#[test]
fn random_numbers_keep_within_bounds() {
    let mut bench = script("TYPE PASSIVE");
    for _ in 0..100 {
        let n: u32 = bench.read("random", "3 5").unwrap().parse().unwrap();
        assert!((3..=5).contains(&n));
    }
    assert_eq!(bench.read("random", "1").as_deref(), Ok("0"));
    assert_eq!(bench.read("random", "0").unwrap_err().to_string(), "bad N");
    for (text, said) in [
        ("1 2 3", "too many arguments"),
        ("x -1", "N1: invalid number\nN2: invalid number"),
        ("99999999999", "N1: out of range, bound 4294967295"),
        ("6 5", "bad N"),
    ] {
        assert_eq!(bench.read("random", text).unwrap_err().to_string(), said, "{text}");
    }
    assert_eq!(bench.read("kill", "INT 0").unwrap_err().to_string(), "bad PID");
    assert_eq!(bench.read("kill", &format!("0 {}", std::process::id())).as_deref(), Ok(""));
    let no_process = i32::MAX;
    let said = format!("kill({no_process}, 10): No such process");
    assert_eq!(bench.read("kill", &format!("USR1 {no_process}")).unwrap_err().to_string(), said);
    assert_eq!(bench.read("kill", "NOPE").unwrap_err().to_string(), "bad SIGNO");
    assert_eq!(bench.read("now", "").as_deref(), Ok("1000000000.000000"));
}

#[test]
fn bad_configurations_are_refused() {
    assert_eq!(refuses("nonsense"), "syntax error at 'nonsense'");
    assert_eq!(refuses("goto x"), "no such label 'x'");
    assert_eq!(refuses("TYPE SOMETIMES"), "bad TYPE");
    assert_eq!(refuses("TYPE ACTIVE now"), "bad TYPE");
    assert_eq!(refuses("TYPE SIGNAL"), "bad signal number");
    assert!(refuses("TYPE SIGNAL 9").starts_with("bad signal number"));
    assert_eq!(refuses("TYPE PACKET"), "PACKET script must have inputs");
    let with_ports = Bench::setup(&CLASS, "TYPE PASSIVE").inputs(1).outputs(1).build();
    assert_eq!(with_ports.err().unwrap()[0].to_string(), "ports allowed only on PACKET scripts");
}
