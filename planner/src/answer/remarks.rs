//! What a reader should know before believing a ranking, in sentences.

use crate::{
    answer::{
        idle::idle, refusal::unproven, row_by_row::row_by_row,
        unaligned::unaligned_logits,
    },
    search::{candidate::Candidate, ranking::Ranking},
    space::{
        cuts::{Chain, Users},
        family::Family,
        tied::Tied,
        values::left_out,
    },
};
use roundelay_codegen::{Undivided, divides_classes, undivided};
use roundelay_dsl::{Choice, Chunks, Model, Node, Numbers, Operation, Program, Search};
use roundelay_schedule::{Exactness, Hop, Placement, Plan, PoolId, Rule};
use std::collections::{BTreeMap, BTreeSet};

/// The largest number of rows that is looked at for one that fits.
const ROWS_SHOWN: u64 = 64;

/// What a reader should know before believing the table.
pub fn remarks(ranking: &Ranking, program: &Program) -> Vec<String> {
    let shown = || {
        let weaker = ranking.weaker.iter().map(|weaker| &weaker.candidate);
        let leaders = ranking.approaches.iter().filter_map(|led| led.candidate.as_ref());
        ranking.plans.iter().chain(leaders).chain(weaker)
    };
    let cyclic = |placement| {
        shown().any(|candidate| {
            candidate.plan.placement == placement && !candidate.plan.rule.is_synchronous()
        })
    };
    let mut remarks: Vec<String> = unproven(ranking).into_iter().collect();
    if cyclic(Placement::Concurrent) {
        remarks.push(
            "accumulate needs less memory than concurrent cyclic micro-batches, and no delay"
                .to_owned(),
        );
    }
    if cyclic(Placement::Data) {
        remarks.push(
            "in placement data the cyclic rule does not lower a device's activation peak, \
             only that of all devices together"
                .to_owned(),
        );
    }
    if shown().any(|candidate| candidate.plan.placement == Placement::Concurrent) {
        remarks.push("on one device no placement saves time".to_owned());
    }
    if shown().any(|candidate| !candidate.plan.boundaries.is_empty()) {
        remarks.push(
            "under a local rule units train on losses of their own: times compare, what it \
             costs in quality is not known"
                .to_owned(),
        );
    }
    remarks.extend(left_out(program));
    remarks.extend(row_by_row(program));
    remarks.extend(unasked(ranking, program));
    remarks.extend(unmade(program));
    if shown().any(|candidate| candidate.staleness() > 1) {
        remarks.push(
            "a flush-free pipeline with N < S - 1 lags more than one update behind"
                .to_owned(),
        );
    }
    if shown().any(|candidate| is_virtual(candidate, program)) {
        remarks.push(
            "devices that share a memory are taken as separate processors: where they are \
             virtual, times are predictions, memory and numbers are real"
                .to_owned(),
        );
    }
    if let Some(first) = shown().next().filter(|_| !program.profiles.is_empty()) {
        remarks.push(format!("times of the first plan: {}", first.origins));
    }
    if let Some(first) = ranking.plans.first() {
        remarks.extend(idle(program, &first.plan));
        remarks.extend(of_first(&first.plan, program));
        remarks.extend(waiting(first));
        remarks.extend(uncut(&first.plan, ranking, program));
    }
    remarks
}

/// Whether two devices of a plan allocate from one pool.
fn is_virtual(candidate: &Candidate, program: &Program) -> bool {
    let devices = &candidate.plan.devices;
    let pools: BTreeSet<PoolId> =
        devices.iter().map(|device| program.target.devices[*device].pool).collect();
    pools.len() < devices.len()
}

/// What the first plan does that its numbers do not show.
fn of_first(plan: &Plan, program: &Program) -> Vec<String> {
    let Ok(own) = program.under(plan.rule) else { return Vec::new() };
    let mut notes = whole(&own.model, plan);
    notes.extend(losses_among_parts(&own.model, plan));
    notes.extend(unaligned_logits(program, &own.model, plan));
    notes.extend(loss_alone(&own, plan));
    notes.extend(clipped_apart(plan, program));
    notes
}

/// Stages whose gradients are bounded by norms of their own, and why.
fn clipped_apart(plan: &Plan, program: &Program) -> Option<String> {
    let (clip, stages, rule) = (program.train.optimizer.clip, plan.stages, plan.rule);
    let (why, instead) = match rule {
        Rule::Sync | Rule::Local { units: 0 | 1, hop: _ } => return None,
        Rule::CyclicV1 | Rule::CyclicV2 | Rule::CyclicSlack(_) => (
            "later stages are updated before earlier ones have their gradients of the step",
            "`rule sync` or `stages 1` bounds",
        ),
        Rule::Local { .. } => {
            ("units have losses of their own and do not wait", "`rule sync` bounds")
        }
    };
    (clip > 0.0 && stages > 1).then(|| {
        format!(
            "`clip = {clip}` bounds the gradient of each of {stages} stages by its own norm, because \
             under rule {rule} {why}; other cuts train other numbers, and {instead} that of the \
             whole model"
        )
    })
}

/// What every row does whole, one sentence for all operations that are alike.
fn whole(model: &Model, plan: &Plan) -> Vec<String> {
    let rows = plan.tensor.rows;
    let mut alike: BTreeMap<_, Vec<Undivided>> = BTreeMap::new();
    for own in undivided(model, plan.tensor) {
        let key = (own.kind, own.what, own.size, own.divisor);
        alike.entry(key).or_default().push(own);
    }
    let sentence = |((kind, what, size, divisor), all): ((_, _, u64, u64), Vec<_>)| {
        let first: &Undivided = &all[0];
        let more = match all.len() {
            1 => String::new(),
            count => format!(" and {} more", count - 1),
        };
        let fits: Vec<String> = (1..=divisor.min(ROWS_SHOWN))
            .filter(|rows| divisor.is_multiple_of(*rows))
            .map(|rows| rows.to_string())
            .collect();
        format!(
            "{kind} of `{}`{more}: {size} {what} do not divide among {rows} tensor rows, so each \
             row does all of it; rows that do: {}",
            model.nodes[first.node].name,
            fits.join(", ")
        )
    };
    alike.into_iter().map(sentence).collect()
}

/// What a loss that makes its own logits does not do among tensor parts: divide too few classes, or make as many
/// groups of rows as it is told to.
fn losses_among_parts(model: &Model, plan: &Plan) -> Option<String> {
    let parts = plan.tensor.parts();
    let told = |node: &Node| {
        let Operation::LinearCrossEntropy { chunks, .. } = node.operation else {
            return None;
        };
        let classes = model.shape(*node.operands.get(1)?).first()?.size;
        let name = &node.name;
        match (divides_classes(classes, plan.tensor), chunks) {
            (false, _) => Some(format!(
                "each of {parts} tensor parts makes all logits of `{name}`, which has only {classes} \
                 classes"
            )),
            (true, Chunks::Number(chunks)) if chunks > u64::from(parts) => Some(format!(
                "`chunks = {chunks}` of `{name}` counts only where tensors are not split: {parts} tensor \
                 parts make the logits of their classes, of all rows at once"
            )),
            (true, Chunks::Number(_) | Chunks::Usual) => None,
        }
    };
    model.nodes.values().find_map(told).filter(|_| parts > 1)
}

/// A last stage that shared parameters leave nothing but the loss.
fn loss_alone(program: &Program, plan: &Plan) -> Option<String> {
    let (last, model) = (*plan.cuts.last()? as usize, &program.model);
    let tied = Tied::new(model, &Chain::uncosted(model))?;
    let users = Family::from(plan).users(program, plan.slices);
    (users == Users::Together && last + 1 == model.cuttable()).then(|| {
        let stage = plan.cuts.len();
        format!(
            "stage {stage} of the first plan is the loss alone: {tied}; {}",
            untied(&tied)
        )
    })
}

/// What devices of several kinds wait for each other.
fn waiting(first: &Candidate) -> Option<String> {
    let share =
        |(kind, idle): (&String, &f64)| format!("{kind} idle {:.0} %", 100.0 * idle);
    let all: Vec<String> = first.idle.iter().map(share).collect();
    let why = "a launch that several kinds share takes as long as on the slowest";
    (!all.is_empty())
        .then(|| format!("devices of the first plan: {}; {why}", all.join(", ")))
}

/// What parameters with several users leave out, where there are devices for more stages.
fn uncut(plan: &Plan, ranking: &Ranking, program: &Program) -> Option<String> {
    let tied = ranking.space.tied.as_ref()?;
    let wanted = program.target.devices.len().min(tied.nodes);
    let open = program.search.stages == Numbers::Open && program.search.cuts.is_none();
    // A stage that is the loss alone has a note of its own, which says as much.
    let told = loss_alone(program, plan).is_some();
    (open && !told && tied.most < wanted).then(|| {
        format!(
            "{tied}: cyclic pipelines of more stages, and gathering split parameters layer by layer, \
             are left out; {}",
            untied(tied)
        )
    })
}

/// What would part the users of all parameters that forbid cuts.
fn untied(tied: &Tied) -> String {
    match &tied.parameters[..] {
        [[parameter, _, last]] => format!(
            "a parameter of its own for `{last}`, without `weight = {parameter}` in its line, would \
             open more"
        ),
        all => {
            let lasts: Vec<String> =
                all.iter().map(|[_, _, last]| format!("`{last}`")).collect();
            format!(
                "parameters of their own for {}, without `weight = ` in their lines, would open more",
                lasts.join(", ")
            )
        }
    }
}

/// Why no local rule was searched, where nobody names one and some are allowed.
fn unmade(program: &Program) -> Option<String> {
    let rules = program.search.open_local_rules();
    let rules = rules.into_iter().filter(|_| places_units(&program.search));
    let made: Vec<_> = rules.map(|rule| program.under(rule)).collect();
    if made.iter().any(Result::is_ok) {
        return None;
    }
    let mistake = made.into_iter().find_map(Result::err)?;
    let reason = [&mistake.message].into_iter().chain(&mistake.hints);
    let reason: Vec<&str> = reason.map(String::as_str).collect();
    Some(format!("local rules were left out: {}", reason.join("; ")))
}

/// Classes of local rules that were not searched, since nothing asks for them: another objective is
/// never proposed for its time alone.
fn unasked(ranking: &Ranking, program: &Program) -> Option<String> {
    let units = |hop| program.under(Rule::Local { units: 2, hop }).is_ok();
    let open = program.search.rule == Choice::Open && places_units(&program.search);
    let classes = [(Hop::Added, Exactness::Truncated), (Hop::None, Exactness::Local)];
    let others = classes
        .into_iter()
        .filter(|(hop, class)| open && *class > ranking.allowed && units(*hop));
    let lines: Vec<String> = others
        .map(|(_, class)| format!("`exactness {class}`: {}", class.change()))
        .collect();
    let rules = "local rules were not searched, for they have another objective";
    (!lines.is_empty()).then(|| format!("{rules}; {}", lines.join("; ")))
}

/// Whether a placement and an order that are tried can hold a local rule.
fn places_units(search: &Search) -> bool {
    let mut placements = Placement::ALL.iter().filter(|one| search.placement.allows(one));
    placements.any(|placement| {
        placement.orders_of_units().iter().any(|order| search.order.allows(order))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample;
    use roundelay_schedule::{Nanos, Order, Sequence, Tensor};

    #[test]
    fn what_local_rules_would_change_is_named_where_nobody_asks_for_them() {
        let mut ranking = sample::ranking();
        let mut program = sample::program(4, 8);
        let mut note = |allowed, rule: Choice<Rule>| {
            (ranking.allowed, program.search.rule) = (allowed, rule);
            let notes = remarks(&ranking, &program);
            notes
                .into_iter()
                .find(|note| note.starts_with("local rules were not searched"))
        };
        let both = note(Exactness::Reordered, Choice::Open).expect("none was searched");
        assert!(both.contains("`exactness truncated`: units train on"), "{both}");
        assert!(both.contains("`exactness local`: units train on"), "{both}");
        let one = note(Exactness::Truncated, Choice::Open).expect("one was searched");
        assert!(!one.contains("`exactness truncated`"), "{one}");
        assert_eq!(note(Exactness::Local, Choice::Open), None);
        assert_eq!(note(Exactness::Exact, Choice::OneOf(vec![Rule::Sync])), None);
        let mut placed = |placement, order| {
            program.search.rule = Choice::Open;
            program.search.placement = Choice::OneOf(vec![placement]);
            program.search.order = order;
            ranking.allowed = Exactness::Reordered;
            let notes = remarks(&ranking, &program);
            notes.iter().any(|note| note.starts_with("local rules were not searched"))
        };
        let sequential = || Choice::OneOf(vec![Order::Sequential]);
        assert!(placed(Placement::Pipeline, Choice::Open));
        assert!(placed(Placement::Accumulate, sequential()));
        assert!(!placed(Placement::Pipeline, sequential()), "units follow in 1f1b");
        assert!(!placed(Placement::Shared, Choice::Open), "no unit is shared");
    }

    /// The notes about a plan, where it comes first.
    fn notes(program: &Program, plan: &Plan) -> Vec<String> {
        let mut ranking = sample::ranking();
        ranking.plans = vec![sample::candidate(plan, Nanos(1), 0)];
        remarks(&ranking, program)
    }

    #[test]
    fn a_stage_that_is_the_loss_alone_is_told_with_what_ties_the_others() {
        let mut program = sample::program(2, 8);
        let cyclic =
            sample::plan(Rule::CyclicV2, Placement::Pipeline, Order::Cyclic, 2, 2);
        let sync = sample::plan(Rule::Sync, Placement::Pipeline, Order::Gpipe, 2, 2);
        for (mut plan, is_tied, behind, told) in [
            (cyclic.clone(), true, 1, true),
            (cyclic.clone(), true, 2, false),
            (cyclic, false, 1, false),
            (sync, true, 1, false),
        ] {
            program.model = sample::gpt(2, 8, 16, is_tied);
            let cut = program.model.cuttable() - behind;
            plan.cuts = vec![u32::try_from(cut).unwrap()];
            let notes = notes(&program, &plan);
            let own = notes.iter().find(|note| note.starts_with("stage 1 of the first"));
            assert_eq!(own.is_some(), told, "{notes:?}");
            let says = |note: &String| {
                note.contains("is the loss alone: embedding `node.0` and")
            };
            assert!(own.is_none_or(says), "{notes:?}");
        }
    }

    #[test]
    fn stages_that_clip_apart_are_told() {
        let mut program = sample::program(2, 8);
        let delayed = Rule::CyclicV2;
        for (rule, clip, stages, told) in [
            (delayed, 1.0, 2, true),
            (delayed, 0.0, 2, false),
            (delayed, 1.0, 1, false),
            (Rule::Sync, 1.0, 2, false),
            (Rule::Local { units: 1, hop: Hop::None }, 1.0, 2, false),
        ] {
            program.train.optimizer = sample::optimizer(clip);
            let order = Order::Sequential;
            let plan = sample::plan(rule, Placement::Accumulate, order, 2, stages);
            let notes = notes(&program, &plan);
            let own = |note: &String| {
                note.contains(
                    "each of 2 stages by its own norm, because under rule cyclic_v2",
                )
            };
            assert_eq!(notes.iter().any(own), told, "{rule} {clip} {stages}: {notes:?}");
        }
    }

    #[test]
    fn what_a_tied_parameter_leaves_out_is_told_with_what_would_open_it() {
        let mut program = sample::program(8, 8);
        let mut told = |is_tied, stages| {
            program.model = sample::gpt(2, 8, 16, is_tied);
            program.search.stages = stages;
            let mut ranking = sample::ranking();
            ranking.space.tied =
                Tied::new(&program.model, &Chain::uncosted(&program.model));
            ranking.plans = vec![sample::candidate(&sample::plan_on(1), Nanos(1), 0)];
            let notes = remarks(&ranking, &program);
            notes.into_iter().find(|note| note.contains("would open more"))
        };
        let note = told(true, Numbers::Open).expect("a table has two users");
        assert!(note.contains("both use `table`") && note.contains("without `weight = "));
        assert_eq!(told(false, Numbers::Open), None);
        assert_eq!(told(true, Numbers::Ranges(vec![(1, 1)])), None);
    }

    #[test]
    fn local_rules_that_a_tied_parameter_leaves_out_are_told() {
        let told = |head: &str, exactness: &str| {
            let program = sample::parsed(&format!(
                "model it {{
                    input tokens:  i32[batch, 8]
                    input targets: i32[batch, 8]
                    param table: [24, 16]
                    x = embedding(tokens, table)
                    repeat 4 as layer {{ x = x + linear(layer_norm(x), 16) }}
                    loss cross_entropy(linear(x, {head}), targets)
                }}
                plan {{ exactness {exactness} }}"
            ));
            let notes = notes(&program, &sample::plan_on(1));
            notes.into_iter().find(|note| note.starts_with("local rules were left out"))
        };
        let tied = "weight = table, bias = false";
        let note = told(tied, "local").expect("the table has two users");
        assert!(note.contains("`table` is used in two units"), "{note}");
        assert_eq!(told("24", "local"), None);
        assert_eq!(told(tied, "reordered"), None, "none is allowed");
    }

    #[test]
    fn what_every_row_does_whole_is_told_once_for_all_that_are_alike() {
        let text = "model uneven {
                input x: real[batch, 8, 20]
                input y: real[batch, 8, 20]
                h = x
                repeat 3 as layer {
                    h = h + attention(layer_norm(h), 5)
                    h = h + linear(gelu(linear(layer_norm(h), 21)), 20)
                    h = h + linear(gelu(linear(layer_norm(h), 40)), 20)
                }
                loss mse(h, y)
            }
            plan { placement accumulate, stages 1, tensor { rows 2, columns 1 } }";
        let program = sample::parsed(text);
        let mut plan = sample::plan_on(1);
        let mut told = |tensor| {
            plan.tensor = tensor;
            let all = notes(&program, &plan).into_iter();
            all.filter(|note| note.contains("do not divide among")).collect::<Vec<_>>()
        };
        let two = told(Tensor::rows(2, Sequence::Whole));
        assert_eq!(two.len(), 2, "{two:?}");
        assert!(two[0].starts_with("attention of `layer.0.attention"), "{two:?}");
        let says = "and 2 more: 5 heads do not divide among 2 tensor rows, so each row does all \
                    of it; rows that do: 1, 5";
        assert!(two[0].ends_with(says), "{two:?}");
        assert!(two[1].starts_with("the affine map of `layer.0."), "{two:?}");
        assert!(two[1].contains(" 21 output features do not divide"), "{two:?}");
        assert_eq!(told(Tensor::rows(1, Sequence::Whole)), [""; 0]);
        let five = told(Tensor::rows(5, Sequence::Whole));
        assert_eq!(five.len(), 1, "heads and 40 features are divided: {five:?}");
    }

    #[test]
    fn what_a_loss_does_not_do_among_parts_is_told() {
        let told = |loss: &str, rows| {
            let program = sample::parsed(&format!(
                "model it {{
                    input tokens:  i32[batch, 8]
                    input targets: i32[batch, 8]
                    x = embedding(tokens, 3, 16)
                    loss linear_cross_entropy(x, targets, {loss})
                }}
                plan {{ placement accumulate, stages 1, tensor {{ rows {rows}, columns 1 }} }}",
            ));
            let mut plan = sample::plan_on(1);
            plan.tensor = Tensor::rows(rows, Sequence::Whole);
            let is_told = |note: &&String| note.contains("`linear_cross_entropy`");
            let notes = notes(&program, &plan);
            notes.iter().find(is_told).cloned().unwrap_or_default()
        };
        assert_eq!([1, 2].map(|rows| told("3", rows)), ["", ""]);
        assert!(told("3", 4).ends_with("which has only 3 classes"), "{}", told("3", 4));
        assert_eq!([1, 2].map(|rows| told("30, chunks = 2", rows)), ["", ""]);
        let many = told("30, chunks = 3", 2);
        assert!(
            many.starts_with("`chunks = 3` of `linear_cross_entropy` counts only"),
            "{many}"
        );
    }
}
