use super::null::Null;
use artery_engine::Class;

pub static CLASS: Class = Class {
    name: "PushNull",
    group: "basic",
    summary: "passes packets on unchanged, by push only",
    manual: "Passes packets on unchanged, as Null does, with ports that are push and nothing else.",
    example: "Idle -> PushNull -> Discard;",
    processing: "h/h",
    build: |_| Ok(Box::new(Null)),
    ..Class::PER_WORKER
};

#[cfg(test)]
mod tests {
    use super::*;
    use artery_engine::Bench;

    #[test]
    fn passes_pushed_packets_on_whatever_its_neighbors_are() {
        let mut bench = Bench::setup(&CLASS, "").pull().build().unwrap();
        bench.push(0, b"x");
        bench.expect(0, b"x");
    }
}
