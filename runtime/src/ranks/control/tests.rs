//! Ranks as threads of one process.

use super::{link::Line, *};
use roundelay_schedule::{ActionId, Id};
use std::{
    net::TcpListener,
    panic::AssertUnwindSafe,
    sync::atomic::{AtomicU32, Ordering},
    time::Instant,
};

const DEADLINE: Duration = Duration::from_secs(4);

/// For ranks that are to wait it out.
const SHORT: Duration = Duration::from_secs(3);

/// More than one part.
const LARGE: usize = 2 * wire::PART + 5;

/// A port below those that the system gives to connections, and that no other test here gets.
fn free_port() -> u16 {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    loop {
        let number = std::process::id() * 61 + NEXT.fetch_add(1, Ordering::Relaxed);
        let port = 11_000 + (number % 9_000) as u16;
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
}

pub(in crate::ranks) fn seats(size: u32) -> Vec<Seat> {
    let port = free_port();
    let host = "127.0.0.1".to_owned();
    (0..size)
        .map(|rank| Seat { rank, size, local: rank, host: host.clone(), port })
        .collect()
}

/// What each rank comes to; later ones start first.
pub(in crate::ranks) fn all<'a, T: Send>(
    seats: &'a [Seat],
    work: impl Fn(&Seat) -> T + Sync,
) -> Vec<T> {
    let last = seats.len() as u32 - 1;
    thread::scope(|scope| {
        let own = |seat: &'a Seat| {
            let work = &work;
            let delay = Duration::from_millis(30 * u64::from(last - seat.rank.min(last)));
            scope.spawn(move || {
                thread::sleep(delay);
                work(seat)
            })
        };
        let threads: Vec<_> = seats.iter().map(own).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

fn met(seat: &Seat) -> Control {
    Control::meet(seat, DEADLINE).unwrap()
}

#[test]
fn all_ranks_gather_what_all_bring_in_order() {
    let seats = seats(4);
    let gathered = all(&seats, |seat| {
        let control = met(seat);
        let large = vec![seat.rank as u8; LARGE];
        let first = control.gather(large).unwrap();
        let second = control.gather(vec![10 + seat.rank as u8]).unwrap();
        (first.iter().map(|own| (own[0], own.len())).collect::<Vec<_>>(), second)
    });
    for (first, second) in gathered {
        assert_eq!(first, (0..4).map(|rank| (rank, LARGE)).collect::<Vec<_>>());
        assert_eq!(second, [[10], [11], [12], [13]]);
    }
}

#[test]
fn what_rank_0_makes_of_all_is_told_to_all() {
    let seats = seats(3);
    let settled = all(&seats, |seat| {
        let control = met(seat);
        let own = vec![seat.rank; seat.rank as usize + 1];
        control.settle(&own, |all| all.concat()).unwrap()
    });
    assert_eq!(settled, vec![vec![0, 1, 1, 2, 2, 2]; 3]);
}

#[test]
fn one_rank_alone_needs_nobody() {
    let control = met(&seats(1)[0]);
    assert_eq!(control.gather(vec![3]).unwrap(), [[3]]);
}

#[test]
fn what_goes_wrong_on_one_ends_all_with_its_place() {
    let found = all(&seats(3), |seat| {
        let control = met(seat);
        if seat.rank == 2 {
            control.at(Position::Resting { step: 7 });
            return control.fail("it is on fire");
        }
        control.gather(Vec::new()).unwrap_err()
    });
    for trouble in found {
        let said = trouble.to_string();
        assert_eq!(said, "rank 2 failed at rest after step 7: it is on fire");
    }
}

#[test]
fn a_rank_that_leaves_early_is_missed() {
    let found = all(&seats(2), |seat| {
        let control = met(seat);
        (seat.rank == 0).then(|| control.gather(Vec::new()).unwrap_err())
    });
    let said = found[0].as_ref().unwrap().to_string();
    assert!(said.contains("rank 1 ended before it"), "{said}");
}

#[test]
fn whoever_does_not_come_is_named_by_all() {
    let start = Instant::now();
    let found = all(&seats(3), |seat| {
        let control = met(seat);
        let period = i64::from(seat.rank != 1);
        control.at(Position::Replaying { period, action: ActionId::new(3) });
        if seat.rank == 1 {
            control.shared.wait_for(3 * DEADLINE, |inbox| inbox.trouble.is_some());
            return control.trouble().unwrap();
        }
        control.gather(Vec::new()).unwrap_err()
    });
    assert!(start.elapsed() < 3 * DEADLINE);
    for trouble in found {
        let said = trouble.to_string();
        assert!(said.contains("rank 1 is furthest behind, in period 0 at a3"), "{said}");
        assert!(said.contains("rank 0 waits in period 1 at a3"), "{said}");
    }
}

#[test]
fn a_rank_at_rest_may_take_its_time() {
    for position in [Position::Starting, Position::Resting { step: 4 }] {
        let found = all(&seats(2), |seat| {
            let control = Control::meet(seat, SHORT).unwrap();
            control.at(position);
            if seat.rank == 1 {
                thread::sleep(2 * SHORT);
            }
            control.gather(vec![seat.rank as u8])
        });
        assert_eq!(found, [Ok(vec![vec![0], vec![1]]), Ok(vec![vec![0], vec![1]])]);
    }
}

/// Whoever waits for one that waits itself goes on while a third one completes anything.
#[test]
fn as_long_as_something_moves_all_wait() {
    for mover in [1, 2] {
        let found = all(&seats(3), |seat| {
            let control = Control::meet(seat, SHORT).unwrap();
            let action = ActionId::new(0);
            control.at(Position::Replaying { period: 0, action });
            if seat.rank == mover {
                for _ in 0..12 {
                    thread::sleep(SHORT / 6);
                    control.moved();
                }
            }
            control.gather(vec![seat.rank as u8])
        });
        for own in found {
            assert_eq!(own, Ok(vec![vec![0], vec![1], vec![2]]), "rank {mover} moves");
        }
    }
}

/// Who reads the losses that a rank prints may pause.
#[test]
fn a_rank_that_tells_may_take_its_time() {
    let found = all(&seats(3), |seat| {
        let control = Control::meet(seat, SHORT).unwrap();
        control.at(Position::Replaying { period: 0, action: ActionId::new(0) });
        control.gather(Vec::new()).unwrap();
        if seat.rank == 0 {
            control.telling(|| thread::sleep(2 * SHORT));
        }
        control.gather(vec![seat.rank as u8])
    });
    assert_eq!(found, vec![Ok(vec![vec![0], vec![1], vec![2]]); 3]);
}

#[test]
fn a_rank_may_wait_without_an_end() {
    let found = all(&seats(2), |seat| {
        let control = Control::meet(seat, Duration::MAX).unwrap();
        assert!(control.more_time() > Some(DEADLINE));
        control.gather(vec![seat.rank as u8])
    });
    assert_eq!(found, vec![Ok(vec![vec![0], vec![1]]); 2]);
}

#[test]
fn a_rank_that_panics_ends_all() {
    let found = all(&seats(2), |seat| {
        let control = met(seat);
        if seat.rank == 1 {
            let ended = std::panic::catch_unwind(AssertUnwindSafe(move || {
                let _control = control;
                std::panic::resume_unwind(Box::new(()));
            }));
            assert!(ended.is_err());
            return String::new();
        }
        control.gather(Vec::new()).unwrap_err().to_string()
    });
    assert!(found[0].contains("rank 1 failed before the first step: it panicked"));
}

#[test]
fn nothing_follows_what_was_written_in_part() {
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (mut other, _) = listener.accept().unwrap();
    stream.set_write_timeout(Some(Duration::from_millis(200))).unwrap();
    let mut line = Line::Whole(stream);
    let part = Frame::Part(vec![7; wire::PART]);
    let written = (0..1_000).take_while(|_| line.write(&part).is_ok()).count();
    assert!(written < 1_000, "nobody reads");
    assert!(line.write(&Frame::Said(Message::Bye)).is_err());
    for _ in 0..written {
        assert_eq!(wire::read(&mut other).unwrap(), part);
    }
    assert!(wire::read(&mut other).is_err(), "half a part, and then the end");
}

#[test]
fn numbers_of_ranks_that_differ_are_refused_everywhere() {
    let mut seats = seats(3);
    seats[2].size = 4;
    let found =
        all(&seats, |seat| Control::meet(seat, DEADLINE).err().unwrap().to_string());
    for said in found {
        let told = "rank 2 was told that there are 4 ranks, and rank 0 that there are 3";
        assert!(said.contains(told), "{said}");
    }
}

/// Whoever comes after a refusal would wait for nobody.
#[test]
fn whoever_comes_after_a_refusal_hears_of_it() {
    let mut seats = seats(4);
    seats[2].size = 5;
    let found = all(&seats, |seat| {
        thread::sleep(Duration::from_millis(match seat.rank {
            0 | 2 => 0,
            _ => 700,
        }));
        Control::meet(seat, DEADLINE).err().unwrap().to_string()
    });
    for said in found {
        assert!(said.contains("rank 2 was told that there are 5 ranks"), "{said}");
    }
}

#[test]
fn two_ranks_with_one_number_are_refused() {
    let mut seats = seats(3);
    seats[2].rank = 1;
    let found =
        all(&seats, |seat| Control::meet(seat, DEADLINE).err().unwrap().to_string());
    for said in found {
        assert!(said.contains("two processes say that they are rank 1 of 3"), "{said}");
    }
}

#[test]
fn a_rank_that_never_comes_is_named_within_the_deadline() {
    let seats = seats(4);
    let start = Instant::now();
    let found =
        all(&seats[..2], |seat| Control::meet(seat, SHORT).err().unwrap().to_string());
    assert!(start.elapsed() < 10 * SHORT);
    for said in found {
        assert!(said.contains("ranks 2, 3 of 4 did not come"), "{said}");
    }
    let alone = Control::meet(&seats[3], SHORT).err().unwrap().to_string();
    assert!(alone.contains("rank 3 did not reach rank 0 at 127.0.0.1:"), "{alone}");
}

#[test]
fn strangers_are_sent_away() {
    let seats = seats(2);
    let place = (seats[0].host.clone(), seats[0].port);
    let found = thread::scope(|scope| {
        scope.spawn(|| {
            for _ in 0..100 {
                if let Ok(mut stream) = TcpStream::connect(&place) {
                    use std::io::Write;
                    let _ = stream.write_all(b"GET / HTTP/1.1\r\n\r\n");
                    return;
                }
                thread::sleep(Duration::from_millis(10));
            }
        });
        all(&seats, |seat| met(seat).gather(vec![seat.rank as u8]).unwrap())
    });
    assert_eq!(found[1], [[0], [1]]);
}

#[test]
fn a_port_that_is_taken_is_said() {
    let mut seats = seats(2);
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    seats[0].port = taken.local_addr().unwrap().port();
    let said = Control::meet(&seats[0], DEADLINE).err().unwrap().to_string();
    assert!(said.contains("rank 0 cannot listen at port"), "{said}");
    assert!(said.contains("set MASTER_PORT"), "{said}");
}
