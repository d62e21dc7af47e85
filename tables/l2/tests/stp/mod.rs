//! Bridges that agree on a tree: whole networks of them in time that tests set, against an oracle that knows
//! all costs.

mod attacks;
mod converge;
mod faults;
mod guards;
mod net;
mod old;
mod oracle;
mod switch;
