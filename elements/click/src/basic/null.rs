use artery_engine::{Batch, Class, Context, Element};

pub static CLASS: Class = Class {
    name: "Null",
    group: "basic",
    summary: "passes packets on unchanged",
    manual: "Passes packets on unchanged, by push or by pull. Good for measuring what an element costs at \
        least.",
    example: "Idle -> Null -> Discard;",
    build: |_| Ok(Box::new(Null)),
    ..Class::PER_WORKER
};

pub static PUSH: Class = Class {
    name: "PushNull",
    summary: "passes packets on unchanged, by push only",
    manual: "Passes packets on unchanged, as Null does, with ports that are push and nothing else.",
    example: "Idle -> PushNull -> Discard;",
    processing: "h/h",
    ..CLASS
};

pub static PULL: Class = Class {
    name: "PullNull",
    summary: "passes packets on unchanged, by pull only",
    manual: "Passes packets on unchanged, as Null does, with ports that are pull and nothing else.",
    example: "Idle -> PullNull -> Discard;",
    processing: "l/l",
    ..CLASS
};

/// Passes packets on; also what PushNull and PullNull do.
struct Null;

impl Element for Null {
    fn pull(&mut self, _output: usize, max: usize, into: &mut Batch, cx: &mut Context<'_>) {
        cx.pull(0, max, into);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use artery_engine::Bench;

    #[test]
    fn passes_pushed_packets_on() {
        let mut bench = Bench::new(&CLASS, "");
        bench.push(0, b"x");
        bench.expect(0, b"x");
    }

    #[test]
    fn passes_pulled_packets_on() {
        let mut bench = Bench::setup(&CLASS, "").pull().build().unwrap();
        bench.offer(0, b"x");
        assert_eq!(bench.pull(0, 8)[0].data(), b"x");
    }

    #[test]
    fn passes_pushed_packets_on_whatever_its_neighbors_are() {
        let mut bench = Bench::setup(&PUSH, "").pull().build().unwrap();
        bench.push(0, b"x");
        bench.expect(0, b"x");
    }

    #[test]
    fn passes_pulled_packets_on_whatever_its_neighbors_are() {
        let mut bench = Bench::new(&PULL, "");
        bench.offer(0, b"x");
        assert_eq!(bench.pull(0, 8)[0].data(), b"x");
    }
}
