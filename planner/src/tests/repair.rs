//! Refusals: what binds, and changes that make a plan fit, each planned with again.

use super::{all, everything, refusal};
use crate::{
    Candidate, Options, Refusal, Repair, Searched, plan,
    sample::{self, Random},
    search::{progress::Progress, ranking::survey},
    tests::random_program,
};
use roundelay_dsl::{Choice, Numbers, Program};
use roundelay_schedule::{
    Bytes, Exactness, Id, Order, Placement, Pool, Recompute, Rule, States,
};

/// Every change is one with which a plan fits, and the plan is the one that is told.
fn hold(program: &Program, refused: &Refusal) {
    for repair in &refused.repairs {
        let mut changed = program.clone();
        changed.set_all(&repair.lines).unwrap_or_else(|mistake| panic!("{mistake}"));
        let ranking = plan(&changed, &Options::default());
        let ranking = ranking.unwrap_or_else(|refused| panic!("{repair}: {refused}"));
        let first = &ranking.plans[0];
        assert_eq!(first.step_time, repair.step_time, "{repair}");
        assert_eq!(crate::summary(&first.plan), repair.plan, "{repair}");
    }
}

fn lines(refused: &Refusal) -> Vec<&str> {
    refused.repairs.iter().flat_map(|r| r.lines.iter().map(String::as_str)).collect()
}

/// Three devices of one kind, `core`, each with a memory of its own.
fn separate(devices: usize, batch: u32) -> Program {
    let mut program = sample::program(devices, batch);
    program.target.pools = roundelay_schedule::Table::new();
    for number in 0..devices {
        let name = format!("core.{number}");
        let capacity = Bytes(1_000_000);
        let pool = roundelay_schedule::Pool { name: name.clone(), capacity };
        let pool = program.target.pools.push(pool);
        let id = roundelay_schedule::Id::new(number);
        let device = &mut program.target.devices[id];
        (device.name, device.pool) = (name, pool);
    }
    program
}

#[test]
fn too_little_memory_is_refused_with_what_is_missing_to_the_byte() {
    let mut program = sample::program(2, 8);
    program.search.memory = Some(Bytes(2_000));
    let refused = refusal(&program);
    assert!(refused.binding.starts_with("memory"), "{refused}");
    let needed = survey(&sample::program(2, 8), &everything(), &mut Progress::default());
    let by_memory = {
        let mut program = sample::program(2, 8);
        program.search.objective = roundelay_dsl::Objective::Memory;
        all(&program).plans[0].device_peak
    };
    assert!(needed.plans.iter().all(|c| c.device_peak >= by_memory));
    let line = format!("memory <= {}", crate::exact(by_memory.0));
    assert_eq!(lines(&refused)[0], line, "{refused}");
    let missing = by_memory - Bytes(2_000);
    assert_eq!(refused.repairs[0].amount, format!("{missing} more on each device"));
    hold(&program, &refused);
    program.search.memory = Some(by_memory - Bytes(1));
    assert!(plan(&program, &everything()).is_err(), "one byte less is too little");
}

#[test]
fn devices_that_are_too_small_get_their_memory_by_name() {
    let mut program = separate(2, 8);
    for (_, device) in program.target.devices.iter_mut() {
        (device.memory, device.reserved) = (Bytes(3_000), Bytes(500));
    }
    program.target.pools.iter_mut().for_each(|(_, pool)| pool.capacity = Bytes(3_000));
    program.search.placement = Choice::OneOf(vec![Placement::Accumulate]);
    let refused = refusal(&program);
    let memory = lines(&refused).into_iter().find(|line| line.starts_with("core.memory"));
    assert!(memory.is_some(), "{refused}");
    hold(&program, &refused);
    let mut shared = sample::program(2, 8);
    shared.target.pools.iter_mut().for_each(|(_, pool)| pool.capacity = Bytes(3_000));
    let refused = refusal(&shared);
    let sharing = lines(&refused).into_iter().any(|l| l.starts_with("shared.sharing = "));
    assert!(sharing, "{refused}");
    hold(&shared, &refused);
}

#[test]
fn memories_of_one_name_get_what_the_fullest_takes() {
    let mut program = sample::program(4, 8);
    let pool = |_| Pool { name: "node".to_owned(), capacity: Bytes(3_000) };
    program.target.pools = (0..2).map(pool).collect();
    for (id, device) in program.target.devices.iter_mut() {
        device.pool = Id::new(id.index() / 2);
    }
    program.search.placement = Choice::OneOf(vec![Placement::Data]);
    program.search.micro_batches = Numbers::Ranges(vec![(4, 4)]);
    let refused = refusal(&program);
    let lines = lines(&refused);
    let sharing = lines.iter().filter(|line| line.starts_with("node.sharing = "));
    let [line] = sharing.collect::<Vec<_>>()[..] else { panic!("{refused}") };
    hold(&program, &refused);
    program.set_all(&[*line]).unwrap_or_else(|mistake| panic!("{mistake}"));
    let planned = plan(&program, &Options::default()).expect("it fits now");
    let capacity = program.target.pools[Id::new(0)].capacity;
    let fullest = |found: &Candidate| {
        assert!(found.pools.keys().eq(["node.0", "node.1"]));
        found.pools.values().map(|used| used.arena).max()
    };
    assert!(planned.plans.iter().any(|found| fullest(found) == Some(capacity)));
}

/// A kind of devices whose name the language cannot spell.
#[test]
fn a_change_that_cannot_be_set_says_so() {
    let mut program = separate(1, 8);
    for (_, device) in program.target.devices.iter_mut() {
        (device.name, device.memory) = ("a core.0".into(), Bytes(2_000));
    }
    let refused = refusal(&program);
    let told = refused.mistaken.iter().any(|line| line.starts_with("a core.memory = "));
    assert!(told, "{refused}");
    let text = refused.to_string();
    assert!(text.contains("\n  cannot be set: a core.memory = "), "{text}");
}

/// Open rows stay within the innermost link, of two devices; what the table has two users for is one
/// stage.
#[test]
fn rows_beyond_the_innermost_links_are_tried_where_memory_is_short() {
    let mut program = separate(4, 8);
    let link = program.target.domains[0].link;
    let domain = |devices| roundelay_schedule::Domain { link, devices };
    program.target.domains = [0..2, 2..4, 0..4].map(domain).into();
    program.model = sample::gpt(1, 4, 64, true);
    sample::give_room(&mut program, Bytes(1 << 30));
    program.search.placement = Choice::OneOf(vec![Placement::Accumulate]);
    program.search.states = Choice::OneOf(vec![States::Replicated]);
    let least = |rows: Numbers| {
        let mut smallest = program.clone();
        smallest.search.objective = roundelay_dsl::Objective::Memory;
        smallest.search.rows = rows;
        all(&smallest).plans[0].device_peak
    };
    let four = least(Numbers::Ranges(vec![(4, 4)]));
    let open = least(Numbers::Open);
    assert!(four < open, "{four} of four rows, {open} of up to two");
    program.target.devices.iter_mut().for_each(|(_, device)| device.memory = four);
    let refused = refusal(&program);
    let wider = refused.repairs.iter().find(|own| own.lines == ["tensor { rows 4 }"]);
    let wider = wider.unwrap_or_else(|| panic!("{refused}"));
    assert_eq!(wider.amount, "where 2 are tried at most");
    assert!(refused.binding.contains("both use `table`; cuts part"), "{refused}");
    hold(&program, &refused);
}

/// The search for the smallest plan may be cut short; then the best plan in its memory may take less.
#[test]
fn memory_is_no_more_than_the_plan_that_is_told_takes() {
    let mut random = Random::new(61);
    let few = Options { clocked_max: 4, ..Options::default() };
    let mut told = 0;
    for _ in 0..12 {
        let mut program = random_program(&mut random);
        program.search.memory = Some(Bytes(800));
        let Err(refused) = plan(&program, &few) else { continue };
        for repair in &refused.repairs {
            let mut changed = program.clone();
            changed.set_all(&repair.lines).expect("it was planned with");
            let bound = changed.search.memory.expect("it stays bounded");
            if bound == Bytes(800) {
                continue;
            }
            let once = Options { top: 1, ..few };
            let found = crate::search::ranking::best(&changed, &once).expect("it fits");
            let exact = found.device_peak == bound;
            assert!(exact || repair.amount.ends_with(", perhaps less"), "{repair}");
            told += 1;
        }
    }
    assert!(told > 0, "no bound was told");
}

#[test]
fn too_few_devices_are_refused_with_how_many_it_takes() {
    let mut program = separate(2, 8);
    program.search.placement = Choice::OneOf(vec![Placement::Data]);
    program.search.micro_batches = Numbers::Ranges(vec![(4, 4)]);
    let refused = refusal(&program);
    assert!(refused.binding.contains("it needs 4 devices, the cluster has 2"));
    let all = lines(&refused);
    assert!(all.contains(&"cluster.devices = 4"), "{refused}");
    assert!(all.contains(&"placement accumulate") || all.contains(&"placement pipeline"));
    assert!(all.contains(&"micro_batches 2"), "{refused}");
    hold(&program, &refused);
}

/// Of many combinations that are no plan the reason of one is told: of one that changes nothing
/// which the program asks for, if it can be.
#[test]
fn what_is_told_stays_when_the_rest_is_mended() {
    for (lines, why) in [
        (&["chunks 2", "order 1f1b"][..], "this order has one stage on a device"),
        (&["chunks 3", "order wave"], "needs an even number of chunks"),
        (&["chunks 1", "order interleaved"], "needs at least two chunks"),
        (&["slices 2", "placement data"], "for the pipeline orders seq1f1b and terapipe"),
        (
            &["devices 5"],
            "devices: the least that the program allows is 5, the cluster has 4",
        ),
        (
            &["devices 9 | 12"],
            "devices: the least that the program allows is 9, the cluster has 4",
        ),
        (
            &["first_device 4"],
            "first_device: the least that the program allows is 4, the last of",
        ),
        (&["first_device 3", "devices 2"], "would end at number 5, the cluster has 4"),
    ] {
        let mut program = sample::program(4, 8);
        program.set_all(lines).expect("these are decisions");
        let refused = refusal(&program);
        assert!(refused.binding.contains(why), "{lines:?}: {refused}");
    }
}

#[test]
fn the_nearest_number_of_micro_batches_is_told() {
    let program = |micro_batches| {
        let mut program = separate(1, 16);
        program.model = sample::gpt(2, 16, 16, false);
        sample::give_room(&mut program, Bytes(1 << 30));
        program.search.placement = Choice::OneOf(vec![Placement::Accumulate]);
        program.search.recompute = Choice::OneOf(vec![Recompute::None]);
        program.search.micro_batches =
            Numbers::Ranges(vec![(micro_batches, micro_batches)]);
        program
    };
    let peak = |micro_batches| all(&program(micro_batches)).plans[0].device_peak;
    let mut tight = program(1);
    tight.target.devices.iter_mut().for_each(|(_, device)| device.memory = peak(2));
    assert!(peak(2) < peak(1) && peak(4) < peak(2));
    let refused = refusal(&tight);
    let all = lines(&refused);
    assert!(all.contains(&"micro_batches 2"), "{refused}");
    assert!(all[0].starts_with("recompute") || all[0] == "micro_batches 2", "{refused}");
    hold(&tight, &refused);
}

#[test]
fn more_devices_are_as_few_as_suffice() {
    let program = |devices: usize| {
        let mut program = separate(devices, 32);
        program.search.states = Choice::OneOf(vec![States::Zero3]);
        program.search.placement = Choice::OneOf(vec![Placement::Accumulate]);
        program.search.stages = Numbers::Ranges(vec![(4, 4)]);
        program.search.micro_batches = Numbers::Ranges(vec![(1, 1)]);
        program
    };
    let peak = |devices: usize| {
        let plans = all(&program(devices)).plans;
        plans.iter().map(|c| c.device_peak).min().expect("there is such a plan")
    };
    let room = peak(8);
    assert!(room < peak(4));
    let mut tight = program(2);
    sample::give_room(&mut tight, room);
    let refused = refusal(&tight);
    assert!(lines(&refused).contains(&"cluster.devices = 8"), "{refused}");
    hold(&tight, &refused);
}

#[test]
fn an_indivisible_batch_is_refused_with_one_that_divides() {
    let mut program = sample::program(2, 8);
    program.search.micro_batches = Numbers::Ranges(vec![(3, 3)]);
    let refused = refusal(&program);
    assert!(refused.binding.contains("batch of 8"), "{refused}");
    let text = refused.to_string();
    assert!(text.contains("train.batch = 9 (instead of 8; 3 micro-batches divide it)"));
    hold(&program, &refused);
}

#[test]
fn a_rule_beyond_the_allowed_exactness_is_refused_with_the_line() {
    let mut program = sample::program(2, 8);
    program.search.rule = Choice::OneOf(vec![Rule::CyclicSlack(1)]);
    let refused = refusal(&program);
    assert!(refused.binding.starts_with("exactness"), "{refused}");
    assert_eq!(lines(&refused), ["rule sync", "exactness delayed"]);
    hold(&program, &refused);
}

/// What a refusal proposes works where the program is.
#[test]
fn shards_under_a_cyclic_rule_are_refused_with_what_its_placement_has() {
    let mut program = sample::program(4, 8);
    program.search.exactness = Some(Exactness::Delayed);
    program.search.rule = Choice::OneOf(vec![Rule::CyclicV2]);
    program.search.states = Choice::OneOf(vec![States::Zero1]);
    for (placement, works) in [
        (Placement::Pipeline, "use replicated in placement pipeline, or rule sync"),
        (Placement::Data, "use handoff"),
    ] {
        program.search.placement = Choice::OneOf(vec![placement]);
        let refused = refusal(&program);
        assert!(refused.binding.ends_with(works), "{refused}");
        hold(&program, &refused);
    }
}

#[test]
fn where_no_single_change_helps_several_do() {
    let mut program = sample::program(2, 8);
    program.search.placement = Choice::OneOf(vec![Placement::Pipeline]);
    program.search.order = Choice::OneOf(vec![Order::Sequential]);
    program.search.stages = Numbers::Ranges(vec![(9, 9)]);
    program.search.micro_batches = Numbers::Ranges(vec![(3, 3)]);
    let refused = refusal(&program);
    assert_eq!(refused.repairs.len(), 1, "{refused}");
    assert!(refused.repairs[0].lines.len() > 1, "{refused}");
    hold(&program, &refused);
}

#[test]
fn every_change_of_random_refusals_holds() {
    let mut random = Random::new(5);
    let (mut refusals, mut told) = (0, 0);
    for _ in 0..12 {
        let mut program = random_program(&mut random);
        program.search.memory = Some(Bytes(800 << random.below(5)));
        program.search.exactness = Some(Exactness::Reordered);
        if random.below(2) == 0 {
            program.search.states = Choice::OneOf(vec![States::Replicated]);
            program.search.recompute = Choice::OneOf(vec![Recompute::None]);
        }
        let Err(refused) = plan(&program, &Options::default()) else { continue };
        hold(&program, &refused);
        refusals += 1;
        told += refused.repairs.len();
        assert!(refused.untried.is_empty());
    }
    assert!(refusals > 3 && told > refusals, "{refusals} refusals, {told} changes");
}

/// Programs whose memory only the smallest plan fits, and few plans are clocked: what the first
/// look misses the second one may find, and it is never taken for the best.
#[test]
fn what_fits_is_found_though_the_limit_is_met_first() {
    let mut random = Random::new(61);
    let (mut second, mut cut) = (0, 0);
    for _ in 0..7 {
        let mut program = random_program(&mut random);
        program.search.memory = None;
        program.search.objective = roundelay_dsl::Objective::Memory;
        let smallest = Options { top: 1, ..everything() };
        let smallest = survey(&program, &smallest, &mut Progress::default());
        assert!(smallest.is_optimal());
        let least = smallest.plans[0].device_peak;
        program.search.objective = roundelay_dsl::Objective::StepTime;
        program.search.memory = Some(least);
        for clocked_max in [4, 16, 32] {
            let few = Options { top: 1, clocked_max, ..Options::default() };
            match plan(&program, &few) {
                Ok(found) if found.clocked > clocked_max => {
                    assert!(found.plans[0].device_peak <= least && !found.is_optimal());
                    second += 1;
                }
                Ok(found) => assert!(found.plans[0].device_peak <= least),
                Err(refused) => {
                    let said =
                        format!("cut short before trying every plan: {clocked_max} ");
                    assert!(refused.to_string().contains(&said), "{refused}");
                    cut += 1;
                }
            }
        }
    }
    assert!(second > 0 && cut > 0, "{second} second looks, {cut} refusals");
}

/// A cyclic plan that lacks fewer bytes is not what the program may have.
#[test]
fn what_lacks_memory_is_a_plan_of_the_allowed_exactness() {
    let mut program = separate(4, 4);
    let mut binding = |memory, class| {
        program.target.devices.iter_mut().for_each(|(_, own)| own.memory = Bytes(memory));
        program.search.exactness = class;
        refusal(&program).binding
    };
    let delayed = (1..).map(|step| 200 * step).find_map(|memory| {
        let delayed = binding(memory, Some(Exactness::Delayed));
        delayed.contains("cyclic").then_some((memory, delayed))
    });
    let (memory, delayed) = delayed.expect("cyclic plans take least");
    assert!(delayed.starts_with("memory: cyclic"), "{delayed}");
    for class in [None, Some(Exactness::Reordered), Some(Exactness::Exact)] {
        let allowed = binding(memory, class);
        assert!(allowed.starts_with("memory: sync "), "{class:?}: {allowed}");
    }
}

#[test]
fn what_is_cut_short_is_said() {
    let repair = Repair {
        lines: vec!["memory <= 2 kB".into()],
        amount: "1.00 kB more on each device".into(),
        plan: "sync".into(),
        step_time: roundelay_schedule::Nanos(5),
    };
    let untried = ["8 devices".to_owned()].into();
    let refused = Refusal {
        blamed: Box::default(),
        binding: "memory".into(),
        repairs: vec![repair],
        untried,
        mistaken: Box::default(),
        searched: Searched::All,
    };
    let text = refused.to_string();
    assert!(
        text.contains("- memory <= 2 kB (1.00 kB more on each device): sync fits, 5 ns")
    );
    assert!(text.ends_with("cut short before trying 8 devices"), "{text}");
}
