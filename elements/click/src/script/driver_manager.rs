use super::script::{ARGS, HANDLERS, OWN_HANDLERS, Script};
use artery_engine::{Class, Phase};

pub static CLASS: Class = Class {
    name: "DriverManager",
    group: "script",
    summary: "decides what happens when something asks the router to stop",
    manual: "
A Script whose TYPE is DRIVER. Its instructions run at once, up to the first that waits. Each request to stop,
such as an interrupt, a `stop` instruction, or an element with STOP true, is a step: `pause` and `wait`
without time go on, a `wait TIME` is cut short. The router ends when the script does. Without instructions it
ends at the first request, as it does without a DriverManager.

When nothing in the router can happen any more, because no task is scheduled, no timer set and no file
watched, that counts as a request to stop. A router has one driver at most.",
    example: "InfiniteSource(LIMIT 5) -> c :: Counter -> Discard;\nDriverManager(wait, print c.count, stop);",
    ports: "0/0",
    processing: "a/a",
    args: ARGS,
    handlers: HANDLERS,
    own_handlers: Some(&OWN_HANDLERS),
    phase: Phase::Acting,
    build: |args| Script::build_script(args, "DriverManager"),
    ..Class::DEFAULT
};

#[cfg(test)]
mod tests {
    use super::*;
    use artery_engine::Bench;
    use std::time::Duration;

    #[test]
    fn each_request_to_stop_is_a_step_and_the_script_ends_the_run() {
        let mut bench = Bench::new(&CLASS, "print 'begins', pause, print 'one', wait, print 'two'");
        bench.run();
        assert_eq!((bench.stdout_text().as_str(), bench.has_ended()), ("begins\n", false));
        bench.request_stop();
        bench.run();
        assert_eq!((bench.stdout_text().as_str(), bench.has_ended()), ("one\n", false));
        bench.request_stop();
        bench.run();
        assert_eq!((bench.stdout_text().as_str(), bench.has_ended()), ("two\n", true));
    }

    #[test]
    fn without_instructions_the_first_request_ends_the_run() {
        let mut bench = Bench::new(&CLASS, "");
        bench.run();
        assert!(!bench.has_ended());
        bench.request_stop();
        bench.run();
        assert!(bench.has_ended());
    }

    #[test]
    fn a_wait_for_time_is_cut_short_by_a_request() {
        let mut bench = Bench::new(&CLASS, "pause, wait 10s, print 'late', pause");
        bench.request_stop();
        bench.run();
        bench.advance_time(Duration::from_secs(1));
        assert_eq!(bench.stdout_text(), "");
        bench.request_stop();
        bench.run();
        assert_eq!(bench.stdout_text(), "late\n");
        bench.advance_time(Duration::from_secs(20));
        assert!(!bench.has_ended());
    }

    #[test]
    fn a_stop_after_a_wait_ends_the_run() {
        let mut bench = Bench::new(&CLASS, "wait 1s, stop");
        bench.advance_time(Duration::from_secs(2));
        assert!(bench.stop_requested(), "a driver asks like everyone else");
        bench.request_stop();
        bench.run();
        assert!(bench.has_ended());
    }
}
