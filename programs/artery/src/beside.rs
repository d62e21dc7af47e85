//! Programs of their own that are commands of this one, too: `artery bench` and `artery fleet`.
use anyhow::{Context as _, bail};
use std::ffi::OsString;
use std::os::unix::process::CommandExt as _;
use std::process::Command;

/// Becomes the program `artery-bench` that lies beside this one.
pub(crate) fn bench(arguments: &[OsString]) -> anyhow::Result<u8> {
    let how = "'make build' makes it beside target/release/artery, and 'make install' puts both in place";
    run("artery-bench", how, arguments)
}

/// Becomes the program `artery-fleet` that lies beside this one.
pub(crate) fn fleet(arguments: &[OsString]) -> anyhow::Result<u8> {
    let how = "'make fleet' makes fleet/target/release/artery-fleet, which belongs beside artery";
    run("artery-fleet", how, arguments)
}

fn run(name: &str, how: &str, arguments: &[OsString]) -> anyhow::Result<u8> {
    let here = std::env::current_exe().context("can't tell where this program lies")?;
    let program = here.with_file_name(name);
    if !program.exists() {
        bail!("{} is missing; {how}", program.display());
    }
    Err(Command::new(&program).args(arguments).exec())
        .with_context(|| format!("can't run {}", program.display()))
}
