//! What the runs say, as tables in Markdown.

use super::{
    case::{Case, LOCAL, Method, RULES, Rule, Task, Warmup},
    grid::{self, PAIRS, Setting},
    record::{Outcome, Records},
};

/// Held-out figure of `sync` for every rate of the search.
pub(crate) fn search(records: &Records) -> String {
    let mut text = String::from("| search | | | | |\n| --- | --- | --- | --- | --- |\n");
    for (task, method) in PAIRS {
        let cell =
            |case: Case| format!(" {:?}: {} |", case.rate, figure(&[case], records));
        let cells: String = grid::search(task, method).into_iter().map(cell).collect();
        text += &format!("| {} |{cells}\n", named(task, method));
    }
    text
}

/// Mean and standard deviation over the seeds, for every setting and rule.
pub(crate) fn comparison(records: &Records) -> String {
    let head = "| task, optimizer | N | rate | warm-up | sync | cyclic_v1 | cyclic_v2 |\n\
                | --- | --- | --- | --- | --- | --- | --- |\n";
    rows(head, &grid::settings(), &RULES, records)
}

/// The same for local rules.
pub(crate) fn local(records: &Records) -> String {
    let head = "| task, optimizer | N | rate | warm-up | sync | 2 units | 4 units | greedy | \
                overlapping | pairwise |\n\
                | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |\n";
    rows(head, &grid::local_settings(), &LOCAL, records)
}

/// A row for each setting, with a figure for each rule.
fn rows(head: &str, settings: &[Setting], rules: &[Rule], records: &Records) -> String {
    let mut text = head.to_owned();
    for setting in settings {
        let Setting { task, method, micro_batches, rate, warmup } = *setting;
        let warmup = match warmup {
            Warmup::None => "no",
            Warmup::Tenth => "yes",
        };
        let cell = |rule: &Rule| format!(" {} |", figure(&setting.runs(*rule), records));
        let cells: String = rules.iter().map(cell).collect();
        let name = named(task, method);
        text += &format!("| {name} | {micro_batches} | {rate:?} | {warmup} |{cells}\n");
    }
    text
}

fn named(task: Task, method: Method) -> String {
    let task = match task {
        Task::Text => "text, loss",
        Task::Shapes => "shapes, accuracy in %",
        Task::DeepText => "deep text, loss",
        Task::DeepShapes => "deep shapes, accuracy in %",
    };
    let method = match method {
        Method::Momentum => "momentum SGD",
        Method::Adamw => "AdamW",
    };
    format!("{task}, {method}")
}

/// Mean ± standard deviation of what ended well, and what did not or is missing.
fn figure(cases: &[Case], records: &Records) -> String {
    let outcomes: Vec<_> =
        cases.iter().map(|case| (case, records.outcome(case))).collect();
    let trained: Vec<f64> = outcomes
        .iter()
        .filter_map(|(case, outcome)| match outcome {
            Some(Outcome::Trained { loss, metrics }) => match case.task {
                Task::Text | Task::DeepText => Some(*loss),
                Task::Shapes | Task::DeepShapes => {
                    metrics.get("accuracy").map(|share| 100.0 * share)
                }
            },
            Some(Outcome::Diverged { .. }) | None => None,
        })
        .collect();
    let is_lost =
        |outcome: &Option<&Outcome>| matches!(outcome, Some(Outcome::Diverged { .. }));
    let lost = outcomes.iter().filter(|(_, outcome)| is_lost(outcome)).count();
    let missing = cases.len() - trained.len() - lost;
    let mut parts = Vec::new();
    if !trained.is_empty() {
        parts.push(spread(&trained));
    }
    if lost > 0 {
        parts.push(format!("{lost} of {} diverged", cases.len()));
    }
    if missing > 0 {
        parts.push(format!("{missing} of {} missing", cases.len()));
    }
    parts.join(", ")
}

/// Mean ± sample standard deviation.
fn spread(values: &[f64]) -> String {
    let count = values.len() as f64;
    let mean = values.iter().sum::<f64>() / count;
    let square = values.iter().map(|value| (value - mean).powi(2)).sum::<f64>();
    match values {
        [_] => format!("{mean:.3}"),
        _ => format!("{mean:.3} ± {:.3}", (square / (count - 1.0)).sqrt()),
    }
}
