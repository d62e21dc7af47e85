//! The IPv6 FIB.
