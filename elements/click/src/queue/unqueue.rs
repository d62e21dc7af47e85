use crate::basic::quota::Quota;
use artery_engine::{
    Arg, ArgError, Args, Batch, Class, Context, Element, Handler, HandlerError, Limit, Read, Show,
    StartError, Write, parse_value,
};

pub static CLASS: Class = Class {
    name: "Unqueue",
    group: "queue",
    summary: "pulls packets and pushes them on",
    manual: "
Pulls packets from upstream and pushes them on, up to BURST each time it is scheduled, and LIMIT in all. It
sleeps while upstream has nothing. A negative BURST takes all there are. Without BURST, it takes as many at a
time as travel together.",
    example: "InfiniteSource(LIMIT 10) -> Queue -> Unqueue -> Discard;",
    processing: "l/h",
    args: &[
        Arg::optional("BURST", "packets", "", "most packets to move at a time; the router's burst"),
        Arg::keyword("ACTIVE", "bool", "true", "whether to pull"),
        Arg::keyword("LIMIT", "packets", "-1", "packets to move in all; -1 for no limit"),
    ],
    handlers: &[
        Handler::read("count", "packets moved", &Show(|u: &mut Unqueue| u.count)).sum(),
        Handler::write("reset", "moves another LIMIT packets", &RESET).button(),
        Handler::write("reset_counts", "the same as reset", &RESET).button(),
        Handler::read("active", "ACTIVE", &Show(|u: &mut Unqueue| u.active))
            .and_write(&Write(Unqueue::set_active)),
        Handler::read("burst", "BURST", &Read(|u: &mut Unqueue, _, cx| Ok(u.burst_size(cx).to_string())))
            .and_write(&Write(Unqueue::set_burst)),
        Handler::read("limit", "LIMIT, or -1", &Show(|u: &mut Unqueue| u.quota.limit_text()))
            .and_write(&Write(Unqueue::set_limit)),
    ],
    build: |args| Ok(Box::new(Unqueue::new(args)?)),
    ..Class::PER_WORKER
};

static RESET: Write<Unqueue> = Write(|u, _, cx| {
    u.count = 0;
    u.quota.reset();
    u.schedule_if_active(cx)
});

struct Unqueue {
    burst: Option<usize>,
    active: bool,
    quota: Quota,
    count: u64,
}

/// A burst as it is written: negative for no end.
fn burst_limit(number: i32) -> usize {
    usize::try_from(number).unwrap_or(i32::MAX as usize)
}

impl Unqueue {
    fn new(args: &mut Args<'_>) -> Result<Unqueue, ArgError> {
        Ok(Unqueue {
            burst: args.read::<Option<i32>>("BURST")?.map(burst_limit),
            active: args.read("ACTIVE")?,
            quota: Quota::new(args.read("LIMIT")?, args),
            count: 0,
        })
    }

    fn burst_size(&self, cx: &Context<'_>) -> usize {
        self.burst.unwrap_or(cx.burst())
    }
    fn set_burst(&mut self, text: &str, cx: &mut Context<'_>) -> Result<(), HandlerError> {
        self.burst = Some(burst_limit(parse_value(text)?));
        self.schedule_if_active(cx)
    }
    fn set_active(&mut self, text: &str, cx: &mut Context<'_>) -> Result<(), HandlerError> {
        self.active = parse_value(text)?;
        self.schedule_if_active(cx)
    }
    fn set_limit(&mut self, text: &str, cx: &mut Context<'_>) -> Result<(), HandlerError> {
        self.quota.set_limit(parse_value::<Limit>(text)?, self.count);
        self.schedule_if_active(cx)
    }
    fn schedule_if_active(&mut self, cx: &mut Context<'_>) -> Result<(), HandlerError> {
        if self.active && !self.quota.is_used_up() {
            cx.schedule();
        }
        Ok(())
    }

    /// Moves up to `max` packets at once; returns how many.
    fn move_packets(&mut self, max: usize, batch: &mut Batch, cx: &mut Context<'_>) -> usize {
        let granted = self.quota.reserve_packets(max.min(cx.burst()));
        if granted == 0 {
            return 0;
        }
        let pulled = cx.pull(0, granted, batch);
        self.quota.return_unused(granted, pulled);
        self.count += pulled as u64;
        cx.send_all(0, batch);
        pulled
    }
}

impl Element for Unqueue {
    fn start(&mut self, cx: &mut Context<'_>) -> Result<(), StartError> {
        if self.active {
            cx.schedule();
        }
        Ok(())
    }

    fn run_task(&mut self, cx: &mut Context<'_>) -> bool {
        let burst = self.burst_size(cx);
        if !self.active || burst == 0 || self.quota.is_done() {
            return false;
        }
        let (mut moved, mut batch) = (0, cx.scratch_batch());
        loop {
            let n = self.move_packets(burst - moved, &mut batch, cx);
            moved += n;
            if n == 0 || moved >= burst || self.burst.is_none() {
                break;
            }
            cx.flush_sends();
        }
        cx.recycle_batch(batch);
        if moved > 0 || self.quota.is_used_up() || !cx.upstream_idle(0) {
            cx.schedule();
        }
        moved > 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use artery_engine::Bench;

    fn bench(config: &str, packets: usize) -> Bench {
        let mut bench = Bench::new(&CLASS, config);
        (0..packets).for_each(|_| bench.offer(0, b"x"));
        bench
    }

    #[test]
    fn moves_its_burst_each_time() {
        let mut bench = bench("3", 10);
        bench.run_once();
        assert_eq!((bench.drain_sent(0).len(), bench.offered_count(0)), (3, 7));
        bench.write("burst", "4").unwrap();
        bench.run_once();
        assert_eq!((bench.drain_sent(0).len(), bench.read("burst", "").unwrap().as_str()), (4, "4"));
    }

    #[test]
    fn a_negative_burst_moves_everything() {
        let mut bench = bench("-1", 200);
        bench.run_once();
        assert_eq!(bench.drain_sent(0).len(), 200);
    }

    #[test]
    fn a_burst_of_nothing_moves_nothing() {
        let mut bench = bench("0", 5);
        assert_eq!((bench.run(), bench.offered_count(0)), (1, 5));
    }

    #[test]
    fn stops_at_its_limit_until_reset() {
        let mut bench = bench("LIMIT 5", 12);
        bench.run();
        assert_eq!((bench.drain_sent(0).len(), bench.read("count", "").unwrap().as_str()), (5, "5"));
        bench.write("reset", "").unwrap();
        bench.run();
        assert_eq!(bench.drain_sent(0).len(), 5);
        bench.write("limit", "-1").unwrap();
        bench.run_once();
        assert_eq!(bench.drain_sent(0).len(), 2);
    }

    #[test]
    fn moves_nothing_while_inactive() {
        let mut bench = bench("ACTIVE false", 1);
        assert_eq!((bench.run(), bench.offered_count(0)), (0, 1));
        bench.write("active", "true").unwrap();
        bench.run_once();
        bench.expect(0, b"x");
    }
}
