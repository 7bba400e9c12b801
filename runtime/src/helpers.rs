//! Help from other threads, as far as the system gives any.

use crate::lock::lock;
use std::{panic, sync::Mutex, thread};

/// Does `work` on each part, on this thread and on others, at most on `threads` together. Whoever is free
/// takes the next part, so fewer threads take longer and leave nothing out. What unwinds another thread unwinds
/// this one.
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
        let helpers: Vec<_> = (1..threads).map_while(|_| start().ok()).collect();
        take();
        for helper in helpers {
            helper.join().unwrap_or_else(|panic| panic::resume_unwind(panic));
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn what_unwinds_a_helper_is_told() {
        let here = thread::current().id();
        let unwound = panic::catch_unwind(|| {
            share_out(2, 0..2, |_| match thread::current().id() == here {
                // The other part is the helper's, if it comes at all.
                true => thread::sleep(Duration::from_secs(1)),
                false => panic::resume_unwind(Box::new("why")),
            });
        });
        assert_eq!(unwound.unwrap_err().downcast_ref(), Some(&"why"));
    }
}
