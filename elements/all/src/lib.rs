//! The list of all classes, for programs, the lab and fuzz targets. The tests beside it are those of several
//! products together.
#![forbid(unsafe_code)]

use artery_engine::{Class, Classes};

/// The switch, with the packet filter for its own.
static VEB: Class = artery_switch::class_with_rules::<artery_firewall::SwitchRules>();

/// All classes, by the crates that have them.
const CRATES: [&[&Class]; 7] = [
    artery_click::CLASSES,
    artery_forward::CLASSES,
    artery_router::CLASSES,
    artery_balancer::CLASSES,
    &[&VEB],
    artery_firewall::CLASSES,
    artery_common::CLASSES,
];

const COUNT: usize = {
    let (mut count, mut at) = (0, 0);
    while at < CRATES.len() {
        count += CRATES[at].len();
        at += 1;
    }
    count
};

static ALL: [&Class; COUNT] = {
    let mut all = [&VEB; COUNT];
    let (mut filled, mut at) = (0, 0);
    while at < CRATES.len() {
        let mut n = 0;
        while n < CRATES[at].len() {
            all[filled] = CRATES[at][n];
            (filled, n) = (filled + 1, n + 1);
        }
        at += 1;
    }
    all
};

/// All classes, as the language, the manual and the builder use them.
pub static CLASSES: Classes = Classes(&ALL);
