//! A handful of small classes, and a short way to run a configuration made of them.
#![allow(unreachable_pub, reason = "of a test program")]
use artery_engine::*;
use artery_lang::{Options, Sources, check, compile};
use artery_packet::{PacketOffload, SegmentKind, Segments};
use std::any::Any;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread::ThreadId;
use std::time::Duration;

pub static CLASSES: Classes = Classes(&[
    &NUMBERS, &LOG, &BOTH, &STORE, &TAKE, &SINK, &TICK, &PASS, &GREEDY, &TALK, &FAIL, &SPIN, &DRIVER, &WHERE,
    &BURST, &NOTED, &STUCK, &STEERED, &DRIP, &ENOUGH, &ARM, &LONG, &PLAIN, &EARLY,
]);

/// A task, scheduled when it starts, that takes no packets.
struct Task<F>(F);
impl<F: FnMut(&mut Context<'_>) -> bool + Send + 'static> Element for Task<F> {
    fn push(&mut self, _: usize, _: &mut Batch, _: &mut Context<'_>) {}
    fn start(&mut self, cx: &mut Context<'_>) -> Result<(), StartError> {
        cx.schedule();
        Ok(())
    }
    fn run_task(&mut self, cx: &mut Context<'_>) -> bool {
        (self.0)(cx)
    }
}

/// Makes an element that is a task alone.
pub fn task(
    run: impl FnMut(&mut Context<'_>) -> bool + Send + 'static,
) -> Result<Box<dyn Element>, ArgError> {
    Ok(Box::new(Task(run)))
}

/// Two arguments of classes that do something now and then.
const NOW_AND_THEN: &[Arg] =
    &[Arg::required("INTERVAL", "time", "between two"), Arg::required("TIMES", "integer", "how often")];

/// A packet whose data is a number.
fn numbered(number: u32, cx: &mut Context<'_>) -> Packet {
    cx.pool().packet_from(&number.to_be_bytes()).expect("the pool is big enough")
}

/// Numbers(N, STOP bool): packets whose data is a running number.
static NUMBERS: Class = Class {
    name: "Numbers",
    ports: "0/1",
    processing: "/h",
    args: &[
        Arg::required("LIMIT", "integer", "how many"),
        Arg::keyword("STOP", "bool", "false", "stop then"),
    ],
    build: |args| {
        let limit: u64 = args.read("LIMIT")?;
        let left = args.shared_value(|| AtomicU64::new(limit));
        let (mut next, stop) = (0, args.read("STOP")?);
        task(move |cx| {
            for _ in 0..cx.burst() {
                let took = left.fetch_update(Relaxed, Relaxed, |left| left.checked_sub(1));
                let Ok(left) = took else {
                    return false;
                };
                next += 1;
                let packet = numbered(next, cx);
                cx.send(0, packet);
                if left == 1 && stop {
                    cx.request_stop();
                }
            }
            cx.schedule();
            true
        })
    },
    ..Class::PER_WORKER
};

fn number(packet: &Packet) -> u32 {
    u32::from_be_bytes(packet.data().try_into().expect("numbers are four bytes"))
}

/// Says its name and every number that passes.
static LOG: Class = Class {
    name: "Log",
    handlers: &[Handler::read("count", "packets", &Read(|l: &mut Log, _, _| Ok(l.0.to_string()))).sum()],
    build: |_| Ok(Box::new(Log(0))),
    ..Class::PER_WORKER
};
struct Log(u64);
impl Simple for Log {
    fn process(&mut self, packet: Packet, cx: &mut Context<'_>) -> Option<Packet> {
        self.0 += 1;
        let line = format!("{} {}", cx.name(), number(&packet));
        cx.print_message(&line);
        Some(packet)
    }
}

/// Sends a copy to every output but the last, which gets the packet.
static BOTH: Class = Class {
    name: "Both",
    ports: "1/-",
    processing: "h/h",
    build: |_| Ok(Box::new(Both)),
    ..Class::PER_WORKER
};
struct Both;
impl Element for Both {
    fn push(&mut self, _: usize, batch: &mut Batch, cx: &mut Context<'_>) {
        let last = cx.outputs() - 1;
        for packet in batch.drain() {
            for output in 0..last {
                if let Some(copy) = cx.duplicate_packet(&packet) {
                    cx.send(output, copy);
                }
            }
            cx.send(last, packet);
        }
    }
}

/// Store(CAPACITY): a queue without signals.
static STORE: Class = Class {
    name: "Store",
    processing: "h/l",
    boundary: true,
    args: &[Arg::optional("CAPACITY", "packets", "1000", "most packets")],
    signals: SignalKinds::NonEmptyAndNonFull,
    build: |args| Ok(Box::new(Store { packets: VecDeque::new(), capacity: args.read("CAPACITY")? })),
    ..Class::DEFAULT
};
struct Store {
    packets: VecDeque<Packet>,
    capacity: usize,
}
impl Element for Store {
    fn push(&mut self, _: usize, batch: &mut Batch, cx: &mut Context<'_>) {
        for packet in batch.drain() {
            if self.packets.len() < self.capacity {
                self.packets.push_back(packet);
            } else {
                cx.discard(packet, DropReason::QueueFull);
            }
        }
        cx.set_signal(Signal::NonEmpty, !self.packets.is_empty());
    }
    fn pull(&mut self, _: usize, max: usize, into: &mut Batch, cx: &mut Context<'_>) {
        let n = max.min(self.packets.len());
        into.extend(self.packets.drain(..n));
        cx.set_signal(Signal::NonEmpty, !self.packets.is_empty());
    }
    fn take_state(&mut self, old: &mut dyn Any, cx: &mut Context<'_>) {
        let old: &mut Store = old.downcast_mut().expect("the same class");
        self.packets.append(&mut old.packets);
        let kept = self.capacity.min(self.packets.len());
        self.packets.drain(kept..).for_each(|packet| cx.discard(packet, DropReason::Replaced));
        cx.set_signal(Signal::NonEmpty, !self.packets.is_empty());
    }
    fn stop(&mut self, cx: &mut Context<'_>) {
        if cx.is_replacing() {
            self.packets.drain(..).for_each(|packet| cx.discard(packet, DropReason::Replaced));
        }
    }
}

/// Take(ACTIVE): pulls and pushes; sleeps when there is nothing.
static TAKE: Class = Class {
    name: "Take",
    processing: "l/h",
    args: &[Arg::optional("ACTIVE", "bool", "true", "whether to pull")],
    handlers: &[Handler::read("runs", "task runs", &Read(|t: &mut Take, _, _| Ok(t.runs.to_string())))],
    build: |args| Ok(Box::new(Take { active: args.read("ACTIVE")?, runs: 0 })),
    ..Class::DEFAULT
};
struct Take {
    active: bool,
    runs: u64,
}
impl Element for Take {
    fn push(&mut self, _: usize, _: &mut Batch, _: &mut Context<'_>) {}
    fn start(&mut self, cx: &mut Context<'_>) -> Result<(), StartError> {
        cx.schedule();
        Ok(())
    }
    fn run_task(&mut self, cx: &mut Context<'_>) -> bool {
        self.runs += 1;
        if !self.active {
            return false;
        }
        let mut batch = cx.scratch_batch();
        let n = cx.pull(0, cx.burst(), &mut batch);
        cx.send_all(0, &mut batch);
        cx.recycle_batch(batch);
        if !cx.upstream_idle(0) {
            cx.schedule();
        }
        n > 0
    }
}

static SINK: Class = Class {
    name: "Sink",
    ports: "1/0",
    processing: "h/",
    handlers: &[
        Handler::read("count", "packets", &Read(|s: &mut Sunk, _, _| Ok(s.0.to_string()))).sum(),
        Handler::read(
            "thread",
            "the thread it is asked on",
            &Read(|_: &mut Sunk, _, _| {
                Ok(format!("{}\n", std::thread::current().name().unwrap_or_default()))
            }),
        )
        .join(),
    ],
    build: |_| Ok(Box::new(Sunk(0))),
    ..Class::PER_WORKER
};
struct Sunk(u64);
impl Element for Sunk {
    fn push(&mut self, _: usize, batch: &mut Batch, cx: &mut Context<'_>) {
        self.0 += batch.len() as u64;
        cx.discard_all(batch, DropReason::Discarded);
    }
}

/// Enough(N): discards, and asks to stop once it has seen so many.
static ENOUGH: Class = Class {
    name: "Enough",
    ports: "1/0",
    processing: "h/",
    args: &[Arg::required("LIMIT", "integer", "how many")],
    build: |args| Ok(Box::new(Enough { left: args.read("LIMIT")? })),
    ..Class::DEFAULT
};
struct Enough {
    left: u64,
}
impl Element for Enough {
    fn push(&mut self, _: usize, batch: &mut Batch, cx: &mut Context<'_>) {
        self.left = self.left.saturating_sub(batch.len() as u64);
        cx.discard_all(batch, DropReason::Discarded);
        if self.left == 0 {
            cx.request_stop();
        }
    }
}

/// Drip(INTERVAL, TIMES): sends a packet that often.
static DRIP: Class = Class {
    name: "Drip",
    ports: "0/1",
    processing: "/h",
    args: NOW_AND_THEN,
    build: |args| {
        let (interval, mut left): (Duration, u32) = (args.read("INTERVAL")?, args.read("TIMES")?);
        task(move |cx| {
            let packet = numbered(left, cx);
            cx.send(0, packet);
            left -= 1;
            if left > 0 {
                let next = cx.now() + interval;
                cx.wake_at(next);
            }
            true
        })
    },
    ..Class::DEFAULT
};

/// Tick(INTERVAL, TIMES): says the time that often, then asks to stop.
static TICK: Class = Class {
    name: "Tick",
    ports: "0/0",
    args: NOW_AND_THEN,
    build: |args| {
        let (interval, mut times): (Duration, u32) = (args.read("INTERVAL")?, args.read("TIMES")?);
        task(move |cx| {
            let now = cx.now();
            cx.print_message(&format!("{now}"));
            match times.checked_sub(1) {
                Some(0) | None => cx.request_stop(),
                Some(left) => {
                    times = left;
                    cx.wake_at(now + interval);
                }
            }
            true
        })
    },
    ..Class::DEFAULT
};

/// Passes packets on, and reads handlers on demand.
static PASS: Class = Class {
    name: "Pass",
    ports: "1-/1",
    processing: "a/a",
    handlers: &[
        Handler::read(
            "read",
            "reads the handler named by its parameter",
            &Read(|_: &mut Pass, name, cx| cx.read_handler(name, "")),
        )
        .parameters(),
        Handler::write(
            "write",
            "writes HANDLER VALUE",
            &Write(|_: &mut Pass, text, cx| {
                let (name, value) = text.split_once(' ').unwrap_or((text, ""));
                cx.write_handler(name, value)
            }),
        ),
    ],
    build: |_| Ok(Box::new(Pass)),
    ..Class::DEFAULT
};
struct Pass;
impl Element for Pass {
    fn push(&mut self, _: usize, batch: &mut Batch, cx: &mut Context<'_>) {
        cx.send_all(0, batch);
    }
}

/// Leaves every packet in its input, which is a defect the engine must catch.
static GREEDY: Class = Class {
    name: "Greedy",
    ports: "1/0",
    processing: "h/",
    build: |_| Ok(Box::new(Greedy)),
    ..Class::DEFAULT
};
struct Greedy;
impl Element for Greedy {
    fn push(&mut self, _: usize, _: &mut Batch, _: &mut Context<'_>) {}
}

/// Panics as soon as it runs, which is a defect.
static FAIL: Class =
    Class { name: "Fail", ports: "0/0", build: |_| task(|_| panic!("on purpose")), ..Class::DEFAULT };

/// How often `Spin` has run, in all routers of the process.
static SPUN: AtomicU64 = AtomicU64::new(0);

/// Keeps its worker busy.
static SPIN: Class = Class {
    name: "Spin",
    ports: "0/0",
    build: |_| {
        task(|cx| {
            SPUN.fetch_add(1, Relaxed);
            cx.schedule();
            true
        })
    },
    ..Class::DEFAULT
};

/// Becomes the driver, asks for a stop while it starts, and lets the running graph go on for some turns
/// before its start is over. Says how many requests to stop there are when it is driven, and ends the run.
static DRIVER: Class =
    Class { name: "Driver", ports: "0/0", build: |_| Ok(Box::new(Driver { asks: true })), ..Class::DEFAULT };

/// The same, without asking.
static STEERED: Class = Class { name: "Steered", build: |_| Ok(Box::new(Driver { asks: false })), ..DRIVER };
struct Driver {
    asks: bool,
}
impl Element for Driver {
    fn push(&mut self, _: usize, _: &mut Batch, _: &mut Context<'_>) {}
    fn start(&mut self, cx: &mut Context<'_>) -> Result<(), StartError> {
        cx.become_driver();
        if self.asks {
            cx.request_stop();
            let until = SPUN.load(Relaxed) + 1000;
            while SPUN.load(Relaxed) < until {
                std::thread::yield_now();
            }
        }
        Ok(())
    }
    fn run_task(&mut self, cx: &mut Context<'_>) -> bool {
        let requests = cx.drain_stop_requests();
        cx.print(&format!("{requests} requests"));
        cx.end_run();
        true
    }
}

/// Knows the threads it was made and started on.
static WHERE: Class = Class {
    name: "Where",
    ports: "0/0",
    handlers: &[
        Handler::read(
            "here",
            "the thread it is asked on, and whether it was made and started there",
            &Read(|w: &mut Where, _, _| {
                let here = std::thread::current();
                let (made, started) = (w.made == here.id(), w.started == Some(here.id()));
                Ok(format!("{} {made} {started}", here.name().unwrap_or_default()))
            }),
        ),
        Handler::read(
            "address",
            "where it lies",
            &Read(|w: &mut Where, _, _| Ok(std::ptr::from_mut(w).addr().to_string())),
        ),
    ],
    build: |_| Ok(Box::new(Where { made: std::thread::current().id(), started: None })),
    ..Class::DEFAULT
};
struct Where {
    made: ThreadId,
    started: Option<ThreadId>,
}
impl Element for Where {
    fn push(&mut self, _: usize, _: &mut Batch, _: &mut Context<'_>) {}
    fn start(&mut self, _: &mut Context<'_>) -> Result<(), StartError> {
        self.started = Some(std::thread::current().id());
        Ok(())
    }
}

/// The same, made before it is settled where elements run.
static EARLY: Class = Class {
    name: "Early",
    ports: "-/-",
    phase: Phase::Info,
    handlers: WHERE.handlers,
    build: WHERE.build,
    ..Class::PER_WORKER
};

/// Panics while it is made, which is a defect.
static BURST: Class =
    Class { name: "Burst", ports: "0/0", build: |_| panic!("made on purpose"), ..Class::DEFAULT };

/// Noted(STARTS): says when it starts and stops; with `false` can't start.
static NOTED: Class = Class {
    name: "Noted",
    ports: "0/0",
    args: &[Arg::optional("STARTS", "bool", "true", "whether it can start")],
    build: |args| Ok(Box::new(Noted(args.read("STARTS")?))),
    ..Class::DEFAULT
};
struct Noted(bool);
impl Element for Noted {
    fn push(&mut self, _: usize, _: &mut Batch, _: &mut Context<'_>) {}
    fn start(&mut self, cx: &mut Context<'_>) -> Result<(), StartError> {
        cx.print_message(&format!("{} starts", cx.name()));
        if self.0 { Ok(()) } else { Err(StartError::new("no")) }
    }
    fn stop(&mut self, cx: &mut Context<'_>) {
        cx.print_message(&format!("{} stops", cx.name()));
    }
}

/// Where a worker waits for a test: whether it is there, and whether it may go on.
pub struct Gate {
    pub is_reached: AtomicBool,
    pub is_open: AtomicBool,
}

/// One for each test that uses any: tests of one program run beside one another.
pub static GATES: [Gate; 2] =
    [const { Gate { is_reached: AtomicBool::new(false), is_open: AtomicBool::new(false) } }; 2];

/// Stuck(GATE): keeps its worker from everything else until the gate is open.
static STUCK: Class = Class {
    name: "Stuck",
    ports: "0/0",
    args: &[Arg::required("GATE", "int", "the index of one of GATES")],
    build: |args| {
        let gate = &GATES[args.read::<usize>("GATE")?];
        task(move |_| {
            gate.is_reached.store(true, Relaxed);
            while !gate.is_open.load(Relaxed) {
                std::thread::yield_now();
            }
            true
        })
    },
    ..Class::DEFAULT
};

/// Arm(ORDER): writes the handler `trace` when it starts.
static ARM: Class = Class {
    name: "Arm",
    ports: "0/0",
    args: &[Arg::required("ORDER", "string", "what to write")],
    build: |args| Ok(Box::new(Arm(args.read("ORDER")?))),
    ..Class::DEFAULT
};
struct Arm(String);
impl Element for Arm {
    fn push(&mut self, _: usize, _: &mut Batch, _: &mut Context<'_>) {}
    fn start(&mut self, cx: &mut Context<'_>) -> Result<(), StartError> {
        cx.write_handler("trace", &self.0).map_err(|error| StartError::new(error.to_string()))
    }
}

/// Sends a TCP packet with 2500 bytes that is to be cut into segments of 1000, and asks to stop.
static LONG: Class = Class {
    name: "Long",
    ports: "0/1",
    processing: "/h",
    build: |_| {
        task(|cx| {
            let bytes = artery_wire::build::ip4().tcp(1, 2).payload([0; 2500]).bytes();
            let mut packet = cx.pool().packet_from(&bytes).expect("the pool is big enough");
            let segments = Some(Segments { network: 0, kind: SegmentKind::Tcp4, size: 1000 });
            packet.set_offload(PacketOffload { transport: 20, checksum: 16, segments }).expect("it fits");
            cx.send(0, packet);
            cx.request_stop();
            true
        })
    },
    ..Class::DEFAULT
};

/// Wants finished packets, and passes them on.
static PLAIN: Class =
    Class { name: "Plain", finished: true, build: |_| Ok(Box::new(Plain)), ..Class::DEFAULT };
struct Plain;
impl Simple for Plain {
    fn process(&mut self, packet: Packet, _: &mut Context<'_>) -> Option<Packet> {
        Some(packet)
    }
}

/// Talk(WORKER, ELEMENT…): places elements on a worker.
static TALK: Class = Class {
    name: "Place",
    ports: "0/0",
    phase: Phase::Info,
    args: &[Arg::required("ELEMENT", "name", "which"), Arg::required("WORKER", "integer", "where")],
    build: |args| {
        let name: String = args.read("ELEMENT")?;
        let element = args.find_element(&name).ok_or(ArgError::wrong("no such element"))?;
        let worker = args.read("WORKER")?;
        args.place_on(element, worker);
        Ok(Box::new(Greedy))
    },
    ..Class::DEFAULT
};

/// Compiles a configuration of these classes.
#[track_caller]
pub fn ir(text: &str) -> (artery_lang::Ir, artery_lang::Processing) {
    let mut sources = Sources::default();
    let file = sources.add_file("test", text);
    let (ir, mut diagnostics) = compile(&mut sources, file, &Options::default(), &CLASSES);
    let (processing, more) = check(&ir, &CLASSES);
    diagnostics.extend(more);
    assert!(diagnostics.is_empty(), "{}", diagnostics.iter().map(|d| d.render(&sources)).collect::<String>());
    (ir, processing)
}

/// Settings whose text goes to a buffer, in a small pool.
pub fn settings() -> RouterSettings {
    RouterSettings {
        chatter: Sink::buffer(),
        output: Sink::buffer(),
        frames: (4096, 4),
        ..RouterSettings::default()
    }
}

#[track_caller]
pub fn build(text: &str, settings: &RouterSettings) -> Router {
    let (ir, processing) = ir(text);
    Router::build(&ir, &processing, CLASSES, settings.clone())
        .unwrap_or_else(|problems| panic!("{problems:?}"))
}

/// Runs a configuration to its end; gives the router and what was said.
#[track_caller]
pub fn run(text: &str, settings: RouterSettings) -> (Finished, String) {
    let finished = build(text, &settings).start().wait().expect("no worker panics");
    (finished, settings.chatter.drain_text())
}
