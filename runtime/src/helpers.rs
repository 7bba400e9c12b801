//! Help from other threads, as far as the system gives any.

use crate::lock::lock;
use std::{sync::Mutex, thread};

/// Does `work` on each part, on this thread and on others, at most on `threads` together. Whoever is free
/// takes the next part, so fewer threads take longer and leave nothing out.
///
/// A scope of threads allocates even where it starts none, so one thread goes without it.
pub(crate) fn share_out<Part>(
    threads: usize,
    parts: impl Iterator<Item = Part> + Send,
    work: impl Fn(Part) + Sync,
) {
    if threads < 2 {
        return parts.for_each(work);
    }
    let parts = Mutex::new(parts);
    let next = || lock(&parts).next();
    let take = || {
        while let Some(part) = next() {
            work(part);
        }
    };
    thread::scope(|scope| {
        let start = || thread::Builder::new().spawn_scoped(scope, take);
        let _refused = (1..threads).try_for_each(|_| start().map(drop));
        take();
    });
}
