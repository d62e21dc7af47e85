//! The atomics and locks this crate is built from: the standard ones, or loom's when it is being
//! model-checked.

#[cfg(not(loom))]
pub(crate) use std::sync::{
    Mutex, MutexGuard,
    atomic::{AtomicPtr, AtomicU64, Ordering, fence},
};

#[cfg(loom)]
pub(crate) use loom::sync::{
    Mutex, MutexGuard,
    atomic::{AtomicPtr, AtomicU64, Ordering, fence},
};

/// Lets other threads run while a writer waits for the readers; `round` counts the calls so far.
#[cfg(not(loom))]
pub(crate) fn wait_a_little(round: u32) {
    const YIELDS_BEFORE_SLEEP: u32 = 64;
    const NAP: std::time::Duration = std::time::Duration::from_micros(50);
    if round < YIELDS_BEFORE_SLEEP {
        std::thread::yield_now();
    } else {
        std::thread::sleep(NAP);
    }
}

/// Lets the model run other threads.
#[cfg(loom)]
pub(crate) fn wait_a_little(_round: u32) {
    loom::thread::yield_now();
}
