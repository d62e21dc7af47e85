//! Measurements: ours beside the kernel, other routers and other tables, and how results are written.
#![deny(unsafe_code)]

#[forbid(unsafe_code)]
pub mod adopt;
#[forbid(unsafe_code)]
pub mod apply;
#[forbid(unsafe_code)]
pub mod cachegrind;
#[forbid(unsafe_code)]
pub mod child;
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
