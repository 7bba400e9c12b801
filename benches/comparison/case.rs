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
    /// N, and the number of stages S where there are no units.
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
    /// As `Text`, with twice as many layers.
    DeepText,
    /// As `Shapes`, with twice as many blocks.
    DeepShapes,
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

/// Where the data of a task come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// Files of a folder.
    Folder,
    /// The seed alone.
    Seed,
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

const DEEP_TEXT: &str = "model deep {
        seq = 32, width = 32, heads = 2, vocab = 256
        input tokens:  i32[batch, seq]
        input targets: i32[batch, seq]
        x = embedding(tokens, vocab, width) + positions(seq, width)
        repeat 8 as layer {
            x = x + attention(layer_norm(x), heads, causal = true)
            x = x + linear(gelu(linear(layer_norm(x), 4 * width)), width)
        }
        loss cross_entropy(linear(layer_norm(x), vocab), targets)
    }";

const DEEP_SHAPES: &str = "import \"models/residual.rdl\"
    model deep {
        width = 16, classes = 10
        input images:  real[batch, 32, 32, 3]
        input targets: i32[batch]
        x = relu(batch_norm(conv2d(images, width, stride = 2, bias = false)))
        x = basic(basic(x, width), width)
        x = basic(basic_down(x, 2 * width, 2), 2 * width)
        x = basic(basic_down(x, 4 * width, 2), 4 * width)
        logits = linear(global_pool(x), classes)
        loss cross_entropy(logits, targets)
        metric accuracy(logits, targets)
    }";

/// The rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Rule {
    Sync,
    CyclicV1,
    CyclicV2,
    /// Two units.
    Halves,
    /// Four units.
    Quarters,
    /// A unit for each layer or block.
    Greedy,
    /// The same, each trained by the next unit's loss too.
    Overlapping,
    /// The same, each trained by the next unit's loss alone.
    Pairwise,
}

/// All rules that delay, as columns of a table.
pub(crate) const RULES: [Rule; 3] = [Rule::Sync, Rule::CyclicV1, Rule::CyclicV2];

/// Backpropagation and all local rules, as columns of a table.
pub(crate) const LOCAL: [Rule; 6] = [
    Rule::Sync,
    Rule::Halves,
    Rule::Quarters,
    Rule::Greedy,
    Rule::Overlapping,
    Rule::Pairwise,
];

impl Rule {
    /// The units of a task's model under it; none where it has no units.
    fn units(self, task: Task) -> Option<u32> {
        match self {
            Rule::Sync | Rule::CyclicV1 | Rule::CyclicV2 => None,
            Rule::Halves => Some(2),
            Rule::Quarters => Some(4),
            Rule::Greedy | Rule::Overlapping | Rule::Pairwise => Some(task.layers()),
        }
    }

    /// How the language has it.
    fn spelled(self, task: Task) -> String {
        let units = self.units(task).unwrap_or(1);
        match self {
            Rule::Sync => "sync".to_owned(),
            Rule::CyclicV1 => "cyclic_v1".to_owned(),
            Rule::CyclicV2 => "cyclic_v2".to_owned(),
            Rule::Halves | Rule::Quarters | Rule::Greedy => {
                format!("local(units = {units})")
            }
            Rule::Overlapping => format!("local(units = {units}, overlap = 1)"),
            Rule::Pairwise => format!("pairwise(units = {units})"),
        }
    }

    /// The weakest class of what it is compared with.
    fn exactness(self) -> &'static str {
        match self {
            Rule::Sync | Rule::CyclicV1 | Rule::CyclicV2 => "delayed",
            Rule::Halves | Rule::Quarters | Rule::Greedy => "local",
            Rule::Overlapping | Rule::Pairwise => "truncated",
        }
    }
}

impl Task {
    /// All tasks.
    pub(crate) const ALL: [Self; 4] =
        [Self::Text, Self::Shapes, Self::DeepText, Self::DeepShapes];

    /// Its name among the arguments.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Task::Text => "text",
            Task::Shapes => "shapes",
            Task::DeepText => "deep_text",
            Task::DeepShapes => "deep_shapes",
        }
    }

    /// Training steps.
    pub(crate) fn steps(self) -> u64 {
        match self {
            Task::Text | Task::Shapes | Task::DeepText | Task::DeepShapes => 300,
        }
    }

    /// Examples of a training step.
    fn batch(self) -> u64 {
        match self {
            Task::Text | Task::DeepText => 16,
            Task::Shapes | Task::DeepShapes => 64,
        }
    }

    /// Held-out examples that are looked at.
    pub(crate) fn held_out(self) -> u64 {
        match self {
            Task::Text | Task::DeepText => 512,
            Task::Shapes | Task::DeepShapes => 1024,
        }
    }

    /// The model, or where it stands.
    fn model(self) -> &'static str {
        match self {
            Task::Text => "import \"models/tiny.rdl\"",
            Task::Shapes => "import \"models/resnet-small.rdl\"",
            Task::DeepText => DEEP_TEXT,
            Task::DeepShapes => DEEP_SHAPES,
        }
    }

    /// Units that have one layer or block each, the last of them with what makes the loss; the
    /// first convolution is one too.
    fn layers(self) -> u32 {
        match self {
            Task::Text | Task::Shapes => 4,
            Task::DeepText => 8,
            Task::DeepShapes => 7,
        }
    }

    /// Where its data come from.
    pub(crate) fn origin(self) -> Origin {
        match self {
            Task::Text | Task::DeepText => Origin::Folder,
            Task::Shapes | Task::DeepShapes => Origin::Seed,
        }
    }

    /// The data.
    fn data(self) -> &'static str {
        match self {
            Task::Text | Task::DeepText => "text(\"*.md\", \"*/src/**/*.rs\")",
            Task::Shapes | Task::DeepShapes => {
                "shapes(classes = 10, size = 32, seed = 1)"
            }
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
        let stages = rule.units(*task).unwrap_or(*micro_batches);
        let exactness = rule.exactness();
        let (optimizer, rule) = (method.spelled(&rate), rule.spelled(*task));
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
                 exactness {exactness}
                 rule {rule}
                 placement accumulate
                 micro_batches {micro_batches}
                 stages {stages}
             }}"
        )
    }
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { task, method, rate, warmup, rule, micro_batches, seed } = self;
        let rule = rule.spelled(*task);
        write!(
            f,
            "{task:?} {method:?} {rate} warm-up {warmup:?} {rule} N={micro_batches} seed {seed}"
        )
    }
}
