//! Gathers of the IPv4 FIBs.
