//! Logits whose rows tensor cores cannot load: what the plan's prices say that costs, and which loss makes
//! rows of its own that they can.

use crate::{costs::calls::roofline, rewrite::Algebra};
use roundelay_codegen::node_costs;
use roundelay_dsl::{
    Masked, Model, ModelParameter, Node, NodeId, Operation, ParameterId, Program, Source,
};
use roundelay_kernels::Kernel;
use roundelay_schedule::{Call, Footprint, Id, Initial, Nanos, Plan, Unit};

/// What tensor cores load at once, in bytes.
const LOADED: u64 = 16;

/// A classifier whose logits nobody reads but its loss, and metrics.
struct Classifier<'a> {
    /// The affine map that makes the logits.
    map: NodeId,
    weight: ParameterId,
    loss: &'a Node,
    /// Metrics that read the logits.
    metrics: Vec<&'a str>,
    /// Metrics that read the loss itself.
    of_loss: Vec<&'a str>,
}

impl<'a> Classifier<'a> {
    /// That of a loss of a product with a parameter, without bias. What else is done with the logits a loss that
    /// makes its own cannot replace.
    fn of(model: &'a Model, loss: NodeId) -> Option<Self> {
        let node = &model.nodes[loss];
        let is_loss = matches!(node.operation, Operation::CrossEntropy { .. });
        let Some(Source::Node(map)) = node.operands.first().filter(|_| is_loss) else {
            return None;
        };
        let (Operation::Linear, [_, Source::Parameter(weight)]) =
            (model.nodes[*map].operation, &model.nodes[*map].operands[..])
        else {
            return None;
        };
        let reads =
            |other: NodeId| model.nodes[other].operands.contains(&Source::Node(*map));
        let named = |of_loss: bool| {
            let metrics = model.metrics.iter().filter(|metric| reads(metric.node));
            let own = metrics.filter(move |metric| (metric.node == loss) == of_loss);
            own.map(|metric| metric.name.as_str()).collect()
        };
        let is_metric = |id| model.metrics.iter().any(|metric| metric.node == id);
        let mut readers = model.nodes.ids().filter(|id| reads(*id));
        readers.all(|id| id == loss || is_metric(id)).then(|| Self {
            map: *map,
            weight: *weight,
            loss: node,
            metrics: named(false),
            of_loss: named(true),
        })
    }

    /// The loss that makes its own logits, as programs write it.
    fn instead(&self, model: &Model) -> String {
        let ModelParameter { name, shape, initial, .. } = &model.parameters[self.weight];
        // A map names the parameter that it makes itself, and whoever shares it by that of the program.
        let own = name.strip_prefix(&*model.nodes[self.map].name);
        let weight = match (own.is_some_and(|rest| rest.starts_with('.')), initial) {
            (true, Initial::Normal(deviation)) => {
                format!("{}, deviation = {deviation}", shape[0])
            }
            (true, Initial::Uniform(_) | Initial::Constant(_)) => shape[0].to_string(),
            (false, _) => format!("weight = {}", name.rsplit('.').next().unwrap_or(name)),
        };
        let targets = match self.loss.operands.get(1) {
            Some(Source::Input(input)) => &model.inputs[*input].name,
            Some(Source::Node(_) | Source::Parameter(_)) | None => "targets",
        };
        let is_masked =
            self.loss.operation == Operation::CrossEntropy { masked: Masked::Yes };
        let masked = if is_masked { ", masked = true" } else { "" };
        format!("linear_cross_entropy(x, {targets}, {weight}{masked})")
    }
}

/// What unaligned logits cost in a plan, and what to write instead. Parts of a grid make the logits of their own
/// classes as an array in any case, so for split tensors there is nothing to say.
pub(crate) fn unaligned_logits(
    program: &Program,
    model: &Model,
    plan: &Plan,
) -> Option<String> {
    if plan.tensor.parts() > 1 {
        return None;
    }
    let losses = model.nodes.ids().take(model.cuttable());
    let mut classifiers = losses.filter_map(|node| Classifier::of(model, node));
    classifiers.find_map(|own| told(&own, program, model, plan))
}

fn told(
    own: &Classifier<'_>,
    program: &Program,
    model: &Model,
    plan: &Plan,
) -> Option<String> {
    let [classes, features] = model.parameters[own.weight].shape[..] else { return None };
    let dtype = program.train.dtype;
    let is_whole = |elements: u64| (elements * dtype.size()).is_multiple_of(LOADED);
    // Rows of features that are unaligned stay so.
    if is_whole(classes) || !is_whole(features) {
        return None;
    }
    let examples = program.train.batch / plan.all_micro_batches().max(1);
    let size = (u64::from(examples), plan.tensor);
    let nodes = node_costs(model, size, dtype, &Algebra::default()).ok()?;
    let cost = &nodes[own.map.index()];
    let calls = cost.forward.calls.iter().chain(&cost.backward.calls);
    let [now, aligned] = slowest(program, plan, calls)?;
    let name = &model.nodes[own.map].name;
    let told = |names: &[&str], what: &str| match names {
        [] => String::new(),
        all => format!(" ({what} `metric {}`)", all.join("`, `metric ")),
    };
    let metrics = told(&own.metrics, "it leaves no logits for");
    let of_loss =
        told(&own.of_loss, "bound to a name, it is all that `perplexity(…)` needs for");
    Some(format!(
        "rows of {classes} logits are no whole multiples of {LOADED} bytes, which tensor cores load at once: \
         the products of `{name}` take {now} of a micro-batch, where aligned rows would take {aligned}; \
         `loss {}`, with x for what `{name}` reads, makes rows that are{metrics}{of_loss}",
        own.instead(model)
    ))
}

/// What calls take that are unaligned, and would take if they were not, on the device of the plan that loses most
/// by it; none where no price depends on it, as on devices with a table of times.
fn slowest<'a>(
    program: &Program,
    plan: &Plan,
    calls: impl Iterator<Item = &'a Call>,
) -> Option<[Nanos; 2]> {
    let footprint = |call| Some(Kernel::parse(call).ok()?.footprint(program.train.dtype));
    let footprints: Vec<Footprint> =
        calls.filter_map(footprint).filter(|own| own.unit == Unit::Unaligned).collect();
    let priced = plan.devices.iter().filter(|id| !program.profiles.contains_key(id));
    let times = priced.map(|device| {
        let device = &program.target.devices[*device];
        let time = |own: Footprint| roofline(own, device).max(device.issue);
        [Unit::Unaligned, Unit::Product].map(|unit| {
            footprints.iter().map(|own| time(Footprint { unit, ..*own })).sum::<Nanos>()
        })
    });
    let worst = times.max_by_key(|[now, aligned]| now.0.saturating_sub(aligned.0));
    worst.filter(|[now, aligned]| now > aligned)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample;
    use roundelay_schedule::{Sequence, Tensor};

    /// A classifier of a sequence on a device with or without losses where rows are unaligned.
    fn program(model: [&str; 2], compute: &str, dtype: &str) -> Program {
        of_width(16, model, compute, dtype)
    }

    fn of_width(
        width: u64,
        [head, loss]: [&str; 2],
        compute: &str,
        dtype: &str,
    ) -> Program {
        let text = format!(
            "model it {{
                input tokens: i32[batch, 8]
                input next: i32[batch, 8]
                param table: [50257, {width}]
                x = embedding(tokens, table)
                {head}
                loss {loss}
            }}
            device gpu {{ memory 8 GB, compute 1 TFLOP/s {{ {compute} }}, bandwidth 900 TB/s }}
            link bus {{ bandwidth 8 GB/s, latency 2 us }}
            cluster two {{ 2 x gpu joined by bus }}
            train {{
                data synthetic, batch 8, steps 1, optimizer sgd(lr = 1e-3), dtype {dtype}
            }}"
        );
        sample::parsed(&text)
    }

    fn note(program: &Program, tensor: Tensor) -> Option<String> {
        let mut plan = sample::plan_on(1);
        plan.tensor = tensor;
        let mut ranking = sample::ranking();
        ranking.plans = vec![sample::candidate(&plan, Nanos(1), 0)];
        let notes = crate::remarks(&ranking, program);
        let mut own =
            notes.into_iter().filter(|note| note.contains("which tensor cores load"));
        let first = own.next();
        assert_eq!(own.next(), None, "it is told once");
        first
    }

    const HALF: &str = "unaligned 0.5";
    const TIED: &str = "logits = linear(x, weight = table, bias = false)";
    const LOSS: &str = "cross_entropy(logits, next)";

    /// Three products of 64 rows, 50,257 classes and 16 features are 102,926,336 operations each.
    #[test]
    fn unaligned_logits_are_told_with_the_plans_own_prices() {
        let tied = program([TIED, LOSS], HALF, "bf16");
        let whole = Tensor::default();
        let text = note(&tied, whole).expect("50,257 classes are 100,514 bytes");
        let says =
            "take 617.56 us of a micro-batch, where aligned rows would take 308.78 us";
        assert!(text.contains(says), "{text}");
        let instead = "`loss linear_cross_entropy(x, next, weight = table)`";
        assert!(text.contains(instead) && !text.contains("metric"), "{text}");
        let own = "logits = linear(x, 50257, bias = false)";
        let masked = "cross_entropy(logits, next, masked = true)";
        let text =
            note(&program([own, masked], HALF, "bf16"), whole).expect("it is the same");
        let instead = "`loss linear_cross_entropy(x, next, 50257, masked = true)`";
        assert!(text.contains(instead), "{text}");
        let drawn = "logits = linear(x, 50257, bias = false, deviation = 0.02)";
        let text = note(&program([drawn, LOSS], HALF, "bf16"), whole).expect("it is too");
        assert!(text.contains("(x, next, 50257, deviation = 0.02)`"), "{text}");
        let measured = format!("{LOSS}\nmetric perplexity(logits, next)");
        let text = note(&program([TIED, &measured], HALF, "bf16"), whole);
        let text = text.expect("a metric is no part of training");
        assert!(
            text.ends_with("(bound to a name, it is all that `perplexity(…)` needs for `metric perplexity`)"),
            "{text}"
        );
        let measured = format!("{LOSS}\nmetric accuracy(logits, next)");
        let text = note(&program([TIED, &measured], HALF, "bf16"), whole);
        let text = text.expect("a metric is no part of training");
        assert!(text.ends_with("(it leaves no logits for `metric accuracy`)"), "{text}");
    }

    #[test]
    fn what_the_other_loss_cannot_do_or_would_not_gain_is_left_alone() {
        let whole = Tensor::default();
        let chunked = "linear_cross_entropy(x, next, weight = table)";
        let aligned = "logits = linear(x, 50256, bias = false)";
        let capped = "cross_entropy(soft_cap(logits, 30), next)";
        let twice = "cross_entropy(logits, next) + mse(logits, 0.5 * logits)";
        let cases = [
            ([TIED, LOSS], HALF, "f32", "no tensor core is asked"),
            ([TIED, LOSS], "", "bf16", "nothing is known to be lost"),
            ([aligned, LOSS], HALF, "bf16", "rows are aligned"),
            (["logits = linear(x, 50257)", LOSS], HALF, "bf16", "there is a bias"),
            ([TIED, capped], HALF, "bf16", "the loss reads something else"),
            ([TIED, twice], HALF, "bf16", "so does something else"),
            (["", chunked], HALF, "bf16", "it is the other loss"),
        ];
        for (model, compute, dtype, why) in cases {
            assert_eq!(note(&program(model, compute, dtype), whole), None, "{why}");
        }
        let thin = of_width(15, [TIED, LOSS], HALF, "bf16");
        assert_eq!(note(&thin, whole), None, "rows of features stay unaligned");
        let split = Tensor::rows(2, Sequence::Whole);
        assert_eq!(
            note(&program([TIED, LOSS], HALF, "bf16"), split),
            None,
            "classes are"
        );
    }
}
