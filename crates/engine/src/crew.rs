//! The threads of a router's workers, from the moment their elements are made.
//!
//! The allocator gives every living thread a heap of its own. So that what one worker writes shares no cache line
//! with what another does, a worker's elements and its graph are made on a thread of its own, while those of the
//! others live; and the thread that builds is the thread that runs, so that what a worker needs later comes from
//! the same heap. For the same reason a thread here frees nothing that another thread allocated: the allocator would
//! hand the place out for its next element.
use crate::building::Part;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::{Builder, JoinHandle};

/// Something for a worker's thread to do with its part of the router. It is given back when it is done, and freed
/// where it was made.
type Job = Box<dyn FnMut(&mut Part) + Send>;

/// A thread for each worker, all of which live until the crew goes.
pub(crate) struct Crew {
    members: Vec<Member>,
}

struct Member {
    jobs: SyncSender<Job>,
    done: Receiver<Job>,
    thread: JoinHandle<Part>,
}

impl Crew {
    /// Starts a thread for each of `parts`, called `name` and a number. With `affinity` each is bound to a processor,
    /// the first to that one.
    pub(crate) fn new(
        parts: impl Iterator<Item = Part>,
        name: &str,
        affinity: Option<usize>,
    ) -> std::io::Result<Crew> {
        let members = parts.enumerate().map(|(index, mut part)| {
            let (jobs, to_do) = sync_channel::<Job>(1);
            let (give_back, done) = sync_channel(1);
            let body = move || {
                affinity.into_iter().for_each(|first| bind_to_processor(first + index));
                for mut job in to_do {
                    job(&mut part);
                    // Nobody waits for the last job.
                    let _ = give_back.send(job);
                }
                part
            };
            let thread = Builder::new().name(format!("{name}-{index}")).spawn(body)?;
            Ok(Member { jobs, done, thread })
        });
        Ok(Crew { members: members.collect::<std::io::Result<_>>()? })
    }

    /// Does `work` on a worker's thread and waits for what it gives. A panic there goes on here.
    pub(crate) fn on<R: Send + 'static>(
        &mut self,
        worker: usize,
        work: impl FnOnce(&mut Part) -> R + Send + 'static,
    ) -> R {
        let (reply, answer) = sync_channel(1);
        let mut work = Some(work);
        let job: Job = Box::new(move |part| {
            if let Some(result) = work.take().map(|work| work(part)) {
                let _ = reply.send(result);
            }
        });
        let Member { jobs, done, .. } = &self.members[worker];
        let back = jobs.send(job).ok().and_then(|()| done.recv().ok());
        if let (Some(_), Ok(result)) = (back, answer.recv()) {
            return result;
        }
        let panic = self.members.remove(worker).thread.join().err();
        std::panic::resume_unwind(panic.expect("a thread ends before its crew by a panic only"))
    }

    /// Lets each thread do `work` as its last. It ends with its part.
    pub(crate) fn release(mut self, work: fn(&mut Part)) -> Vec<JoinHandle<Part>> {
        let release = |Member { jobs, thread, .. }: Member| {
            // A thread that is gone says why when it is joined.
            let _ = jobs.send(Box::new(work));
            thread
        };
        self.members.drain(..).map(release).collect()
    }

    /// Ends the threads; gives what they made.
    pub(crate) fn disband(self) -> Vec<Part> {
        let join =
            |thread: JoinHandle<Part>| thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        self.release(|_| ()).into_iter().map(join).collect()
    }
}

impl Drop for Crew {
    /// Ends the threads and waits, so that what their elements held is free afterwards.
    fn drop(&mut self) {
        for Member { jobs, thread, .. } in self.members.drain(..) {
            drop(jobs);
            // A panic was on its way to the caller already.
            let _ = thread.join();
        }
    }
}

fn bind_to_processor(n: usize) {
    let mut set = rustix::thread::CpuSet::new();
    set.set(n % std::thread::available_parallelism().map_or(1, usize::from));
    // A worker that may not choose its processor runs all the same.
    let _ = rustix::thread::sched_setaffinity(None, &set);
}
