//! Rule 1 for the header: target, plan, job and axes agree with each other and stay below the
//! declared limits.

use super::{Culprit, faults::Faults, limit, names, numbers, shares};
use crate::{
    DeviceId, Direction, Evaluation, Id, Line, Parameter, ParameterKind, Plan, Reduction,
    Rule, Schedule, Split, Splits, Stage, Tensor, Thousandths,
};

/// Checks what needs no other table. After it the derived numbers of the plan do not overflow.
pub(super) fn check(schedule: &Schedule, faults: &mut Faults) {
    target(schedule, faults);
    plan(schedule, faults);
    if faults.is_empty() {
        rings(schedule, faults);
        job(schedule, faults);
        names::check(schedule, faults);
        shares::check(schedule, faults);
        parameters(schedule, faults);
    }
    axes(schedule, faults);
    numbers::check(schedule, faults);
}

fn target(schedule: &Schedule, faults: &mut Faults) {
    let culprit = Culprit::Header("target");
    let target = &schedule.target;
    let devices = target.devices.len();
    faults.limit(devices as u64 <= limit::DEVICES, culprit, || {
        format!("{devices} devices; at most {} are possible", limit::DEVICES)
    });
    for (id, device) in target.devices.iter() {
        faults.require(target.pools.get(device.pool).is_some(), culprit, || {
            format!("{id} names the pool {}; name one that is listed", device.pool)
        });
        faults.require(device.overlap <= Thousandths::ALL, culprit, || {
            format!("{id} hides {} of 1000; at most all is hidden", device.overlap.0)
        });
    }
    let domains = target.domains.len();
    faults.limit(domains <= limit::DOMAINS, culprit, || {
        format!("{domains} domains; at most {} are possible", limit::DOMAINS)
    });
    for domain in &target.domains {
        faults.require(target.links.get(domain.link).is_some(), culprit, || {
            format!("a domain names the link {}; name one that is listed", domain.link)
        });
        faults.require(domain.devices.end as usize <= devices, culprit, || {
            format!("a domain ends at device {}, past the last", domain.devices.end)
        });
    }
}

/// Numbers are small enough for what is made of them; then decisions go together.
fn plan(schedule: &Schedule, faults: &mut Faults) {
    let culprit = Culprit::Header("plan");
    let plan = &schedule.plan;
    let before = faults.total();
    sizes(plan, faults);
    if faults.total() == before {
        for fault in plan.faults(&schedule.target) {
            faults.malformed(culprit, fault.to_string());
        }
    }
}

fn sizes(plan: &Plan, faults: &mut Faults) {
    let culprit = Culprit::Header("plan");
    let Plan { micro_batches, stages, slices, replicas, .. } = *plan;
    let [n, s, k] = [micro_batches, stages, slices].map(u64::from);
    faults.limit(n.saturating_mul(s.saturating_mul(k)) <= limit::TASKS, culprit, || {
        format!(
            "{n} micro-batches of {s} stages in {k} slices; their product is at most {}",
            limit::TASKS
        )
    });
    faults.limit(micro_batches <= limit::MICRO_BATCHES_MAX, culprit, || {
        format!("{n} micro-batches; at most {} are possible", limit::MICRO_BATCHES_MAX)
    });
    let all = (n * u64::from(replicas)).saturating_mul(k);
    faults.limit(all <= limit::ALL_MICRO_BATCHES, culprit, || {
        format!(
            "{replicas} replicas take {all} micro-batches, slices counted; at most {} are \
             possible",
            limit::ALL_MICRO_BATCHES
        )
    });
    let users: u64 = plan.ties.iter().map(|tie| u64::from(tie.sums())).sum();
    faults.limit(users.saturating_mul(all.max(n)) <= limit::TASKS, culprit, || {
        format!(
            "ties of {users} stages, each with {all} gradients; their product is at most {}",
            limit::TASKS
        )
    });
    let slack = match plan.rule {
        Rule::CyclicSlack(slack) => slack,
        Rule::Sync | Rule::CyclicV1 | Rule::CyclicV2 | Rule::Local { .. } => 0,
    };
    faults.limit(slack <= limit::SLACK_MAX, culprit, || {
        format!("slack is {slack}; at most {} is possible", limit::SLACK_MAX)
    });
}

/// Sums by device count the devices of all rings.
fn rings(schedule: &Schedule, faults: &mut Faults) {
    let plan = &schedule.plan;
    let Plan { micro_batches, stages, rule, placement, reduction, .. } = plan;
    let rings = (0..*stages)
        .map(|stage| u64::from(placement.ring(*rule, *micro_batches, *stages, stage)));
    let devices: u64 = rings.sum();
    let few = devices <= limit::DEVICES || *reduction == Reduction::Sequential;
    faults.limit(few, Culprit::Header("plan"), || {
        format!("takes {devices} devices; at most {} are possible", limit::DEVICES)
    });
}

fn job(schedule: &Schedule, faults: &mut Faults) {
    let culprit = Culprit::Header("job");
    let (job, plan) = (&schedule.job, &schedule.plan);
    let stages = job.elements.len();
    faults.require(stages as u64 == u64::from(plan.state_count()), culprit, || {
        format!(
            "has elements of {stages} stages and ties, but the plan has {}",
            plan.state_count()
        )
    });
    let kept =
        |(stage, elements): (Stage, &u64)| *elements == 0 || plan.keeper(stage) == stage;
    faults.require(job.elements.iter().all(kept), culprit, || {
        "has elements of a later slice: the first one has the parameters of its stage"
            .into()
    });
    let micro_batches = plan.all_micro_batches();
    let whole = job.batch > 0 && job.batch.is_multiple_of(micro_batches);
    faults.require(whole, culprit, || {
        format!("batch {} is not a multiple of {micro_batches} micro-batches", job.batch)
    });
    faults.require(job.evaluate != Evaluation::Every(0), culprit, || {
        "evaluates every 0 steps; write never or a larger number".into()
    });
    let width = job.optimizer_width().max(job.gradient_width()).max(job.dtype.size());
    for (stage, elements) in job.elements.iter() {
        let bytes = elements.checked_mul(width);
        faults.limit(bytes.is_some_and(|b| b < limit::BYTES), culprit, || {
            format!("{stage} has {elements} elements; they must stay below 2^48 bytes")
        });
    }
    let examples = u64::from(job.batch / micro_batches.max(1));
    for (id, input) in job.inputs.iter() {
        let elements = input
            .shape
            .iter()
            .try_fold(8u64, |product, &extent| product.checked_mul(extent));
        faults.limit(elements.is_some_and(|e| e < limit::BYTES), culprit, || {
            format!("input {id} has the shape {:?}; it is too large", input.shape)
        });
        faults.require(input.shape.first() == Some(&examples), culprit, || {
            format!("input {id} must bring {examples} examples, found {:?}", input.shape)
        });
    }
}

fn parameters(schedule: &Schedule, faults: &mut Faults) {
    let culprit = Culprit::Header("job");
    let mut end = (Stage::new(0), 0u64);
    for parameter in &schedule.job.parameters {
        let name = &parameter.name;
        let size = (parameter.shape.iter())
            .try_fold(1u64, |product, &extent| product.checked_mul(extent));
        let last = size.and_then(|size| parameter.offset.checked_add(size));
        let room = schedule.job.elements.get(parameter.stage);
        let inside = matches!((last, room), (Some(last), Some(room)) if last <= *room);
        faults.require(inside, culprit, || {
            format!("parameter {name} does not lie inside the elements of its stage")
        });
        faults.require((parameter.stage, parameter.offset) >= end, culprit, || {
            format!("parameter {name} must come after those of smaller stage or offset")
        });
        let filters = parameter.kind == ParameterKind::Filters;
        faults.require(!filters || parameter.shape.len() == 4, culprit, || {
            format!("filters {name} have four extents, found {:?}", parameter.shape)
        });
        end = (parameter.stage, last.unwrap_or(parameter.offset));
    }
    averages(schedule, faults);
}

/// Running averages have one momentum, which is a share.
fn averages(schedule: &Schedule, faults: &mut Faults) {
    let culprit = Culprit::Header("job");
    let parameters = schedule.job.parameters.iter();
    let averaged = parameters.filter_map(|p| Some((&p.name, p.treatment.momentum()?)));
    let mut first = None;
    for (name, momentum) in averaged {
        faults.require((0.0..=1.0).contains(&momentum), culprit, || {
            format!("{name} averages with momentum {momentum}; it lies from 0 to 1")
        });
        let (other, one) = *first.get_or_insert((name, momentum));
        faults.require(momentum == one, culprit, || {
            format!(
                "{name} averages with momentum {momentum}, {other} with {one}; all running \
                 averages of a job have one"
            )
        });
    }
}

fn axes(schedule: &Schedule, faults: &mut Faults) {
    let folded = schedule.axes.values().try_fold(1u64, |all, axis| {
        let all = all.checked_mul(u64::from(axis.extent))?;
        (1..=limit::DEVICES).contains(&all).then_some(all)
    });
    let culprit = Culprit::Header("axes");
    if folded.is_none() {
        let most = limit::DEVICES;
        let problem = format!("extents are at least 1, and at most {most} together");
        return faults.beyond(culprit, problem);
    }
    parts(schedule, faults);
    let plan = &schedule.plan;
    let batch = schedule.axes.values().filter(|axis| axis.splits == Splits::Batch);
    let folded: u64 = batch.map(|axis| u64::from(axis.extent)).product();
    let micro_batches = u64::from(plan.all_micro_batches());
    faults.require(micro_batches.is_multiple_of(folded), culprit, || {
        format!("{micro_batches} micro-batches do not spread over {folded} coordinates")
    });
    let replicas = u64::from(plan.replicas.max(1));
    faults.require(folded.is_multiple_of(replicas), culprit, || {
        format!("{folded} coordinates are not {replicas} replicas of something")
    });
    let fresh = folded == replicas || plan.delays.max() == 0;
    faults.require(fresh, culprit, || {
        "workers with delays do not form an axis: list them as devices of the cell".into()
    });
}

/// Split tensors have one axis, and parameters are the parts that it says.
fn parts(schedule: &Schedule, faults: &mut Faults) {
    let culprit = Culprit::Header("axes");
    let tensor = schedule.plan.tensor;
    let parts = tensor.parts();
    let axes = schedule.axes.values().filter(|axis| axis.splits == Splits::Tensors);
    let extents: Vec<u32> = axes.map(|axis| axis.extent).collect();
    let one = if parts == 1 { extents.is_empty() } else { extents == [parts] };
    faults.require(one, culprit, || {
        format!(
            "the plan splits tensors among {}, axes that split tensors have extents \
             {extents:?}; there is one of them, or none for one row",
            tensor.shown()
        )
    });
    let last = schedule.axes.values().next_back().map(|axis| axis.splits);
    faults.require(parts == 1 || last == Some(Splits::Tensors), culprit, || {
        "the axis that splits tensors is the last one: their parts lie next to each other".into()
    });
    for parameter in &schedule.job.parameters {
        let fault = divided(parameter, tensor);
        faults.require(fault.is_none(), Culprit::Header("job"), || {
            fault.unwrap_or_default()
        });
    }
}

/// What is wrong with the division of a parameter among the parts of a grid.
fn divided(parameter: &Parameter, tensor: Tensor) -> Option<String> {
    let (name, parts) = (&parameter.name, tensor.parts());
    let all = tensor.line(Direction::Both);
    if let [one, other] = parameter.split.splits() {
        let spans = [one, other].map(|split| split.line.unwrap_or(all));
        let apart = one.extent != other.extent && cross(spans);
        if !apart {
            return Some(format!(
                "parameter {name} is split twice by the same parts, or along one extent"
            ));
        }
    }
    parameter.split.splits().iter().find_map(|Split { extent, whole, line }| {
        let line = line.unwrap_or(all);
        let own = parameter.shape.get(*extent as usize);
        let split = format!("parameter {name} is split along extent {extent}");
        match own {
            None => Some(format!("{split}, which it does not have")),
            Some(_) if parts < 2 => Some(format!("{split}, but tensors are whole")),
            Some(_) if !tensor.has(line) => Some(format!(
                "{split} by {} parts that are {} apart, which {} are not",
                line.parts,
                line.stride,
                tensor.shown()
            )),
            Some(own) if *own != whole.div_ceil(u64::from(line.parts)) => {
                let expected = whole.div_ceil(u64::from(line.parts));
                Some(format!(
                    "parameter {name} holds {own} of {whole} in extent {extent}; one of \
                     {} parts holds {expected}",
                    line.parts
                ))
            }
            Some(_) => None,
        }
    })
}

/// Whether two lines have no more than one part in common.
fn cross(lines: [Line; 2]) -> bool {
    let behind = |near: Line, far: Line| {
        let span = u64::from(near.parts) * u64::from(near.stride);
        span <= u64::from(far.stride)
    };
    behind(lines[0], lines[1]) || behind(lines[1], lines[0])
}

/// Every device of the cell exists at every coordinate, no two are the same there, and the plan names
/// these and no others.
pub(super) fn coordinates(schedule: &Schedule, faults: &mut Faults) {
    let devices = schedule.target.devices.len() as u64;
    let mut taken = vec![false; schedule.target.devices.len()];
    let mut cell: Vec<DeviceId> =
        schedule.rings.values().flat_map(|ring| ring.devices.iter().copied()).collect();
    cell.sort_unstable();
    cell.dedup();
    let culprit = Culprit::Header("axes");
    let farthest: u64 = (schedule.axes.values())
        .map(|axis| u64::from(axis.extent - 1) * u64::from(axis.stride))
        .sum();
    let last = cell.last().map_or(0, |device| device.index() as u64);
    if last + farthest >= devices {
        return faults.malformed(
            culprit,
            format!("device {} does not exist; use smaller strides", last + farthest),
        );
    }
    for shift in schedule.shifts() {
        for device in &cell {
            let real = device.shifted(shift);
            let free = !std::mem::replace(&mut taken[real.index()], true);
            faults.require(free, culprit, || {
                format!("{real} stands for two devices of the cell; change the strides")
            });
        }
    }
    let used = taken.iter().enumerate().filter(|(_, taken)| **taken);
    let used: Vec<DeviceId> = used.map(|(device, _)| DeviceId::new(device)).collect();
    let mut named = schedule.plan.devices.clone();
    named.sort_unstable();
    faults.require(named == used, Culprit::Header("plan"), || {
        let list: Vec<String> = used.iter().map(DeviceId::to_string).collect();
        format!("its devices are not those of the rings at all axes: {}", list.join(", "))
    });
}
