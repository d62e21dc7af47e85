//! Which task runs next: stride scheduling with tickets, as in Click, and one timer per task.
use artery_packet::Time;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Tickets of a task unless set.
pub(crate) const DEFAULT_TICKETS: u32 = 1024;
/// Most tickets a task can have.
pub(crate) const MAX_TICKETS: u32 = 32768;
const STRIDE: u32 = 1 << 24;

#[derive(Clone, Debug)]
struct Task {
    tickets: u32,
    /// Virtual time at which it runs next; the least runs first.
    pass: u64,
    scheduled: bool,
    /// When its timer goes off.
    wake: Time,
}

/// The tasks of one worker. Task numbers are node numbers.
#[derive(Debug, Default)]
pub(crate) struct Scheduler {
    tasks: Vec<Task>,
    /// Scheduled tasks by pass; ties in the order in which they were scheduled.
    ready: BinaryHeap<Reverse<(u64, u64, u32)>>,
    /// Timers by time; an entry whose time is not its task's `wake` is stale.
    timers: BinaryHeap<Reverse<(Time, u64, u32)>>,
    /// Pass of the task that ran last.
    pass: u64,
    sequence: u64,
}

impl Scheduler {
    pub(crate) fn new(tasks: usize) -> Scheduler {
        let task = Task { tickets: DEFAULT_TICKETS, pass: 0, scheduled: false, wake: Time::NEVER };
        Scheduler {
            tasks: vec![task; tasks],
            // Room for every task and some stale timers, so that turns allocate nothing.
            ready: BinaryHeap::with_capacity(tasks),
            timers: BinaryHeap::with_capacity(4 * tasks),
            ..Scheduler::default()
        }
    }

    /// Lets the task run when its turn comes.
    pub(crate) fn schedule_task(&mut self, task: usize) {
        let state = &mut self.tasks[task];
        if state.scheduled {
            return;
        }
        state.scheduled = true;
        // A task that slept continues from the present pass: it does not make up for the time it slept.
        state.pass = state.pass.max(self.pass) + u64::from(STRIDE / state.tickets);
        self.sequence += 1;
        self.ready.push(Reverse((state.pass, self.sequence, task as u32)));
    }

    pub(crate) fn is_scheduled(&self, task: usize) -> bool {
        self.tasks[task].scheduled
    }

    pub(crate) fn tickets(&self, task: usize) -> u32 {
        self.tasks[task].tickets
    }

    pub(crate) fn set_tickets(&mut self, task: usize, tickets: u32) {
        self.tasks[task].tickets = tickets.clamp(1, MAX_TICKETS);
    }

    /// Takes the next task to run; it runs again only if it is scheduled again.
    pub(crate) fn next(&mut self) -> Option<usize> {
        let Reverse((pass, _, task)) = self.ready.pop()?;
        self.pass = pass;
        self.tasks[task as usize].scheduled = false;
        Some(task as usize)
    }

    /// Puts a task that found nothing to do behind the next one, so that polling does not starve other tasks.
    pub(crate) fn was_idle(&mut self, task: usize) {
        if let Some(Reverse((pass, _, _))) = self.ready.peek() {
            let state = &mut self.tasks[task];
            state.pass = state.pass.max(*pass);
        }
    }

    pub(crate) fn has_ready(&self) -> bool {
        !self.ready.is_empty()
    }

    /// Sets the task's timer; [`Time::NEVER`] stops it.
    pub(crate) fn wake_at(&mut self, task: usize, time: Time) {
        if self.tasks[task].wake == time {
            return;
        }
        self.tasks[task].wake = time;
        if time != Time::NEVER {
            self.sequence += 1;
            self.timers.push(Reverse((time, self.sequence, task as u32)));
        }
    }

    /// When the next timer goes off.
    pub(crate) fn next_timer(&mut self) -> Option<Time> {
        while let Some(Reverse((time, _, task))) = self.timers.peek() {
            if self.tasks[*task as usize].wake == *time {
                return Some(*time);
            }
            self.timers.pop();
        }
        None
    }

    /// Schedules the tasks whose timers have gone off.
    pub(crate) fn expire_timers(&mut self, now: Time) {
        while self.next_timer().is_some_and(|time| time <= now) {
            if let Some(Reverse((_, _, task))) = self.timers.pop() {
                self.tasks[task as usize].wake = Time::NEVER;
                self.schedule_task(task as usize);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shares(tickets: [u32; 2], runs: usize) -> [usize; 2] {
        let mut scheduler = Scheduler::new(2);
        let mut counts = [0; 2];
        for (task, tickets) in tickets.into_iter().enumerate() {
            scheduler.set_tickets(task, tickets);
            scheduler.schedule_task(task);
        }
        for _ in 0..runs {
            let task = scheduler.next().unwrap();
            counts[task] += 1;
            scheduler.schedule_task(task);
        }
        counts
    }

    #[test]
    fn tasks_run_in_proportion_to_their_tickets() {
        assert_eq!(shares([1024, 1024], 1000), [500, 500]);
        let [a, b] = shares([3072, 1024], 1000);
        assert!((748..=752).contains(&a), "{a} {b}");
    }

    #[test]
    fn a_task_runs_only_as_often_as_it_is_scheduled() {
        let mut scheduler = Scheduler::new(1);
        scheduler.schedule_task(0);
        scheduler.schedule_task(0);
        assert_eq!(scheduler.next(), Some(0));
        assert_eq!(scheduler.next(), None);
    }

    #[test]
    fn a_timer_that_was_moved_goes_off_once_at_its_new_time() {
        let mut scheduler = Scheduler::new(1);
        scheduler.wake_at(0, Time(10));
        scheduler.wake_at(0, Time(20));
        scheduler.expire_timers(Time(10));
        assert!(!scheduler.has_ready());
        assert_eq!(scheduler.next_timer(), Some(Time(20)));
        scheduler.expire_timers(Time(25));
        assert_eq!((scheduler.next(), scheduler.next_timer()), (Some(0), None));
    }

    #[test]
    fn timers_go_off_in_order_of_time() {
        let mut scheduler = Scheduler::new(3);
        for (task, time) in [(0, 30), (1, 10), (2, 20)] {
            scheduler.wake_at(task, Time(time));
        }
        scheduler.expire_timers(Time(100));
        let order: Vec<_> = std::iter::from_fn(|| scheduler.next()).collect();
        assert_eq!(order, [1, 2, 0]);
    }
}
