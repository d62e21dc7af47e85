//! Optional improvements of a graph; each takes an [`Ir`](crate::Ir) and leaves one that does the same.

mod dead;

pub use dead::remove_dead;
