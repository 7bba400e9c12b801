//! The law of the table: its rows come back, more work never takes less, nothing is out of bounds.

use super::*;
use crate::sample::{self, Random, device};
use roundelay_schedule::{Bytes, CallTime, Flops};

fn row(call: &str, busy: u32, flops: u64, nanos: u64) -> CallTime {
    CallTime {
        busy,
        nanos: Nanos(nanos),
        samples: 9,
        spread: 0.0,
        flops: Flops(flops),
        bytes: Bytes(0),
        call: call.to_owned(),
    }
}

/// Roofline time of a call without traffic.
fn x(flops: u64) -> Nanos {
    roofline(
        Footprint { flops: Flops(flops), bytes: Bytes(0), ..Footprint::default() },
        &device(),
    )
}

#[test]
fn rows_come_back_and_kernels_do_not_mix() {
    let rows = vec![
        row("add real[4]", 1, 100, 50),
        row("add real[4]", 2, 100, 80),
        row("gelu real[4]", 1, 100, 900),
    ];
    let table = Measured::new(&sample::profile(rows), &device());
    let time = |text, busy| table.time(text, x(100), busy);
    assert_eq!(time("add real[4]", 1), Some((Nanos(50), Origin::Measured)));
    assert_eq!(time("add real[4]", 2), Some((Nanos(80), Origin::Measured)));
    assert_eq!(time("add real[4]", 9), Some((Nanos(80), Origin::Measured)));
    assert_eq!(time("add real[5]", 1), Some((Nanos(50), Origin::Scaled)));
    assert_eq!(time("gelu real[9]", 2), Some((Nanos(900), Origin::Scaled)));
    assert_eq!(time("relu real[4]", 1), None);
}

#[test]
fn more_work_never_takes_less() {
    let mut random = Random::new(17);
    for _ in 0..300 {
        let count = 1 + random.below(6);
        let rows = (0..count).map(|number| {
            let (flops, nanos) = (1 + random.below(10_000), 1 + random.below(50_000));
            row(&format!("add real[{number}]"), 1, flops, nanos)
        });
        let table = Measured::new(&sample::profile(rows.collect()), &device());
        let mut works: Vec<u64> = (0..40).map(|_| random.below(20_000)).collect();
        works.sort_unstable();
        let time = |work: &u64| table.time("add real[77,77]", x(*work), 1);
        let times: Vec<_> = works.iter().map(time).collect();
        assert!(times.is_sorted(), "{table:?} {times:?}");
        assert!(times.iter().flatten().all(|(time, _)| *time > Nanos(0)));
    }
}

#[test]
fn a_table_that_grows_with_the_work_comes_back_on_its_own_points() {
    let rows: Vec<CallTime> = (1..9)
        .map(|number| row(&format!("add real[{number}]"), 1, number * 700, number * 990))
        .collect();
    let table = Measured::new(&sample::profile(rows.clone()), &device());
    for row in rows {
        let scaled = table.time("add real[77,77]", x(row.flops.0), 1);
        assert_eq!(scaled, Some((row.nanos, Origin::Scaled)));
    }
    let half = x(350).0 as f64 * 990.0 / x(700).0 as f64;
    let found = table.time("add real[77,77]", x(350), 1).unwrap();
    assert_eq!(found.0, Nanos(half.ceil() as u64));
}
