//! The packet path allocates nothing: a run with twenty times the packets makes as many allocations
//! as a short one.
use artery_elements::CLASSES;
use artery_engine::{Router, RouterSettings, Sink};
use artery_lang::{Options, Sources, check, compile};
use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

struct Counting;
static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);

// SAFETY: passes every call on to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Relaxed);
        // SAFETY: the caller's promise is the system's condition.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: as above.
        unsafe { System.dealloc(pointer, layout) }
    }
    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Relaxed);
        // SAFETY: as above.
        unsafe { System.realloc(pointer, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Allocations that a configuration makes from build to end.
fn allocations(text: &str, burst: usize) -> u64 {
    let mut sources = Sources::default();
    let file = sources.add_file("test", text);
    let (ir, diagnostics) = compile(&mut sources, file, &Options::default(), &CLASSES);
    assert!(diagnostics.is_empty(), "{}", diagnostics[0].render(&sources));
    let (processing, diagnostics) = check(&ir, &CLASSES);
    assert!(diagnostics.is_empty(), "{}", diagnostics[0].render(&sources));
    let settings = RouterSettings {
        burst,
        chatter: Sink::buffer(),
        output: Sink::buffer(),
        ..RouterSettings::default()
    };
    let before = ALLOCATIONS.load(Relaxed);
    let router = Router::build(&ir, &processing, CLASSES, settings).map_err(|p| format!("{p:?}")).unwrap();
    router.start().wait().unwrap();
    ALLOCATIONS.load(Relaxed) - before
}

const FRAME: &str = "\\<00 01 02 03 04 05  00 01 02 03 04 06  08 00  45 00 00 1c 00 00 40 00 40 11 26 cf 0a \
    00 00 01 0a 00 00 02
    00 01 00 02 00 08 00 00>";

const ROUTER: &str = "InfiniteSource(DATA FRAME, LIMIT LIMIT, STOP true)
    -> c :: Classifier(12/0806, 12/0800, -) -> Discard; c[2] -> Discard;
    c[1] -> Paint(3) -> Strip(14) -> ch :: CheckIPHeader(CHECKSUM false) -> rt :: LinearIPLookup(10.0.0.0/24 \
    0, 0.0.0.0/0 1);
    rt[0] -> d :: DecIPTTL -> SetIPChecksum -> arp :: ARPQuerier(10.0.0.1, 0:1:2:3:4:5) -> t :: Tee
        -> q :: Queue(200) -> u :: Unqueue -> k :: Counter -> Discard;
    t[1] -> ps :: PaintSwitch -> Discard; ps[1] -> Discard; ps[2] -> Discard; ps[3] -> Null -> Discard;
    rt[1] -> EtherEncap(0x0800, 1:1:1:1:1:1, 2:2:2:2:2:2) -> Discard; d[1] -> Discard; ch[1] -> Discard;
    Idle -> [1] arp; Script(write arp.insert 10.0.0.2 0:1:2:3:4:6);";

/// With a known neighbor, and with one that never answers, whose pending packets are replaced.
#[test]
fn a_longer_run_makes_no_more_allocations() {
    let text = |limit: &str| ROUTER.replace("FRAME", FRAME).replace("LIMIT LIMIT", &format!("LIMIT {limit}"));
    for burst in [64, 1] {
        // The first run fills what the process keeps, such as the threads' packet caches.
        allocations(&text("1000"), burst);
        for text in
            [&text as &dyn Fn(&str) -> String, &|limit| text(limit).replace("write arp.insert", "print")]
        {
            // Threads that wait for each other while the router is made allocate as their timing has it.
            let least = |limit: &str| (0..5).map(|_| allocations(&text(limit), burst)).min();
            let (short, long) = (least("20000"), least("400000"));
            assert_eq!(short, long, "at a burst of {burst}: {}", text("n"));
        }
    }
}
