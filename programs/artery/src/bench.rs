//! `artery bench`: the measurements are a program of their own.
use anyhow::{Context as _, bail};
use std::ffi::OsString;
use std::os::unix::process::CommandExt as _;
use std::process::Command;

/// Becomes the program `artery-bench` that lies beside this one.
pub(crate) fn run(arguments: &[OsString]) -> anyhow::Result<u8> {
    let here = std::env::current_exe().context("can't tell where this program lies")?;
    let program = here.with_file_name("artery-bench");
    if !program.exists() {
        bail!(
            "{} is missing; 'make build' makes it beside target/release/artery, and 'make install' puts both \
             in place",
            program.display()
        );
    }
    Err(Command::new(&program).args(arguments).exec())
        .with_context(|| format!("can't run {}", program.display()))
}
