//! The threads of a router's workers, from the moment their elements are made.
//!
//! The allocator gives every living thread a heap of its own. So that what one worker writes shares no cache
//! line with what another does, a worker's elements and its graph are made on a thread of its own, while
//! those of the others live; and the thread that builds is the thread that runs, so that what a worker needs
//! later comes from the same heap. For the same reason a thread here frees nothing that another thread
//! allocated: the allocator would hand the place out for its next element.
use crate::building::WorkerPart;
use std::sync::mpsc::sync_channel;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread::{Builder, JoinHandle};

/// Something for a worker's thread to do with its part of the router. It is given back when it is done, and
/// freed where it was made.
type Job = Box<dyn FnMut(&mut WorkerPart) + Send>;

/// Owns one thread for each worker. All of them live until this value is dropped.
pub(crate) struct WorkerThreads {
    members: Vec<WorkerThread>,
}

struct WorkerThread {
    desk: Arc<JobSlot>,
    thread: JoinHandle<WorkerPart>,
}

impl WorkerThreads {
    /// Starts a thread for each of `parts`, called `name` and a number. With `affinity` each is bound to a
    /// processor, the first to that one.
    pub(crate) fn new(
        parts: impl Iterator<Item = WorkerPart>,
        name: &str,
        affinity: Option<usize>,
    ) -> std::io::Result<WorkerThreads> {
        let mut threads = WorkerThreads { members: Vec::new() };
        for (index, part) in parts.enumerate() {
            let desk = Arc::new(JobSlot::default());
            let closing = Closing(desk.clone());
            let body = move || {
                affinity.into_iter().for_each(|first| bind_to_processor(first + index));
                let not_ours = claim_small_blocks();
                let part = closing.0.run_jobs(part);
                drop(not_ours);
                part
            };
            let thread = Builder::new().name(format!("{name}-{index}")).spawn(body)?;
            threads.members.push(WorkerThread { desk, thread });
        }
        Ok(threads)
    }

    /// Runs `work` on a worker's thread and returns its result. A panic there is propagated.
    pub(crate) fn run_on<R: Send + 'static>(
        &mut self,
        worker: usize,
        work: impl FnOnce(&mut WorkerPart) -> R + Send + 'static,
    ) -> R {
        let (reply, answer) = sync_channel(1);
        let mut work = Some(work);
        let job: Job = Box::new(move |part| {
            if let Some(result) = work.take().map(|work| work(part)) {
                let _ = reply.send(result);
            }
        });
        let desk = &self.members[worker].desk;
        desk.update_state(|sheet| sheet.to_do = Some(job));
        let _done = desk.wait_job(|sheet| &mut sheet.done);
        if let Ok(result) = answer.try_recv() {
            return result;
        }
        let panic = self.members.remove(worker).thread.join().err();
        std::panic::resume_unwind(panic.expect("a thread ends before its owner by a panic only"))
    }

    /// Runs `work` on each thread as its last job. The thread ends with its part.
    pub(crate) fn release_threads(mut self, work: fn(&mut WorkerPart)) -> Vec<JoinHandle<WorkerPart>> {
        let release = |WorkerThread { desk, thread }: WorkerThread| {
            desk.update_state(|sheet| {
                sheet.to_do = Some(Box::new(work));
                sheet.closed = true;
            });
            thread
        };
        self.members.drain(..).map(release).collect()
    }

    /// Ends the threads; returns their parts.
    pub(crate) fn join_all(self) -> Vec<WorkerPart> {
        let join = |thread: JoinHandle<WorkerPart>| {
            thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        };
        self.release_threads(|_| ()).into_iter().map(join).collect()
    }
}

impl Drop for WorkerThreads {
    /// Ends the threads and waits, so that what their elements held is free afterwards.
    fn drop(&mut self) {
        for WorkerThread { desk, thread } in self.members.drain(..) {
            desk.close_slot();
            // The caller is already unwinding from a panic.
            let _ = thread.join();
        }
    }
}

/// Passes jobs to a thread and back. Unlike a channel it allocates nothing, on neither side.
#[derive(Default)]
struct JobSlot {
    sheet: Mutex<JobState>,
    changed: Condvar,
}

#[derive(Default)]
struct JobState {
    to_do: Option<Job>,
    done: Option<Job>,
    /// Whether the slot is closed: no more jobs are put here.
    closed: bool,
}

impl JobSlot {
    fn lock_state(&self) -> MutexGuard<'_, JobState> {
        self.sheet.lock().unwrap_or_else(|e| e.into_inner())
    }
    fn update_state(&self, change: impl FnOnce(&mut JobState)) {
        change(&mut self.lock_state());
        self.changed.notify_all();
    }
    fn close_slot(&self) {
        self.update_state(|sheet| sheet.closed = true);
    }
    /// Waits for a job in a slot and takes it. `None` when none will come.
    fn wait_job(&self, place: fn(&mut JobState) -> &mut Option<Job>) -> Option<Job> {
        let waits = |sheet: &mut JobState| place(sheet).is_none() && !sheet.closed;
        let mut sheet = self.changed.wait_while(self.lock_state(), waits).unwrap_or_else(|e| e.into_inner());
        place(&mut sheet).take()
    }
    /// Runs jobs until the slot is closed.
    fn run_jobs(&self, mut part: WorkerPart) -> WorkerPart {
        while let Some(mut job) = self.wait_job(|sheet| &mut sheet.to_do) {
            job(&mut part);
            self.update_state(|sheet| sheet.done = Some(job));
        }
        part
    }
}

/// Closes the job slot when its thread ends, also by a panic, so that whoever waits on it wakes up.
struct Closing(Arc<JobSlot>);

impl Drop for Closing {
    fn drop(&mut self) {
        self.0.close_slot();
    }
}

/// Takes from the allocator the few small places that starting this thread freed and that another thread
/// allocated: elements would lie in them, side by side with those of a thread that started alike. The sizes
/// are those of which glibc keeps what a thread frees for that thread.
fn claim_small_blocks() -> Vec<Vec<u8>> {
    let of_size = |size| (0..4).map(move |_| Vec::with_capacity(size));
    std::hint::black_box((16..=1024).step_by(16).flat_map(of_size).collect())
}

fn bind_to_processor(n: usize) {
    let mut set = rustix::thread::CpuSet::new();
    set.set(n % std::thread::available_parallelism().map_or(1, usize::from));
    // A worker that may not choose its processor runs all the same.
    let _ = rustix::thread::sched_setaffinity(None, &set);
}
