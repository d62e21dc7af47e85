//! A demonstration that explains itself: a router on a capture, and a router between two hosts.

/// Writes a line. Unlike `println!` it goes on when nobody reads any more.
macro_rules! say {
    ($($text:tt)*) => {{
        // Two hosts and a router are half built up: they are shown to their end.
        let _ = artery_engine::Sink::Stdout.write(&(format!($($text)*) + "\n"));
    }};
}

mod capture;
mod line;
mod routes;
mod traffic;

use crate::rig::RigError;

/// Shows both; an error if anything did not work as it should.
pub fn run() -> anyhow::Result<()> {
    capture::show()?;
    match line::show() {
        Err(error) => match error.downcast::<RigError>() {
            Ok(RigError::Skip(reason)) => {
                say!("\nSkipped, and no failure: the router between two hosts {reason}.");
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
    say!("\n== {text}\n");
}
