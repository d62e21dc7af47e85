//! Baselines that exist to be measured against, experiments; the program `artery-bench`.
#![deny(unsafe_code)]

#[forbid(unsafe_code)]
pub mod adopt;
#[forbid(unsafe_code)]
pub mod cachegrind;
#[forbid(unsafe_code)]
pub mod cases;
pub mod engine_bench;
#[forbid(unsafe_code)]
pub mod fib;
#[forbid(unsafe_code)]
pub mod flows;
#[forbid(unsafe_code)]
pub mod forward;
#[forbid(unsafe_code)]
pub mod fpm;
#[forbid(unsafe_code)]
pub mod latency;
#[forbid(unsafe_code)]
pub mod papers;
#[allow(unsafe_code)]
pub mod perf;
#[forbid(unsafe_code)]
pub mod refuse;
#[forbid(unsafe_code)]
pub mod results;
#[forbid(unsafe_code)]
pub mod soak;
#[forbid(unsafe_code)]
pub mod wire;
