use super::pull_switch::{HANDLERS, PullSwitch};
use artery_engine::{Arg, Class, SignalKinds};

pub static CLASS: Class = Class {
    name: "SimplePullSwitch",
    group: "queue",
    summary: "pulls from one input, which a handler chooses",
    manual: "
Does what PullSwitch does. In Click it differs by not telling who pulls whether there is something to pull.",
    example: "Idle -> Queue -> s :: SimplePullSwitch(1) -> Unqueue -> Discard;\nIdle -> Queue -> [1]s;",
    ports: "-/1",
    processing: "l/l",
    args: &[Arg::optional("INPUT", "input", "0", "where packets come from; negative for nowhere")],
    handlers: HANDLERS,
    signals: SignalKinds::NonEmpty,
    build: |args| Ok(Box::new(PullSwitch::new(args)?)),
    ..Class::PER_WORKER
};

#[cfg(test)]
mod tests {
    use super::*;
    use artery_engine::Bench;

    #[test]
    fn pulls_from_the_chosen_input() {
        let mut bench = Bench::setup(&CLASS, "1").inputs(2).build().unwrap();
        (0..2).for_each(|input| bench.offer(input, [input as u8]));
        assert_eq!(bench.pull(0, 8)[0].data(), [1]);
        bench.write("switch", "0").unwrap();
        assert_eq!(bench.pull(0, 8)[0].data(), [0]);
    }
}
