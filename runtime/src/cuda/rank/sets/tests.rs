//! Which transfers go together, and that ranks that give them together do not wait for each other in a
//! circle.

use super::*;
use roundelay_schedule::Id;

fn numbered(device: u32) -> DeviceId {
    DeviceId::new(device as usize)
}

fn span(device: u32, start: u64) -> Span {
    Span { device: numbered(device), bytes: start..start + 8 }
}

/// A transfer between devices, of memory that nothing else touches.
fn transfer(number: usize, from: u32, to: u32) -> Seen {
    let start = 16 * number as u64;
    Seen::Transfer(Crossing { from: span(from, start), to: span(to, start + 8) })
}

fn launch(device: u32) -> Seen {
    Seen::Other(vec![numbered(device)])
}

/// The sets of the devices from 0, after these instances, each in a queue of its own.
fn sets<const DEVICES: usize>(list: Vec<(Vec<usize>, Seen)>) -> [Option<usize>; DEVICES] {
    let mut sets = Sets::default();
    for (number, (waits, seen)) in list.into_iter().enumerate() {
        sets.see((number, number), waits.into_iter(), seen);
    }
    std::array::from_fn(|device| sets.of(DeviceId::new(device)))
}

#[test]
fn transfers_go_together_with_those_of_their_devices() {
    let one = sets(vec![(vec![], transfer(0, 0, 1)), (vec![], transfer(1, 2, 3))]);
    assert_eq!(one, [Some(0), Some(0), Some(1), Some(1)]);
    let all = sets(vec![
        (vec![], transfer(0, 0, 1)),
        (vec![], transfer(1, 2, 3)),
        (vec![], transfer(2, 1, 2)),
        (vec![], transfer(3, 1, 0)),
    ]);
    assert_eq!(all, [Some(0); 4]);
}

#[test]
fn anything_else_on_a_device_closes_its_set_for_all() {
    let closed = sets(vec![
        (vec![], transfer(0, 0, 1)),
        (vec![], transfer(1, 2, 3)),
        (vec![], launch(1)),
        (vec![], launch(4)),
        (vec![], transfer(4, 0, 2)),
    ]);
    assert_eq!(closed, [Some(1), None, Some(1), Some(1)]);
}

#[test]
fn a_second_transfer_on_a_way_closes_the_set() {
    let turned = sets(vec![(vec![], transfer(0, 0, 1)), (vec![], transfer(1, 1, 0))]);
    assert_eq!(turned, [Some(0), Some(0)], "the other way");
    let again = sets(vec![
        (vec![], transfer(0, 0, 1)),
        (vec![], transfer(1, 2, 0)),
        (vec![], transfer(2, 0, 1)),
    ]);
    assert_eq!(again, [Some(1), Some(1), None]);
}

#[test]
fn a_transfer_that_waits_for_one_of_the_set_closes_it() {
    let first = || (vec![], transfer(0, 0, 1));
    let named = sets(vec![first(), (vec![0], transfer(1, 1, 2))]);
    assert_eq!(named, [None, Some(1), Some(1)]);
    let through = sets(vec![first(), (vec![0], launch(5)), (vec![1], transfer(2, 1, 2))]);
    assert_eq!(through, [None, Some(1), Some(1)], "through another device");
    let mut queued = Sets::default();
    queued.see((0, 0), [].into_iter(), transfer(0, 0, 1));
    queued.see((1, 5), [0].into_iter(), launch(5));
    queued.see((2, 5), [].into_iter(), launch(6));
    queued.see((3, 1), [2].into_iter(), transfer(3, 1, 2));
    assert_eq!(queued.of(DeviceId::new(0)), None, "through a queue");
}

#[test]
fn a_transfer_that_touches_what_the_set_touches_closes_it() {
    let crossing = |from: (u32, u64), to: (u32, u64)| {
        let (from, to) = (span(from.0, from.1), span(to.0, to.1));
        (vec![], Seen::Transfer(Crossing { from, to }))
    };
    let pair = |second| sets::<3>(vec![crossing((0, 0), (1, 8)), second])[0];
    assert_eq!(pair(crossing((0, 4), (2, 0))), Some(0), "both read");
    assert_eq!(pair(crossing((1, 0), (2, 8))), Some(0), "beside it");
    assert_eq!(pair(crossing((1, 4), (2, 0))), None, "it reads what is written");
    assert_eq!(pair(crossing((2, 0), (1, 15))), None, "it writes there too");
    assert_eq!(pair(crossing((2, 0), (0, 7))), Some(1), "it writes what is read");
}

/// What a list has: work of one rank, or a message from one to another.
#[derive(Clone, Copy, Debug)]
enum Item {
    Launch(u32),
    Transfer(u32, u32),
}

/// Numbers of a list that a rank gives its streams at once.
type Group = Vec<usize>;

/// What a rank gives its streams by sets, and if each groups its own messages as they come.
fn by_sets(rank: u32, list: &[Item]) -> Vec<Group> {
    let (mut sets, own, mut steps) = (Sets::default(), numbered(rank), Vec::new());
    let mut group = Group::new();
    for (number, item) in list.iter().enumerate() {
        let before = sets.of(own);
        let (seen, takes) = match *item {
            Item::Launch(at) => (launch(at), at == rank),
            Item::Transfer(from, to) => {
                (transfer(number, from, to), [from, to].contains(&rank))
            }
        };
        sets.see((number, number), [].into_iter(), seen);
        if before.is_some_and(|set| sets.is_closed(set)) {
            steps.push(std::mem::take(&mut group));
        }
        match item {
            Item::Launch(_) if takes => steps.push(vec![number]),
            Item::Transfer(..) if takes => group.push(number),
            Item::Launch(_) | Item::Transfer(..) => {}
        }
    }
    steps.push(group);
    steps
}

fn by_itself(rank: u32, list: &[Item]) -> Vec<Group> {
    let (mut steps, mut group) = (Vec::new(), Group::new());
    for (number, item) in list.iter().enumerate() {
        match *item {
            Item::Launch(at) if at == rank => {
                steps.extend([std::mem::take(&mut group), vec![number]]);
            }
            Item::Transfer(from, to) if [from, to].contains(&rank) => group.push(number),
            Item::Launch(_) | Item::Transfer(..) => {}
        }
    }
    steps.push(group);
    steps
}

/// How many distances NCCL puts into one batch, at most.
type Batch = usize;

/// The batches that NCCL makes of a group: by turn and distance, no distance twice in one.
fn batches(
    rank: u32,
    ranks: u32,
    list: &[Item],
    group: &Group,
    most: Batch,
) -> Vec<Group> {
    let ends = |number: usize| match list[number] {
        Item::Launch(at) => [at, at],
        Item::Transfer(from, to) => [from, to],
    };
    let place = |(index, number): (usize, &usize)| {
        let [from, to] = ends(*number);
        let turn = group[..index].iter().filter(|other| ends(**other) == [from, to]);
        ((turn.count(), (to + ranks - from) % ranks), *number)
    };
    let mut order: Vec<_> = group.iter().enumerate().map(place).collect();
    order.sort_unstable();
    let (mut made, mut within) = (Vec::<Group>::new(), Vec::<(usize, u32)>::new());
    for (step, number) in order {
        if within.last() != Some(&step) {
            let again = within.iter().any(|own| own.1 == step.1);
            if made.is_empty() || within.len() == most || again {
                within.clear();
                made.push(Group::new());
            }
            within.push(step);
        }
        made.last_mut().unwrap_or_else(|| panic!("rank {rank}")).push(number);
    }
    made
}

/// Whether all ranks come to the end of a list. Each does one batch after another, as if all its
/// streams were one; a message moves when it is in the batch of both its ranks.
fn comes_to_an_end(
    ranks: u32,
    list: &[Item],
    rule: fn(u32, &[Item]) -> Vec<Group>,
    most: Batch,
) -> bool {
    let steps = |rank| -> Vec<Group> {
        let groups = rule(rank, list).into_iter();
        groups.flat_map(|group| batches(rank, ranks, list, &group, most)).collect()
    };
    let steps: Vec<_> = (0..ranks).map(steps).collect();
    let mut at = vec![0; ranks as usize];
    let mut done = vec![false; list.len()];
    loop {
        let begun = |rank: u32, number: usize| {
            let own = steps[rank as usize].get(at[rank as usize]);
            own.is_some_and(|step| step.contains(&number))
        };
        for (number, item) in list.iter().enumerate() {
            done[number] |= match *item {
                Item::Launch(rank) => begun(rank, number),
                Item::Transfer(from, to) => begun(from, number) && begun(to, number),
            };
        }
        let over = |own: &Group| own.iter().all(|number| done[*number]);
        let next: Vec<usize> = (steps.iter().zip(&at))
            .map(|(own, at)| at + usize::from(own.get(*at).is_some_and(over)))
            .collect();
        if next == at {
            return done.iter().all(|done| *done);
        }
        at = next;
    }
}

/// Rank 0 has three messages with nothing of its own between them, two of them from rank 1.
#[test]
fn two_messages_on_a_way_in_a_group_of_one_rank_are_a_circle() {
    let list = [
        Item::Transfer(1, 0),
        Item::Transfer(1, 0),
        Item::Launch(1),
        Item::Transfer(1, 2),
        Item::Launch(2),
        Item::Transfer(0, 2),
    ];
    let ends = |rule| [1, 8].map(|most| comes_to_an_end(3, &list, rule, most));
    assert_eq!(ends(by_itself), [false; 2], "the second waits for the last of the list");
    assert_eq!(ends(by_sets), [true; 2]);
}

/// Rank 0 has two messages, no two of them on a way, of which NCCL sends the later one first if they
/// are not one batch.
#[test]
fn two_batches_in_a_group_of_one_rank_are_a_circle() {
    let list =
        [Item::Transfer(0, 2), Item::Launch(2), Item::Transfer(2, 1), Item::Launch(1)];
    let list = [&list[..], &[Item::Transfer(0, 1)]].concat();
    let ends = |rule| [1, 8].map(|most| comes_to_an_end(3, &list, rule, most));
    assert_eq!(ends(by_itself), [false, true]);
    assert_eq!(ends(by_sets), [true; 2]);
}

#[test]
fn ranks_that_give_their_messages_by_sets_come_to_an_end() {
    let mut state = 7u64;
    let mut draw = |below: u32| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        ((state >> 33) % u64::from(below)) as u32
    };
    let (mut circles, mut together) = (0, 0);
    for round in 0..300 {
        let (ranks, launches) = (2 + draw(12), 1 + draw(4));
        let item = |_| {
            let (from, step) = (draw(ranks), 1 + draw(ranks - 1));
            match draw(8) < launches {
                true => Item::Launch(from),
                false => Item::Transfer(from, (from + step) % ranks),
            }
        };
        let list: Vec<Item> = (0..60).map(item).collect();
        for most in [1, 3, 8] {
            assert!(comes_to_an_end(ranks, &list, by_sets, most), "{round}: {list:?}");
        }
        circles += u32::from(!comes_to_an_end(ranks, &list, by_itself, 8));
        let large = |rank| by_sets(rank, &list).iter().any(|group| group.len() > 2);
        together += u32::from((0..ranks).any(large));
    }
    assert!(circles > 100, "of 300 lists {circles} need sets");
    assert!(together > 200, "in {together} of 300 lists messages go together");
}
