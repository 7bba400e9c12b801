//! Where the parts of a launch meet, line by line: each shows what it brings, waits until all of its
//! line are there, makes its own result, and goes on when all of them have looked. Between showing
//! and waiting it may do other things, so booths have room for several exchanges that are open.
#![expect(unsafe_code, reason = "that all rows stand still is known here")]

use super::counter::{Counter, Parking, Waited};
use crate::exchange::{Ends, Join};
use roundelay_schedule::Native;
use std::{
    ops::{ControlFlow, Range},
    ptr,
    sync::atomic::{AtomicPtr, Ordering::Relaxed},
};

/// Where one thread shows what it brings.
pub(super) struct Booth {
    /// The addresses of what is brought to open exchanges, each at its number; counters order them.
    brought: Box<[AtomicPtr<u8>]>,
    /// Exchanges that the thread came to.
    arrived: Counter,
    /// Exchanges in which it has looked at what all bring.
    looked: Counter,
}

/// One thread among those that meet.
pub(super) struct Meeting {
    thread: usize,
    /// The threads of all parts, in their order.
    parts: Range<usize>,
    /// Exchanges so far, along any lines: all parts come to the same ones.
    begun: u64,
    /// Those that are done, in the same order.
    done: u64,
    join: Join,
}

impl Booth {
    /// A booth that threads of `parking` wait at, with this many exchanges open at one time.
    pub(super) fn new(parking: &Parking, open: usize) -> Self {
        let brought = (0..open.max(1)).map(|_| AtomicPtr::new(ptr::null_mut()));
        Self {
            brought: brought.collect(),
            arrived: Counter::new(parking),
            looked: Counter::new(parking),
        }
    }

    /// What is brought to the exchange of this number.
    fn brought(&self, number: u64) -> &AtomicPtr<u8> {
        &self.brought[(number % self.brought.len() as u64) as usize]
    }
}

impl Meeting {
    /// Thread `thread` among those of `parts`, before the first exchange.
    pub(super) fn new(thread: usize, parts: Range<usize>, dtype: Native) -> Self {
        let join = Join::new(dtype, parts.len());
        Self { thread, parts, begun: 0, done: 0, join }
    }

    /// The number of the thread's part.
    pub(super) fn part(&self) -> u32 {
        u32::try_from(self.thread - self.parts.start).expect("parts are few")
    }

    /// Begins an exchange, which all parts make alike; [`Meeting::finish`] ends it, with the same
    /// ends. No more are open than booths have room for.
    ///
    /// # Safety
    /// Until the exchange is finished, what `ends` brings is written and stays as it is, and what it
    /// gets is the caller's own. All parts begin and finish the same exchanges in the same order,
    /// each with ends of the same sizes, and fall into the lines of each.
    pub(super) unsafe fn begin(
        &mut self,
        booths: &[Booth],
        parking: &Parking,
        ends: &Ends,
    ) {
        self.begun += 1;
        let own = &booths[self.thread];
        own.brought(self.begun).store(ends.brought.0, Relaxed);
        own.arrived.publish(self.begun, parking);
    }

    /// Ends the first exchange that was begun and is not done. Every wait is done inside of `pause`;
    /// a stop breaks it off.
    ///
    /// # Safety
    /// As for [`Meeting::begin`].
    pub(super) unsafe fn finish(
        &mut self,
        booths: &[Booth],
        parking: &Parking,
        ends: &Ends,
        pause: &mut impl FnMut(&dyn Fn() -> Waited) -> Waited,
    ) -> ControlFlow<()> {
        self.done += 1;
        let (number, thread, own) = (self.done, self.thread, self.part());
        let all = &booths[self.parts.clone()];
        let line = ends.exchange.line;
        let members = line.members(own).map(|member| &all[member as usize]);
        let wait = |counter: fn(&Booth) -> &Counter| {
            let mut waits =
                members.clone().map(|booth| counter(booth).wait(number, parking, thread));
            waits.find(|waited| *waited != Waited::Reached).unwrap_or(Waited::Reached)
        };
        reached(pause(&|| wait(|booth| &booth.arrived)))?;
        // SAFETY: every part of the line has come to this exchange, so its address is the one that
        // it showed for it, and none is done before this part has looked; so all arrays stay as
        // they are, and no address is replaced.
        unsafe {
            let brought =
                members.clone().map(|booth| booth.brought(number).load(Relaxed));
            self.join.join(ends, line.place(own) as usize, brought);
        }
        booths[thread].looked.publish(number, parking);
        reached(pause(&|| wait(|booth| &booth.looked)))
    }
}

fn reached(waited: Waited) -> ControlFlow<()> {
    match waited {
        Waited::Reached => ControlFlow::Continue(()),
        Waited::Stopped | Waited::Late => ControlFlow::Break(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpu::jitter::{Jitter, Timing};
    use roundelay_kernels::{Exchange, Kernel};
    use roundelay_schedule::{Attribute, Bytes, Call, Element, Operand};
    use std::{
        panic::{AssertUnwindSafe, catch_unwind},
        thread,
    };

    const ROWS: usize = 3;
    const TURNS: u64 = 400;

    fn sum() -> Exchange {
        let operand = Operand {
            argument: 0,
            offset: Bytes(0),
            element: Element::Real,
            shape: [1, 5][..].into(),
        };
        let parts = Attribute::Integer(ROWS as i64);
        let call = Call {
            kernel: "all_reduce".into(),
            attributes: [("parts".into(), parts)].into_iter().collect(),
            operands: vec![operand.clone(), operand],
        };
        let kernel = Kernel::parse(&call).expect("such a call is well formed");
        kernel.exchange().expect("it is an exchange")
    }

    fn ends(brought: &mut [f64], got: &mut [f64]) -> Ends {
        let end = |array: &mut [f64]| {
            (array.as_mut_ptr().cast(), size_of_val::<[f64]>(array) as u64)
        };
        Ends { exchange: sum(), dtype: Native::F64, brought: end(brought), got: end(got) }
    }

    /// What every row sees of this many exchanges, each of which it enters with other numbers; a
    /// row that is told so fails there.
    fn meet(
        row: usize,
        fails: Option<u64>,
        (booths, parking): (&[Booth], &Parking),
    ) -> u64 {
        parking.register(row);
        let mut meeting = Meeting::new(row, 0..ROWS, Native::F64);
        let mut jitter = Jitter::new(Timing::Jittered(7), row).expect("it is jittered");
        let (mut brought, mut got) = ([0.0; 5], [0.0; 5]);
        for turn in 0..TURNS {
            jitter.pause();
            assert_ne!(Some(turn), fails, "this row fails");
            brought.fill((turn * 10 + row as u64) as f64);
            // SAFETY: both arrays are the thread's own, and all rows do the same.
            let flow = unsafe {
                let ends = ends(&mut brought, &mut got);
                meeting.begin(booths, parking, &ends);
                meeting.finish(booths, parking, &ends, &mut |wait| wait())
            };
            if flow.is_break() {
                return turn;
            }
            assert_eq!(got, [(turn * 30 + 3) as f64; 5]);
        }
        TURNS
    }

    fn all(fails: Option<u64>) -> [u64; ROWS] {
        let parking = Parking::new(ROWS);
        let booths: Vec<Booth> = (0..ROWS).map(|_| Booth::new(&parking, 1)).collect();
        thread::scope(|scope| {
            let start = |row| {
                let (booths, parking) = (&booths, &parking);
                scope.spawn(move || {
                    let fails = fails.filter(|_| row == 1);
                    let meets = || meet(row, fails, (booths, parking));
                    catch_unwind(AssertUnwindSafe(meets)).unwrap_or_else(|_| {
                        parking.stop();
                        u64::MAX
                    })
                })
            };
            [0, 1, 2].map(start).map(|thread| thread.join().unwrap())
        })
    }

    #[test]
    fn rows_get_the_sum_of_what_all_brought_however_late_they_are() {
        assert_eq!(all(None), [TURNS; ROWS]);
    }

    /// As [`meet`], with as many exchanges open as booths have room for.
    fn meet_ahead(row: usize, open: usize, (booths, parking): (&[Booth], &Parking)) {
        parking.register(row);
        let mut meeting = Meeting::new(row, 0..ROWS, Native::F64);
        let mut jitter = Jitter::new(Timing::Jittered(11), row).expect("it is jittered");
        let mut brought = vec![[0.0; 5]; open];
        let mut got = vec![[0.0; 5]; open];
        for turn in 0..TURNS {
            jitter.pause();
            let at = |turn: u64| (turn % open as u64) as usize;
            brought[at(turn)].fill((turn * 10 + row as u64) as f64);
            let own = ends(&mut brought[at(turn)], &mut got[at(turn)]);
            // SAFETY: all arrays are the thread's own, all rows do the same, and none is written
            // again before the exchange that it is in is finished.
            unsafe { meeting.begin(booths, parking, &own) };
            let Some(first) = (turn + 1).checked_sub(open as u64) else { continue };
            jitter.pause();
            let own = ends(&mut brought[at(first)], &mut got[at(first)]);
            // SAFETY: as above, with the ends of the first exchange that is open.
            let flow =
                unsafe { meeting.finish(booths, parking, &own, &mut |wait| wait()) };
            assert!(flow.is_continue());
            assert_eq!(got[at(first)], [(first * 30 + 3) as f64; 5]);
        }
    }

    #[test]
    fn exchanges_that_are_open_together_end_with_what_each_was_begun_with() {
        for open in 1..4 {
            let parking = Parking::new(ROWS);
            let booths: Vec<Booth> =
                (0..ROWS).map(|_| Booth::new(&parking, open)).collect();
            thread::scope(|scope| {
                for row in 0..ROWS {
                    let (booths, parking) = (&booths, &parking);
                    scope.spawn(move || meet_ahead(row, open, (booths, parking)));
                }
            });
        }
    }

    #[test]
    fn a_row_that_fails_lets_the_others_go_where_it_left_them() {
        for turn in [0, 1, 37] {
            let found = all(Some(turn));
            assert_eq!(found[1], u64::MAX);
            // The last wait of the exchange before may see the stop first.
            let near = turn.saturating_sub(1)..=turn;
            assert!(near.contains(&found[0]) && near.contains(&found[2]), "{found:?}");
        }
    }

    #[test]
    fn a_stop_ends_an_exchange_that_nobody_else_comes_to() {
        let parking = Parking::new(ROWS);
        let booths: Vec<Booth> = (0..ROWS).map(|_| Booth::new(&parking, 1)).collect();
        thread::scope(|scope| {
            let alone = scope.spawn(|| meet(0, None, (&booths, &parking)));
            while !alone.is_finished() {
                parking.stop();
                thread::yield_now();
            }
            assert_eq!(alone.join().unwrap(), 0);
        });
    }
}
