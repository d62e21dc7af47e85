//! Headers against another implementation, and cut short at every length. One program, since each takes time
//! to link.

mod cut_short;
mod etherparse;
mod etherparse_ip6;
