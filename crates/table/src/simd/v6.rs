//! Gathers of the IPv6 FIB.
