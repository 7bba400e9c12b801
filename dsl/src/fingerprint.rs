//! Stable hashes of what a model computes, and of model and cluster.

mod words;

use crate::{Model, NodeId, Program};
use roundelay_schedule::{Bytes, Fnv, Id, Nanos, Profile, Target};
use std::{collections::BTreeMap, fmt::Write, sync::Arc};

/// Sixteen hexadecimal digits that change with what an update of the model's parameters is made of, and
/// with nothing else; a dash; and sixteen that change with the model, the cluster or the tables of
/// measured times: the hashes of their texts.
pub fn fingerprint(program: &Program) -> String {
    let text = format_args!("{}{}", program.model, Shown(&program.target)).to_string();
    let mut hash = Fnv::default().with(text.as_bytes());
    let mut digests: BTreeMap<*const Profile, String> = BTreeMap::new();
    for (device, profile) in &program.profiles {
        let table = digests.entry(Arc::as_ptr(profile));
        let digest = table.or_insert_with(|| profile.digest());
        hash = hash.with(format!("{device} measured {digest}\n").as_bytes());
    }
    format!("{:016x}-{:016x}", computed(&program.model), hash.value())
}

/// The hash of all that reaches the losses: how parameters begin changes no update, nor do metrics,
/// which stand behind, and what values are called. What data does not bring follows from the losses.
fn computed(model: &Model) -> u64 {
    let mut hash = Fnv::default();
    let inputs = model.inputs.iter().filter(|(_, input)| input.origin.is_data());
    for (id, input) in inputs {
        let (element, shape) =
            (words::element(input.element), words::shape(&input.shape));
        let input = format!("{id} {} {element} {shape}", input.name);
        hash = hash.with(input.as_bytes());
    }
    for (id, own) in model.parameters.iter() {
        let treatment = words::treatment(own.treatment);
        let own = format!("{id} {} {:?} {treatment}", own.name, own.shape);
        hash = hash.with(own.as_bytes());
    }
    let last: Option<NodeId> = model.loss.iter().chain(&model.auxiliary).copied().max();
    let last = last.map_or(0, |last| last.index() + 1);
    for (id, node) in model.nodes.iter().take(last) {
        hash = hash.with(node.line(id, "").as_bytes());
    }
    let losses = format!("{:?} {:?}", model.loss, model.auxiliary);
    hash.with(losses.as_bytes()).value()
}

/// A cluster as text: one line per pool, device, link and domain. What the host takes comes from
/// the tables.
struct Shown<'a>(&'a Target);

impl std::fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Target { name, pools, devices, links, domains, host: _ } = self.0;
        writeln!(f, "cluster {name}")?;
        for (id, pool) in pools.iter() {
            writeln!(f, "{id} {} {}", pool.name, pool.capacity.0)?;
        }
        for (id, device) in devices.iter() {
            let mut line = format!("{id} {} {}", device.name, device.pool);
            for amount in [device.memory.0, device.compute.0, device.bandwidth.0] {
                write!(line, " {amount}")?;
            }
            write!(f, "{line} {} {}", device.threads, device.overhead.0)?;
            if !device.updates.is_all() {
                write!(f, " updates {}", device.updates.0)?;
            }
            if !device.losses.is_all() {
                write!(f, " losses {}", device.losses.0)?;
            }
            if device.issue > Nanos(0) {
                write!(f, " issue {}", device.issue.0)?;
            }
            if !device.products.is_ideal() || device.reserved > Bytes(0) {
                let products = words::products(device.products);
                write!(f, " {products} {}", device.reserved.0)?;
            }
            if !device.overlap.is_none() {
                write!(f, " overlap {}", device.overlap.0)?;
            }
            writeln!(f)?;
        }
        for (id, link) in links.iter() {
            write!(f, "{id} {} {} {}", link.name, link.bandwidth.0, link.latency.0)?;
            if link.startup > Nanos(0) || !link.ways.is_empty() {
                write!(f, " {} {}", link.startup.0, words::ways(&link.ways))?;
            }
            writeln!(f)?;
        }
        for domain in domains {
            writeln!(f, "{} {:?}", domain.link, domain.devices)?;
        }
        Ok(())
    }
}
