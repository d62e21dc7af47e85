//! The fields of a header as a table: what each is called, of which type it is, and where it begins.

use std::net::{Ipv4Addr, Ipv6Addr};

use crate::bytes::{read_array, write_array};
use crate::{ArpOperation, EtherAddr, EtherType, Icmp6Type, IcmpType, IpProtocol, TcpFlags};

/// What may stand in a header, in network order.
pub(crate) trait Field: Sized {
    fn read(bytes: &[u8], at: usize) -> Self;
    fn write(self, bytes: &mut [u8], at: usize);
}

impl<const N: usize> Field for [u8; N] {
    #[inline(always)]
    fn read(bytes: &[u8], at: usize) -> [u8; N] {
        read_array(bytes, at)
    }

    #[inline(always)]
    fn write(self, bytes: &mut [u8], at: usize) {
        write_array(bytes, at, self);
    }
}

macro_rules! numbers {
    ($($kind:ident: $from:ident, $into:ident;)*) => {$(
        impl Field for $kind {
            #[inline(always)]
            fn read(bytes: &[u8], at: usize) -> $kind {
                $kind::$from(Field::read(bytes, at))
            }

            #[inline(always)]
            fn write(self, bytes: &mut [u8], at: usize) {
                self.$into().write(bytes, at);
            }
        }
    )*};
}

numbers! {
    u8: from_be_bytes, to_be_bytes;
    u16: from_be_bytes, to_be_bytes;
    u32: from_be_bytes, to_be_bytes;
    u128: from_be_bytes, to_be_bytes;
    Ipv4Addr: from_bits, to_bits;
    Ipv6Addr: from_bits, to_bits;
}

macro_rules! newtypes {
    ($($kind:ident)*) => {$(
        impl Field for $kind {
            #[inline(always)]
            fn read(bytes: &[u8], at: usize) -> $kind {
                $kind(Field::read(bytes, at))
            }

            #[inline(always)]
            fn write(self, bytes: &mut [u8], at: usize) {
                self.0.write(bytes, at);
            }
        }
    )*};
}

newtypes! { ArpOperation EtherAddr EtherType Icmp6Type IcmpType IpProtocol TcpFlags }

/// Gives a view a getter, and a setter where one is named, for each field:
/// `getter / setter: type = offset, "what it is";`. The view has checked that all of them are there.
macro_rules! fields {
    ($view:ident { $($get:ident $(/ $set:ident)?: $kind:ty = $at:expr, $what:literal;)* }) => {
        impl<T: AsRef<[u8]>> $view<T> {$(
            #[doc = concat!("Returns ", $what, ".")]
            #[inline]
            pub fn $get(&self) -> $kind {
                $crate::fields::Field::read(self.0.as_ref(), $at)
            }
        )*}

        impl<T: AsRef<[u8]> + AsMut<[u8]>> $view<T> {$($(
            #[doc = concat!("Sets ", $what, ".")]
            #[inline]
            pub fn $set(&mut self, value: $kind) {
                $crate::fields::Field::write(value, self.0.as_mut(), $at)
            }
        )?)*}
    };
}

pub(crate) use fields;
