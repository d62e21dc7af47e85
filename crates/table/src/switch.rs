//! A switch of layer 2 after veb(4): its ports, its addresses, and what becomes of a frame.
pub mod command;
