//! Random programs: a model, a training, and a plan for up to sixteen devices. The same seed always
//! gives the same program.

use crate::{model::model, planning::Planning, random::Random, training::Training};

/// Devices and links.
const PIECES: &str = "device core { memory 1 GB, compute 40 GFLOP/s, bandwidth 10 GB/s }
link bus { bandwidth 8 GB/s, latency 2 us }
";

/// What sixteen devices are joined to.
const CLUSTERS: [&str; 4] = [
    "cluster some { 16 x core joined by bus }\n",
    "cluster some { 16 x core joined by bus sharing 2 GB }\n",
    "link net { bandwidth 1 GB/s, latency 9 us }\n\
     cluster some { node = 4 x core joined by bus, 4 x node joined by net }\n",
    "device slow { memory 1 GB, compute 20 GFLOP/s, bandwidth 5 GB/s }\n\
     cluster some { 8 x core + 8 x slow joined by bus }\n",
];

/// A program in parts, of which others can be made.
pub(crate) struct Program {
    model: String,
    cluster: &'static str,
    pub(crate) training: Training,
    pub(crate) planning: Planning,
}

impl Program {
    pub(crate) fn of(seed: u64) -> Self {
        let mut random = Random::new(seed);
        let model = model(&mut random);
        let training = Training::drawn(&mut random);
        let planning = Planning::drawn(&mut random, training.batch);
        let cluster = random.pick(&CLUSTERS).expect("there are some");
        Self { model, cluster, training, planning }
    }

    /// The program as a file has it.
    pub(crate) fn text(&self) -> String {
        self.with(self.training.dtype, &self.planning.text())
    }

    /// The same in other numbers, with another plan.
    pub(crate) fn with(&self, dtype: &str, plan: &str) -> String {
        let Self { model, cluster, training, .. } = self;
        format!("{model}{PIECES}{cluster}{}{plan}", training.text(dtype))
    }

    /// One device that does one micro-batch after another.
    pub(crate) fn alone(micro_batches: u32) -> String {
        format!(
            "plan {{\n    exactness exact\n    rule sync\n    placement accumulate\n    \
             micro_batches {micro_batches}\n    stages 1\n    replicas 1\n    devices 1\n}}\n"
        )
    }
}
