//! The IPv4 FIBs.
