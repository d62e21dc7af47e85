//! The threads of a router's workers, from the moment their elements are made.
//!
//! The allocator gives every living thread a heap of its own. So that what one worker writes shares no cache line
//! with what another does, a worker's elements and its graph are made on a thread of its own, while those of the
//! others live; and the thread that builds is the thread that runs, so that what a worker needs later comes from
//! the same heap. For the same reason a thread here frees nothing that another thread allocated: the allocator would
//! hand the place out for its next element.
use crate::building::Part;
use std::sync::mpsc::sync_channel;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread::{Builder, JoinHandle};

/// Something for a worker's thread to do with its part of the router. It is given back when it is done, and freed
/// where it was made.
type Job = Box<dyn FnMut(&mut Part) + Send>;

/// A thread for each worker, all of which live until the crew goes.
pub(crate) struct Crew {
    members: Vec<Member>,
}

struct Member {
    desk: Arc<Desk>,
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
        let mut crew = Crew { members: Vec::new() };
        for (index, part) in parts.enumerate() {
            let desk = Arc::new(Desk::default());
            let closing = Closing(desk.clone());
            let body = move || {
                affinity.into_iter().for_each(|first| bind_to_processor(first + index));
                let not_ours = take_up();
                let part = closing.0.serve(part);
                drop(not_ours);
                part
            };
            let thread = Builder::new().name(format!("{name}-{index}")).spawn(body)?;
            crew.members.push(Member { desk, thread });
        }
        Ok(crew)
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
        let desk = &self.members[worker].desk;
        desk.change(|sheet| sheet.to_do = Some(job));
        let _done = desk.take(|sheet| &mut sheet.done);
        if let Ok(result) = answer.try_recv() {
            return result;
        }
        let panic = self.members.remove(worker).thread.join().err();
        std::panic::resume_unwind(panic.expect("a thread ends before its crew by a panic only"))
    }

    /// Lets each thread do `work` as its last. It ends with its part.
    pub(crate) fn release(mut self, work: fn(&mut Part)) -> Vec<JoinHandle<Part>> {
        let release = |Member { desk, thread }: Member| {
            desk.change(|sheet| {
                sheet.to_do = Some(Box::new(work));
                sheet.closed = true;
            });
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
        for Member { desk, thread } in self.members.drain(..) {
            desk.close();
            // A panic was on its way to the caller already.
            let _ = thread.join();
        }
    }
}

/// Where jobs go to a thread and come back. Unlike a channel it allocates nothing, on neither side.
#[derive(Default)]
struct Desk {
    sheet: Mutex<Sheet>,
    changed: Condvar,
}

#[derive(Default)]
struct Sheet {
    to_do: Option<Job>,
    done: Option<Job>,
    /// Whether nothing more is put here.
    closed: bool,
}

impl Desk {
    fn sheet(&self) -> MutexGuard<'_, Sheet> {
        self.sheet.lock().unwrap_or_else(|e| e.into_inner())
    }
    fn change(&self, change: impl FnOnce(&mut Sheet)) {
        change(&mut self.sheet());
        self.changed.notify_all();
    }
    fn close(&self) {
        self.change(|sheet| sheet.closed = true);
    }
    /// Waits for a job in a place and takes it. `None` when none will come.
    fn take(&self, place: fn(&mut Sheet) -> &mut Option<Job>) -> Option<Job> {
        let waits = |sheet: &mut Sheet| place(sheet).is_none() && !sheet.closed;
        let mut sheet = self.changed.wait_while(self.sheet(), waits).unwrap_or_else(|e| e.into_inner());
        place(&mut sheet).take()
    }
    /// Does jobs until the desk is closed.
    fn serve(&self, mut part: Part) -> Part {
        while let Some(mut job) = self.take(|sheet| &mut sheet.to_do) {
            job(&mut part);
            self.change(|sheet| sheet.done = Some(job));
        }
        part
    }
}

/// Closes the desk when its thread ends, even by a panic: whoever waits there must hear of it.
struct Closing(Arc<Desk>);

impl Drop for Closing {
    fn drop(&mut self) {
        self.0.close();
    }
}

/// Takes from the allocator the few small places that starting this thread freed and that another thread allocated:
/// elements would lie in them, side by side with those of a thread that started alike. The sizes are those of which
/// glibc keeps what a thread frees for that thread.
fn take_up() -> Vec<Vec<u8>> {
    let of_size = |size| (0..4).map(move |_| Vec::with_capacity(size));
    std::hint::black_box((16..=1024).step_by(16).flat_map(of_size).collect())
}

fn bind_to_processor(n: usize) {
    let mut set = rustix::thread::CpuSet::new();
    set.set(n % std::thread::available_parallelism().map_or(1, usize::from));
    // A worker that may not choose its processor runs all the same.
    let _ = rustix::thread::sched_setaffinity(None, &set);
}
