//! Which runs there are, in order: the search for rates first, then the comparison.

use super::case::{Case, LOCAL, Method, RULES, Rule, Task, Warmup};

/// Seeds of the comparison; the search has one of its own.
const SEEDS: [u64; 3] = [1, 2, 3];
const SEARCH_SEED: u64 = 100;

/// What is compared, and with how many micro-batches.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Setting {
    pub(crate) task: Task,
    pub(crate) method: Method,
    pub(crate) micro_batches: u32,
    pub(crate) rate: f64,
    pub(crate) warmup: Warmup,
}

/// Rates among which the best for `sync` without warm-up is looked for.
pub(crate) fn ladder(method: Method) -> [f64; 4] {
    match method {
        Method::Momentum => [0.01, 0.03, 0.1, 0.3],
        Method::Adamw => [0.001, 0.003, 0.01, 0.03],
    }
}

/// The rates of the comparison.
fn rates(task: Task, method: Method) -> [f64; 2] {
    match (task, method) {
        (Task::Text | Task::DeepText, Method::Momentum) => [0.03, 0.1],
        (Task::Shapes | Task::DeepShapes, Method::Momentum) => [0.1, 0.3],
        (_, Method::Adamw) => [0.003, 0.01],
    }
}

/// The runs of the search.
pub(crate) fn search(task: Task, method: Method) -> Vec<Case> {
    let case = |rate| Case {
        task,
        method,
        rate,
        warmup: Warmup::None,
        rule: Rule::Sync,
        micro_batches: 4,
        seed: SEARCH_SEED,
    };
    ladder(method).map(case).to_vec()
}

/// All pairs of a task and an optimizer.
pub(crate) const PAIRS: [(Task, Method); 4] = [
    (Task::Text, Method::Momentum),
    (Task::Text, Method::Adamw),
    (Task::Shapes, Method::Momentum),
    (Task::Shapes, Method::Adamw),
];

/// The rows of the comparison.
pub(crate) fn settings() -> Vec<Setting> {
    let mut all = Vec::new();
    for place in 0..2 {
        for (task, method) in PAIRS {
            for warmup in [Warmup::None, Warmup::Tenth] {
                let rate = rates(task, method)[place];
                all.push(Setting { task, method, micro_batches: 4, rate, warmup });
            }
        }
    }
    for rate in rates(Task::Text, Method::Momentum) {
        let (task, method) = (Task::Text, Method::Momentum);
        let warmup = Warmup::None;
        all.push(Setting { task, method, micro_batches: 8, rate, warmup });
    }
    all
}

/// The rows of the comparison of local rules: every rate of the ladder, since each rule may have
/// another best one.
pub(crate) fn local_settings() -> Vec<Setting> {
    let (method, warmup, micro_batches) = (Method::Adamw, Warmup::Tenth, 4);
    let of = |task| {
        let setting = move |rate| Setting { task, method, micro_batches, rate, warmup };
        ladder(method).map(setting)
    };
    [Task::DeepText, Task::DeepShapes].into_iter().flat_map(of).collect()
}

impl Setting {
    /// The runs under a rule, one for each seed.
    pub(crate) fn runs(&self, rule: Rule) -> [Case; 3] {
        let Self { task, method, micro_batches, rate, warmup } = *self;
        SEEDS.map(|seed| Case { task, method, rate, warmup, rule, micro_batches, seed })
    }
}

/// All runs.
pub(crate) fn cases() -> Vec<Case> {
    let searched = PAIRS.into_iter().flat_map(|(task, method)| search(task, method));
    let compared = settings()
        .into_iter()
        .flat_map(|setting| RULES.into_iter().flat_map(move |rule| setting.runs(rule)));
    let local = local_settings()
        .into_iter()
        .flat_map(|setting| LOCAL.into_iter().flat_map(move |rule| setting.runs(rule)));
    searched.chain(compared).chain(local).collect()
}
