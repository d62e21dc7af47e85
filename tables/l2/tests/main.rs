//! Spanning trees of whole networks.

mod stp;
