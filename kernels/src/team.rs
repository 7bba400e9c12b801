//! The threads of one device: a kernel's rows are cut into pieces, which threads take in turn.
//!
//! A thread that asks for help owns its helpers; they live as long as it does. Handing out
//! work allocates nothing once they exist, and every row is computed as if it were alone, so
//! results do not depend on their number.
#![allow(unsafe_code, reason = "helpers borrow work that outlives their use of it")]

use std::{
    any::Any,
    cell::RefCell,
    io, iter,
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU32, AtomicUsize, Ordering},
    },
    thread::{self, JoinHandle, Thread},
};

/// Most threads of a device that a kernel makes use of.
pub(crate) const MOST_PARTS: usize = 64;
/// Less arithmetic than this is not worth another thread.
const GRAIN: usize = 1 << 17;
/// Numbers of a cache line.
const LINE: usize = 16;
/// How often a waiting thread looks before it sleeps.
const LOOKS: u32 = 2000;

/// How many of `rows` rows one part takes, when each costs `cost` operations and each thread takes
/// one part.
pub(crate) fn rows_per_part(threads: usize, rows: usize, cost: usize) -> usize {
    let worthwhile = rows.saturating_mul(cost) / GRAIN;
    rows.div_ceil(threads.min(worthwhile).clamp(1, MOST_PARTS)).max(1)
}

/// Rows that threads take piece by piece: whoever is free takes the next one, so a thread whose core
/// is slow, or busy with something else, takes fewer of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cut {
    threads: usize,
    /// Rows of every piece but perhaps the last.
    pub(crate) rows: usize,
}

impl Cut {
    /// Most pieces for one thread.
    const PIECES: usize = 4;
    /// Where all threads are as fast, none works on more than its part of the rows and one in so many
    /// of these.
    const EVEN: usize = 32;

    /// Of `rows` rows that cost `cost` operations each: several pieces for each thread, as far as
    /// these are worth it and divide the rows evenly.
    pub(crate) fn new(threads: usize, rows: usize, cost: usize) -> Self {
        Self::at_multiples(1, threads, rows, cost)
    }
    /// Rows are taken one by one.
    pub(crate) fn singly(threads: usize) -> Self {
        Self { threads, rows: 1 }
    }
    /// Nothing is cut: one thread takes all `rows`.
    pub(crate) fn none(rows: usize) -> Self {
        Self { threads: 1, rows }
    }
    /// Elements that lie side by side: pieces end at whole cache lines.
    pub(crate) fn of_elements(threads: usize, count: usize, cost: usize) -> Self {
        Self::at_multiples(LINE, threads, count, cost)
    }
    /// Elements whose treatment begins anew after every `unit` of them: cut at such places, or anywhere
    /// where there are no more.
    pub(crate) fn of_units(
        unit: usize,
        threads: usize,
        count: usize,
        cost: usize,
    ) -> Self {
        if unit == count {
            return Self::of_elements(threads, count, cost);
        }
        let cut = Self::new(threads, count / unit, cost * unit);
        Self { rows: cut.rows * unit, ..cut }
    }
    /// As [`Cut::new`], where pieces are multiples of `unit` rows.
    pub(crate) fn at_multiples(
        unit: usize,
        threads: usize,
        rows: usize,
        cost: usize,
    ) -> Self {
        let whole = rows_per_part(threads, rows, cost);
        let threads = rows.div_ceil(whole).max(1);
        let most = match threads {
            1 => 1,
            _ => (whole.saturating_mul(cost) / GRAIN).min(MOST_PARTS / threads),
        };
        let rows_of = |pieces: usize| whole.div_ceil(pieces).next_multiple_of(unit);
        let is_even =
            |pieces: &usize| (pieces * rows_of(*pieces) - whole) * Self::EVEN <= whole;
        let pieces = (2..=Self::PIECES.min(most)).rev().find(is_even);
        Self { threads, rows: pieces.map_or(whole, rows_of) }
    }
    /// Works on the parts that the pieces are.
    pub(crate) fn each<P: Send>(
        self,
        parts: impl ExactSizeIterator<Item = P>,
        work: impl Fn(P) + Sync,
    ) {
        share_parts(self.threads, parts, work);
    }
}

/// How many of `columns` columns of `rows` rows one part takes: whole cache lines, so that no
/// two threads write the same one.
pub(crate) fn columns_per_part(threads: usize, columns: usize, rows: usize) -> usize {
    /// A column's element comes from memory.
    const ELEMENT: usize = 4;
    rows_per_part(threads, columns, ELEMENT * rows).next_multiple_of(LINE)
}

/// The parts of `rows` rows, this many each, by number.
pub(crate) fn parts(rows: usize, each: usize) -> std::ops::Range<usize> {
    0..rows.div_ceil(each)
}

/// Works on every part, on as many threads as there are parts: at most 64.
pub(crate) fn for_each_part<P: Send>(
    parts: impl ExactSizeIterator<Item = P>,
    work: impl Fn(P) + Sync,
) {
    share_parts(parts.len(), parts, work);
}

/// Works on every part, the next one on the thread that is free first.
fn share_parts<P: Send>(
    threads: usize,
    parts: impl ExactSizeIterator<Item = P>,
    work: impl Fn(P) + Sync,
) {
    let count = parts.len();
    if threads.min(count) <= 1 {
        return parts.for_each(work);
    }
    let slots = [const { Mutex::new(None) }; MOST_PARTS];
    assert!(count <= MOST_PARTS, "rows are cut into at most {MOST_PARTS} parts");
    for (slot, part) in slots.iter().zip(parts) {
        *lock(slot) = Some(part);
    }
    let next = AtomicUsize::new(0);
    let take = || lock(slots.get(next.fetch_add(1, Ordering::Relaxed))?).take();
    on_threads(threads.min(count), || iter::from_fn(take).for_each(&work));
}

/// Works on items 0 .. `count`, whose arithmetic is `cost` together, each on the thread that is
/// free first: what an item does must not depend on who does it.
pub(crate) fn for_each_item(
    threads: usize,
    count: usize,
    cost: u64,
    work: impl Fn(usize) + Sync,
) {
    let cost = usize::try_from(cost).unwrap_or(usize::MAX) / count.max(1);
    let share = rows_per_part(threads, count, cost);
    let next = AtomicUsize::new(0);
    let take = || Some(next.fetch_add(1, Ordering::Relaxed)).filter(|item| *item < count);
    on_threads(count.div_ceil(share), || iter::from_fn(take).for_each(&work));
}

/// Works once on each of so many threads, of which there are at most 64.
pub(crate) fn on_threads(threads: usize, work: impl Fn() + Sync) {
    let count = threads.clamp(1, MOST_PARTS);
    #[cfg(test)]
    tests::CUT.set(tests::CUT.get().max(count));
    match count {
        1 => work(),
        _ => TEAM.with_borrow_mut(|team| team.run(count, &|_| work())),
    }
}

thread_local! {
    static TEAM: RefCell<Team> = const { RefCell::new(Team { helpers: Vec::new() }) };
}

/// The helpers of one thread.
struct Team {
    helpers: Vec<Helper>,
}

struct Helper {
    desk: Arc<Desk>,
    thread: Option<JoinHandle<()>>,
}

/// Where an owner leaves work for one helper.
struct Desk {
    state: AtomicU32,
    task: Mutex<Option<Task>>,
    failure: Mutex<Option<Box<dyn Any + Send>>>,
    owner: Thread,
}

type Work<'a> = dyn Fn(usize) + Sync + 'a;

#[derive(Clone, Copy)]
struct Task {
    work: &'static Work<'static>,
    index: usize,
}

/// Nothing to do; what was done is done.
const IDLE: u32 = 0;
/// A task lies on the desk.
const BUSY: u32 = 1;
/// The owner is gone.
const CLOSED: u32 = 2;

impl Team {
    /// Calls `work` with 0 .. `count`, each on another thread as far as the system gives any.
    fn run(&mut self, count: usize, work: &Work<'_>) {
        let missing = self.helpers.len() + 1..count;
        self.helpers.extend(missing.map_while(|_| Helper::new().ok()));
        self.share(count, work);
    }

    /// Calls `work` with 0 .. `count` and returns when all are done; what there is no helper for the
    /// owner does itself.
    fn share(&self, count: usize, work: &Work<'_>) {
        // SAFETY: no helper keeps the reference after it went idle, and this function does
        // not return before all of them did: its own share cannot unwind past the wait.
        let borrowed =
            unsafe { std::mem::transmute::<&Work<'_>, &'static Work<'static>>(work) };
        let helpers = &self.helpers[..self.helpers.len().min(count - 1)];
        for (helper, index) in iter::zip(helpers, 1..) {
            helper.start(Task { work: borrowed, index });
        }
        let own = iter::once(0).chain(helpers.len() + 1..count);
        let own = catch_unwind(AssertUnwindSafe(|| own.for_each(work)));
        helpers.iter().for_each(Helper::wait);
        let failed = helpers.iter().find_map(|helper| lock(&helper.desk.failure).take());
        if let Some(panic) = own.err().or(failed) {
            resume_unwind(panic);
        }
    }
}

impl Helper {
    fn new() -> io::Result<Self> {
        let desk = Arc::new(Desk {
            state: AtomicU32::new(IDLE),
            task: Mutex::new(None),
            failure: Mutex::new(None),
            owner: thread::current(),
        });
        let its = Arc::clone(&desk);
        let thread = thread::Builder::new().spawn(move || its.serve())?;
        Ok(Self { desk, thread: Some(thread) })
    }

    fn start(&self, task: Task) {
        *lock(&self.desk.task) = Some(task);
        self.change(BUSY);
    }

    fn change(&self, state: u32) {
        self.desk.state.store(state, Ordering::Release);
        if let Some(thread) = &self.thread {
            thread.thread().unpark();
        }
    }

    fn wait(&self) {
        self.desk.wait_while(BUSY);
    }
}

impl Drop for Helper {
    fn drop(&mut self) {
        self.change(CLOSED);
        if let Some(thread) = self.thread.take() {
            // A helper catches what its work throws, so joining cannot fail.
            let _ = thread.join();
        }
    }
}

impl Desk {
    fn serve(&self) {
        while self.wait_while(IDLE) != CLOSED {
            let task = lock(&self.task).take().expect("a busy desk has a task");
            let done = catch_unwind(AssertUnwindSafe(|| (task.work)(task.index)));
            *lock(&self.failure) = done.err();
            self.state.store(IDLE, Ordering::Release);
            self.owner.unpark();
        }
    }

    /// Looks a while, then sleeps, until the state is another one.
    fn wait_while(&self, state: u32) -> u32 {
        let mut looks = 0;
        loop {
            let now = self.state.load(Ordering::Acquire);
            if now != state {
                return now;
            }
            looks += 1;
            if looks < LOOKS {
                std::hint::spin_loop();
            } else {
                thread::park();
            }
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        Context, Kernel, Mode, NAMES,
        samples::{Array, Draw, contents, large},
    };
    use std::cell::Cell;

    thread_local! {
        /// Most threads that worked for this one at a time.
        pub(super) static CUT: Cell<usize> = const { Cell::new(0) };
    }

    /// Kernels that one thread makes: they sum rows as fast as memory has them, copy rows, decide after
    /// few numbers, have a number for each row, or are exchanges.
    const ALONE: [&str; 17] = [
        "multiply_sum_rows",
        "embedding",
        "slice",
        "slice_backward",
        "slice_integers",
        "prepend",
        "accuracy",
        "part",
        "embedding_part",
        "embedding_part_backward",
        "cross_entropy_join",
        "pixel_norm_statistics",
        "all_reduce",
        "all_gather",
        "reduce_scatter",
        "halo",
        "halo_add",
    ];

    #[test]
    fn every_other_kernel_shares_a_large_call() {
        let context = Context {
            step: 0,
            updates: 1,
            micro_batch: 0,
            seed: 0,
            mode: Mode::Training,
            rate: 0.1,
            slice_offset: 0,
            part: 0,
            threads: 2,
        };
        let is_alone = |name: &&str| {
            let draw = &mut Draw::new(0);
            let call = large(name, draw);
            let mut arrays = contents::<f32>(&call, draw);
            let pointers: Vec<*mut u8> = arrays.iter_mut().map(Array::pointer).collect();
            let kernel = Kernel::parse(&call).unwrap();
            CUT.set(0);
            // SAFETY: the arrays have the operands' lengths, and do not overlap.
            unsafe { kernel.run::<f32>(&pointers, &context) };
            CUT.get() < 2
        };
        let alone: Vec<&str> = NAMES.iter().copied().filter(is_alone).collect();
        assert_eq!(alone, ALONE);
    }

    #[test]
    fn every_part_is_done_once_and_seen_afterwards() {
        for threads in [1, 2, 3, 7] {
            for round in 0..50u64 {
                let mut values = vec![0u64; 100];
                for_each_part(values.chunks_mut(100usize.div_ceil(threads)), |part| {
                    part.iter_mut().for_each(|value| *value += round);
                });
                assert!(values.iter().all(|value| *value == round));
            }
        }
    }

    #[test]
    fn every_item_is_done_once() {
        for (threads, count) in [(1, 5), (3, 100), (4, 2), (2, 1)] {
            let done = [const { AtomicU32::new(0) }; 100];
            for_each_item(threads, count, u64::MAX, |item| {
                done[item].fetch_add(1, Ordering::Relaxed);
            });
            let expected = |item| u32::from(item < count);
            for (item, done) in done.iter().enumerate() {
                assert_eq!(done.load(Ordering::Relaxed), expected(item), "{item}");
            }
        }
    }

    #[test]
    fn what_there_is_no_helper_for_is_done_too() {
        for helpers in 0..5 {
            let helpers = (0..helpers).map(|_| Helper::new().unwrap()).collect();
            let (team, sum) = (Team { helpers }, AtomicU32::new(0));
            team.share(4, &|index| {
                sum.fetch_add(1 << (8 * index), Ordering::Relaxed);
            });
            assert_eq!(sum.into_inner(), 0x0101_0101);
        }
    }

    #[test]
    fn a_failure_reaches_the_owner_and_the_team_lives_on() {
        let failing = || {
            for_each_part([0, 1, 2].into_iter(), |part| assert!(part != 2, "part two"));
        };
        assert!(catch_unwind(failing).is_err());
        for_each_part([0, 1, 2].into_iter(), |part| assert!(part < 3));
    }

    #[test]
    fn pieces_are_worth_it_and_even() {
        let draw = &mut Draw::new(3);
        for _ in 0..10_000 {
            let [threads, rows, cost, unit] =
                [9, 5000, 1 << 20, 64].map(|most| 1 + draw.below(most) as usize);
            let cut = Cut::at_multiples(unit, threads, rows, cost);
            let whole = rows_per_part(threads, rows, cost);
            let pieces = rows.div_ceil(cut.rows);
            assert!(pieces <= MOST_PARTS && cut.threads <= threads);
            let turns = pieces.div_ceil(cut.threads);
            assert!(32 * turns * cut.rows <= 33 * whole.max(cut.rows), "{cut:?}");
            if cut.rows != whole {
                assert!(turns <= 4 && cut.rows * cost >= GRAIN, "{cut:?} of {rows}");
                assert!(cut.rows.is_multiple_of(unit), "{cut:?} of {rows}");
            }
        }
        assert_eq!(Cut::new(2, 1024, 1 << 20), Cut { threads: 2, rows: 128 });
        assert_eq!(Cut::new(1, 1024, 1 << 20), Cut { threads: 1, rows: 1024 });
    }

    #[test]
    fn a_thread_that_waits_leaves_pieces_to_others() {
        let done = Mutex::new(Vec::new());
        let owner = thread::current().id();
        Cut::singly(2).each(0..20, |_| {
            let its = thread::current().id();
            lock(&done).push(its);
            // The helper keeps its first piece until all others are done.
            while its != owner && lock(&done).len() < 20 {
                thread::yield_now();
            }
        });
        let done = lock(&done);
        assert!(done.iter().filter(|id| **id != owner).count() <= 1);
    }

    #[test]
    fn small_work_is_not_cut() {
        assert_eq!(rows_per_part(4, 100, 10), 100);
        assert_eq!(rows_per_part(4, 100, 1 << 20), 25);
        assert_eq!(rows_per_part(0, 0, 0), 1);
    }
}
