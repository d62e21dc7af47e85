//! Artery with an element of one's own: all of its commands, which know one class more.
mod drop_every;

use std::process::ExitCode;

fn main() -> ExitCode {
    artery::main_with(&[&drop_every::CLASS])
}
