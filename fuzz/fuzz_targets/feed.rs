//! Any file of routes, text or dump, packed or not: a table in order or an error, and never a panic.
#![no_main]
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Ok(routes) = artery_feed::read_from(data) else { return };
    assert!(routes.v4.is_sorted_by(|a, b| a.0 < b.0), "{routes:?}");
    assert!(routes.v6.is_sorted_by(|a, b| a.0 < b.0), "{routes:?}");
    let highest = routes.next_hops.len() as u32;
    if highest > 0 {
        assert!(
            routes
                .v4
                .iter()
                .map(|route| route.1)
                .chain(routes.v6.iter().map(|route| route.1))
                .all(|group| group <= highest)
        );
    }
});
