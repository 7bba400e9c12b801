//! Mutations of what actions name: buffers, rings, groups, axes, routines, and the plan.

use crate::{
    lines::{down, rows, up},
    mutant::{Change, Fault},
    random::Random,
};
use roundelay_schedule::{
    Access, Argument, Attribute, AxisId, Buffer, BufferId, Bytes, DeviceId, GroupId, Id,
    Pass, Place, Plan, Reduction, Rest, RingId, RoutineId, Schedule, Slice, Stage,
    Subject, Work,
};

/// All of them, by name.
pub(crate) const TABLES: &[(&str, Change)] = &[
    ("one slot fewer", fewer_slots),
    ("one slot more", |s, r| buffer(s, r, |b, _| up(&mut b.slots))),
    ("buffer turns more", |s, r| buffer(s, r, |b, _| up(&mut b.turn))),
    ("buffer turns less", |s, r| buffer(s, r, |b, _| down(&mut b.turn))),
    ("shared address", shared_address),
    ("address shifted", |s, r| buffer(s, r, |b, r| shifted(&mut b.offset, r))),
    ("size", |s, r| buffer(s, r, |b, r| shifted(&mut b.size, r))),
    ("age", age),
    ("carried or not", carried),
    ("home", home),
    ("subject", subject),
    ("ring turns more", |s, r| ring(s, r, |s, id, _| up(&mut s.rings[id].turn))),
    ("ring turns less", |s, r| ring(s, r, |s, id, _| down(&mut s.rings[id].turn))),
    ("ring devices", ring_devices),
    ("ring lanes", |s, r| ring(s, r, |s, id, _| down(&mut s.rings[id].lanes))),
    ("group member", group_member),
    ("group axes", group_axes),
    ("axis", axis),
    ("argument access", argument_access),
    ("argument size", |s, r| argument(s, r, |a, r| shifted(&mut a.size, r))),
    ("argument role", argument_role),
    ("another forward pass", another_forward),
    ("routine stage", routine_stage),
    ("routine pass", routine_pass),
    ("delay", delay),
    ("reduction", reduction),
    ("plan numbers", plan_numbers),
];

/// Mutations of what routines compute, which is theirs to say: the oracle runs the same.
pub(crate) const CALLS: &[(&str, Change)] = &[
    ("call dropped", call_dropped),
    ("calls exchanged", calls_exchanged),
    ("call accumulates", call_accumulates),
    ("call operand", call_operand),
];

fn buffer(
    schedule: &mut Schedule,
    random: &mut Random,
    change: impl FnOnce(&mut Buffer, &mut Random) -> Option<()>,
) -> Option<Fault> {
    let ids: Vec<BufferId> = schedule.buffers.ids().collect();
    at_buffer(schedule, random.pick(&ids)?, |buffer| change(buffer, random))
}

fn at_buffer(
    schedule: &mut Schedule,
    id: BufferId,
    change: impl FnOnce(&mut Buffer) -> Option<()>,
) -> Option<Fault> {
    change(&mut schedule.buffers[id])?;
    let mut fault = Fault::default().at(id);
    for (line, action) in schedule.actions.iter() {
        if schedule.touches(action).iter().any(|touch| touch.row.buffer == id) {
            fault = fault.through(line).beside(line);
        }
    }
    Some(fault)
}

fn shifted(bytes: &mut Bytes, random: &mut Random) -> Option<()> {
    let by = random.pick(&[4, 8, 16, 64])?;
    bytes.0 = match random.below(2) {
        0 => bytes.0 + by,
        _ => bytes.0.checked_sub(by)?,
    };
    Some(())
}

fn fewer_slots(schedule: &mut Schedule, random: &mut Random) -> Option<Fault> {
    let many = schedule.buffers.iter().filter(|(_, buffer)| buffer.slots > 1);
    let many: Vec<BufferId> = many.map(|(id, _)| id).collect();
    let id = random.pick(&many)?;
    let slots = schedule.buffers[id].slots - 1;
    let fits = random.below(2) == 0;
    if fits {
        for (_, action) in schedule.actions.iter_mut() {
            for row in rows(&mut action.work) {
                if row.buffer == id {
                    row.place %= slots;
                }
            }
        }
    }
    at_buffer(schedule, id, |buffer| {
        buffer.slots = slots;
        if let Rest::Carried(ages) = &mut buffer.rest {
            ages.iter_mut().for_each(|slots| slots.truncate(slots.len() - 1));
        }
        Some(())
    })
}

fn shared_address(schedule: &mut Schedule, random: &mut Random) -> Option<Fault> {
    let ids: Vec<BufferId> = schedule.buffers.ids().collect();
    let (one, other) = (random.pick(&ids)?, random.pick(&ids)?);
    let offset = schedule.buffers[other].offset;
    at_buffer(schedule, one, |buffer| {
        buffer.offset = offset;
        Some(())
    })
}

fn age(schedule: &mut Schedule, random: &mut Random) -> Option<Fault> {
    let id = some_carried(schedule, random)?;
    at_buffer(schedule, id, |buffer| {
        let Rest::Carried(ages) = &mut buffer.rest else { return None };
        let place = random.below(ages.len());
        let slot = random.below(ages[place].len());
        ages[place][slot] = random.pick(&[None, Some(0), Some(1), Some(2)])?;
        Some(())
    })
}

fn some_carried(schedule: &Schedule, random: &mut Random) -> Option<BufferId> {
    let all = schedule.buffers.iter();
    let all = all.filter(|(_, buffer)| buffer.rest != Rest::Transient);
    random.pick(&all.map(|(id, _)| id).collect::<Vec<_>>())
}

fn carried(schedule: &mut Schedule, random: &mut Random) -> Option<Fault> {
    if random.below(2) == 0 {
        let id = some_carried(schedule, random)?;
        return at_buffer(schedule, id, |buffer| {
            buffer.rest = Rest::Transient;
            Some(())
        });
    }
    let devices: Vec<usize> = schedule.rings.values().map(|r| r.devices.len()).collect();
    buffer(schedule, random, |buffer, random| {
        let age = random.pick(&[None, Some(0), Some(1)])?;
        let slots = vec![age; buffer.slots as usize];
        buffer.rest = Rest::Carried(vec![slots; devices[buffer.home.index()]]);
        Some(())
    })
}

fn home(schedule: &mut Schedule, random: &mut Random) -> Option<Fault> {
    let rings: Vec<RingId> = schedule.rings.ids().collect();
    buffer(schedule, random, |buffer, random| {
        buffer.home = random.pick(&rings)?;
        Some(())
    })
}

fn subject(schedule: &mut Schedule, random: &mut Random) -> Option<Fault> {
    let subjects: Vec<Subject> = schedule.buffers.values().map(|b| b.subject).collect();
    buffer(schedule, random, |buffer, random| {
        let stage = |random: &mut Random| Stage::new(random.below(3));
        buffer.subject = match (buffer.subject, random.below(2)) {
            (Subject::Parameter(_, slice), 0) => Subject::Parameter(stage(random), slice),
            (Subject::Gradient(_, slice), 0) => Subject::Gradient(stage(random), slice),
            (Subject::Optimizer(own, Slice::Shard(_)), 0) => {
                Subject::Optimizer(own, Slice::Whole)
            }
            (Subject::Squares(Slice::Shard(_)), 0) => Subject::Squares(Slice::Whole),
            _ => random.pick(&subjects)?,
        };
        Some(())
    })
}

fn ring(
    schedule: &mut Schedule,
    random: &mut Random,
    change: impl FnOnce(&mut Schedule, RingId, &mut Random) -> Option<()>,
) -> Option<Fault> {
    let ids: Vec<RingId> = schedule.rings.ids().collect();
    let id = random.pick(&ids)?;
    change(schedule, id, random)?;
    let mut fault = Fault::default().at(id);
    for (line, action) in schedule.actions.iter() {
        if schedule.touches(action).iter().any(|touch| touch.at.ring == id) {
            fault = fault.through(line).beside(line);
        }
    }
    let homes = schedule.buffers.iter().filter(|(_, buffer)| buffer.home == id);
    let fault = homes.fold(fault, |fault, (buffer, _)| fault.through(buffer));
    Some(fault.through("axes"))
}

fn ring_devices(schedule: &mut Schedule, random: &mut Random) -> Option<Fault> {
    let all = schedule.target.devices.len();
    ring(schedule, random, |schedule, id, random| {
        let devices = &mut schedule.rings[id].devices;
        let [one, other] = [random.below(devices.len()), random.below(devices.len())];
        match random.below(4) {
            0 => devices[one] = DeviceId::new(random.below(all + 1)),
            1 => drop(devices.pop()),
            2 => devices.push(DeviceId::new(random.below(all))),
            _ => devices.swap(one, other),
        }
        Some(())
    })
}

fn group(schedule: &Schedule, random: &mut Random) -> Option<(GroupId, Fault)> {
    let ids: Vec<GroupId> = schedule.groups.ids().collect();
    let id = random.pick(&ids)?;
    let mut fault = Fault::default().at(id);
    for (line, action) in schedule.actions.iter() {
        if action.queue() == roundelay_schedule::Queue::Group(id) {
            fault = fault.through(line).beside(line);
        }
    }
    Some((id, fault))
}

fn group_member(schedule: &mut Schedule, random: &mut Random) -> Option<Fault> {
    let (id, fault) = group(schedule, random)?;
    let rings: Vec<RingId> = schedule.rings.ids().collect();
    let places = &mut schedule.groups[id].places;
    let [one, other] = [random.below(places.len()), random.below(places.len())];
    let ring = random.pick(&rings)?;
    match random.below(4) {
        0 => drop(places.remove(one)),
        1 => places.push(Place { ring, place: random.below(3) as u32 }),
        2 => places[one] = Place { ring, place: random.below(3) as u32 },
        _ => places.swap(one, other),
    }
    Some(fault)
}

fn group_axes(schedule: &mut Schedule, random: &mut Random) -> Option<Fault> {
    let (id, fault) = group(schedule, random)?;
    let axes = &mut schedule.groups[id].axes;
    if axes.pop().is_none() {
        axes.push(AxisId::new(0));
    }
    Some(fault)
}

fn axis(schedule: &mut Schedule, random: &mut Random) -> Option<Fault> {
    let ids: Vec<AxisId> = schedule.axes.ids().collect();
    let axis = &mut schedule.axes[random.pick(&ids)?];
    let number = match random.below(2) {
        0 => &mut axis.extent,
        _ => &mut axis.stride,
    };
    match random.below(2) {
        0 => up(number)?,
        _ => down(number)?,
    }
    Some(Fault::default())
}

fn routine(schedule: &Schedule, random: &mut Random) -> Option<(RoutineId, Fault)> {
    let ids: Vec<RoutineId> = schedule.routines.ids().collect();
    let id = random.pick(&ids)?;
    let mut fault = Fault::default().at(id);
    for (line, action) in schedule.actions.iter() {
        if action.work.routine().is_some_and(|(own, _)| own == id) {
            fault = fault.through(line).beside(line);
        }
    }
    Some((id, fault))
}

fn argument(
    schedule: &mut Schedule,
    random: &mut Random,
    change: impl FnOnce(&mut Argument, &mut Random) -> Option<()>,
) -> Option<Fault> {
    let (id, fault) = routine(schedule, random)?;
    let arguments = &mut schedule.routines[id].arguments;
    let number = random.below(arguments.len());
    change(arguments.get_mut(number)?, random)?;
    Some(fault)
}

fn argument_access(schedule: &mut Schedule, random: &mut Random) -> Option<Fault> {
    argument(schedule, random, |argument, random| {
        argument.access = random.pick(&[Access::Read, Access::Write, Access::Update])?;
        Some(())
    })
}

fn argument_role(schedule: &mut Schedule, random: &mut Random) -> Option<Fault> {
    let all = schedule.routines.values().flat_map(|routine| &routine.arguments);
    let roles: Vec<_> = all.map(|argument| argument.role).collect();
    argument(schedule, random, |argument, random| {
        argument.role = random.pick(&roles)?;
        Some(())
    })
}

/// One micro-batch takes a forward pass of its own: replays do not see it, held-out data might.
fn another_forward(schedule: &mut Schedule, random: &mut Random) -> Option<Fault> {
    let launches = schedule.actions.iter().filter_map(|(line, action)| {
        let (routine, _) = action.work.routine()?;
        (schedule.routines[routine].pass == Pass::Forward).then_some((line, routine))
    });
    let (line, routine) = random.pick(&launches.collect::<Vec<_>>())?;
    let other = schedule.routines.push(schedule.routines[routine].clone());
    let Work::Launch { routine: launched, .. } = &mut schedule.actions[line].work else {
        return None;
    };
    *launched = other;
    Some(Fault::of(schedule, line).at(other))
}

fn routine_stage(schedule: &mut Schedule, random: &mut Random) -> Option<Fault> {
    let (id, fault) = routine(schedule, random)?;
    let stages = schedule.job.elements.len();
    schedule.routines[id].stage = Stage::new(random.below(stages + 1));
    Some(fault)
}

fn routine_pass(schedule: &mut Schedule, random: &mut Random) -> Option<Fault> {
    let (id, fault) = routine(schedule, random)?;
    let passes = [
        Pass::Forward,
        Pass::Backward,
        Pass::InputGradient,
        Pass::WeightGradient,
        Pass::Combine,
        Pass::Norm,
        Pass::Update,
    ];
    schedule.routines[id].pass = random.pick(&passes)?;
    Some(fault)
}

fn call_dropped(schedule: &mut Schedule, random: &mut Random) -> Option<Fault> {
    let (id, fault) = routine(schedule, random)?;
    let calls = &mut schedule.routines[id].calls;
    let call = random.below(calls.len());
    (!calls.is_empty()).then(|| calls.remove(call))?;
    Some(fault)
}

fn calls_exchanged(schedule: &mut Schedule, random: &mut Random) -> Option<Fault> {
    let (id, fault) = routine(schedule, random)?;
    let calls = &mut schedule.routines[id].calls;
    let [one, other] = [0; 2].map(|_| random.below(calls.len()));
    (one < calls.len()).then(|| calls.swap(one, other))?;
    Some(fault)
}

fn call_operand(schedule: &mut Schedule, random: &mut Random) -> Option<Fault> {
    let (id, fault) = routine(schedule, random)?;
    let routine = &mut schedule.routines[id];
    let call = random.below(routine.calls.len());
    let operands = &mut routine.calls.get_mut(call)?.operands;
    let place = random.below(operands.len());
    let operand = operands.get_mut(place)?;
    match random.below(2) {
        0 => operand.argument = random.below(routine.arguments.len()) as u32,
        _ => shifted(&mut operand.offset, random)?,
    }
    Some(fault)
}

fn call_accumulates(schedule: &mut Schedule, random: &mut Random) -> Option<Fault> {
    let (id, fault) = routine(schedule, random)?;
    let calls = schedule.routines[id].calls.iter_mut();
    let flags = calls.filter_map(|call| call.attributes.get_mut("accumulate"));
    let mut flags: Vec<&mut Attribute> = flags.collect();
    let place = random.below(flags.len());
    let Attribute::Flag(flag) = flags.get_mut(place)? else { return None };
    *flag = !*flag;
    Some(fault)
}

/// Changes the plan as text, where its fields are free.
fn delay(schedule: &mut Schedule, random: &mut Random) -> Option<Fault> {
    let mut plan = serde_json::to_value(&schedule.plan).ok()?;
    let rows = plan.get_mut("delays")?.as_array_mut()?;
    let row = random.below(rows.len());
    let row = rows[row].as_array_mut()?;
    let place = random.below(row.len());
    let delay = row[place].as_u64()?;
    row[place] = match random.below(2) {
        0 => delay + 1,
        _ => delay.checked_sub(1)?,
    }
    .into();
    schedule.plan = serde_json::from_value::<Plan>(plan).ok()?;
    Some(Fault::default())
}

fn reduction(schedule: &mut Schedule, _: &mut Random) -> Option<Fault> {
    schedule.plan.reduction = match schedule.plan.reduction {
        Reduction::Sequential => Reduction::ByDevice,
        Reduction::ByDevice
        | Reduction::ByReplica
        | Reduction::ByMicroBatch
        | Reduction::ByDirection
        | Reduction::ByShard => Reduction::Sequential,
    };
    Some(Fault::default())
}

fn plan_numbers(schedule: &mut Schedule, random: &mut Random) -> Option<Fault> {
    let Plan { stages, micro_batches, replicas, .. } = &mut schedule.plan;
    let number = match random.below(3) {
        0 => stages,
        1 => micro_batches,
        _ => replicas,
    };
    match random.below(2) {
        0 => up(number)?,
        _ => down(number)?,
    }
    Some(Fault::default())
}
