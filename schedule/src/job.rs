//! What is trained: data, seed, optimizer, rates, evaluation; all that a run needs besides the
//! actions.

use crate::{
    Bytes, Division, Element, Float, Id, InputId, Metric, Stage, Subject, Table,
};
use serde::{Deserialize, Serialize};

/// The training job of a schedule.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Job {
    /// Name of the model.
    pub model: String,
    /// Where examples come from.
    pub data: Data,
    /// Examples of one training step, over all micro-batches.
    pub batch: u32,
    /// All randomness derives from it.
    pub seed: u64,
    /// Training steps of a whole run.
    pub steps: u64,
    /// Element type of parameters and activations.
    pub dtype: Float,
    /// The update rule with its rates, decay and bound on the norm.
    pub optimizer: Optimizer,
    /// When held-out data is looked at.
    pub evaluate: Evaluation,
    /// What a micro-batch brings, in the model's order.
    pub inputs: Table<InputId, Input>,
    /// What every micro-batch measures besides its loss, in the order of its numbers.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub metrics: Vec<Metric>,
    /// All parameters, by stage, then offset.
    pub parameters: Vec<Parameter>,
    /// Number of elements of each stage's flat parameters, padding included.
    pub elements: Table<Stage, u64>,
}

/// One input of the model, for one micro-batch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Input {
    /// Name in the program.
    pub name: String,
    /// Type of one number.
    pub element: Element,
    /// Extents for one micro-batch; the first counts examples.
    pub shape: Vec<u64>,
    /// Integers are below this bound; zero when the model sets none.
    pub bound: u64,
    /// Where its numbers come from.
    #[serde(default, skip_serializing_if = "Origin::is_data")]
    pub origin: Origin,
}

impl Input {
    /// Bytes for one micro-batch.
    pub fn bytes(&self, dtype: Float) -> Bytes {
        Bytes(self.shape.iter().product::<u64>() * self.element.size(dtype))
    }
}

/// Where the numbers of an input come from.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase", deny_unknown_fields)]
pub enum Origin {
    /// From the data.
    #[default]
    Data,
    /// From the targets of all micro-batches of a step: each number is the number of these
    /// micro-batches over that of the targets which are no mask, zero without any. So the mean over
    /// micro-batches of sums of shares is a mean over all such targets.
    Shares {
        /// The input that brings the targets.
        of: String,
        /// The target that stands for none.
        mask: u64,
    },
}

impl Origin {
    /// Whether data brings it.
    pub fn is_data(&self) -> bool {
        match self {
            Self::Data => true,
            Self::Shares { .. } => false,
        }
    }
}

/// Where examples come from. Relative paths start at `root`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase", deny_unknown_fields)]
pub enum Data {
    /// Bytes of files, in order of their names; the last tenth is held out. Inputs are `tokens`
    /// and `targets`, the next byte.
    Text {
        /// Folder from which the patterns start.
        root: String,
        /// File patterns; `**` crosses folders.
        globs: Vec<String>,
    },
    /// Little-endian token numbers in one binary file; the last tenth is held out.
    Tokens {
        /// Folder from which the path starts.
        root: String,
        /// Path of the file.
        file: String,
        /// Width of one number.
        width: TokenWidth,
    },
    /// CIFAR-10 in its binary form: five files of records to train on, one that is held out.
    /// Inputs are `images` of shape [examples, 32, 32, 3] and `targets`, the class.
    Cifar10 {
        /// Folder from which `folder` starts.
        root: String,
        /// Where `data_batch_1.bin` .. `data_batch_5.bin` and `test_batch.bin` lie.
        folder: String,
        /// What is done to training images.
        augment: Augmentation,
    },
    /// PNG and JPEG files, one folder per class; every tenth file of a class is held out. Inputs
    /// are `images` of shape [examples, height, width, 3] and `targets`, the class.
    Images {
        /// Folder from which `folder` starts.
        root: String,
        /// Where the folders of the classes lie.
        folder: String,
    },
    /// Geometric figures drawn by code; held-out figures are drawn from a stream of their own.
    /// Inputs are `images` of shape [examples, size, size, 3] and `targets`, the class.
    Shapes {
        /// Number of classes.
        classes: u64,
        /// Height and width in pixels.
        size: u64,
        /// Key of the figures; which of them a training step sees also depends on the job's seed.
        seed: u64,
    },
    /// Numbers drawn from the seed, with a rule in them that can be learned.
    Synthetic,
}

impl Data {
    /// The folder from which paths start; none where nothing is read.
    pub fn root_mut(&mut self) -> Option<&mut String> {
        match self {
            Data::Text { root, .. }
            | Data::Tokens { root, .. }
            | Data::Cifar10 { root, .. }
            | Data::Images { root, .. } => Some(root),
            Data::Shapes { .. } | Data::Synthetic => None,
        }
    }
}

/// What is done to training images, anew for every example of every step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Augmentation {
    /// Nothing.
    None,
    /// A shift by up to four pixels each way, black where nothing is, and half of the time a
    /// mirror image.
    Shift,
}

/// Width of the numbers in a token file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TokenWidth {
    /// One byte.
    U8,
    /// Two bytes, little-endian.
    U16,
    /// Four bytes, little-endian.
    U32,
}

/// When held-out data is looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Evaluation {
    /// Only when asked.
    Never,
    /// After every this many training steps, and at the end.
    Every(u64),
}

/// The update rule. Gradients are means over the whole batch.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Optimizer {
    /// How a gradient changes a parameter.
    pub method: Method,
    /// Learning rate as a function of the update count.
    pub rate: Rate,
    /// Decay of parameters towards zero; applies to parameters that are [`Treatment::Decayed`].
    pub weight_decay: f64,
    /// Largest Euclidean norm of the gradients that are bounded together
    /// ([`crate::Plan::normed_with`]); zero for no limit.
    pub clip: f64,
}

/// An update rule.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase", deny_unknown_fields)]
pub enum Method {
    /// Gradient descent; decay is added to the gradient.
    Sgd {
        /// Share of the last update that goes on.
        momentum: f64,
        /// Look ahead along the momentum.
        nesterov: bool,
    },
    /// Adam with decoupled decay.
    Adamw {
        /// Decay of the mean.
        beta1: f64,
        /// Decay of the mean square.
        beta2: f64,
        /// Added to the root.
        epsilon: f64,
    },
}

impl Method {
    /// Names of the arrays of optimizer state, in the order of the kernels' operands.
    pub fn state_names(self) -> &'static [&'static str] {
        match self {
            Method::Sgd { momentum: 0.0, .. } => &[],
            Method::Sgd { .. } => &["momentum"],
            Method::Adamw { .. } => &["mean", "square"],
        }
    }

    /// Numbers of optimizer state per parameter.
    pub fn states(self) -> u64 {
        self.state_names().len() as u64
    }

    /// The kernels that make a step, of all methods.
    pub const KERNELS: [&str; 2] = ["sgd", "adamw"];

    /// The kernel that makes its step.
    pub fn kernel(self) -> &'static str {
        let [sgd, adamw] = Self::KERNELS;
        match self {
            Method::Sgd { .. } => sgd,
            Method::Adamw { .. } => adamw,
        }
    }
}

/// A learning rate as a function of the update count t ≥ 0.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase", deny_unknown_fields)]
pub enum Rate {
    /// The same for all t.
    Constant(f64),
    /// `initial · factor^⌊t / every⌋`.
    Step {
        /// At t = 0.
        initial: f64,
        /// Multiplied at each drop.
        factor: f64,
        /// Updates from one drop to the next.
        every: u64,
    },
    /// Half a cosine from `initial` to `last` over `steps`, then `last`.
    Cosine {
        /// At t = 0.
        initial: f64,
        /// Length of the half wave.
        steps: u64,
        /// From t = `steps` on.
        last: f64,
    },
    /// `after(t) · (t + 1) / (steps + 1)` for t < `steps`, then `after(t)`.
    Warmup {
        /// Length of the ramp.
        steps: u64,
        /// The rate that the ramp leads to.
        after: Box<Rate>,
    },
}

impl Optimizer {
    /// Arrays of optimizer state: those of the method, then a master copy in mixed precision.
    pub fn arrays(&self, dtype: Float) -> u64 {
        self.method.states() + dtype.masters()
    }

    /// Names of the [`Optimizer::arrays`], in their order.
    pub fn array_names(&self, dtype: Float) -> impl Iterator<Item = &'static str> {
        let masters = (0..dtype.masters()).map(|_| "master");
        self.method.state_names().iter().copied().chain(masters)
    }
}

impl Rate {
    /// The rate of the update that makes θ_{t+1} from θ_t. It is the same number on every system and
    /// processor, for ranks make it apart, and a run goes on elsewhere: so none of its functions is the
    /// system's.
    pub fn at(&self, t: u64) -> f64 {
        match self {
            Rate::Constant(rate) => *rate,
            Rate::Step { initial, factor, every } => {
                let drops = t.checked_div(*every).unwrap_or(0);
                initial * libm::pow(*factor, drops as f64)
            }
            Rate::Cosine { initial, steps, last } if t < *steps => {
                let share = t as f64 / *steps as f64;
                last + (initial - last)
                    * 0.5
                    * (1.0 + libm::cos(std::f64::consts::PI * share))
            }
            Rate::Cosine { last, .. } => *last,
            Rate::Warmup { steps, after } if t < *steps => {
                after.at(t) * (t as f64 + 1.0) / (*steps as f64 + 1.0)
            }
            Rate::Warmup { after, .. } => after.at(t),
        }
    }
}

/// A parameter of the model and where its stage keeps it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Parameter {
    /// Global name, the same for every plan (`layer.3.attention.query.weight`).
    pub name: String,
    /// Of what it is a part.
    #[serde(default, skip_serializing_if = "Belonging::is_model")]
    pub belonging: Belonging,
    /// The stage that uses it.
    pub stage: Stage,
    /// First element in the stage's flat parameters.
    pub offset: u64,
    /// Extents of what one device holds.
    pub shape: Vec<u64>,
    /// What its extents are.
    #[serde(default, skip_serializing_if = "ParameterKind::is_plain")]
    pub kind: ParameterKind,
    /// How these lie in the whole, when the parts of a grid divide it.
    #[serde(default, skip_serializing_if = "Division::is_whole")]
    pub split: Division,
    /// How θ_0 is drawn; depends on the seed and the name alone.
    pub initial: Initial,
    /// What an update does with it.
    pub treatment: Treatment,
}

/// What a parameter is a part of; a name does not say it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Belonging {
    /// The model as it is used.
    #[default]
    Model,
    /// The head of a unit, which a local rule adds for training alone.
    Head,
}

impl Belonging {
    fn is_model(&self) -> bool {
        match self {
            Self::Model => true,
            Self::Head => false,
        }
    }
}

/// What the extents of a parameter are, where other programs keep them in another order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ParameterKind {
    /// The same for all programs.
    #[default]
    Plain,
    /// Filters, height, width and channels of a convolution; PyTorch has channels before height.
    Filters,
}

impl ParameterKind {
    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
    fn is_plain(&self) -> bool {
        match self {
            Self::Plain => true,
            Self::Filters => false,
        }
    }
}

/// What an update does with a parameter.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase", deny_unknown_fields)]
pub enum Treatment {
    /// It is trained, and weight decay applies.
    Decayed,
    /// It is trained without weight decay.
    Spared,
    /// It is a running average of what stands in its gradient, a statistic of every
    /// micro-batch: next = (1 − momentum) · θ + momentum · mean over micro-batches. It has no
    /// part in decay, clipping, or the optimizer's states.
    Averaged {
        /// Share of the newest mean, in [0, 1]; one for the whole job.
        momentum: f64,
    },
}

/// How θ_0 is drawn.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Initial {
    /// The same number everywhere.
    Constant(f64),
    /// Normal with mean zero and this standard deviation.
    Normal(f64),
    /// Uniform between minus and plus this bound.
    Uniform(f64),
}

impl Initial {
    /// The number, deviation or bound.
    pub fn number(self) -> f64 {
        match self {
            Self::Constant(number) | Self::Normal(number) | Self::Uniform(number) => {
                number
            }
        }
    }
}

impl Parameter {
    /// Number of elements of what one device holds.
    pub fn elements(&self) -> u64 {
        self.shape.iter().product()
    }
}

impl Treatment {
    /// Elements of parameters whose treatment is `chosen`, as begin, end, begin, end, … of
    /// ascending ranges in the stage's flat array. `parameters` are those of one stage, in order
    /// of offset; ranges that only padding parts are one.
    pub fn ranges<'a>(
        parameters: impl Iterator<Item = &'a Parameter>,
        chosen: impl Fn(Treatment) -> bool,
    ) -> Vec<i64> {
        let mut ranges: Vec<i64> = Vec::new();
        let mut adjoins = false;
        for parameter in parameters {
            let end = parameter.offset.saturating_add(parameter.elements());
            let [begin, end] =
                [parameter.offset, end].map(|e| i64::try_from(e).unwrap_or(i64::MAX));
            match (chosen(parameter.treatment), ranges.last_mut()) {
                (true, Some(last)) if adjoins => *last = end,
                (true, _) => ranges.extend([begin, end]),
                (false, _) => {}
            }
            adjoins = chosen(parameter.treatment);
        }
        ranges
    }

    /// The momentum of an average.
    pub fn momentum(self) -> Option<f64> {
        match self {
            Treatment::Decayed | Treatment::Spared => None,
            Treatment::Averaged { momentum } => Some(momentum),
        }
    }
}

impl Job {
    /// Bytes of optimizer state per parameter.
    pub fn optimizer_width(&self) -> u64 {
        self.optimizer.arrays(self.dtype) * self.dtype.wide_size()
    }
    /// Bytes of a parameter gradient.
    pub fn gradient_width(&self) -> u64 {
        self.dtype.gradient().size(self.dtype)
    }
    /// Bytes of the whole flat array that this is, or a part of; none where it is no state of a
    /// stage.
    ///
    /// # Panics
    /// When there is no such stage.
    pub fn state_bytes(&self, subject: Subject) -> Option<Bytes> {
        let (stage, width) = match subject {
            Subject::Parameter(stage, _) => (stage, self.dtype.size()),
            Subject::Gradient(stage, _) => (stage, self.gradient_width()),
            Subject::Optimizer(stage, _) => (stage, self.optimizer_width()),
            Subject::Squares(_)
            | Subject::Activation(_)
            | Subject::Retained(_)
            | Subject::Adjoint(_)
            | Subject::Value(_)
            | Subject::ValueGradient(_)
            | Subject::Input(_)
            | Subject::Metric
            | Subject::Workspace => return None,
        };
        Some(Bytes(self.elements[stage] * width))
    }
    /// The inputs that data brings.
    pub fn data_inputs(&self) -> impl DoubleEndedIterator<Item = (InputId, &Input)> {
        self.inputs.iter().filter(|(_, input)| input.origin.is_data())
    }
    /// The parameters of one stage, in order of offset.
    pub fn parameters_of(&self, stage: Stage) -> impl Iterator<Item = &Parameter> {
        self.parameters.iter().filter(move |parameter| parameter.stage == stage)
    }
    /// All states, in their order: those of stages, then those of ties.
    pub fn states(&self) -> impl Iterator<Item = Stage> + use<> {
        (0..self.elements.len()).map(Stage::new)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_follow_their_formula() {
        let cosine = Rate::Cosine { initial: 1.0, steps: 100, last: 0.0 };
        assert_eq!(cosine.at(0), 1.0);
        assert!((cosine.at(50) - 0.5).abs() < 1e-12);
        assert_eq!(cosine.at(100), 0.0);
        let warm = Rate::Warmup { steps: 4, after: Box::new(Rate::Constant(1.0)) };
        assert_eq!([0, 3, 4].map(|t| warm.at(t)), [0.2, 0.8, 1.0]);
        let slow = Rate::Warmup { steps: u64::MAX, after: Box::new(Rate::Constant(1.0)) };
        assert!(slow.at(0) > 0.0 && slow.at(u64::MAX - 1) <= 1.0);
        let step = Rate::Step { initial: 1.0, factor: 0.5, every: 10 };
        assert_eq!([9, 10, 25].map(|t| step.at(t)), [1.0, 0.5, 0.25]);
    }

    #[test]
    fn rates_have_the_same_bits_everywhere() {
        let cosine = Rate::Cosine { initial: 3e-3, steps: 650, last: 1e-4 };
        let step = Rate::Step { initial: 3e-3, factor: 0.93, every: 7 };
        let bits = |rate: Rate| {
            let all = (0..650).map(|t| rate.at(t).to_bits());
            all.fold(0, |digest: u64, bits| digest.rotate_left(7) ^ bits)
        };
        let expected = [0x9178_5678_293c_02b3, 0x5048_a761_43a5_2b3d];
        assert_eq!([cosine, step].map(bits), expected);
    }
}
