//! A router in a program of one's own: text becomes a graph of elements, which runs to its end, and a handler
//! is read.
use artery_elements::CLASSES;
use artery_engine::router::{Router, RouterSettings};
use artery_lang::{Options, Sources, check, compile};

const CONFIGURATION: &str = "InfiniteSource(LIMIT 1000, STOP true) -> c :: Counter -> Discard;";

fn main() {
    let mut sources = Sources::default();
    let file = sources.add_file("example", CONFIGURATION);
    let (ir, mistakes) = compile(&mut sources, file, &Options::default(), &CLASSES);
    let (processing, more) = check(&ir, &CLASSES);
    assert!(mistakes.is_empty() && more.is_empty(), "{mistakes:?} {more:?}");
    let router = Router::build(&ir, &processing, CLASSES, RouterSettings::default());
    let router = router.unwrap_or_else(|problems| panic!("{}", problems[0].message));
    let mut finished = router.start().wait().expect("no worker panics");
    println!("{} packets", finished.read_handler("c.count", "").expect("Counter has this handler"));
}
