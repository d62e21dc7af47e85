//! A thread for control tasks of a filter's workers, so that no worker waits for the control lock. Tasks add
//! sources that exceeded a limit to tables, and make rules follow the addresses of the host's interfaces.
use super::interfaces::at_host;
use super::shared::Control;
use artery_filter::tables::TableEntry;
use std::io;
use std::net::IpAddr;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

/// Most control tasks in the queue.
const MOST_WAITING: usize = 4096;

/// Pauses before the kernel is queried again for addresses.
const PAUSES: [Duration; 4] =
    [Duration::from_millis(10), Duration::from_millis(100), Duration::from_secs(1), Duration::from_secs(10)];

pub(super) enum ControlTask {
    /// A source belongs into the table that the rules of an anchor call so.
    Overload { address: IpAddr, anchor: Arc<str>, table: Arc<str>, now: Duration },
    /// The addresses of the host at ports may have changed.
    Addresses,
}

/// The sender to the control thread, which ends when it is dropped.
#[derive(Default)]
pub(super) struct ControlTasks(OnceLock<SyncSender<ControlTask>>);

impl ControlTasks {
    /// Starts the thread that runs control tasks, unless it runs already.
    pub(super) fn start_thread(&self, control: &Arc<Mutex<Control>>) -> io::Result<()> {
        if self.0.get().is_some() {
            return Ok(());
        }
        let (errands, taken) = sync_channel(MOST_WAITING);
        let control = control.clone();
        std::thread::Builder::new().name("pf-errands".into()).spawn(move || run_tasks(&taken, &control))?;
        // If another one began at the same time, that one does as well, and this one ends.
        let _ = self.0.set(errands);
        Ok(())
    }

    /// Queues a task. False if the queue is full or the thread was not started.
    pub(super) fn send_task(&self, errand: ControlTask) -> bool {
        self.0.get().is_some_and(|errands| errands.try_send(errand).is_ok())
    }
}

/// Runs tasks until all senders are gone.
fn run_tasks(taken: &Receiver<ControlTask>, control: &Mutex<Control>) {
    for errand in taken {
        let control = || control.lock().unwrap_or_else(PoisonError::into_inner);
        match errand {
            ControlTask::Overload { address, anchor, table, now } => {
                add_to_table(control(), address, (&anchor, &table), now)
            }
            ControlTask::Addresses => follow_addresses(control),
        }
    }
}

/// Adds an address to a table. If the table is full, its counters record that.
fn add_to_table(
    mut control: MutexGuard<'_, Control>,
    address: IpAddr,
    (anchor, table): (&str, &str),
    now: Duration,
) {
    let length = if address.is_ipv4() { 32 } else { 128 };
    let entry = TableEntry::new(address, length, false);
    let holder = control.tables.holder_anchor(anchor, table);
    let _ = control.tables.add_addresses(holder, table, &[entry], now);
}

/// Makes rules follow the addresses that the host has at ports. The kernel is queried without the lock, and
/// again after a pause where it gives no answer.
fn follow_addresses<'c>(control: impl Fn() -> MutexGuard<'c, Control>) {
    let (said, devices) = control().configured_interfaces();
    for pause in PAUSES {
        if let Ok(interfaces) = at_host(&said, &devices, false) {
            return control().set_interfaces(interfaces);
        }
        std::thread::sleep(pause);
    }
}
