//! Routing tables for programs in C. What the functions do, and what callers promise, is said in
//! `include/artery_table.h`; a test keeps the two together.
//!
//! All unsafe code of the crate is here, since a C interface is made of pointers. The plan: a pointer is
//! looked at once, where a function begins, and becomes a shared reference or a value. Handles hold their
//! state behind locks that are tried and never waited for, so that two threads in one handle are an error and
//! not a data race. Arrays of the caller are copied in pieces and never borrowed: they may be uninitialised,
//! overlap or be badly aligned. No panic leaves a function: it becomes a status. What remains is the caller's
//! promise that a pointer which is not NULL is good.
use artery_lpm::{
    Address, BuildError, CannotInsert, Family, Group, NO_GROUP, NotAPolicy, NotAPrefix, Policy, Prefix,
    RouteReader, RouteTable, TableError,
};
use artery_rcu::{Domain, Turn};
use artery_storage::HugePages;
use std::any::Any;
use std::borrow::Cow;
use std::cell::RefCell;
use std::ffi::{CStr, CString, c_char, c_int, c_uint};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;
use std::sync::{Arc, Mutex, MutexGuard, TryLockError};

/// How a call went: `enum artery_status`.
#[derive(Clone, Copy)]
#[repr(i32)]
enum Status {
    Ok = 0,
    Argument = -1,
    Missing = -2,
    Full = -3,
    Memory = -4,
    Busy = -5,
    Panic = -6,
}

/// A table behind an `artery_table4` or `artery_table6`.
pub struct Table<A: Family> {
    routes: Mutex<RouteTable<A>>,
    /// Beside the lock, so that readers are made without it.
    reader: RouteReader<A>,
    domain: LastOut,
}

/// A reader behind an `artery_reader4` or `artery_reader6`.
pub struct Reader<A: Family> {
    reader: RouteReader<A>,
    /// Parked whenever it is not locked.
    standing: Mutex<artery_rcu::Reader>,
    _domain: LastOut,
}

/// A handle's share of the domain, dropped after what else it holds.
///
/// What the writer has replaced under a reader's turn waits in the domain, and may hold the domain
/// in turn. Each handle reclaims it when it is freed: after the last one no turn is left to wait
/// for, and nothing leaks.
struct LastOut(Arc<Domain>);

impl Drop for LastOut {
    fn drop(&mut self) {
        while self.0.run_deferred() > 0 {}
    }
}

/// Handles are shared between threads.
const fn shared<T: Send + Sync>() {}
const _: () = {
    shared::<Table<u32>>();
    shared::<Table<u128>>();
    shared::<Reader<u32>>();
    shared::<Reader<u128>>();
};

/// Returns the text of the last failure on this thread.
#[unsafe(no_mangle)]
pub extern "C" fn artery_last_error() -> *const c_char {
    // A thread that is past the end of its locals has no text.
    LAST_ERROR.try_with(|text| text.borrow().as_ptr()).unwrap_or(c"".as_ptr())
}

/// The functions of one address family; `$argument` is an address as C passes it, `$raw` one in an array.
macro_rules! family {
    (
        $address:ty, $argument:ty, $raw:ty,
        $new:ident, $free:ident, $insert:ident, $remove:ident, $get:ident, $count:ident, $set_policy:ident,
        $reader_new:ident, $reader_free:ident, $lookup:ident, $lookup_batch:ident $(,)?
    ) => {
        /// Makes an empty table.
        ///
        /// # Safety
        /// The policy is NULL or ends in a zero byte.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $new(policy: *const c_char) -> *mut Table<$address> {
            // SAFETY: as the caller promises.
            handle(|| Table::new(unsafe { policy_of(policy) }?))
        }

        /// Frees a table; NULL is allowed.
        ///
        /// # Safety
        /// The table is NULL or a good handle that is not used afterwards.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $free(table: *mut Table<$address>) {
            // SAFETY: as the caller promises.
            unsafe { free(table) }
        }

        /// Adds or replaces a route.
        ///
        /// # Safety
        /// Each pointer is NULL or good.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $insert(
            table: *const Table<$address>,
            address: $argument,
            length: c_uint,
            group: Group,
        ) -> c_int {
            // SAFETY: as the caller promises.
            status(|| unsafe { good(table) }?.insert(unsafe { address.address() }?, length, group))
        }

        /// Removes the route of a prefix.
        ///
        /// # Safety
        /// Each pointer is NULL or good.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $remove(
            table: *const Table<$address>,
            address: $argument,
            length: c_uint,
        ) -> c_int {
            // SAFETY: as the caller promises.
            status(|| unsafe { good(table) }?.remove(unsafe { address.address() }?, length))
        }

        /// Gives the group that the route of exactly this prefix leads to.
        ///
        /// # Safety
        /// Each pointer is NULL or good.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $get(
            table: *const Table<$address>,
            address: $argument,
            length: c_uint,
            group: *mut Group,
        ) -> c_int {
            status(|| {
                // SAFETY: as the caller promises.
                let (table, address) = unsafe { (good(table)?, address.address()?) };
                // SAFETY: as the caller promises.
                unsafe { write_result(group, || table.get(address, length)) }
            })
        }

        /// Gives the number of routes.
        ///
        /// # Safety
        /// Each pointer is NULL or good.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $count(table: *const Table<$address>, count: *mut usize) -> c_int {
            // SAFETY: as the caller promises.
            status(|| unsafe { write_result(count, || Ok(lock(&good(table)?.routes)?.len())) })
        }

        /// Forwards by another policy.
        ///
        /// # Safety
        /// Each pointer is NULL or good; the policy ends in a zero byte.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $set_policy(table: *const Table<$address>, policy: *const c_char) -> c_int {
            status(|| {
                // SAFETY: as the caller promises.
                let (table, policy) = unsafe { (good(table)?, policy_of(policy)?) };
                Ok(lock(&table.routes)?.set_policy(policy)?)
            })
        }

        /// Makes a reader for one thread.
        ///
        /// # Safety
        /// The table is NULL or good.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $reader_new(table: *const Table<$address>) -> *mut Reader<$address> {
            // SAFETY: as the caller promises.
            handle(|| Ok(unsafe { good(table) }?.reader()))
        }

        /// Frees a reader; NULL is allowed.
        ///
        /// # Safety
        /// The reader is NULL or a good handle that is not used afterwards.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $reader_free(reader: *mut Reader<$address>) {
            // SAFETY: as the caller promises.
            unsafe { free(reader) }
        }

        /// Looks up an address.
        ///
        /// # Safety
        /// Each pointer is NULL or good.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $lookup(
            reader: *const Reader<$address>,
            address: $argument,
            group: *mut Group,
        ) -> c_int {
            status(|| {
                // SAFETY: as the caller promises.
                let (reader, address) = unsafe { (good(reader)?, address.address()?) };
                // SAFETY: as the caller promises.
                unsafe { write_result(group, || reader.with_turn(|table, turn| table.lookup(turn, address))) }
            })
        }

        /// Looks up many addresses.
        ///
        /// # Safety
        /// Each pointer is NULL or good; there are `count` addresses, and room for as many groups.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $lookup_batch(
            reader: *const Reader<$address>,
            addresses: *const $raw,
            count: usize,
            groups: *mut Group,
        ) -> c_int {
            // SAFETY: as the caller promises.
            status(|| unsafe { good(reader)?.lookup_array(addresses, count, groups) })
        }
    };
}

family! {
    u32, u32, u32,
    artery_table4_new, artery_table4_free, artery_table4_insert, artery_table4_remove, artery_table4_get,
    artery_table4_count, artery_table4_set_policy,
    artery_reader4_new, artery_reader4_free, artery_reader4_lookup, artery_reader4_lookup_batch,
}

family! {
    u128, *const Bytes, Bytes,
    artery_table6_new, artery_table6_free, artery_table6_insert, artery_table6_remove, artery_table6_get,
    artery_table6_count, artery_table6_set_policy,
    artery_reader6_new, artery_reader6_free, artery_reader6_lookup, artery_reader6_lookup_batch,
}

/// An IPv6 address in network order.
type Bytes = [u8; 16];

/// An address as it lies in an array of the caller.
trait Raw: Copy {
    type Address: Family;
    fn number(self) -> Self::Address;
}

impl Raw for u32 {
    type Address = u32;
    fn number(self) -> u32 {
        self
    }
}

impl Raw for Bytes {
    type Address = u128;
    fn number(self) -> u128 {
        u128::from_be_bytes(self)
    }
}

/// An address as C passes it to a function.
trait Argument {
    type Address;
    /// # Safety
    /// If it is a pointer, it is NULL or good.
    unsafe fn address(self) -> Outcome<Self::Address>;
}

impl Argument for u32 {
    type Address = u32;
    unsafe fn address(self) -> Outcome<u32> {
        Ok(self)
    }
}

impl Argument for *const Bytes {
    type Address = u128;
    unsafe fn address(self) -> Outcome<u128> {
        // SAFETY: the caller promises it; bytes have no alignment.
        unsafe { self.as_ref() }.map(|bytes| bytes.number()).ok_or(NULL)
    }
}

impl<A: Family> Table<A> {
    fn new(policy: Policy<A>) -> Outcome<Table<A>> {
        let domain = Domain::new();
        let routes = RouteTable::new(&domain, policy, Arc::new(HugePages))?;
        Ok(Table { reader: routes.reader(), routes: Mutex::new(routes), domain: LastOut(domain) })
    }

    fn insert(&self, address: A, length: c_uint, group: Group) -> Outcome<()> {
        lock(&self.routes)?.insert(prefix(address, length)?, group)?;
        Ok(())
    }

    fn remove(&self, address: A, length: c_uint) -> Outcome<()> {
        lock(&self.routes)?.remove(prefix(address, length)?).map(drop).ok_or(MISSING)
    }

    fn get(&self, address: A, length: c_uint) -> Outcome<Group> {
        lock(&self.routes)?.get(prefix(address, length)?).ok_or(MISSING)
    }

    fn reader(&self) -> Reader<A> {
        let domain = self.domain.0.clone();
        Reader {
            reader: self.reader.clone(),
            standing: Mutex::new(domain.reader()),
            _domain: LastOut(domain),
        }
    }
}

/// So many addresses of an array are copied and looked up together.
const TOGETHER: usize = 64;

impl<A: Family> Reader<A> {
    /// Calls a function with the table in a turn, in which nothing that it reads is freed.
    fn with_turn<T>(&self, read: impl FnOnce(&RouteReader<A>, &Turn<'_>) -> T) -> Outcome<T> {
        let mut awake = Awake(lock(&self.standing)?);
        let turn = awake.0.turn();
        Ok(read(&self.reader, &turn))
    }

    /// # Safety
    /// Each pointer is NULL or good for `count` items.
    unsafe fn lookup_array<R: Raw<Address = A>>(
        &self,
        addresses: *const R,
        count: usize,
        groups: *mut Group,
    ) -> Outcome<()> {
        if count == 0 {
            return Ok(());
        }
        if addresses.is_null() || groups.is_null() {
            return Err(NULL);
        }
        if count > isize::MAX as usize / size_of::<R>() {
            return Err(Failure::argument("no array has so many addresses"));
        }
        self.with_turn(|table, turn| {
            let (mut numbers, mut found) = ([A::ZERO; TOGETHER], [NO_GROUP; TOGETHER]);
            for start in (0..count).step_by(TOGETHER) {
                let many = TOGETHER.min(count - start);
                for (index, number) in (start..).zip(&mut numbers[..many]) {
                    // SAFETY: the index is below `count`, which the caller promises to be there.
                    *number = unsafe { addresses.add(index).read_unaligned() }.number();
                }
                table.lookup_batch(turn, &numbers[..many], &mut found[..many]);
                for (index, group) in (start..).zip(&found[..many]) {
                    // SAFETY: as above.
                    unsafe { groups.add(index).write_unaligned(*group) };
                }
            }
        })
    }
}

/// A reader within a call; parked again when the call ends, also by a panic.
struct Awake<'r>(MutexGuard<'r, artery_rcu::Reader>);

impl Drop for Awake<'_> {
    fn drop(&mut self) {
        self.0.park();
    }
}

/// Why a call failed.
struct Failure {
    status: Status,
    text: Cow<'static, str>,
}

type Outcome<T> = Result<T, Failure>;

const NULL: Failure = Failure::argument("a pointer is NULL");
const MISSING: Failure =
    Failure { status: Status::Missing, text: Cow::Borrowed("no route for exactly this prefix") };

impl Failure {
    const fn argument(text: &'static str) -> Failure {
        Failure { status: Status::Argument, text: Cow::Borrowed(text) }
    }

    fn panicked(cause: &(dyn Any + Send)) -> Failure {
        let text = cause.downcast_ref::<&str>().copied();
        let text = text.or_else(|| cause.downcast_ref::<String>().map(String::as_str)).unwrap_or("a panic");
        Failure { status: Status::Panic, text: format!("a bug: {text}").into() }
    }
}

impl From<TableError> for Failure {
    fn from(error: TableError) -> Failure {
        let status = match &error {
            TableError::Memory(_) | TableError::Fib(BuildError::Storage(_)) => Status::Memory,
            TableError::Route(CannotInsert::Full) | TableError::Fib(BuildError::Full(_)) => Status::Full,
            TableError::Route(CannotInsert::Group(_)) => Status::Argument,
        };
        Failure { status, text: error.to_string().into() }
    }
}

thread_local! {
    static LAST_ERROR: RefCell<CString> = RefCell::new(CString::default());
}

/// Keeps the text for `artery_last_error`.
fn remember(failure: &Failure) {
    let bytes: Vec<u8> = failure.text.bytes().filter(|byte| *byte != 0).collect();
    let text = CString::new(bytes).unwrap_or_default();
    // A thread that is past the end of its locals keeps no text; the status is enough.
    let _ = LAST_ERROR.try_with(|last| last.replace(text));
}

/// Runs the body of a function, so that neither a failure nor a panic gets past it.
fn outcome<T>(body: impl FnOnce() -> Outcome<T>) -> Outcome<T> {
    // Unwind safety: what a panic leaves half done lies behind a lock, which is poisoned by it.
    let outcome =
        catch_unwind(AssertUnwindSafe(body)).unwrap_or_else(|cause| Err(Failure::panicked(&*cause)));
    outcome.inspect_err(remember)
}

/// The status that the body of a function ends with.
fn status(body: impl FnOnce() -> Outcome<()>) -> c_int {
    outcome(body).map_or_else(|failure| failure.status, |()| Status::Ok) as c_int
}

/// The handle to what the body of a function makes; NULL when it fails.
fn handle<T>(body: impl FnOnce() -> Outcome<T>) -> *mut T {
    outcome(body).map_or(ptr::null_mut(), |made| Box::into_raw(Box::new(made)))
}

/// # Safety
/// The pointer is NULL or from [`handle`], and is not used afterwards.
unsafe fn free<T>(handle: *mut T) {
    if !handle.is_null() {
        // SAFETY: from `Box::into_raw`, and the caller gives up the only use of it.
        let owned = unsafe { Box::from_raw(handle) };
        // No caller receives this status.
        let _ = status(|| {
            drop(owned);
            Ok(())
        });
    }
}

/// What a handle points to.
///
/// # Safety
/// The pointer is NULL or from [`handle`] and not freed within `'h`.
unsafe fn good<'h, T>(handle: *const T) -> Outcome<&'h T> {
    // SAFETY: the caller promises it; nothing ever has a unique reference to what a handle points to.
    unsafe { handle.as_ref() }.ok_or(NULL)
}

/// Writes what `find` finds to where the caller wants it.
///
/// # Safety
/// The pointer is NULL or may be written to.
unsafe fn write_result<T: Copy>(place: *mut T, find: impl FnOnce() -> Outcome<T>) -> Outcome<()> {
    if place.is_null() {
        return Err(NULL);
    }
    let found = find()?;
    // SAFETY: the caller promises it.
    unsafe { place.write_unaligned(found) };
    Ok(())
}

/// The policy that a text names.
///
/// # Safety
/// The pointer is NULL or the text ends in a zero byte.
unsafe fn policy_of<A: Family>(text: *const c_char) -> Outcome<Policy<A>> {
    if text.is_null() {
        return Err(NULL);
    }
    // SAFETY: the caller promises it, and the reference does not leave this function.
    let text = unsafe { CStr::from_ptr(text) };
    let policy = text.to_str().map_err(|_| NotAPolicy::Form).and_then(str::parse);
    policy.map_err(|error| Failure { status: Status::Argument, text: error.to_string().into() })
}

fn prefix<A: Address>(address: A, length: c_uint) -> Outcome<Prefix<A>> {
    let prefix = u8::try_from(length).ok().and_then(|length| Prefix::new(address, length).ok());
    prefix.ok_or_else(|| Failure { status: Status::Argument, text: NotAPrefix::Length.to_string().into() })
}

/// Locks what one thread at a time may use.
fn lock<T>(mutex: &Mutex<T>) -> Outcome<MutexGuard<'_, T>> {
    mutex.try_lock().map_err(|error| match error {
        TryLockError::WouldBlock => Failure {
            status: Status::Busy,
            text: "another thread is in a call on this table or reader".into(),
        },
        TryLockError::Poisoned(_) => {
            Failure { status: Status::Panic, text: "an earlier call on this ended in a bug".into() }
        }
    })
}

#[cfg(test)]
mod tests;
