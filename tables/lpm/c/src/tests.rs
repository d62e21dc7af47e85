//! What a program in C cannot cause at will: two threads in one handle, a bug, misaligned arrays.
use super::*;

const TEN: u32 = 0x0a00_0000;

fn table() -> Table<u32> {
    let table = Table::new(Policy::default()).unwrap_or_else(|failure| panic!("{}", failure.text));
    for (address, length, group) in [(TEN, 8, 1), (TEN, 24, 2), (TEN + 0x17, 32, 3)] {
        // SAFETY: a good handle.
        assert_eq!(unsafe { artery_table4_insert(&table, address, length, group) }, 0);
    }
    table
}

/// Whether no reader is in a turn.
fn is_free(table: &Table<u32>) -> bool {
    table.domain.0.is_over(table.domain.0.ticket())
}

fn last_error() -> String {
    // SAFETY: the text is good until the next failure on this thread.
    unsafe { CStr::from_ptr(artery_last_error()) }.to_str().unwrap().to_owned()
}

#[test]
fn a_second_thread_in_a_table_is_refused_but_for_making_readers() {
    let table = table();
    let locked = table.routes.lock().unwrap();
    // SAFETY: a good handle.
    let (inserted, reader) = unsafe { (artery_table4_insert(&table, TEN, 9, 4), artery_reader4_new(&table)) };
    assert_eq!(inserted, Status::Busy as c_int);
    assert!(last_error().contains("another thread"), "{}", last_error());
    drop(locked);
    let mut group = 0;
    // SAFETY: a good handle and a place to write to.
    let found = unsafe { artery_reader4_lookup(reader, TEN, &mut group) };
    assert_eq!((found, group), (0, 2), "the insert did nothing, the reader is good");
    // SAFETY: a good handle, used for the last time.
    unsafe { artery_reader4_free(reader) };
}

#[test]
fn a_second_thread_in_a_reader_is_refused() {
    let reader = table().reader();
    let _locked = reader.standing.lock().unwrap();
    let mut group = 7;
    // SAFETY: a good handle and a place to write to.
    let found = unsafe { artery_reader4_lookup(&reader, TEN, &mut group) };
    assert_eq!((found, group), (Status::Busy as c_int, 7), "nothing is written");
}

#[test]
fn a_panic_is_a_status_and_ends_the_use_of_its_handle() {
    let table = table();
    let bug = || -> Outcome<()> {
        let _held = lock(&table.routes)?;
        panic!("on {}", "purpose");
    };
    assert_eq!(status(bug), Status::Panic as c_int);
    assert_eq!(last_error(), "a bug: on purpose");
    // SAFETY: a good handle.
    assert_eq!(unsafe { artery_table4_insert(&table, TEN, 9, 4) }, Status::Panic as c_int);
}

#[test]
fn a_reader_holds_nothing_up_between_calls_nor_after_a_panic() {
    let table = table();
    let reader = table.reader();
    let mut group = 0;
    // SAFETY: a good handle and a place to write to.
    assert_eq!(unsafe { artery_reader4_lookup(&reader, TEN, &mut group) }, 0);
    assert!(is_free(&table));

    let during = |_: &RouteReader<u32>, _: &Turn<'_>| is_free(&table);
    assert!(!reader.with_turn(during).unwrap_or(true), "a turn under way is waited for");

    assert!(outcome(|| reader.with_turn(|_, _| panic!("on purpose"))).is_err());
    assert!(is_free(&table));
}

#[test]
fn the_last_handle_frees_what_was_replaced_under_a_reader() {
    for table_goes_first in [true, false] {
        let table = table();
        let reader = table.reader();
        let domain = Arc::downgrade(&table.domain.0);
        let replaced = reader.with_turn(|_, _| {
            // SAFETY: a good handle and a text.
            unsafe { artery_table4_set_policy(&table, c"art".as_ptr()) }
        });
        assert_eq!(replaced.unwrap_or(1), 0);
        assert_ne!(table.domain.0.pending(), 0, "something waits for the turn");
        match table_goes_first {
            true => drop((table, reader)),
            false => drop((reader, table)),
        }
        assert!(domain.upgrade().is_none());
    }
}

#[test]
fn arrays_may_be_of_any_length_and_alignment_and_be_the_same() {
    let reader = table().reader();
    let addresses: Vec<u32> = (0..200).map(|n| TEN - 19 + n * 3).collect();
    let one_by_one =
        |address: &u32| reader.with_turn(|table, turn| table.lookup(turn, *address)).unwrap_or(9);
    let wanted: Vec<Group> = addresses.iter().map(one_by_one).collect();
    assert!((0..=3).all(|group| wanted.contains(&group)), "the addresses meet every route and none");
    for count in [0, 1, 63, 64, 65, 128, 200] {
        let mut bytes = vec![0u8; 4 * count + 1];
        for (place, address) in bytes[1..].chunks_exact_mut(4).zip(&addresses) {
            place.copy_from_slice(&address.to_ne_bytes());
        }
        let array = bytes[1..].as_mut_ptr().cast::<u32>();
        // SAFETY: the array holds `count` items, both as addresses and as groups.
        assert_eq!(unsafe { artery_reader4_lookup_batch(&reader, array, count, array) }, 0);
        let found = bytes[1..].chunks_exact(4).map(|group| u32::from_ne_bytes(group.try_into().unwrap()));
        assert_eq!(found.collect::<Vec<_>>(), wanted[..count]);
    }
}

#[test]
fn a_count_beyond_all_memory_is_refused() {
    let (reader, mut item) = (table().reader(), TEN);
    let item = &raw mut item;
    for count in [usize::MAX, isize::MAX as usize, isize::MAX as usize / 4 + 1] {
        // SAFETY: not that the array is as long as is said: the call must not look at it.
        let status = unsafe { artery_reader4_lookup_batch(&reader, item, count, item) };
        assert_eq!(status, Status::Argument as c_int, "{count}");
    }
}
