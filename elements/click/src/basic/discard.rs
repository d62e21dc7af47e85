use artery_engine::{
    Arg, Batch, Class, Context, DropReason, Element, Handler, HandlerError, Show, StartError, Write,
    parse_value,
};
use std::any::Any;

pub static CLASS: Class = Class {
    name: "Discard",
    group: "basic",
    summary: "drops all packets",
    manual: "
Discards every packet it gets. Where packets are pulled, it pulls by itself, up to BURST each time it is
scheduled, and sleeps while upstream has nothing.",
    example: "InfiniteSource(LIMIT 10) -> Discard;",
    ports: "1/0",
    args: &[
        Arg::keyword("ACTIVE", "bool", "true", "whether to pull; only where packets are pulled"),
        Arg::keyword(
            "BURST",
            "packets",
            "",
            "most packets to pull at a time, 0 for no limit; the router's burst",
        ),
    ],
    handlers: &[
        Handler::read("count", "packets discarded", &Show(|d: &mut Discard| d.count)).sum(),
        Handler::write(
            "reset_counts",
            "sets the count to zero",
            &Write(|d: &mut Discard, _, _| d.reset_counts()),
        )
        .button(),
        Handler::read("active", "whether to pull", &Show(|d: &mut Discard| d.active))
            .and_write(&Write(Discard::set_active)),
    ],
    build: |args| {
        Ok(Box::new(Discard { count: 0, active: args.read("ACTIVE")?, burst: args.read("BURST")? }))
    },
    ..Class::PER_WORKER
};

struct Discard {
    count: u64,
    active: bool,
    burst: Option<u32>,
}

impl Discard {
    fn reset_counts(&mut self) -> Result<(), HandlerError> {
        self.count = 0;
        Ok(())
    }
    fn set_active(&mut self, text: &str, cx: &mut Context<'_>) -> Result<(), HandlerError> {
        self.active = parse_value(text)?;
        if self.active && cx.input_is_pull(0) {
            cx.schedule();
        }
        Ok(())
    }
    /// Most packets to pull in one run.
    fn pull_limit(&self, cx: &Context<'_>) -> usize {
        match self.burst {
            None => cx.burst(),
            Some(0) => u32::MAX as usize,
            Some(n) => n as usize,
        }
    }
}

impl Element for Discard {
    fn push(&mut self, _input: usize, batch: &mut Batch, cx: &mut Context<'_>) {
        self.count += batch.len() as u64;
        cx.discard_all(batch, DropReason::Discarded);
    }

    fn start(&mut self, cx: &mut Context<'_>) -> Result<(), StartError> {
        if cx.input_is_pull(0) {
            if self.active {
                cx.schedule();
            }
        } else if !self.active {
            return Err(
                StartError::new("ACTIVE is meaningless in push context").with_help("put a Queue before it")
            );
        }
        Ok(())
    }

    fn run_task(&mut self, cx: &mut Context<'_>) -> bool {
        if !self.active {
            return false;
        }
        let (burst, mut pulled) = (self.pull_limit(cx), 0);
        let mut batch = cx.scratch_batch();
        while pulled < burst {
            let n = cx.pull(0, burst - pulled, &mut batch);
            self.push(0, &mut batch, cx);
            pulled += n;
            if n == 0 {
                break;
            }
        }
        cx.recycle_batch(batch);
        if pulled > 0 || !cx.upstream_idle(0) {
            cx.schedule();
        }
        pulled > 0
    }

    fn take_state(&mut self, old: &mut dyn Any, _: &mut Context<'_>) {
        if let Some(old) = old.downcast_mut::<Discard>() {
            self.count = old.count;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use artery_engine::Bench;

    #[test]
    fn its_successor_counts_on() {
        let mut old = Bench::new(&CLASS, "");
        old.push(0, b"x");
        let mut new = Bench::new(&CLASS, "");
        new.take_state(&mut old);
        new.push(0, b"x");
        assert_eq!(new.read("count", "").as_deref(), Ok("2"));
    }

    #[test]
    fn discards_and_counts_what_is_pushed() {
        let mut bench = Bench::new(&CLASS, "");
        bench.push(0, b"x");
        bench.expect_dropped(DropReason::Discarded, 1);
        assert_eq!(bench.read("count", "").unwrap(), "1");
        bench.write("reset_counts", "").unwrap();
        assert_eq!(bench.read("count", "").unwrap(), "0");
    }

    #[test]
    fn pulls_no_more_than_its_burst_each_time() {
        let mut bench = Bench::setup(&CLASS, "BURST 2").pull().build().unwrap();
        (0..5).for_each(|_| bench.offer(0, b"x"));
        bench.run_once();
        assert_eq!(bench.offered_count(0), 3);
        bench.run_once();
        assert_eq!((bench.offered_count(0), bench.read("count", "").unwrap().as_str()), (1, "4"));
    }

    #[test]
    fn a_burst_of_0_pulls_everything() {
        let mut bench = Bench::setup(&CLASS, "BURST 0").pull().build().unwrap();
        (0..100).for_each(|_| bench.offer(0, b"x"));
        bench.run_once();
        assert_eq!(bench.offered_count(0), 0);
    }

    #[test]
    fn pulls_only_while_it_is_active() {
        let mut bench = Bench::setup(&CLASS, "ACTIVE false").pull().build().unwrap();
        bench.offer(0, b"x");
        assert_eq!((bench.run(), bench.offered_count(0)), (0, 1));
        bench.write("active", "true").unwrap();
        bench.run_once();
        assert_eq!(bench.offered_count(0), 0);
        assert_eq!(bench.write("active", "maybe").unwrap_err().to_string(), "'maybe' is not true or false");
    }
}
