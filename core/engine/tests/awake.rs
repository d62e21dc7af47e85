//! Workers that wait awake: everything that wakes a worker from its sleep ends their wait as well, at once.
use crate::support::{build, ir, run, settings, task};
use artery_engine::{
    Arg, Batch, Class, Classes, Context, Element, Home, Interest, Router, RouterSettings, StartError,
};
use artery_lang::{Options, Sources, check, compile};
use std::io::{Read as _, Write as _};
use std::os::fd::AsFd as _;
use std::os::unix::net::UnixStream;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Settings with which workers that packets or timers can reach never sleep in a test.
fn awake(workers: usize) -> RouterSettings {
    RouterSettings { workers, awake: Some(Duration::from_secs(1000)), ..settings() }
}

/// What is waited for by a worker that waits awake comes within this time, or the test fails.
const SOON: Duration = Duration::from_secs(10);
/// A worker that waits awake for its timer.
const FAR: &str = "t :: Tick(500, 2);";

#[test]
fn a_worker_that_waits_awake_stops_when_it_is_told() {
    let on_the_second = format!("{FAR} Place(t, 1)");
    for (text, workers) in [(FAR, 1), (FAR, 2), (on_the_second.as_str(), 2)] {
        let settings = awake(workers);
        let running = build(text, &settings).start();
        let start = Instant::now();
        while settings.chatter.drain_text().is_empty() {
            assert!(start.elapsed() < SOON);
        }
        running.handle().request_stop();
        running.wait().unwrap();
        assert!(start.elapsed() < SOON, "{text}: {:?}", start.elapsed());
    }
}

#[test]
fn the_driver_hears_of_a_stop_while_its_worker_waits_awake() {
    for worker in [0, 1] {
        let settings = awake(2);
        let text = format!("{FAR} d :: Steered; Place(t, {worker}); Place(d, {worker})");
        let running = build(&text, &settings).start();
        let start = Instant::now();
        while settings.chatter.drain_text().is_empty() {
            assert!(start.elapsed() < SOON);
        }
        running.handle().request_stop();
        running.wait().unwrap();
        assert!(start.elapsed() < SOON, "{:?}", start.elapsed());
        assert_eq!(settings.output.drain_text(), "1 requests");
    }
}

#[test]
fn a_worker_that_waits_awake_answers_calls_and_takes_a_replacement() {
    let running = build(&format!("{FAR} w :: Where"), &awake(1)).start();
    let handle = running.handle();
    let start = Instant::now();
    assert_eq!(handle.read_handler("w.class", "").as_deref(), Ok("Where"));
    let (ir, processing) = ir(&format!("{FAR} s :: Where"));
    handle.replace_graph(&ir, &processing).unwrap();
    assert_eq!(handle.read_handler("s.class", "").as_deref(), Ok("Where"));
    handle.end_run();
    running.wait().unwrap();
    assert!(start.elapsed() < SOON, "{:?}", start.elapsed());
}

#[test]
fn timers_go_off_while_their_worker_waits_awake_and_not_before() {
    let start = Instant::now();
    let (_, said) = run("Tick(1ms, 20)", awake(1));
    assert_eq!(said.lines().count(), 20);
    assert!((Duration::from_millis(19)..SOON).contains(&start.elapsed()), "{:?}", start.elapsed());
}

#[test]
fn packets_of_another_worker_end_the_awake_wait() {
    // Nothing else reaches the second worker, such as a handler call.
    let text = "d :: Drip(1ms, 20) -> q :: Store -> t :: Take -> e :: Enough(20); Place(e, 1); Place(d, 0)";
    let router = build(text, &awake(2));
    assert_eq!(router.plan().home(router.plan().find_node("q", "").unwrap()), Home::Worker(1));
    let start = Instant::now();
    router.start().wait().unwrap();
    assert!((Duration::from_millis(19)..SOON).contains(&start.elapsed()), "{:?}", start.elapsed());
}

#[test]
fn a_worker_that_no_packet_and_no_timer_can_reach_does_not_wait_awake() {
    // The driver goes on because all workers sleep for good.
    let settings = awake(2);
    let start = Instant::now();
    build("d :: Steered; Where", &settings).start().wait().unwrap();
    assert_eq!(settings.output.drain_text(), "1 requests");
    assert!(start.elapsed() < SOON, "{:?}", start.elapsed());
}

/// What `Writer` writes into, and `Reader` reads from.
static FILES: LazyLock<(UnixStream, UnixStream)> = LazyLock::new(|| {
    let (near, far) = UnixStream::pair().unwrap();
    far.set_nonblocking(true).unwrap();
    (near, far)
});

/// Writer(TIMES): writes a byte each millisecond, that often.
static WRITER: Class = Class {
    name: "Writer",
    ports: "0/0",
    args: &[Arg::required("TIMES", "integer", "how often")],
    build: |args| {
        let mut left: u32 = args.read("TIMES")?;
        task(move |cx| {
            (&FILES.0).write_all(&[0]).unwrap();
            left -= 1;
            if left > 0 {
                let next = cx.now() + Duration::from_millis(1);
                cx.wake_at(next);
            }
            true
        })
    },
    ..Class::DEFAULT
};

/// Reader(BYTES): asks to stop once it has read so many.
static READER: Class = Class {
    name: "Reader",
    ports: "0/0",
    args: &[Arg::required("BYTES", "integer", "how many")],
    build: |args| Ok(Box::new(Reader { left: args.read("BYTES")? })),
    ..Class::DEFAULT
};
struct Reader {
    left: usize,
}
impl Element for Reader {
    fn push(&mut self, _: usize, _: &mut Batch, _: &mut Context<'_>) {}
    fn start(&mut self, cx: &mut Context<'_>) -> Result<(), StartError> {
        cx.watch_file(FILES.1.as_fd(), Interest::Readable);
        Ok(())
    }
    fn run_task(&mut self, cx: &mut Context<'_>) -> bool {
        let read = (&FILES.1).read(&mut [0; 64]).unwrap_or(0);
        self.left = self.left.saturating_sub(read);
        match self.left {
            0 => cx.request_stop(),
            _ => cx.watch_file(FILES.1.as_fd(), Interest::Readable),
        }
        true
    }
}

#[test]
fn a_file_that_is_ready_ends_the_awake_wait() {
    static CLASSES: Classes = Classes(&[&READER, &WRITER]);
    // Both on one worker, which waits awake for a timer or a file in turn.
    let mut sources = Sources::default();
    let file = sources.add_file("test", "Reader(20); Writer(20)");
    let (ir, _) = compile(&mut sources, file, &Options::default(), &CLASSES);
    let (processing, _) = check(&ir, &CLASSES);
    let start = Instant::now();
    let router =
        Router::build(&ir, &processing, CLASSES, awake(1)).unwrap_or_else(|wrong| panic!("{wrong:?}"));
    router.start().wait().unwrap();
    assert!((Duration::from_millis(19)..SOON).contains(&start.elapsed()), "{:?}", start.elapsed());
}

/// What `Overworked` makes ready, and `Late` waits for.
static BESIDE: LazyLock<(UnixStream, UnixStream)> = LazyLock::new(|| {
    let (near, far) = UnixStream::pair().unwrap();
    far.set_nonblocking(true).unwrap();
    (near, far)
});
/// Runs of `Overworked` since the file was ready, and up to when `Late` was served.
static RUNS: AtomicU64 = AtomicU64::new(0);

/// Overworked: always has something to do, which takes it 50 µs each time.
static OVERWORKED: Class = Class {
    name: "Overworked",
    ports: "0/0",
    build: |_| {
        task(|cx| {
            if RUNS.fetch_add(1, Ordering::Relaxed) == 0 {
                (&BESIDE.0).write_all(&[0]).unwrap();
            }
            cx.now();
            std::thread::sleep(Duration::from_micros(50));
            cx.schedule();
            true
        })
    },
    ..Class::DEFAULT
};

/// Late: asks to stop once its file is ready, and says how often the other ran meanwhile.
static LATE: Class = Class { name: "Late", ports: "0/0", build: |_| Ok(Box::new(Late)), ..Class::DEFAULT };
struct Late;
impl Element for Late {
    fn push(&mut self, _: usize, _: &mut Batch, _: &mut Context<'_>) {}
    fn start(&mut self, cx: &mut Context<'_>) -> Result<(), StartError> {
        cx.watch_file(BESIDE.1.as_fd(), Interest::Readable);
        Ok(())
    }
    fn run_task(&mut self, cx: &mut Context<'_>) -> bool {
        if (&BESIDE.1).read(&mut [0; 1]).is_ok() {
            cx.request_stop();
        }
        true
    }
}

#[test]
fn a_file_does_not_wait_until_a_busy_worker_has_run_hundreds_of_tasks() {
    static CLASSES: Classes = Classes(&[&OVERWORKED, &LATE]);
    let mut sources = Sources::default();
    let file = sources.add_file("test", "Overworked; Late");
    let (ir, _) = compile(&mut sources, file, &Options::default(), &CLASSES);
    let (processing, _) = check(&ir, &CLASSES);
    let router =
        Router::build(&ir, &processing, CLASSES, settings()).unwrap_or_else(|wrong| panic!("{wrong:?}"));
    router.start().wait().unwrap();
    // A turn ends after 100 µs; 512 runs passed before a file was looked at when only runs were counted.
    let runs = RUNS.load(Ordering::Relaxed);
    assert!(runs < 64, "{runs}");
}
