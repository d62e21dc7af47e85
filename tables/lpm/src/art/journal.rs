//! For tests: what the writer stores that readers may see, in order.
use std::cell::RefCell;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Store {
    Word(usize, u32),
    Version(u64),
}

thread_local! {
    static JOURNAL: RefCell<Option<Vec<Store>>> = const { RefCell::new(None) };
}

pub(super) fn record_store(store: Store) {
    JOURNAL.with_borrow_mut(|journal| {
        if let Some(journal) = journal {
            journal.push(store);
        }
    });
}

/// What this thread stores while `action` runs.
pub(super) fn capture_stores(action: impl FnOnce()) -> Vec<Store> {
    JOURNAL.set(Some(Vec::new()));
    action();
    JOURNAL.take().unwrap_or_default()
}
