//! The tables from outside: against slow models, by random operations, with readers of their own.

mod art_readers;
mod table;
