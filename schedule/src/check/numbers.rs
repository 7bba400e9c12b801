//! Rule 1 for the numbers of the header that times and updates are made of: each is one that there
//! can be. Otherwise a run trains nothing but NaN, or lasts for ever.

use super::{Culprit, faults::Faults};
use crate::{Device, Link, Method, Optimizer, Rate, Schedule, Way};

/// Checks devices, links and the optimizer.
pub(super) fn check(schedule: &Schedule, faults: &mut Faults) {
    let target = &schedule.target;
    for (id, device) in target.devices.iter() {
        let none = idle(device);
        faults.limit(none.is_none(), Culprit::Header("target"), || {
            format!("{id} has no {}; write at least 1", none.unwrap_or_default())
        });
    }
    for (id, link) in target.links.iter() {
        faults.limit(moves(link), Culprit::Header("target"), || {
            format!("{id} has a bandwidth of 0; write at least 1 byte a second")
        });
    }
    for parameter in &schedule.job.parameters {
        let number = parameter.initial.number();
        faults.limit(number.is_finite(), Culprit::Header("job"), || {
            format!("`{}` begins with {number}; write a number", parameter.name)
        });
    }
    let wrong = optimizer(&schedule.job.optimizer);
    faults.limit(wrong.is_none(), Culprit::Header("job"), || {
        format!("the optimizer {}", wrong.unwrap_or_default())
    });
}

/// What a device has none of without which it does nothing.
fn idle(device: &Device) -> Option<&'static str> {
    let has = [
        ("threads", device.threads > 0),
        ("compute", device.compute.0 > 0),
        ("bandwidth", device.bandwidth.0 > 0),
    ];
    has.into_iter().find(|(_, some)| !some).map(|(what, _)| what)
}

fn moves(link: &Link) -> bool {
    let moves = |way: &Way| match way {
        Way::Form(_) => true,
        Way::Short(protocol) | Way::Nvls(protocol) => protocol.bandwidth.0 > 0,
    };
    link.bandwidth.0 > 0 && link.ways.iter().all(moves)
}

/// What no optimizer has.
fn optimizer(optimizer: &Optimizer) -> Option<String> {
    let Optimizer { method, rate, weight_decay, clip } = optimizer;
    let shares = match method {
        Method::Sgd { momentum, .. } => vec![("momentum", *momentum)],
        Method::Adamw { beta1, beta2, .. } => vec![("beta1", *beta1), ("beta2", *beta2)],
    };
    let wrong = shares.into_iter().find(|(_, own)| !(0.0..1.0).contains(own));
    if let Some((name, own)) = wrong {
        return Some(format!("has {name} {own}; write at least 0 and less than 1"));
    }
    let epsilon = match method {
        Method::Sgd { .. } => 0.0,
        Method::Adamw { epsilon, .. } => *epsilon,
    };
    let mut amounts =
        vec![("weight_decay", *weight_decay), ("clip", *clip), ("epsilon", epsilon)];
    if has_no_interval(rate) {
        return Some("drops its rate every 0 updates; write at least 1".to_owned());
    }
    amounts.extend(rates(rate));
    let wrong = amounts.into_iter().find(|(_, own)| !own.is_finite() || *own < 0.0);
    wrong.map(|(name, own)| format!("has {name} {own}; write a number of at least 0"))
}

/// The numbers of a rate.
fn rates(rate: &Rate) -> Vec<(&'static str, f64)> {
    match rate {
        Rate::Constant(rate) => vec![("rate", *rate)],
        Rate::Step { initial, factor, .. } => {
            vec![("rate", *initial), ("factor", *factor)]
        }
        Rate::Cosine { initial, last, .. } => {
            vec![("rate", *initial), ("last rate", *last)]
        }
        Rate::Warmup { after, .. } => rates(after),
    }
}

/// Whether a rate counts its drops in steps of no updates.
fn has_no_interval(rate: &Rate) -> bool {
    match rate {
        Rate::Step { every, .. } => *every == 0,
        Rate::Warmup { after, .. } => has_no_interval(after),
        Rate::Constant(_) | Rate::Cosine { .. } => false,
    }
}
