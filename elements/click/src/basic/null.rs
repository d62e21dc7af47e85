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

/// Passes packets on; also what PushNull and PullNull do.
pub(super) struct Null;

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
}
