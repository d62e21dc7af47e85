use super::switch::Switch;
use artery_engine::{Arg, Class};

pub static CLASS: Class = Class {
    name: "StaticSwitch",
    group: "basic",
    summary: "sends all packets by one output, chosen once",
    manual: "
Sends every packet by output OUTPUT, as Switch does, and has no handler that could change it. A negative
OUTPUT, or one that is not connected, discards every packet.",
    example: "Idle -> s :: StaticSwitch(1) -> Discard;\ns[1] -> Discard;",
    ports: "1/-",
    processing: "h/h",
    args: &[Arg::required("OUTPUT", "output", "where packets go; negative to discard them")],
    build: |args| {
        let output: i32 = args.read("OUTPUT")?;
        let connected = usize::try_from(output).is_ok_and(|output| output < args.outputs());
        Ok(Box::new(Switch { output: if connected { output } else { -1 } }))
    },
    ..Class::PER_WORKER
};

#[cfg(test)]
mod tests {
    use super::*;
    use artery_engine::{Bench, DropReason};

    #[test]
    fn packets_leave_by_the_chosen_output() {
        let mut bench = Bench::setup(&CLASS, "1").outputs(2).build().unwrap();
        bench.push(0, b"a");
        bench.expect(1, b"a");
    }

    #[test]
    fn an_output_that_is_not_connected_discards() {
        for output in ["-1", "2"] {
            let mut bench = Bench::setup(&CLASS, output).outputs(2).build().unwrap();
            bench.push(0, b"a");
            bench.expect_dropped(DropReason::Inactive, 1);
        }
    }
}
