//! Test rig, baselines that exist to be measured against, experiments; the program `artery-bench`.
#![deny(unsafe_code)]

pub mod adopt;
pub mod cachegrind;
pub mod conf;
pub mod engine_bench;
pub mod fib;
pub mod flows;
pub mod forward;
pub mod fpm;
pub mod latency;
pub mod machine;
pub mod perf;
pub mod program;
pub mod refuse;
pub mod results;
pub mod rig;
pub mod seed0;
pub mod seed1;
pub mod seed2;
pub mod seed3;
pub mod seed4;
pub mod seeds;
pub mod vm;
pub mod voice;
pub mod wire;
