//! What the workers of one router share: requests to stop, mailboxes, where text goes.
use crate::events::Waker;
use crate::idle_policy::IdlePolicy;
use crate::sink::Sink;
use artery_rcu::Turn;
use std::collections::VecDeque;
use std::io::ErrorKind;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, fence};
use std::sync::{Mutex, MutexGuard, OnceLock};
use std::time::Duration;

/// A call into a worker's graph.
pub(crate) type Call<G> = Box<dyn FnOnce(&mut G, &Turn<'_>) + Send>;

/// Something for a worker to do between two turns; `G` is the graph that it runs.
pub(crate) enum WorkerCommand<G> {
    /// A call into its graph, such as a handler.
    Call(Call<G>),
    /// The graph to run from now on.
    Replace(Box<G>),
}

/// Most commands that wait for one worker.
const MAILBOX: usize = 1024;

/// A worker's commands. The flag lets it look for them without taking the lock.
pub(crate) struct Mailbox<G> {
    pending: AtomicBool,
    commands: Mutex<VecDeque<WorkerCommand<G>>>,
    pub(crate) waker: Waker,
    /// Whether the worker sleeps, or is about to, and must be woken for packets from others.
    asleep: AtomicBool,
}

impl<G> Mailbox<G> {
    fn new() -> Result<Mailbox<G>, rustix::io::Errno> {
        Ok(Mailbox {
            pending: AtomicBool::new(false),
            commands: Mutex::default(),
            waker: Waker::new()?,
            asleep: AtomicBool::new(false),
        })
    }
    fn lock_commands(&self) -> MutexGuard<'_, VecDeque<WorkerCommand<G>>> {
        self.commands.lock().unwrap_or_else(|e| e.into_inner())
    }
    /// Puts a command in and wakes the worker; gives it back when the mailbox is full.
    pub(crate) fn post_command(&self, command: WorkerCommand<G>) -> Result<(), WorkerCommand<G>> {
        let mut commands = self.lock_commands();
        if commands.len() >= MAILBOX {
            return Err(command);
        }
        commands.push_back(command);
        self.pending.store(true, Release);
        drop(commands);
        self.waker.wake();
        Ok(())
    }
    /// Says that the worker is about to sleep, or is awake again. What was handed over
    /// before is seen afterwards.
    pub(crate) fn set_asleep(&self, asleep: bool) {
        self.asleep.store(asleep, Relaxed);
        fence(SeqCst); // pairs with wake_if_asleep(): one of the two sees what the other did
    }
    /// Wakes the worker if it sleeps.
    pub(crate) fn wake_if_asleep(&self) {
        fence(SeqCst); // pairs with set_asleep()
        if self.asleep.load(Relaxed) {
            // So that the worker is not taken for dormant before it has looked.
            self.pending.store(true, Release);
            self.waker.wake();
        }
    }
    /// Takes the next command.
    pub(crate) fn next_command(&self) -> Option<WorkerCommand<G>> {
        if !self.pending.load(Acquire) {
            return None;
        }
        let mut commands = self.lock_commands();
        let command = commands.pop_front();
        self.pending.store(!commands.is_empty(), Release);
        command
    }
    /// Takes the next handler call, leaving a replacement of the graph where it is.
    pub(crate) fn next_call(&self) -> Option<WorkerCommand<G>> {
        let mut commands = self.lock_commands();
        let at = commands.iter().position(|command| matches!(command, WorkerCommand::Call(_)))?;
        commands.remove(at)
    }
}

const NO_DRIVER: u64 = u64::MAX;

/// Shared state of a running router, whose workers run graphs of type `G`.
pub(crate) struct Control<G> {
    stop_requests: AtomicU32,
    ended: AtomicBool,
    /// Whether what the router holds is sent before it ends.
    drains: AtomicBool,
    /// Worker and node of the element that decides about stopping.
    driver: AtomicU64,
    replacing: AtomicBool,
    profile: AtomicBool,
    /// For how long workers with nothing to do wait awake, if anybody said so.
    awake: OnceLock<Duration>,
    replaced: AtomicU64,
    /// Workers that wait for nothing but a command.
    dormant: AtomicU32,
    /// Whether commands can come from outside, so that a router with nothing to do may still be woken.
    open: AtomicBool,
    mailboxes: Vec<Mailbox<G>>,
    chatter: Sink,
    output: Sink,
    /// Whether an element could not do its work.
    failed: AtomicBool,
    /// Whether the reader of the scripts' output went away.
    unread: AtomicBool,
    /// Why the run ends, or was requested to.
    end_reason: Mutex<Option<EndReason>>,
    replacement: Mutex<Replacement>,
}

/// Why a run ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndReason {
    /// In words, such as `SIGTERM was received`.
    pub text: String,
    /// The element that asked for it, or ended the run by itself.
    pub element: Option<String>,
}

/// What happens to a configuration that is to replace the running one.
type ServeReplacement = Box<dyn Fn(String) + Send + Sync>;

/// The element that serves `hotconfig`, and what was written to it before there was one.
#[derive(Default)]
struct Replacement {
    serve: Option<ServeReplacement>,
    pending: Option<String>,
}

impl<G> Control<G> {
    pub(crate) fn new(workers: usize, chatter: Sink, output: Sink) -> Result<Control<G>, rustix::io::Errno> {
        Ok(Control {
            stop_requests: AtomicU32::new(0),
            ended: AtomicBool::new(false),
            drains: AtomicBool::new(false),
            driver: AtomicU64::new(NO_DRIVER),
            replacing: AtomicBool::new(false),
            profile: AtomicBool::new(false),
            awake: OnceLock::new(),
            replaced: AtomicU64::new(0),
            dormant: AtomicU32::new(0),
            open: AtomicBool::new(false),
            mailboxes: (0..workers).map(|_| Mailbox::new()).collect::<Result<_, _>>()?,
            chatter,
            output,
            failed: AtomicBool::new(false),
            unread: AtomicBool::new(false),
            end_reason: Mutex::default(),
            replacement: Mutex::default(),
        })
    }
    /// Whether a worker has a command here or the run is over. Its waker signals all other changes.
    pub(crate) fn has_command(&self, worker: usize) -> bool {
        self.mailboxes[worker].pending.load(Acquire) || self.has_ended()
    }
    pub(crate) fn mailbox(&self, worker: usize) -> &Mailbox<G> {
        &self.mailboxes[worker]
    }
    /// Wakes all workers, so that they look at what changed here.
    pub(crate) fn wake_all(&self) {
        self.mailboxes.iter().for_each(|mailbox| mailbox.waker.wake());
    }
    pub(crate) fn request_stop(&self) {
        self.stop_requests.fetch_add(1, AcqRel);
        self.wake_all();
    }
    pub(crate) fn has_stop_requests(&self) -> bool {
        self.stop_requests.load(Relaxed) != 0
    }
    pub(crate) fn drain_stop_requests(&self) -> u32 {
        self.stop_requests.swap(0, AcqRel)
    }
    pub(crate) fn end_run(&self) {
        self.ended.store(true, Release);
        self.wake_all();
    }
    /// Records why the run is requested to end: the last request before the end counts.
    pub(crate) fn record_end(&self, text: &str) {
        if !self.has_ended() {
            *self.lock_reason() = Some(EndReason { text: text.to_owned(), element: None });
        }
    }
    /// Records that an element requests the end.
    pub(crate) fn record_stop_by(&self, name: &str) {
        if !self.has_ended() {
            let (text, element) = (format!("{name} asked for the end"), Some(name.to_owned()));
            *self.lock_reason() = Some(EndReason { text, element });
        }
    }
    /// Records that a driver ended the run, which is the reason unless a stop was requested before.
    pub(crate) fn record_driver_end(&self, name: &str) {
        if !self.has_ended() {
            let text = format!("{name} ended the run");
            self.lock_reason().get_or_insert(EndReason { text, element: Some(name.to_owned()) });
        }
    }
    pub(crate) fn end_reason(&self) -> Option<EndReason> {
        self.lock_reason().clone()
    }
    fn lock_reason(&self) -> MutexGuard<'_, Option<EndReason>> {
        self.end_reason.lock().unwrap_or_else(|e| e.into_inner())
    }
    pub(crate) fn set_drains(&self, drains: bool) {
        self.drains.store(drains, Release);
        self.wake_all();
    }
    pub(crate) fn drains(&self) -> bool {
        self.drains.load(Acquire)
    }
    pub(crate) fn has_ended(&self) -> bool {
        self.ended.load(Acquire)
    }
    pub(crate) fn set_driver(&self, worker: usize, node: usize) -> bool {
        let driver = (worker as u64) << 32 | node as u64;
        self.driver.compare_exchange(NO_DRIVER, driver, AcqRel, Acquire).is_ok()
    }
    /// Lets the elements of a new graph name their driver.
    pub(crate) fn clear_driver(&self) {
        self.driver.store(NO_DRIVER, Release);
    }
    /// Worker and node of the driver.
    pub(crate) fn driver(&self) -> Option<(usize, usize)> {
        let driver = self.driver.load(Acquire);
        (driver != NO_DRIVER).then_some(((driver >> 32) as usize, driver as u32 as usize))
    }
    pub(crate) fn set_open(&self) {
        self.open.store(true, Release);
    }
    /// Says that this worker waits for nothing but commands. When all do and none can come, the driver is
    /// asked to go on: what it waits for will not happen.
    pub(crate) fn enter_dormant(&self) {
        let all = self.dormant.fetch_add(1, AcqRel) + 1 == self.mailboxes.len() as u32;
        // A request that the driver has not seen yet is answered first: two would count as two steps.
        let quiet = || {
            !self.has_stop_requests() && self.mailboxes.iter().all(|mailbox| !mailbox.pending.load(Acquire))
        };
        // One pending request to the driver is enough: a second one would cut its next wait short.
        let helpless = all && quiet() && !self.has_stop_requests();
        if helpless && self.driver().is_some() && !self.open.load(Acquire) {
            self.record_end("nothing is left to do");
            self.request_stop();
        }
    }
    /// Records that this worker is no longer dormant.
    pub(crate) fn exit_dormant(&self) {
        self.dormant.fetch_sub(1, AcqRel);
    }
    fn lock_replacement(&self) -> MutexGuard<'_, Replacement> {
        self.replacement.lock().unwrap_or_else(|e| e.into_inner())
    }
    /// Lets `serve` have the configurations that are written to `hotconfig`.
    pub(crate) fn on_replacement(&self, serve: ServeReplacement) {
        let mut replacement = self.lock_replacement();
        replacement.pending.take().into_iter().for_each(&serve);
        replacement.serve = Some(serve);
    }
    /// Hands over a configuration that is to replace this one.
    pub(crate) fn request_replacement(&self, text: &str) {
        let mut replacement = self.lock_replacement();
        match &replacement.serve {
            Some(serve) => serve(text.to_string()),
            None => replacement.pending = Some(text.to_string()),
        }
    }
    pub(crate) fn is_replacing(&self) -> bool {
        self.replacing.load(Acquire)
    }
    pub(crate) fn set_replacing(&self, replacing: bool) {
        self.replacing.store(replacing, Release);
        if !replacing {
            self.wake_all(); // requests to stop were left for later
        }
    }
    /// Counts packets of the replaced graph that no element of the new one took over.
    pub(crate) fn count_replaced(&self, lost: u64) {
        self.replaced.fetch_add(lost, Relaxed);
    }
    /// Packets that replacements have cost so far.
    pub(crate) fn lost_to_replacement(&self) -> u64 {
        self.replaced.load(Relaxed)
    }
    pub(crate) fn profile(&self) -> bool {
        self.profile.load(Relaxed)
    }
    pub(crate) fn set_profile(&self, profile: bool) {
        self.profile.store(profile, Relaxed);
    }
    /// How a worker of this router waits at first.
    pub(crate) fn idle_policy(&self) -> IdlePolicy {
        IdlePolicy::new(self.awake.get().copied())
    }
    /// Sets for how long workers wait awake; before they start.
    pub(crate) fn set_awake(&self, awake: Duration) {
        let first = self.awake.set(awake).is_ok();
        debug_assert!(first, "a router is set up once");
    }
    /// Prints a message. Its reader may go away without ending the run. If the reader of standard output went
    /// away too, and no handler calls can come, the run ends, as the system ends a filter.
    pub(crate) fn print_message(&self, line: &str) {
        let Err(error) = self.chatter.write(&format!("{line}\n")) else { return };
        let unheard = error.kind() == ErrorKind::BrokenPipe && !self.open.load(Acquire);
        if unheard && self.output.is_abandoned() {
            self.unread.store(true, Release);
            self.record_end("its output has no reader");
            self.end_run();
        }
    }
    /// Prints what a script prints. When that fails the run ends: quietly if the reader went away, as the
    /// system ends a filter, else with a message and as a failed run.
    pub(crate) fn print(&self, text: &str) {
        let Err(error) = self.output.write(text) else { return };
        if error.kind() == ErrorKind::BrokenPipe {
            self.unread.store(true, Release);
        } else if !self.failed.swap(true, AcqRel) {
            self.print_message(&format!("standard output: {error}"));
        }
        self.record_end("standard output can't be written");
        self.end_run();
    }
    /// Remembers that an element could not do its work.
    pub(crate) fn set_failed(&self) {
        self.failed.store(true, Release);
    }
    pub(crate) fn has_failed(&self) -> bool {
        self.failed.load(Acquire)
    }
    pub(crate) fn is_unread(&self) -> bool {
        self.unread.load(Acquire)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn workers_that_fall_dormant_add_nothing_to_a_request_the_driver_has_not_seen() {
        let control = Control::<()>::new(2, Sink::buffer(), Sink::buffer()).unwrap();
        assert!(control.set_driver(0, 0));
        control.request_stop();
        control.enter_dormant();
        control.enter_dormant();
        assert_eq!(control.drain_stop_requests(), 1);
    }

    #[test]
    fn when_all_workers_are_dormant_the_driver_is_asked_to_go_on() {
        let control = Control::<()>::new(2, Sink::buffer(), Sink::buffer()).unwrap();
        assert!(control.set_driver(0, 0));
        control.enter_dormant();
        assert_eq!(control.drain_stop_requests(), 0);
        control.enter_dormant();
        assert_eq!(control.drain_stop_requests(), 1);
    }
}
