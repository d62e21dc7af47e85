use artery_engine::{Arg, Batch, Class, Context, DropReason, Element, StartError};

pub static CLASS: Class = Class {
    name: "Error",
    group: "basic",
    summary: "keeps the router from starting",
    manual: "
A router with this element does not start. It takes any arguments and any connections, and may stand in for an
element that a configuration needs and this program does not have.",
    example: "Idle -> Error(not written yet) -> Discard;",
    ports: "-/-",
    flow: "x/y",
    args: &[Arg::rest("ARGUMENT", "anything", "does not matter")],
    build: |_| Ok(Box::new(Error)),
    ..Class::PER_WORKER
};

struct Error;

impl Element for Error {
    fn push(&mut self, _input: usize, batch: &mut Batch, cx: &mut Context<'_>) {
        cx.discard_all(batch, DropReason::Inactive);
    }
    fn pull(&mut self, _output: usize, _max: usize, _into: &mut Batch, _cx: &mut Context<'_>) {}

    fn start(&mut self, _cx: &mut Context<'_>) -> Result<(), StartError> {
        Err(StartError::new("unspecified error")
            .with_help("a router with an Error element never starts: take it out"))
    }
}
