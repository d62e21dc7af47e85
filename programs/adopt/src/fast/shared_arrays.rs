//! Arrays by name that programs and this process share: what tables are made of.
use artery_device::bpf::Array;
use artery_storage::{Region, Storage};
use rustix::io::Errno;
use std::io;
use std::sync::{Mutex, PoisonError};

/// Bytes behind each array: what a program adds to a place that was cut to the array's size stays inside.
const SLACK: usize = 4096;

/// Bytes of a piece of an array that is too large for one map of the kernel: a power of two.
pub(super) const PIECE: usize = 2 << 20;

/// Arrays by name, made as they are asked for. Before Linux 5.16 a map's value has at most 4 MiB: there a
/// larger array consists of pieces, which are one behind the other in this process's memory.
#[derive(Debug)]
pub(super) struct SharedArrays {
    known: Mutex<Vec<(&'static str, Vec<Array>)>>,
    /// Most bytes of one map, slack included.
    most: usize,
}

impl Default for SharedArrays {
    fn default() -> SharedArrays {
        SharedArrays::with_maps_of(u32::MAX as usize)
    }
}

impl SharedArrays {
    /// Arrays of maps that are no larger than so many bytes.
    pub(super) fn with_maps_of(most: usize) -> SharedArrays {
        SharedArrays { known: Mutex::default(), most }
    }

    /// The number by which programs name an array that is small enough for one map.
    ///
    /// # Panics
    /// Panics when the array was not made, or has pieces.
    pub(super) fn descriptor(&self, name: &str) -> i32 {
        let pieces = self.pieces(name);
        assert_eq!(pieces.len(), 1, "{name} is small enough for one map");
        pieces[0]
    }

    /// The numbers by which programs name the pieces of an array, each of [`PIECE`] bytes, or its only one.
    ///
    /// # Panics
    /// Panics when the array was not made.
    pub(super) fn pieces(&self, name: &str) -> Vec<i32> {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let found = known.iter().find(|(known, _)| *known == name);
        found.expect("the array was made before the program").1.iter().map(Array::descriptor).collect()
    }

    /// One map, or pieces where the kernel makes no map of that size.
    fn make_maps(&self, bytes: usize) -> io::Result<Vec<Array>> {
        let room = bytes.checked_add(SLACK).ok_or(io::ErrorKind::OutOfMemory)?;
        let whole = match room <= self.most {
            true => Array::new(u32::try_from(room).map_err(|_| io::ErrorKind::OutOfMemory)?),
            false => Err(Errno::TOOBIG.into()),
        };
        match whole {
            Err(error) if Errno::from_io_error(&error) == Some(Errno::TOOBIG) && room > PIECE + SLACK => {
                (0..bytes.div_ceil(PIECE)).map(|_| Array::new((PIECE + SLACK) as u32)).collect()
            }
            whole => whole.map(|array| vec![array]),
        }
    }
}

impl Storage for SharedArrays {
    fn map_region(&self, name: &'static str, bytes: usize) -> io::Result<Region> {
        let maps = self.make_maps(bytes)?;
        let region = match maps.as_slice() {
            [whole] => Region::map_file(whole, bytes)?,
            pieces => Region::mapped_in_pieces(pieces, PIECE)?,
        };
        self.known.lock().unwrap_or_else(PoisonError::into_inner).push((name, maps));
        Ok(region)
    }
}
