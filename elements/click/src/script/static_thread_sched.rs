use super::info::{Info, parse_pair};
use artery_engine::{Arg, ArgError, Args, Class, Phase};
use artery_lang::args;

pub static CLASS: Class = Class {
    name: "StaticThreadSched",
    group: "script",
    summary: "says on which worker elements run",
    manual: "
Each argument is the name of an element, or of a compound for all inside it, and the number of a worker,
from 0. What is connected without a queue between runs together, so one element is enough to place a path.
Worker -1 leaves the choice to the router. What is not placed runs on worker 0, or on all workers if every
element of its path can.",
    example: "i :: InfiniteSource -> Discard;\nStaticThreadSched(i 0);",
    ports: "0/0",
    args: &[Arg::rest("ELEMENT", "name and worker", "an element or compound, and the worker it runs on")],
    phase: Phase::Info,
    build: |args| {
        for text in args.rest("ELEMENT").to_vec() {
            let (name, thread) =
                parse_pair(&text).ok_or_else(|| ArgError::wrong("expected 'ELEMENT THREAD'"))?;
            let wrong = || ArgError::wrong(format!("'{thread}' is not the number of a worker"));
            let thread = args::parse_signed(&thread).map_err(|_| wrong())?;
            place_elements(args, &name, thread).map_err(|why| ArgError::wrong_at(&text, why))?;
        }
        Ok(Box::new(Info))
    },
    ..Class::DEFAULT
};

/// Places the elements that `name` means; warns when there is no such worker.
fn place_elements(args: &mut Args<'_>, name: &str, thread: i64) -> Result<(), String> {
    let workers = args.worker().1;
    let elements = find_elements(args, name);
    if elements.is_empty() {
        return Err(format!("'{name}' does not name an element"));
    }
    let worker = usize::try_from(thread).ok().filter(|worker| *worker < workers);
    // Out of range means anywhere below zero, and the first worker above.
    if let Some(worker) = worker.or((thread >= 0).then_some(0)) {
        elements.into_iter().for_each(|element| args.place_on(element, worker));
    }
    if worker.is_none() && thread != -1 {
        args.warn(format!("thread preference {thread} out of range"), None);
    }
    Ok(())
}

/// The element of this name, or all elements of the compound of this name.
fn find_elements(args: &Args<'_>, name: &str) -> Vec<usize> {
    if let Some(element) = args.find_element(name) {
        return vec![element];
    }
    let compound = format!("{}{name}/", args.prefix());
    args.elements().filter(|(_, name)| name.starts_with(&compound)).map(|(element, _)| element).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use artery_engine::Bench;

    #[test]
    fn a_worker_that_does_not_exist_is_warned_about() {
        assert_eq!(Bench::new(&CLASS, "e 0, e -1").warnings(), "");
        assert_eq!(Bench::new(&CLASS, "e 3").warnings(), "thread preference 3 out of range\n");
    }
}
