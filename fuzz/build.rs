//! Leaves the callbacks of comparisons out of `whole_router`. They take a fifth of its time (perf), and teach
//! libFuzzer words of text formats; packets come from seeds that have theirs. The flag `--no-trace-compares`
//! of cargo-fuzz would have all crates built once more.

const CALLBACKS: [&str; 9] =
    ["cmp1", "cmp2", "cmp4", "cmp8", "const_cmp1", "const_cmp2", "const_cmp4", "const_cmp8", "switch"];
/// A function of the address sanitizer that does nothing.
const NOTHING: &str = "__asan_version_mismatch_check_v8";

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    if std::env::var("CARGO_CFG_SANITIZE").is_ok_and(|kinds| kinds.contains("address")) {
        for callback in CALLBACKS {
            let name = format!("__sanitizer_cov_trace_{callback}");
            println!(
                "cargo::rustc-link-arg-bin=whole_router=-Wl,--wrap={name},--defsym=__wrap_{name}={NOTHING}"
            );
        }
    }
}
