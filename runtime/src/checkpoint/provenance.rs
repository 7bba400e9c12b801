//! What a checkpoint says about the run that wrote it.

mod differences;

use crate::{Dataset, digest::Digest};
use roundelay_schedule::{
    Belonging, Contraction, Id, Images, Job, MapWays, MicroBatch, Parameter, Plan,
    Schedule, Sequence, Stage, Sum, Tensor, Treatment,
};
use std::collections::BTreeMap;

/// What tells one run from another, as names and values. Of the fingerprint its first part counts, which
/// says what the model computes, or what routines compute that were changed; a run goes on under another
/// plan or on another cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Provenance {
    pub(super) entries: BTreeMap<String, String>,
}

impl Provenance {
    /// The run of a schedule on its data.
    pub fn new(schedule: &Schedule, data: &Dataset) -> Self {
        let job = &schedule.job;
        let optimizer = serde_json::to_string(&job.optimizer)
            .expect("an optimizer is numbers under names that are text");
        let states: Vec<&str> = job.optimizer.array_names(job.dtype).collect();
        let entries = [
            ("model", job.model.clone()),
            ("rule", schedule.plan.rule.to_string()),
            ("micro_batches", schedule.plan.all_micro_batches().to_string()),
            ("batch", job.batch.to_string()),
            ("seed", job.seed.to_string()),
            ("optimizer", optimizer),
            ("states", states.join(" ")),
            ("delays", delays(schedule)),
            ("arithmetic", arithmetic(schedule)),
            ("spared", spared(job)),
            ("data", format!("{:016x}", data.digest())),
            ("data_size", size(data)),
            ("fingerprint", fingerprint(schedule)),
        ];
        Self { entries: entries.map(|(name, value)| (name.to_string(), value)).into() }
    }

    /// The value under a name; empty when there is none.
    pub(super) fn entry(&self, name: &str) -> &str {
        self.entries.get(name).map_or("", String::as_str)
    }

    /// Names of the arrays of optimizer state, in the order of the state.
    pub(super) fn states(&self) -> impl Iterator<Item = &str> {
        self.entry("states").split_whitespace()
    }

    /// Whether the model computes something else than in an earlier run; where one does not say what it
    /// computes, nobody knows.
    pub(super) fn computes_otherwise(&self, earlier: &Provenance) -> bool {
        let computed = |run: &Provenance| {
            let parts = run.entry("fingerprint").split_once('-');
            parts.map(|(computed, _)| computed.to_owned())
        };
        computed(self).zip(computed(earlier)).is_some_and(|(own, other)| own != other)
    }

    /// Whether gradients are taken at other versions of parameters than in an earlier run; one that does not
    /// say at which is told by its arithmetic alone.
    pub(super) fn delays_otherwise(&self, earlier: &Provenance) -> bool {
        self.is_known_otherwise("delays", earlier)
    }

    /// Whether weight decay leaves out other parameters than in an earlier run; where one does not say
    /// which, nobody knows.
    pub(super) fn spares_otherwise(&self, earlier: &Provenance) -> bool {
        self.is_known_otherwise("spared", earlier)
    }

    fn is_known_otherwise(&self, name: &str, earlier: &Provenance) -> bool {
        let known = earlier.entry(name);
        !known.is_empty() && known != self.entry(name)
    }

    /// What was otherwise in an earlier run, so that this one is another run.
    pub(super) fn differences(&self, earlier: &Provenance) -> Vec<String> {
        differences::between(earlier, self)
    }
}

/// The fingerprint; where routines were changed behind the compiler, with what they are now in place of
/// what the model computes.
fn fingerprint(schedule: &Schedule) -> String {
    let own = &schedule.fingerprint;
    match own.split_once('-') {
        Some((_, rest)) if schedule.is_recoded() => {
            format!("{:016x}-{rest}", schedule.code_digest())
        }
        Some(_) | None => own.clone(),
    }
}

/// A digest of the parameters that weight decay leaves out. Of heads nobody chooses which: they come and go
/// with the rule.
fn spared(job: &Job) -> String {
    let mut digest = Digest::new();
    let spared = |own: &&Parameter| match (own.belonging, own.treatment) {
        (Belonging::Model, Treatment::Spared) => true,
        (Belonging::Model, Treatment::Decayed | Treatment::Averaged { .. })
        | (Belonging::Head, _) => false,
    };
    let names = by_name(job).into_iter().filter(spared).map(|own| &own.name);
    names.for_each(|name| digest.add(format!("{name}\n").as_bytes()));
    format!("{:016x}", digest.value())
}

/// How much data there is, in words; nothing for data that is drawn without an end.
fn size(data: &Dataset) -> String {
    if let Some((training, held_out)) = data.tokens() {
        return format!("{training} tokens to train on and {held_out} held out");
    }
    let held_out = data.held_out(1).ok().and_then(|own| own.coverage().of);
    held_out.map_or(String::new(), |count| format!("{count} held-out examples"))
}

/// A digest of the versions of each parameter that gradients of a step's micro-batches are taken at.
fn delays(schedule: &Schedule) -> String {
    let mut digest = Digest::new();
    for parameter in by_name(&schedule.job) {
        digest.add(parameter.name.as_bytes());
        let delays = delays_of(&schedule.plan, parameter);
        delays.for_each(|delay| digest.add(&delay.to_le_bytes()));
    }
    format!("{:016x}", digest.value())
}

/// The delays of a parameter in all micro-batches of a step.
fn delays_of(plan: &Plan, parameter: &Parameter) -> impl Iterator<Item = u32> {
    let own = plan.delays.size().0;
    let micro_batches = 0..plan.all_micro_batches() as usize;
    micro_batches.map(move |i| plan.delay(parameter.stage, MicroBatch::new(i % own)))
}

/// In an order that no plan changes.
fn by_name(job: &Job) -> Vec<&Parameter> {
    let mut parameters: Vec<&Parameter> = job.parameters.iter().collect();
    parameters.sort_by(|one, other| one.name.cmp(&other.name));
    parameters
}

/// A digest of what each parameter's update is made of: the delays of its micro-batches, the tree
/// in which they are summed, over how many coordinates, and with whom it shares a clipped norm, which
/// shards and stages add up.
/// Coordinates count because a kernel goes on with the sum that it finds, term by term, while a
/// collective adds whole gradients. Rows of split tensors sum products part by part, and what
/// they split ends at cuts; so do the sums of stages that use the same parameters. Plans with one
/// digest train to the same bits.
fn arithmetic(schedule: &Schedule) -> String {
    let Schedule { job, plan, .. } = schedule;
    let parameters = by_name(job);
    let mut digest = Digest::new();
    let parts = u64::from(schedule.tensor_parts().max(1));
    digest.add(format!("{}", schedule.cell_count() / parts).as_bytes());
    if !plan.tensor.is_whole() {
        digest.add(format!("{} {:?}", spelled(plan.tensor), plan.cuts).as_bytes());
        digest.add(maps(&plan.maps).as_bytes());
    }
    if !plan.ties.is_empty() {
        digest.add(format!("{:?}", plan.cuts).as_bytes());
    }
    let mut by_stage: BTreeMap<Stage, String> = BTreeMap::new();
    for parameter in &parameters {
        let stage = by_stage.entry(parameter.stage);
        let summed = stage.or_insert_with(|| summed(schedule, parameter));
        digest.add(parameter.name.as_bytes());
        digest.add(summed.as_bytes());
    }
    format!("{:016x}", digest.value())
}

/// How gradients of a stage are made and summed; `first` is the first of its parameters by name.
fn summed(schedule: &Schedule, first: &Parameter) -> String {
    let Schedule { job, plan, .. } = schedule;
    let delays: Vec<u32> = delays_of(plan, first).collect();
    let sum = plan.sum(plan.whole_stage(first.stage));
    let joint = if plan.has_joint_norm() { " of all stages" } else { "" };
    let norm = match (job.optimizer.clip != 0.0, plan.parts()) {
        (false, _) => String::new(),
        (true, 1) => format!("{}{joint}", first.name),
        (true, shards) => format!("{}{joint} in {shards} shards", first.name),
    };
    format!("{delays:?} {} {norm}", added(&sum))
}

/// How each map is split.
fn maps(maps: &MapWays) -> String {
    let each = maps.by_way().into_iter().map(|(way, sites)| format!("{way} {sites}"));
    each.collect::<Vec<_>>().join(", ")
}

/// A sum, in the words that digests of checkpoints are made of: these must stay as they are.
fn added(sum: &Sum) -> String {
    match sum {
        Sum::One(i) => format!("One({i})"),
        Sum::Run(_) | Sum::All(_) => {
            let parts: Vec<String> = sum.parts().iter().map(added).collect();
            format!("All([{}])", parts.join(", "))
        }
    }
}

/// How tensors are split, in such words; a single column is none of them, nor are examples that are
/// taken together.
fn spelled(tensor: Tensor) -> String {
    let Tensor { rows, columns, sequence, images, contraction, overdecompose } = tensor;
    let sequence = match sequence {
        Sequence::Whole => "Whole",
        Sequence::Split => "Split",
    };
    let grid = match (columns, contraction) {
        (1, _) => format!("Tensor {{ rows: {rows}, sequence: {sequence} }}"),
        (_, Contraction::Alternate) => {
            format!("Tensor {{ rows: {rows}, columns: {columns}, sequence: {sequence} }}")
        }
        (_, Contraction::Gather) => format!("Tensor {{ columns: {columns}, gather }}"),
        (_, Contraction::Each) => format!(
            "Tensor {{ rows: {rows}, columns: {columns}, sequence: {sequence}, each }}"
        ),
    };
    let grid = match images {
        Images::Whole => grid,
        Images::Split => format!("{grid} of pixels"),
    };
    match overdecompose {
        1 => grid,
        halves => format!("{grid} in {halves} parts"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use roundelay_schedule::{Id, MicroBatch};

    #[test]
    fn digests_are_made_of_words_that_stay() {
        let rows = Tensor::rows(2, Sequence::Split);
        assert_eq!(spelled(rows), "Tensor { rows: 2, sequence: Split }");
        let grid = Tensor::grid(2, 4);
        assert_eq!(spelled(grid), "Tensor { rows: 2, columns: 4, sequence: Whole }");
        assert!(spelled(grid.in_halves()).ends_with(" } in 2 parts"));
        assert!(spelled(Tensor::pixels(4)).ends_with(" } of pixels"));
        let one = |i| Sum::One(MicroBatch::new(i));
        let sum = Sum::all(vec![one(0), Sum::all(vec![one(2), one(1)])]);
        assert_eq!(added(&sum), "All([One(i0), All([One(i2), One(i1)])])");
    }
}
