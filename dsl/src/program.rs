//! The resolved program: no text except for display, every name a handle, every shape checked.

use crate::{
    Cap, Chunks, Head, Heads, Masked, Part, Pattern, Projections, Scale, Sight, Sliced,
    Turning,
};
use roundelay_schedule::{
    Belonging, Bytes, Contraction, Data, DeviceId, DeviceList, Division, Element,
    Evaluation, Exactness, Float, FlopsPerSecond, Hop, Id, Images, Initial, Line,
    Optimizer, Order, Origin, ParameterKind, Placement, Profile, Reading, Recompute,
    Rule, Sequence, States, Table, Target, Treatment, define_ids,
};
use std::{collections::BTreeMap, sync::Arc};

define_ids! {
    /// An operation of the model; operands stand above their users.
    NodeId "o";
    /// A parameter of the model.
    ParameterId "w";
    /// An input of the model.
    ModelInputId "n";
}

/// What a file says, resolved.
#[derive(Clone, Debug, PartialEq)]
pub struct Program {
    /// The computation.
    pub model: Model,
    /// The devices; one plain device when the file describes none.
    pub target: Target,
    /// How it is trained.
    pub train: Train,
    /// What the planner may choose.
    pub search: Search,
    /// Measured times of the devices that name a table.
    pub profiles: BTreeMap<DeviceId, Arc<Profile>>,
    /// What the devices cost that name a price.
    pub prices: BTreeMap<DeviceId, NanoDollarsPerHour>,
    /// Rates of arithmetic of the devices that say which share of them they reach.
    pub peaks: BTreeMap<DeviceId, FlopsPerSecond>,
}

/// What a device costs, in billionths of a US dollar per hour.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct NanoDollarsPerHour(pub u64);

/// A model graph.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Model {
    /// Name of the model.
    pub name: String,
    /// What a micro-batch brings.
    pub inputs: Table<ModelInputId, ModelInput>,
    /// What is trained.
    pub parameters: Table<ParameterId, ModelParameter>,
    /// Operations, in topological order.
    pub nodes: Table<NodeId, Node>,
    /// The node whose single number is minimised; behind it stands what only metrics need.
    pub loss: Option<NodeId>,
    /// What is measured besides the loss.
    pub metrics: Vec<ModelMetric>,
    /// What local rules put behind values; other rules leave it out.
    pub heads: Vec<Head>,
    /// The names of parameters that weight decay spares, those of heads among them.
    pub spared: Vec<Pattern>,
    /// Losses of heads, minimised besides `loss`, each with weight 1; all stand above it.
    pub auxiliary: Vec<NodeId>,
}

/// Something that is measured besides the loss. No gradient flows from it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModelMetric {
    /// Name, unlike those of the others.
    pub name: String,
    /// The node whose single number it is.
    pub node: NodeId,
    /// What is said about the numbers of many micro-batches.
    pub reading: Reading,
}

impl Model {
    /// Number of nodes up to the loss. Stages start at these; what stands behind them belongs to
    /// the last stage.
    pub fn cuttable(&self) -> usize {
        self.loss.map_or(self.nodes.len(), |loss| loss.index() + 1)
    }

    /// Numbers that training changes by their gradients: those of its parameters, but running averages.
    pub fn trained_numbers(&self) -> u64 {
        let parameters = self.parameters.values();
        let trained = parameters.filter(|own| own.treatment.momentum().is_none());
        trained.map(|own| own.shape.iter().product::<u64>()).sum()
    }

    /// The inputs that data brings.
    pub fn data_inputs(&self) -> impl Iterator<Item = &ModelInput> {
        self.inputs.values().filter(|input| input.origin.is_data())
    }

    /// Extents of what a source holds.
    pub fn shape(&self, source: Source) -> Vec<Extent> {
        match source {
            Source::Node(id) => self.nodes[id].shape.clone(),
            Source::Input(id) => self.inputs[id].shape.clone(),
            Source::Parameter(id) => {
                self.parameters[id].shape.iter().copied().map(Extent::fixed).collect()
            }
        }
    }
}

/// An input of the model.
#[derive(Clone, Debug, PartialEq)]
pub struct ModelInput {
    /// Name.
    pub name: String,
    /// Element type.
    pub element: Element,
    /// Extents.
    pub shape: Vec<Extent>,
    /// Integers are below this bound, as the operators that read it demand; zero for no bound.
    pub bound: u64,
    /// Where its numbers come from; what data does not bring, no program declares.
    pub origin: Origin,
}

/// A parameter of the model.
#[derive(Clone, Debug, PartialEq)]
pub struct ModelParameter {
    /// Global name: the path of blocks, bindings and roles (`layer.3.attention.query.weight`).
    pub name: String,
    /// Of what it is a part.
    pub belonging: Belonging,
    /// Extents.
    pub shape: Vec<u64>,
    /// What its extents are.
    pub kind: ParameterKind,
    /// How these lie in the whole; that is all of it but in a model that is split among a grid.
    pub split: Division,
    /// How θ_0 is drawn.
    pub initial: Initial,
    /// What an update does with it.
    pub treatment: Treatment,
}

/// One operation; it has one result.
#[derive(Clone, Debug, PartialEq)]
pub struct Node {
    /// Name for messages: the path of bindings.
    pub name: String,
    /// What it computes.
    pub operation: Operation,
    /// What it reads, in the operation's order.
    pub operands: Vec<Source>,
    /// Extents of the result. Results are real.
    pub shape: Vec<Extent>,
}

/// What an operation reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Source {
    /// The result of an earlier node.
    Node(NodeId),
    /// A parameter.
    Parameter(ParameterId),
    /// An input.
    Input(ModelInputId),
}

/// An extent: `size`, or `size` times the number of examples in a micro-batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Extent {
    /// The factor.
    pub size: u64,
    /// Whether it is multiplied by the number of examples.
    pub per_example: bool,
}

impl Extent {
    /// The extent in a micro-batch of `examples`.
    pub fn at(self, examples: u64) -> u64 {
        if self.per_example { self.size.saturating_mul(examples) } else { self.size }
    }
}

/// The primitive operations. Composite operators (`attention`, `positions`) are made of these
/// when names are resolved. Shapes in comments: x (.., n) means any leading extents.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Operation {
    /// tokens (..) i32, table (v, n) → (.., n).
    Embedding,
    /// x (.., m), weight (n, m), and perhaps bias (n) → x · weightᵀ + bias (.., n).
    Linear,
    /// query (b, s, n), key and value (b, s, n · keys / heads), or all in one → softmax(scale ·
    /// q kᵀ) v per head (b, s, n), perhaps with capped scores.
    Attention {
        /// Heads, which divide n.
        heads: Heads,
        /// How queries, keys and values lie.
        projections: Projections,
        /// What a position sees.
        sight: Sight,
        /// Factor of q kᵀ.
        scale: Scale,
        /// What bounds the scores.
        cap: Cap,
    },
    /// query (b, s, n), key (b, s, n · keys / heads) → scale · q kᵀ per head (b, heads, s, s),
    /// −∞ where a position is not seen: the scores of [`Operation::Attention`] for themselves.
    Scores {
        /// Heads, which divide n.
        heads: Heads,
        /// What a position sees.
        sight: Sight,
        /// Factor of q kᵀ.
        scale: Scale,
    },
    /// weights (b, heads, s, s), value (b, s, m) → weights · v per head (b, s, m · heads / keys).
    Mix {
        /// Heads, of whose values there are as many as of keys.
        heads: Heads,
    },
    /// x (b, s, n) → the same with pairs of every head turned; n is divided by the heads, of which each has
    /// at least as many elements as turn.
    Rotary(Turning),
    /// x (b, s, n), token (n) → (b, s + 1, n) with the token as first row of every example.
    ClassToken,
    /// x (b, s, n) → row `index` of every example (b, n).
    Select {
        /// The row.
        index: u64,
    },
    /// table (s, n) → rows `first` .. `first` + t (t, n).
    Rows {
        /// The first row.
        first: u64,
    },
    /// x (.., n), gain (n), bias (n) → normalised over n.
    LayerNorm {
        /// ε, added to the variance.
        epsilon: f64,
    },
    /// x (b, h, w, c), weight (n, kh, kw, c / groups), and perhaps bias (n) → (b, h', w', n),
    /// where h' = (h + 2 padding − kh) / stride + 1, rounded down.
    Conv2d {
        /// Pixels from one place of the window to the next.
        stride: u64,
        /// Zeros around the image.
        padding: u64,
        /// Parts of the channels that have filters of their own; divides c and n.
        groups: u64,
    },
    /// x (b, h, w, c) → greatest of every window (b, h', w', c); padding is never the greatest.
    MaxPool {
        /// Height and width of the window.
        size: u64,
        /// Pixels from one place of the window to the next.
        stride: u64,
        /// Pixels around the image; at most half of `size`.
        padding: u64,
    },
    /// x (b, h, w, c) → mean of every window (b, h', w', c); padding counts as zeros.
    AvgPool {
        /// Height and width of the window.
        size: u64,
        /// Pixels from one place of the window to the next.
        stride: u64,
        /// Zeros around the image; at most half of `size`.
        padding: u64,
    },
    /// x (b, h, w, c) → mean over h and w (b, c).
    GlobalPool,
    /// x (b, h, w, c) → every pixel `factor` by `factor` times (b, factor · h, factor · w, c).
    Upsample {
        /// How often a pixel stands there in height and in width.
        factor: u64,
    },
    /// x (.., n), gain (n), bias (n), running mean (n), running variance (n) → normalised over
    /// all extents but the last with ε = 1e-5; outside training by the running statistics,
    /// which are [`Treatment::Averaged`].
    BatchNorm,
    /// x (b, .., n), gain (n), bias (n) → normalised per example over all positions and the
    /// n / groups channels of a group, with ε = 1e-5.
    GroupNorm {
        /// Number of groups; divides n.
        groups: u64,
    },
    /// x (.., n), gain (n) → x / √(mean of x² over n + ε) · gain.
    RmsNorm {
        /// ε.
        epsilon: f64,
    },
    /// max(x, 0).
    Relu,
    /// x Φ(x) with the exact normal distribution.
    Gelu,
    /// x (1 + tanh(√(2/π) (x + 0.044715 x³))) / 2, which is close to [`Operation::Gelu`].
    GeluTanh,
    /// x / (1 + exp(−x)).
    Silu,
    /// cap · tanh(x / cap).
    SoftCap {
        /// What is approached and never exceeded; above zero.
        cap: f64,
    },
    /// Over the last extent.
    Softmax,
    /// Zero with probability `rate`, else x / (1 − rate); only in training.
    Dropout {
        /// Probability, in [0, 1).
        rate: f64,
    },
    /// a (..s) + b, where b has the shape of a or of its trailing extents.
    Add,
    /// a (..s) · b element by element, where b has the shape of a or of its trailing extents.
    Multiply,
    /// factor · x.
    Scale {
        /// The factor.
        factor: f64,
    },
    /// The same elements in another shape.
    Reshape,
    /// x itself, between two units: no program has it, only a model of [`crate::localised`]. No
    /// gradient passes but the one that hops back.
    Boundary(Hop),
    /// logits (.., v), targets (..) i32 → mean of −log softmax(logits) at the target, shape (). With
    /// masked targets shares (batch) come too, and it is the sum of share · −log softmax(logits) over
    /// the rows that count.
    CrossEntropy {
        /// Whether targets may be v, for none.
        masked: Masked,
    },
    /// x (.., m), weight (v, m), targets (..) i32, and shares where these are masked →
    /// [`Operation::CrossEntropy`] of the logits x · weightᵀ, of which only this many rows are there at
    /// a time; shape ().
    LinearCrossEntropy {
        /// How many times logits are made, of as many rows each.
        chunks: Chunks,
        /// Whether targets may be v, for none.
        masked: Masked,
    },
    /// a, b of one shape → mean of (a − b)², shape ().
    MeanSquaredError,
    /// logits (.., v), targets (..) i32 → share of rows whose largest logit, the first of equals,
    /// is the target, shape (). With masked targets shares (batch) come too, and it is the sum of the
    /// shares of these rows. It has no gradient.
    Accuracy {
        /// Whether targets may be v, for none.
        masked: Masked,
    },
    /// What one of several parts does of an operation; no program has it, only the graph of one
    /// device among those that split a model's tensors.
    Part {
        /// What it does.
        part: Part,
        /// The parts that meet, or that have their shares of what is divided.
        line: Line,
    },
    /// What a slice of a sequence does of an operation; no program has it, only a model whose
    /// sequences are cut into slices.
    Sliced(Sliced),
}

/// How the model is trained.
#[derive(Clone, Debug, PartialEq)]
pub struct Train {
    /// Where examples come from.
    pub data: Data,
    /// Examples of one training step.
    pub batch: u32,
    /// All randomness derives from it.
    pub seed: u64,
    /// Training steps.
    pub steps: u64,
    /// Element type.
    pub dtype: Float,
    /// The update rule.
    pub optimizer: Optimizer,
    /// When held-out data is looked at.
    pub evaluate: Evaluation,
}

/// What the planner may choose, and what it minimises.
#[derive(Clone, Debug, PartialEq, Default)]
pub struct Search {
    /// What is minimised.
    pub objective: Objective,
    /// What is known about how the model learns, for [`Objective::TimeToResult`].
    pub learning: Learning,
    /// The weakest class that is allowed; `Reordered` unless the program says otherwise.
    pub exactness: Option<Exactness>,
    /// Bound on what one device may take.
    pub memory: Option<Bytes>,
    /// Bound on the number of devices.
    pub devices: Numbers,
    /// Devices at which plans may begin that take fewer than all, counted from zero; where nothing
    /// is said, those where another kind of device begins or would just end.
    pub first_device: Numbers,
    /// Rules to try.
    pub rule: Choice<Rule>,
    /// Placements to try.
    pub placement: Choice<Placement>,
    /// Orders to try.
    pub order: Choice<Order>,
    /// The lists of the order `listed`; empty where it is not tried.
    pub lists: Vec<DeviceList>,
    /// Numbers of tensor rows to try.
    pub rows: Numbers,
    /// Numbers of tensor columns to try.
    pub columns: Numbers,
    /// In how many parts a device may take the examples of a micro-batch where tensors are split, one
    /// or two; one where nothing is said.
    pub overdecompose: Numbers,
    /// Among how many devices parameters may be divided: `zero3` has a depth of all its replicas,
    /// `hsdp` one of its shards, all else one.
    pub depth: Numbers,
    /// How maps may multiply features that columns divide; each goes a way of its own where nothing is
    /// said, and may where both others are.
    pub contraction: Choice<Contraction>,
    /// What rows may do where features are whole.
    pub sequence: Choice<Sequence>,
    /// What rows may do with the pixels of images.
    pub images: Choice<Images>,
    /// State placements to try.
    pub states: Choice<States>,
    /// What to try computing again in every stage.
    pub recompute: Choice<Recompute>,
    /// Stages that compute again as the program says, whatever the others do; later ones count.
    pub pinned: Vec<PinnedStages>,
    /// Numbers of stages to try.
    pub stages: Numbers,
    /// Numbers of data replicas to try.
    pub replicas: Numbers,
    /// Numbers of replicas that split states among them to try, for `hsdp`.
    pub shards: Numbers,
    /// Numbers of micro-batches of one replica to try.
    pub micro_batches: Numbers,
    /// Numbers of stages on one device of a pipeline to try.
    pub chunks: Numbers,
    /// Numbers of slices of each sequence to try; whole sequences where nothing is said, unless an
    /// order asks for slices.
    pub slices: Numbers,
    /// Cut points to use, when they are pinned: the first node of every stage but the first.
    pub cuts: Option<Vec<u32>>,
}

impl Search {
    /// The weakest class of exactness that is allowed.
    pub fn weakest(&self) -> Exactness {
        self.exactness.unwrap_or(Exactness::Reordered)
    }
}

/// Stages whose decisions the program pins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PinnedStages {
    /// The first, counted from zero.
    pub first: u32,
    /// The last.
    pub last: u32,
    /// What they compute again.
    pub recompute: Recompute,
}

/// What the planner minimises.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Objective {
    /// Time of one training step.
    #[default]
    StepTime,
    /// Peak memory of the fullest device.
    Memory,
    /// Number of devices, then step time.
    Devices,
    /// What a training step costs: its time at the prices of the devices in use.
    Cost,
    /// Time until the model is as good as wanted.
    TimeToResult,
}

/// What is known about how a model learns, for steps(B, τ) = S_min (1 + s τ + B_crit / B) with
/// batch B and staleness τ; constants are those of one model, data set and goal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Learning {
    /// S_min: training steps to the result with a batch without end and no delay.
    pub least_steps: Option<u64>,
    /// B_crit, in examples: with this batch it takes twice as many.
    pub critical_batch: Option<u64>,
    /// 1000 s: thousandths of S_min that one update of delay adds.
    pub staleness: Option<u64>,
}

impl Learning {
    /// The constants that are not known, by their names in the language.
    pub fn missing(self) -> Vec<&'static str> {
        let Self { least_steps, critical_batch, staleness } = self;
        let constants = [
            ("least_steps", least_steps),
            ("critical_batch", critical_batch),
            ("staleness", staleness),
        ];
        let unknown = constants.into_iter().filter(|(_, value)| value.is_none());
        unknown.map(|(key, _)| key).collect()
    }
}

/// The values that one decision may take.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Choice<T> {
    /// Left open.
    #[default]
    Open,
    /// One of these.
    OneOf(Vec<T>),
}

impl<T: PartialEq> Choice<T> {
    /// Whether a value is among them.
    pub fn allows(&self, value: &T) -> bool {
        match self {
            Choice::Open => true,
            Choice::OneOf(values) => values.contains(value),
        }
    }
}

/// The numbers that one decision may take.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Numbers {
    /// Left open.
    #[default]
    Open,
    /// These closed ranges.
    Ranges(Vec<(u64, u64)>),
}

impl Numbers {
    /// Whether a number is among them.
    pub fn allows(&self, value: u64) -> bool {
        match self {
            Numbers::Open => true,
            Numbers::Ranges(ranges) => {
                ranges.iter().any(|(least, most)| (*least..=*most).contains(&value))
            }
        }
    }
}
