//! Headers against another implementation, and cut at every length. One program: each takes time to link.

mod cut_short;
mod etherparse;
mod etherparse_ip6;
