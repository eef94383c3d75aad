//! Simulated time, randomness and waiting. This program replaces five functions of the C library: simulating
//! threads get the simulated time and random numbers and never wait; all other threads get the kernel's.
//!
//! Rejected after trying: a paused tokio clock (one for each runtime, blind to `SystemTime` and to the boot
//! clock), fixed ticks (2 to 20 s of real time for what takes 0.4 s), and one `LocalSet` for each host (tasks of
//! a `TaskTracker` or a `JoinSet` escape it).

#![expect(unsafe_code, reason = "functions of the C library are replaced, and the allocator counts")]

use nix::libc::{
    CLOCK_BOOTTIME, CLOCK_MONOTONIC, CLOCK_MONOTONIC_COARSE, CLOCK_MONOTONIC_RAW, CLOCK_REALTIME,
    CLOCK_REALTIME_COARSE, SYS_clock_gettime, SYS_eventfd2, SYS_getrandom, SYS_write, c_int, c_uint, c_void,
    clockid_t, epoll_event, size_t, ssize_t, syscall, timespec,
};
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;

/// The wall clock of the world at its beginning, in ms.
pub(crate) const EPOCH_MS: i64 = 1_700_000_000_000;
/// How often a runtime may poll without a pause before one simulated millisecond passes.
const SPINS_IN_A_MS: u64 = 1000;
/// What the monotonic clocks show at the beginning, in ms.
const BEGINNING_MS: u64 = 1_000_000;

thread_local! {
    static SIMULATES: Cell<bool> = const { Cell::new(false) };
    static NOW_MS: Cell<u64> = const { Cell::new(0) };
    static SKEW_MS: Cell<i64> = const { Cell::new(0) };
    static CHANCE: Cell<u64> = const { Cell::new(0) };
    /// How long the runtime that became idle last would have waited, in ms; below 0: without limit.
    static WAITS: Cell<c_int> = const { Cell::new(0) };
    static LIVE_BYTES: Cell<i64> = const { Cell::new(0) };
    /// Hosts whose process has called for its own exit.
    static EXITS: RefCell<Vec<usize>> = const { RefCell::new(Vec::new()) };
    /// How often the running host has polled without a pause.
    static SPINS: Cell<u64> = const { Cell::new(0) };
    /// The first panic of simulated code.
    static PANIC: RefCell<Option<String>> = const { RefCell::new(None) };
    /// The eventfds of the simulated runtimes.
    static WAKERS: RefCell<BTreeSet<c_int>> = const { RefCell::new(BTreeSet::new()) };
    static HOST: Cell<usize> = const { Cell::new(0) };
}

/// Makes the calling thread simulate the world of this seed.
pub(crate) fn enter(seed: u64) {
    CHANCE.set(seed);
    SIMULATES.set(true);
    let before = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        if simulates() {
            let _first = PANIC.try_with(|it| it.borrow_mut().get_or_insert(panic.to_string()).len());
        } else {
            before(panic);
        }
    }));
}

/// The message and place of the first panic in a task of a host, if there was one.
pub(crate) fn take_panic() -> Option<String> {
    PANIC.take()
}

pub(crate) fn set_now(now_ms: u64) {
    NOW_MS.set(now_ms);
}

/// Milliseconds since the beginning of the world.
pub(crate) fn now() -> u64 {
    NOW_MS.get()
}

/// Sets the offset of the wall clock; returns the previous offset.
pub(crate) fn set_skew(skew_ms: i64) -> i64 {
    SKEW_MS.replace(skew_ms)
}

/// Names the host whose code runs from now on.
pub(crate) fn set_host(host: usize) {
    HOST.set(host);
}

/// The host whose code runs.
pub(crate) fn host() -> usize {
    HOST.get()
}

/// How long the runtime that became idle last would have waited, in ms; `None`: without limit.
pub(crate) fn waits() -> Option<u64> {
    u64::try_from(WAITS.get()).ok()
}

/// Ends the process of the running host. The exit code is ignored.
pub(crate) fn exit_process(_code: i32) {
    EXITS.with_borrow_mut(|exits| exits.push(HOST.get()));
}

pub(crate) fn take_exits() -> Vec<usize> {
    EXITS.take()
}

/// Bytes that this thread has allocated and not freed.
pub(crate) fn live_bytes() -> i64 {
    LIVE_BYTES.get()
}

/// 64 random bits (splitmix64).
pub(crate) fn chance() -> u64 {
    let state = CHANCE.get().wrapping_add(0x9E37_79B9_7F4A_7C15);
    CHANCE.set(state);
    let mut mixed = (state ^ (state >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    mixed ^ (mixed >> 31)
}

/// Counts a poll that returns at once. A runtime that polls without end keeps its processor busy, so
/// simulated time must pass.
fn spin() {
    SPINS.set(SPINS.get() + 1);
    if SPINS.get().is_multiple_of(SPINS_IN_A_MS) {
        NOW_MS.set(NOW_MS.get() + 1);
    }
}

fn simulates() -> bool {
    SIMULATES.try_with(Cell::get).unwrap_or(false)
}

/// # Safety
/// As the C library's: `to` is valid for a write.
#[unsafe(no_mangle)]
unsafe extern "C" fn clock_gettime(clock: clockid_t, to: *mut timespec) -> c_int {
    let ms = match clock {
        CLOCK_MONOTONIC | CLOCK_MONOTONIC_RAW | CLOCK_MONOTONIC_COARSE | CLOCK_BOOTTIME if simulates() => {
            i64::try_from(BEGINNING_MS + NOW_MS.get()).unwrap_or(0)
        }
        CLOCK_REALTIME | CLOCK_REALTIME_COARSE if simulates() => {
            EPOCH_MS + i64::try_from(NOW_MS.get()).unwrap_or(0) + SKEW_MS.get()
        }
        // SAFETY: the caller's own arguments.
        _ => return unsafe { syscall(SYS_clock_gettime, clock, to) } as c_int,
    };
    // SAFETY: the caller gives a place to write to.
    unsafe { to.write(timespec { tv_sec: ms.div_euclid(1000), tv_nsec: ms.rem_euclid(1000) * 1_000_000 }) };
    0
}

/// # Safety
/// As the C library's: `to` is valid for writes of `size` bytes.
#[unsafe(no_mangle)]
unsafe extern "C" fn getrandom(to: *mut c_void, size: size_t, flags: c_uint) -> ssize_t {
    if !simulates() {
        // SAFETY: the caller's own arguments.
        return unsafe { syscall(SYS_getrandom, to, size, flags) } as ssize_t;
    }
    for at in 0..size {
        let [byte, ..] = chance().to_le_bytes();
        // SAFETY: the caller gives `size` bytes to write to.
        unsafe { to.cast::<u8>().add(at).write(byte) };
    }
    ssize_t::try_from(size).unwrap_or(ssize_t::MAX)
}

/// The function in which an idle runtime waits. A simulated runtime never waits: this function records how
/// long it would have waited, and the world moves time forward once all hosts are idle.
///
/// # Safety
/// As the C library's: `events` is valid for writes of `most` events.
#[unsafe(no_mangle)]
unsafe extern "C" fn epoll_wait(
    epoll: c_int,
    events: *mut epoll_event,
    most: c_int,
    timeout: c_int,
) -> c_int {
    if simulates() {
        WAITS.set(timeout);
        if timeout == 0 {
            spin();
        } else {
            SPINS.set(0);
        }
        return 0;
    }
    // SAFETY: the caller's own arguments; a null mask changes no signal.
    unsafe { nix::libc::epoll_pwait(epoll, events, most, timeout, std::ptr::null()) }
}

/// Runtimes wake themselves through an eventfd. A simulated runtime never waits, so [`write`] skips its eventfds.
///
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
unsafe extern "C" fn eventfd(count: c_uint, flags: c_int) -> c_int {
    // SAFETY: the caller's own arguments.
    let made = unsafe { syscall(SYS_eventfd2, count, flags) } as c_int;
    if simulates() {
        WAKERS.with_borrow_mut(|wakers| {
            wakers.insert(made);
        });
    }
    made
}

/// # Safety
/// As the C library's: `from` is valid for reads of `size` bytes.
#[unsafe(no_mangle)]
unsafe extern "C" fn write(to: c_int, from: *const c_void, size: size_t) -> ssize_t {
    let wakes = || WAKERS.try_with(|wakers| wakers.borrow().contains(&to)).unwrap_or(false);
    if simulates() && wakes() {
        return ssize_t::try_from(size).unwrap_or(ssize_t::MAX);
    }
    // SAFETY: the caller's own arguments.
    unsafe { syscall(SYS_write, to, from, size) as ssize_t }
}

/// The system's allocator, with a count of what each thread holds.
struct Counting;

#[global_allocator]
static COUNTING: Counting = Counting;

fn count(bytes: usize, sign: i64) {
    let bytes = sign * i64::try_from(bytes).unwrap_or(0);
    let _thread_is_over = LIVE_BYTES.try_with(|live| live.set(live.get() + bytes));
}

// SAFETY: every call goes to the system's allocator unchanged; the count touches no memory of it.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size(), 1);
        // SAFETY: the caller's own arguments.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        count(layout.size(), -1);
        // SAFETY: the caller's own arguments.
        unsafe { System.dealloc(at, layout) }
    }
    unsafe fn realloc(&self, at: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count(layout.size(), -1);
        count(size, 1);
        // SAFETY: the caller's own arguments.
        unsafe { System.realloc(at, layout, size) }
    }
}
