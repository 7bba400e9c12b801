//! One run: what is trained, how, under which rule; and the program that says so.

use serde::{Deserialize, Serialize};
use std::fmt;

/// What one run is.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Case {
    pub(crate) task: Task,
    pub(crate) method: Method,
    /// The highest learning rate.
    pub(crate) rate: f64,
    pub(crate) warmup: Warmup,
    pub(crate) rule: Rule,
    /// N, and the number of stages S.
    pub(crate) micro_batches: u32,
    pub(crate) seed: u64,
}

/// What is trained.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Task {
    /// A byte-level GPT on text.
    Text,
    /// A small residual network on figures.
    Shapes,
}

/// The optimizer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Method {
    /// Gradient descent with momentum 0.9.
    Momentum,
    /// AdamW.
    Adamw,
}

/// How the learning rate begins; it always ends on a cosine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Warmup {
    /// At its highest.
    None,
    /// Over a tenth of the steps.
    Tenth,
}

/// The rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Rule {
    Sync,
    CyclicV1,
    CyclicV2,
}

/// All rules, as columns of a table.
pub(crate) const RULES: [Rule; 3] = [Rule::Sync, Rule::CyclicV1, Rule::CyclicV2];

impl Rule {
    /// Its name in the language.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Rule::Sync => "sync",
            Rule::CyclicV1 => "cyclic_v1",
            Rule::CyclicV2 => "cyclic_v2",
        }
    }
}

impl Task {
    /// Training steps.
    pub(crate) fn steps(self) -> u64 {
        match self {
            Task::Text => 300,
            Task::Shapes => 300,
        }
    }

    /// Examples of a training step.
    fn batch(self) -> u64 {
        match self {
            Task::Text => 16,
            Task::Shapes => 64,
        }
    }

    /// Held-out examples that are looked at.
    pub(crate) fn held_out(self) -> u64 {
        match self {
            Task::Text => 512,
            Task::Shapes => 1024,
        }
    }

    /// The model, or where it stands.
    fn model(self) -> &'static str {
        match self {
            Task::Text => "import \"models/tiny.rdl\"",
            Task::Shapes => "import \"models/resnet-small.rdl\"",
        }
    }

    /// The data.
    fn data(self) -> &'static str {
        match self {
            Task::Text => "text(\"*.md\", \"*/src/**/*.rs\")",
            Task::Shapes => "shapes(classes = 10, size = 32, seed = 1)",
        }
    }
}

impl Method {
    /// The optimizer with a rate.
    fn spelled(self, rate: &str) -> String {
        match self {
            Method::Momentum => {
                format!("sgd(lr = {rate}, momentum = 0.9, weight_decay = 5e-4)")
            }
            Method::Adamw => format!("adamw(lr = {rate}, weight_decay = 0.1)"),
        }
    }
}

impl Case {
    /// The program that this case is.
    pub(crate) fn program(&self) -> String {
        let Self { task, method, rate, warmup, rule, micro_batches, seed } = self;
        let steps = task.steps();
        let rate = match warmup {
            Warmup::None => format!("cosine({rate:?}, {steps})"),
            Warmup::Tenth => format!("warmup({}, cosine({rate:?}, {steps}))", steps / 10),
        };
        let (model, data, batch) = (task.model(), task.data(), task.batch());
        let (optimizer, rule) = (method.spelled(&rate), rule.name());
        format!(
            "{model}
             device core {{ memory 8 GB, compute 40 GFLOP/s, bandwidth 10 GB/s, threads 1 }}
             cluster one {{ 1 x core }}
             train {{
                 data {data}
                 batch {batch}
                 optimizer {optimizer}
                 steps {steps}
                 seed {seed}
             }}
             plan {{
                 exactness delayed
                 rule {rule}
                 placement accumulate
                 micro_batches {micro_batches}
                 stages {micro_batches}
             }}"
        )
    }
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { task, method, rate, warmup, rule, micro_batches, seed } = self;
        let rule = rule.name();
        write!(
            f,
            "{task:?} {method:?} {rate} warm-up {warmup:?} {rule} N={micro_batches} seed {seed}"
        )
    }
}
