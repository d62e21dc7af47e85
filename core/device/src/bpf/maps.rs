//! Maps: memory that programs and this process share.
use super::{bpf, bpf_descriptor, check, with_locked_memory};
use rustix::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::io;

const BPF_MAP_CREATE: libc::c_int = 0;
const BPF_MAP_LOOKUP_ELEM: libc::c_int = 1;
const BPF_MAP_UPDATE_ELEM: libc::c_int = 2;
const BPF_MAP_DELETE_ELEM: libc::c_int = 3;
const BPF_MAP_TYPE_ARRAY: u32 = 2;
const BPF_MAP_TYPE_PROG_ARRAY: u32 = 3;
const BPF_MAP_TYPE_DEVMAP: u32 = 14;
const BPF_MAP_TYPE_XSKMAP: u32 = 17;
const BPF_MAP_TYPE_RINGBUF: u32 = 27;
/// Processes may map it (Linux 5.5).
const BPF_F_MMAPABLE: u32 = 1 << 10;

/// The beginning of the argument of `bpf(BPF_MAP_CREATE)`; what follows is zero.
#[repr(C)]
struct NewMap {
    map_type: u32,
    key_size: u32,
    value_size: u32,
    entries: u32,
    flags: u32,
    rest: [u32; 15],
}

/// The argument of `bpf(BPF_MAP_UPDATE_ELEM)` and of its like.
#[repr(C)]
struct MapElement {
    map: u32,
    padding: u32,
    key: u64,
    value: u64,
    flags: u64,
}

/// AF_XDP sockets by queue number, for programs that redirect frames to them.
#[derive(Debug)]
pub(crate) struct SocketMap(OwnedFd);

impl SocketMap {
    /// Makes a map for queue numbers below `entries`.
    pub(crate) fn new(entries: u32) -> io::Result<SocketMap> {
        new_map(BPF_MAP_TYPE_XSKMAP, 4, entries, 0).map(SocketMap)
    }
    /// The number that a program names it by.
    pub(crate) fn descriptor(&self) -> i32 {
        self.0.as_raw_fd()
    }
    /// Puts a socket under a number.
    pub(crate) fn insert_socket(&self, number: u32, socket: impl AsFd) -> io::Result<()> {
        let value = socket.as_fd().as_raw_fd() as u32;
        // SAFETY: the map was made with values of four bytes.
        unsafe { change(BPF_MAP_UPDATE_ELEM, &self.0, &number, &value) }
    }
    /// Removes the socket under a number.
    pub(crate) fn remove(&self, number: u32) -> io::Result<()> {
        // SAFETY: as in put().
        unsafe { change(BPF_MAP_DELETE_ELEM, &self.0, &number, &0) }
    }
}

/// Makes a map whose keys are numbers.
fn new_map(map_type: u32, value_size: u32, entries: u32, flags: u32) -> io::Result<OwnedFd> {
    let limited = |error: io::Error| match error.raw_os_error() {
        // So kernels before Linux 5.11 say of interfaces by number where locked memory is short.
        Some(libc::EINVAL) if map_type == BPF_MAP_TYPE_DEVMAP => io::Error::from_raw_os_error(libc::EPERM),
        _ => error,
    };
    with_locked_memory(|| try_new_map(map_type, [4, value_size], entries, flags).map_err(limited))
}

/// Makes a ring of events of so many bytes.
pub(super) fn new_ring(bytes: u32) -> io::Result<OwnedFd> {
    with_locked_memory(|| try_new_map(BPF_MAP_TYPE_RINGBUF, [0, 0], bytes, 0))
}

/// Makes a map of keys and values of so many bytes.
fn try_new_map(
    map_type: u32,
    [key_size, value_size]: [u32; 2],
    entries: u32,
    flags: u32,
) -> io::Result<OwnedFd> {
    let mut argument = NewMap { map_type, key_size, value_size, entries, flags, rest: [0; 15] };
    // SAFETY: the command makes a descriptor; the argument is as long as said and has no pointers.
    unsafe { bpf_descriptor(BPF_MAP_CREATE, &mut argument) }
}

/// Puts a value under a key, or removes it.
///
/// # Safety
/// Keys and values of the map must be four bytes long.
unsafe fn change(command: libc::c_int, map: &OwnedFd, key: &u32, value: &u32) -> io::Result<()> {
    let mut argument = MapElement {
        map: map.as_raw_fd() as u32,
        padding: 0,
        key: std::ptr::from_ref(key) as u64,
        // Unknown fields must be zero, and deleting knows no value.
        value: if command == BPF_MAP_DELETE_ELEM { 0 } else { std::ptr::from_ref(value) as u64 },
        flags: 0,
    };
    // SAFETY: the argument is as long as said; its pointers lead to a key and a value of four bytes each, as
    // long as the map's (the caller's promise), which the kernel only reads.
    check(unsafe { bpf(command, &mut argument) })
}

/// An array of one element of `N` words, which programs and this process read and write.
#[derive(Debug)]
pub struct WordArray<const N: usize>(OwnedFd);

impl<const N: usize> WordArray<N> {
    /// Makes an array of zeros.
    pub fn new() -> io::Result<WordArray<N>> {
        new_map(BPF_MAP_TYPE_ARRAY, (N * size_of::<u64>()) as u32, 1, 0).map(WordArray)
    }
    /// The number that a program names the array by.
    pub fn descriptor(&self) -> i32 {
        self.0.as_raw_fd()
    }
    /// What the words are now.
    pub fn read(&self) -> io::Result<[u64; N]> {
        let mut words = [0; N];
        self.exchange(BPF_MAP_LOOKUP_ELEM, &mut words)?;
        Ok(words)
    }
    /// Sets all words of the array.
    pub fn write(&self, mut words: [u64; N]) -> io::Result<()> {
        self.exchange(BPF_MAP_UPDATE_ELEM, &mut words)
    }
    fn exchange(&self, command: libc::c_int, words: &mut [u64; N]) -> io::Result<()> {
        let key = 0u32;
        let (key, value) = (std::ptr::from_ref(&key) as u64, std::ptr::from_mut(words) as u64);
        let mut argument = MapElement { map: self.0.as_raw_fd() as u32, padding: 0, key, value, flags: 0 };
        // SAFETY: the argument is as long as said; its pointers lead to a key of four bytes and to as many
        // words as the array was made with.
        check(unsafe { bpf(command, &mut argument) })
    }
}

/// Bytes that programs reach directly and that processes map by its descriptor; zero at first, and
/// all of it memory.
#[derive(Debug)]
pub struct Array(OwnedFd);

impl Array {
    /// Makes an array of `bytes` bytes.
    pub fn new(bytes: u32) -> io::Result<Array> {
        new_map(BPF_MAP_TYPE_ARRAY, bytes, 1, BPF_F_MMAPABLE).map(Array)
    }
    /// The number that a program names it by.
    pub fn descriptor(&self) -> i32 {
        self.0.as_raw_fd()
    }
}

/// Makes an array within the limit of locked memory.
pub(super) fn try_array(bytes: u32) -> io::Result<Array> {
    try_new_map(BPF_MAP_TYPE_ARRAY, [4, bytes], 1, BPF_F_MMAPABLE).map(Array)
}

impl AsFd for Array {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Interfaces by number, for programs that redirect frames to them.
#[derive(Debug)]
pub struct DeviceMap(OwnedFd);

impl DeviceMap {
    /// Makes a map for numbers below `entries`.
    pub fn new(entries: u32) -> io::Result<DeviceMap> {
        new_map(BPF_MAP_TYPE_DEVMAP, 4, entries, 0).map(DeviceMap)
    }
    /// The number that a program names it by.
    pub fn descriptor(&self) -> i32 {
        self.0.as_raw_fd()
    }
    /// Puts the interface of an index under a number.
    pub fn insert_interface(&self, number: u32, interface: u32) -> io::Result<()> {
        // SAFETY: the map was made with values of four bytes.
        unsafe { change(BPF_MAP_UPDATE_ELEM, &self.0, &number, &interface) }
    }
}

/// Programs by number, for programs that end by calling another of the same hook (`bpf_tail_call`). The
/// kernel removes them once no process has the array any more.
#[derive(Debug)]
pub struct ProgramArray(OwnedFd);

impl ProgramArray {
    /// Makes an array for numbers below `entries`.
    pub fn new(entries: u32) -> io::Result<ProgramArray> {
        new_map(BPF_MAP_TYPE_PROG_ARRAY, 4, entries, 0).map(ProgramArray)
    }
    /// The number that a program names it by.
    pub fn descriptor(&self) -> i32 {
        self.0.as_raw_fd()
    }
    /// Puts a program under a number.
    pub fn insert_program(&self, number: u32, program: &OwnedFd) -> io::Result<()> {
        let value = program.as_raw_fd() as u32;
        // SAFETY: the map was made with values of four bytes.
        unsafe { change(BPF_MAP_UPDATE_ELEM, &self.0, &number, &value) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::namespace::may_make_namespaces;

    #[test]
    fn words_of_an_array_are_what_was_written() {
        if !may_make_namespaces() {
            return;
        }
        let words = WordArray::<5>::new().unwrap();
        assert_eq!(words.read().unwrap(), [0; 5]);
        words.write([1, 2, 3, u64::MAX, 5]).unwrap();
        assert_eq!(words.read().unwrap(), [1, 2, 3, u64::MAX, 5]);
    }
}
