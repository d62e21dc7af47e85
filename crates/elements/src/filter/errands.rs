//! What a filter's worker has done by a thread, so that it waits for nobody who changes rules: sources that went too far come
//! into tables, and rules follow the addresses of the host's interfaces.
use super::ports;
use super::shared::Control;
use artery_device::{Interface, default_route_interfaces, host_addresses};
use artery_filter::names::{InterfaceAddress, InterfaceRecord, Interfaces};
use artery_filter::tables::TableEntry;
use std::io;
use std::net::IpAddr;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

/// The group of the interfaces that the host's default routes lead out by.
pub(super) const EGRESS: &str = "egress";

/// Errands that may wait to be done.
const MOST_WAITING: usize = 4096;

/// How long the kernel is given until it is asked again for addresses.
const PAUSES: [Duration; 4] =
    [Duration::from_millis(10), Duration::from_millis(100), Duration::from_secs(1), Duration::from_secs(10)];

/// What is to be done.
pub(super) enum Errand {
    /// A source belongs into the table that the rules of an anchor call so.
    Overload { address: IpAddr, anchor: Arc<str>, table: Arc<str>, now: Duration },
    /// The addresses that the host has at ports may be others.
    Addresses,
}

/// The way to the thread, which ends with it.
#[derive(Default)]
pub(super) struct Errands(OnceLock<SyncSender<Errand>>);

impl Errands {
    /// Has errands done from now on.
    pub(super) fn begin(&self, control: &Arc<Mutex<Control>>) -> io::Result<()> {
        if self.0.get().is_some() {
            return Ok(());
        }
        let (errands, taken) = sync_channel(MOST_WAITING);
        let control = control.clone();
        std::thread::Builder::new().name("pf-errands".into()).spawn(move || do_all(&taken, &control))?;
        // If another one began at the same time, that one does as well, and this one ends.
        let _ = self.0.set(errands);
        Ok(())
    }

    /// Has something done. Says whether it will be: not if too much waits, or nobody began.
    pub(super) fn send(&self, errand: Errand) -> bool {
        self.0.get().is_some_and(|errands| errands.try_send(errand).is_ok())
    }
}

/// Does what comes until no more can come.
fn do_all(taken: &Receiver<Errand>, control: &Mutex<Control>) {
    for errand in taken {
        let control = || control.lock().unwrap_or_else(PoisonError::into_inner);
        match errand {
            Errand::Overload { address, anchor, table, now } => {
                add(control(), address, (&anchor, &table), now)
            }
            Errand::Addresses => follow(control),
        }
    }
}

/// Puts an address into a table. It may be full, which its counters say.
fn add(mut control: MutexGuard<'_, Control>, address: IpAddr, (anchor, table): (&str, &str), now: Duration) {
    let length = if address.is_ipv4() { 32 } else { 128 };
    let entry = TableEntry::new(address, length, false);
    let holder = control.tables.holder(anchor, table);
    let _ = control.tables.add(holder, table, &[entry], now);
}

/// Makes rules follow what the host has at ports. The kernel is asked while nobody has to wait, and again where it has no answer.
fn follow<'c>(control: impl Fn() -> MutexGuard<'c, Control>) {
    let (said, devices) = control().said();
    for pause in PAUSES {
        if let Ok(interfaces) = at_host(&said, &devices, false) {
            return control().follow(interfaces);
        }
        std::thread::sleep(pause);
    }
}

/// Interfaces with the addresses that the host has at those of ports, and in the group `egress` if its default routes lead there. One that is not there has what was said of it; so has one
/// without addresses where these may be yet to come, as for what the router makes itself.
pub(super) fn at_host(said: &Interfaces, devices: &[String], may_come: bool) -> io::Result<Interfaces> {
    let mut interfaces = said.clone();
    if devices.is_empty() {
        return Ok(interfaces);
    }
    let (all, outward) = (host_addresses()?, default_route_interfaces());
    let records = interfaces.0.iter_mut().skip(usize::from(ports::FIRST) + 1);
    for (record, device) in records.zip(devices) {
        let Ok(interface) = Interface::find(device) else { continue };
        if outward.contains(device) {
            record.groups.push(EGRESS.to_string());
        }
        let own = all.iter().filter(|address| address.index == interface.index);
        let own =
            own.map(|own| InterfaceAddress { address: own.address, length: own.length, peer: own.peer });
        let mut found = InterfaceRecord { addresses: own.collect(), ..InterfaceRecord::default() };
        found.leave_out_automatic_addresses();
        if !found.addresses.is_empty() || !may_come {
            record.addresses = found.addresses;
        }
    }
    Ok(interfaces)
}
