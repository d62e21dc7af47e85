use super::null::Null;
use artery_engine::Class;

pub static CLASS: Class = Class {
    name: "PullNull",
    group: "basic",
    summary: "passes packets on unchanged, by pull only",
    manual: "Passes packets on unchanged, as Null does, with ports that are pull and nothing else.",
    example: "Idle -> PullNull -> Discard;",
    processing: "l/l",
    build: |_| Ok(Box::new(Null)),
    ..Class::PER_WORKER
};

#[cfg(test)]
mod tests {
    use super::*;
    use artery_engine::Bench;

    #[test]
    fn passes_pulled_packets_on_whatever_its_neighbors_are() {
        let mut bench = Bench::new(&CLASS, "");
        bench.offer(0, b"x");
        assert_eq!(bench.pull(0, 8)[0].data(), b"x");
    }
}
