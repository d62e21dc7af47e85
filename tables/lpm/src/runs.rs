//! What a FIB is compiled from.
use crate::address::{Address, Prefix};

/// Where packets of a route go: the number of a next-hop group. A FIB hands it out and gives it no meaning.
pub type Group = u32;

/// The group of addresses that no route covers.
pub const NO_GROUP: Group = 0;

/// A set of routes, seen as runs of neighbouring addresses with the same group.
pub trait Runs<A: Address> {
    /// Calls `each(first, last, group)` for runs that together are exactly the addresses
    /// of `within`, in order.
    ///
    /// The group is that of the longest prefix that covers the run, [`NO_GROUP`] where there is none. The
    /// route of all addresses, length 0, does not count: it shows as [`NO_GROUP`], so that changing it
    /// changes no run. Neighbouring runs may have the same group.
    fn for_each_run(&self, within: Prefix<A>, each: impl FnMut(A, A, Group));

    /// The default route's group, [`NO_GROUP`] if there is none.
    fn default_group(&self) -> Group;
}

/// A set of routes that can say what a short prefix alone covers.
pub trait Holes<A: Address>: Runs<A> {
    /// Calls `each(first, last)` for the addresses of `within` that no prefix longer than
    /// it covers, in order.
    fn for_each_hole(&self, within: Prefix<A>, each: impl FnMut(A, A));
}
