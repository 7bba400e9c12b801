//! Work on several threads whose results do not depend on how many there are.

use std::{
    num::NonZeroUsize,
    sync::{
        OnceLock,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
};

/// What `work` makes of each item, in the order of the items, whoever made it.
pub(crate) fn parallel<T: Sync, R: Send>(
    items: &[T],
    work: &(impl Fn(&T) -> R + Sync),
) -> Vec<R> {
    on(threads(), items, work, &|| false)
}

/// The same of the first items, until an end is wished; what was begun then is done.
pub(crate) fn parallel_until<T: Sync, R: Send>(
    items: &[T],
    work: &(impl Fn(&T) -> R + Sync),
    is_over: &(impl Fn() -> bool + Sync),
) -> Vec<R> {
    on(threads(), items, work, is_over)
}

/// How many threads there are; the system is asked once, for it reads files to tell.
pub(crate) fn threads() -> usize {
    static THREADS: OnceLock<usize> = OnceLock::new();
    let ask = || thread::available_parallelism().map_or(1, NonZeroUsize::get);
    *THREADS.get_or_init(ask)
}

/// The same on so many threads. Those that the system does not give are done without.
fn on<T: Sync, R: Send>(
    threads: usize,
    items: &[T],
    work: &(impl Fn(&T) -> R + Sync),
    is_over: &(impl Fn() -> bool + Sync),
) -> Vec<R> {
    if threads <= 1 || items.len() <= 1 {
        return items.iter().take_while(|_| !is_over()).map(work).collect();
    }
    let next = AtomicUsize::new(0);
    let share = || {
        let mut own = Vec::new();
        loop {
            if is_over() {
                return own;
            }
            let number = next.fetch_add(1, Ordering::Relaxed);
            match items.get(number) {
                Some(item) => own.push((number, work(item))),
                None => return own,
            }
        }
    };
    let mut all = thread::scope(|scope| {
        let helpers = 1..threads.min(items.len());
        let start = |_| thread::Builder::new().spawn_scoped(scope, share).ok();
        let helpers: Vec<_> = helpers.map_while(start).collect();
        let mut all = share();
        for helper in helpers {
            match helper.join() {
                Ok(own) => all.extend(own),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
        all
    });
    all.sort_by_key(|(number, _)| *number);
    all.into_iter().map(|(_, result)| result).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_stand_in_the_order_of_the_items() {
        let items: Vec<u64> = (0..100).collect();
        for threads in [1, 2, 7] {
            let squares = on(threads, &items, &|item| item * item, &|| false);
            assert!(
                squares.iter().zip(&items).all(|(square, item)| *square == item * item)
            );
        }
    }

    #[test]
    fn what_was_done_before_the_end_are_the_first_items() {
        let items: Vec<u64> = (0..1000).collect();
        for threads in [1, 2, 7] {
            let done = AtomicUsize::new(0);
            let work = |item: &u64| {
                done.fetch_add(1, Ordering::Relaxed);
                *item
            };
            let is_over = || done.load(Ordering::Relaxed) >= 10;
            let found = on(threads, &items, &work, &is_over);
            assert!(found.len() >= 10 && found.len() < 10 + threads, "{}", found.len());
            assert_eq!(found, items[..found.len()]);
        }
    }
}
