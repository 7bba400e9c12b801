//! Random `train` blocks.

use crate::random::Random;

/// How a model is trained.
pub(crate) struct Training {
    pub(crate) batch: usize,
    pub(crate) dtype: &'static str,
    pub(crate) steps: usize,
    optimizer: String,
    evaluate: Option<usize>,
    seed: usize,
}

const RATES: [&str; 6] = [
    "1e-2",
    "3e-2",
    "warmup(2, 1e-2)",
    "cosine(1e-2, 5)",
    "step(1e-2, 0.1, 2)",
    "warmup(2, cosine(2e-2, 4))",
];

impl Training {
    pub(crate) fn drawn(random: &mut Random) -> Self {
        let mut of = |list: &[&'static str]| random.pick(list).expect("not empty");
        let rate = of(&RATES);
        let method = of(&[
            "sgd(lr = RATE",
            "sgd(lr = RATE, momentum = 0.9",
            "sgd(lr = RATE, momentum = 0.8, nesterov = true",
            "adamw(lr = RATE",
            "adamw(lr = RATE, beta1 = 0.8, beta2 = 0.9, epsilon = 1e-3",
        ]);
        let decay = of(&["", ", weight_decay = 0.1"]);
        // Every model has a weight or a table; not every one has a bias.
        let spared =
            if decay.is_empty() { "" } else { of(&["", "", ", no_decay = [\"*e*\"]"]) };
        let clip = of(&["", "", "", "", "", "", ", clip = 0.5", ", clip = 10"]);
        let dtype = of(&[
            "f32",
            "f32",
            "f32",
            "f64",
            "f64",
            "f64",
            "bf16",
            "bf16 { gradients f32 }",
        ]);
        Self {
            batch: random.pick(&[1, 2, 4, 8, 8, 12, 16]).expect("not empty"),
            dtype,
            steps: random.pick(&[1, 2, 3, 3, 3]).expect("not empty"),
            optimizer: format!("{}{decay}{spared}{clip})", method.replace("RATE", rate)),
            evaluate: random.pick(&[None, Some(1), Some(2)]).expect("not empty"),
            seed: random.below(1000),
        }
    }

    /// The block, in another type of numbers perhaps.
    pub(crate) fn text(&self, dtype: &str) -> String {
        let Self { batch, steps, optimizer, evaluate, seed, .. } = self;
        let look = evaluate
            .map_or(String::new(), |every| format!("    evaluate {{ every {every} }}\n"));
        format!(
            "train {{\n    data synthetic\n    batch {batch}\n    optimizer {optimizer}\n    \
             steps {steps}\n    seed {seed}\n    dtype {dtype}\n{look}}}\n"
        )
    }
}
