//! Help from other threads, as far as the system gives any.

use std::thread;

/// Calls `work` on this thread and on others, at most on `threads` together. It takes what is left of
/// what there is to do until nothing is, so fewer threads take longer and leave nothing out.
///
/// A scope of threads allocates even where it starts none, so one thread goes without it.
pub(crate) fn together(threads: usize, work: impl Fn() + Sync) {
    if threads < 2 {
        return work();
    }
    thread::scope(|scope| {
        let work = &work;
        let start = || thread::Builder::new().spawn_scoped(scope, work);
        let _refused = (1..threads).try_for_each(|_| start().map(drop));
        work();
    });
}
