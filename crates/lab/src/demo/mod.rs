//! A demonstration that explains itself: a router on a capture, and a router between two hosts.

mod capture;
mod line;
mod traffic;

use crate::rig::RigError;

/// Shows both; an error if anything did not work as it should.
pub fn run() -> anyhow::Result<()> {
    capture::show()?;
    match line::show() {
        Err(error) => match error.downcast::<RigError>() {
            Ok(RigError::Skip(reason)) => {
                println!("\nSkipped, and no failure: the router between two hosts {reason}.");
                Ok(())
            }
            Ok(error) => Err(error.into()),
            Err(error) => Err(error),
        },
        shown => shown,
    }
}

/// Writes a heading.
fn heading(text: &str) {
    println!("\n== {text}\n");
}
