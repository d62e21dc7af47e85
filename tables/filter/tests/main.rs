//! The filter from outside: its language by files and random texts, its evaluation against a
//! straight reading, its states.

mod evaluate;
mod states;
mod syntax;
mod syntax_random;
mod world;
