//! Rules that make one call of two neighbouring ones: what both compute, bit for bit.
//!
//! A rule is data. Its two lines before and its line after are equations over arrays; its law is
//! that every array of the line after has the bits of the lines before, on every row where several
//! split tensors. Whoever plans takes the equations as algebra and says where a rule is applied
//! ([`LoweringChoice`]); whoever lowers takes them as instructions ([`crate::stages_in`]).
//!
//! Two calls are neighbours because the second reads what the first makes, or because both read the
//! same, which one call then reads once.
//!
//! Arrays that have no line after the rewrite are not made any more, so a rule with such an array
//! only fits where nobody else reads it. `part` is only ever taken of what all rows have alike.

use crate::tensor::Divided;
use roundelay_schedule::{Attributes, MapWays, Rewrite, Rewrites};
use std::{collections::BTreeSet, fmt};

/// What one call makes of which arrays, by their names in a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallPattern {
    /// What it makes, in the order of the catalogue.
    pub made: &'static [&'static str],
    /// The kernel.
    pub kernel: &'static str,
    /// Its flags that are set.
    pub flags: &'static [&'static str],
    /// What it reads, in the order of the catalogue.
    pub read: &'static [&'static str],
}

/// A form of a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RewriteForm {
    /// The rule.
    pub rewrite: Rewrite,
    /// Two neighbours, in their order. The second reads what the first makes, or what it reads.
    pub before: [CallPattern; 2],
    /// What stands for both.
    pub after: CallPattern,
    /// Arrays that must be as large as the one that goes from the first to the second, whose
    /// shape they take.
    pub alike: &'static [&'static str],
}

/// The kernel that updates its last operand: what it makes lies where that lay.
const IN_PLACE: &str = "add_rows";

impl CallPattern {
    /// Whether what it makes lies where the last array lay that it reads.
    pub fn is_in_place(&self) -> bool {
        self.kernel == IN_PLACE
    }

    /// The operands of the call.
    pub(crate) fn operands(&self) -> impl Iterator<Item = &'static str> {
        let made = if self.is_in_place() { &[] } else { self.made };
        self.read.iter().chain(made).copied()
    }
}

impl RewriteForm {
    /// The array that goes from the first call to the second; none where both only read the same.
    pub fn between(&self) -> Option<&'static str> {
        let [first, second] = &self.before;
        first.made.iter().find(|name| second.read.contains(name)).copied()
    }
}

impl fmt::Display for CallPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { made, kernel, flags, read } = self;
        write!(f, "{} = {kernel}", made.join(", "))?;
        flags.iter().try_for_each(|flag| write!(f, " {flag}"))?;
        write!(f, "({})", read.join(", "))
    }
}

impl fmt::Display for RewriteForm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [first, second] = &self.before;
        write!(f, "{first}; {second} → {}", self.after)
    }
}

/// A line that makes one array.
const fn line(kernel: &'static str, read: &'static [&'static str]) -> CallPattern {
    CallPattern { made: &["y"], kernel, flags: &[], read }
}

const fn making(made: &'static [&'static str], line: CallPattern) -> CallPattern {
    CallPattern { made, ..line }
}

const fn with(flags: &'static [&'static str], line: CallPattern) -> CallPattern {
    CallPattern { flags, ..line }
}

const MAP: &[&str] = &["x", "weight", "bias"];
const MAP_AND: &[&str] = &["x", "weight", "bias", "a"];
const NORM: &[&str] = &["x", "gain", "bias", "mean_before", "variance_before"];
const NORM_AND: &[&str] = &["x", "gain", "bias", "mean_before", "variance_before", "a"];
const NORM_KEPT: &[&str] = &["x", "gain", "bias", "mean", "variance"];
const NORM_KEPT_AND: &[&str] = &["x", "gain", "bias", "mean", "variance", "a"];
const NORM_BETWEEN: &[&str] = &["t", "mean", "variance"];
const NORM_MADE: &[&str] = &["y", "mean", "variance"];
const NORM_GRADIENTS: &[&str] = &["dx", "dgain", "dbias", "dmean", "dvariance"];
const NORM_GRADIENTS_BESIDE: &[&str] =
    &["dt", "dx", "dgain", "dbias", "dmean", "dvariance"];

const NORM_OPENED: &[&str] = &["x", "gain", "bias", "mean", "variance", "dy"];
const NORM_AND_BIAS: &[&str] = &["x", "gain", "mean", "variance", "bias", "dy"];
const NORM_AND_RESULT: &[&str] = &["x", "gain", "mean", "variance", "y", "dy"];

const AFFINE: CallPattern = making(&["t"], line("affine", MAP));
const AFFINE_ADD: CallPattern = line("affine_add", MAP_AND);
const BATCH_NORM: CallPattern = making(NORM_BETWEEN, line("batch_norm", NORM));
const RESIDUAL: CallPattern = with(&["residual"], line("batch_norm", NORM_AND));
const NORM_AGAIN: CallPattern = making(&["t"], line("batch_norm_again", NORM_KEPT));
const RESIDUAL_AGAIN: CallPattern =
    with(&["residual"], line("batch_norm_again", NORM_KEPT_AND));

const NORM_BACKWARD: CallPattern = making(
    NORM_GRADIENTS,
    line("batch_norm_backward", &["x", "gain", "mean", "variance", "dt"]),
);

/// The same of what a rectifier lets through.
const fn norm_opened(
    flags: &'static [&'static str],
    read: &'static [&'static str],
) -> CallPattern {
    making(NORM_GRADIENTS, with(flags, line("batch_norm_backward", read)))
}

const RELU_BACKWARD: CallPattern = making(&["dt"], line("relu_backward", &["y", "dy"]));

/// All rules, in all their forms. Of two that fit, the first is taken.
pub const FORMS: [RewriteForm; 22] = [
    RewriteForm {
        rewrite: Rewrite::Affine,
        before: [
            making(&["t"], with(&["transpose_b"], line("matmul", &["x", "weight"]))),
            line(IN_PLACE, &["bias", "t"]),
        ],
        after: line("affine", MAP),
        alike: &["y"],
    },
    RewriteForm {
        rewrite: Rewrite::AffineRelu,
        before: [AFFINE, line("relu", &["t"])],
        after: line("affine_relu", MAP),
        alike: &["y"],
    },
    RewriteForm {
        rewrite: Rewrite::AffineGelu,
        before: [AFFINE, line("gelu", &["t"])],
        after: making(&["t", "y"], line("affine_gelu", MAP)),
        alike: &["y"],
    },
    RewriteForm {
        rewrite: Rewrite::AffineGeluTanh,
        before: [AFFINE, line("gelu_tanh", &["t"])],
        after: making(&["t", "y"], line("affine_gelu_tanh", MAP)),
        alike: &["y"],
    },
    RewriteForm {
        rewrite: Rewrite::MatmulGeluTanhBackward,
        before: [
            making(&["dy"], line("matmul", &["dz", "weight"])),
            making(&["dt"], line("gelu_tanh_backward", &["t", "dy"])),
        ],
        after: making(&["dt"], line("matmul_gelu_tanh_backward", &["dz", "weight", "t"])),
        alike: &["t", "dt"],
    },
    RewriteForm {
        rewrite: Rewrite::AffineGradients,
        before: [
            making(&["dweight"], with(&["transpose_a"], line("matmul", &["dy", "x"]))),
            making(&["dbias"], line("sum_rows", &["dy"])),
        ],
        after: making(&["dweight", "dbias"], line("affine_gradients", &["dy", "x"])),
        alike: &[],
    },
    RewriteForm {
        rewrite: Rewrite::AffineAdd,
        before: [AFFINE, line("add", &["a", "t"])],
        after: AFFINE_ADD,
        alike: &["a", "y"],
    },
    RewriteForm {
        rewrite: Rewrite::AffineAdd,
        before: [AFFINE, line("add", &["t", "a"])],
        after: AFFINE_ADD,
        alike: &["a", "y"],
    },
    RewriteForm {
        rewrite: Rewrite::BatchNormAdd,
        before: [BATCH_NORM, line("add", &["a", "t"])],
        after: making(NORM_MADE, RESIDUAL),
        alike: &["a", "y"],
    },
    RewriteForm {
        rewrite: Rewrite::BatchNormAdd,
        before: [BATCH_NORM, line("add", &["t", "a"])],
        after: making(NORM_MADE, RESIDUAL),
        alike: &["a", "y"],
    },
    RewriteForm {
        rewrite: Rewrite::BatchNormAdd,
        before: [NORM_AGAIN, line("add", &["a", "t"])],
        after: RESIDUAL_AGAIN,
        alike: &["a", "y"],
    },
    RewriteForm {
        rewrite: Rewrite::BatchNormAdd,
        before: [NORM_AGAIN, line("add", &["t", "a"])],
        after: RESIDUAL_AGAIN,
        alike: &["a", "y"],
    },
    RewriteForm {
        rewrite: Rewrite::BatchNormRelu,
        before: [BATCH_NORM, line("relu", &["t"])],
        after: making(NORM_MADE, with(&["relu"], line("batch_norm", NORM))),
        alike: &["y"],
    },
    RewriteForm {
        rewrite: Rewrite::BatchNormRelu,
        before: [making(NORM_BETWEEN, RESIDUAL), line("relu", &["t"])],
        after: making(NORM_MADE, with(&["relu", "residual"], RESIDUAL)),
        alike: &["y"],
    },
    RewriteForm {
        rewrite: Rewrite::BatchNormRelu,
        before: [NORM_AGAIN, line("relu", &["t"])],
        after: with(&["relu"], line("batch_norm_again", NORM_KEPT)),
        alike: &["y"],
    },
    RewriteForm {
        rewrite: Rewrite::BatchNormRelu,
        before: [making(&["t"], RESIDUAL_AGAIN), line("relu", &["t"])],
        after: with(&["relu", "residual"], RESIDUAL_AGAIN),
        alike: &["y"],
    },
    RewriteForm {
        rewrite: Rewrite::BatchNormBackwardRelu,
        before: [
            making(&["dt"], line("relu_backward_again", NORM_OPENED)),
            NORM_BACKWARD,
        ],
        after: norm_opened(&["again", "relu"], NORM_AND_BIAS),
        alike: &["dy"],
    },
    RewriteForm {
        rewrite: Rewrite::BatchNormBackwardRelu,
        before: [RELU_BACKWARD, NORM_BACKWARD],
        after: norm_opened(&["relu"], NORM_AND_RESULT),
        alike: &["y", "dy"],
    },
    // What a skip takes past the norm is read by others too.
    RewriteForm {
        rewrite: Rewrite::BatchNormBackwardRelu,
        before: [RELU_BACKWARD, NORM_BACKWARD],
        after: making(
            NORM_GRADIENTS_BESIDE,
            norm_opened(&["opened", "relu"], NORM_AND_RESULT),
        ),
        alike: &["y", "dy", "dt"],
    },
    moved(Rewrite::GatherOfScatter, ["reduce_scatter", "all_gather"], "all_reduce"),
    moved(Rewrite::GatherOfPart, ["part", "all_gather"], "copy"),
    moved(Rewrite::PartOfSum, ["all_reduce", "part"], "reduce_scatter"),
];

/// A rule of two calls that move an array between rows.
const fn moved(
    rewrite: Rewrite,
    [first, second]: [&'static str; 2],
    both: &'static str,
) -> RewriteForm {
    RewriteForm {
        rewrite,
        before: [making(&["t"], line(first, &["x"])), line(second, &["t"])],
        after: line(both, &["x"]),
        alike: &[],
    }
}

/// A call, for whoever chooses rewrites.
#[derive(Clone, Debug)]
pub struct Neighbour<'a> {
    /// The operation of the whole model that it stands for, by its number; without one it joins
    /// no other.
    pub site: Option<u32>,
    /// Its kernel.
    pub kernel: &'static str,
    /// The constants of the kernel.
    pub attributes: &'a Attributes,
    /// The arrays that it works on, in the order of the catalogue.
    pub operands: Vec<ArrayUse<'a>>,
}

/// An array as one call sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ArrayUse<'a> {
    /// Equal numbers are the same memory.
    pub array: u32,
    /// Its extents.
    pub shape: &'a [u64],
    /// Whether anybody besides these neighbours reads or writes it.
    pub is_shared: bool,
}

/// Says where rules are applied, and how maps are split.
pub trait LoweringChoice: Sync {
    /// Of neighbouring calls, each of which works on an array of the one before: which become one
    /// with what stands before them, and by which rule. What does not fit stays as it is.
    fn choose(&self, neighbours: &[Neighbour<'_>]) -> BTreeSet<(usize, Rewrite)>;

    /// How the maps of a model go on a grid: as they go by themselves, where nobody knows better.
    fn ways(&self, divided: &Divided<'_>) -> MapWays {
        divided.ways.clone()
    }
}

/// Applies rules where somebody has written them down.
pub(crate) struct Listed<'a>(pub(crate) &'a Rewrites);

/// What a plan lists, and a choice for what it does not.
pub(crate) struct Decided<'a> {
    pub(crate) calls: &'a dyn LoweringChoice,
    pub(crate) maps: Option<&'a MapWays>,
    pub(crate) otherwise: &'a dyn LoweringChoice,
}

impl LoweringChoice for Decided<'_> {
    fn choose(&self, neighbours: &[Neighbour<'_>]) -> BTreeSet<(usize, Rewrite)> {
        self.calls.choose(neighbours)
    }

    fn ways(&self, divided: &Divided<'_>) -> MapWays {
        match self.maps {
            Some(maps) => maps.clone(),
            None => self.otherwise.ways(divided),
        }
    }
}

impl LoweringChoice for Listed<'_> {
    fn choose(&self, neighbours: &[Neighbour<'_>]) -> BTreeSet<(usize, Rewrite)> {
        let listed = |(place, rewrite): &(usize, Rewrite)| {
            let site = neighbours[*place].site;
            site.is_some_and(|site| self.0.contains(*rewrite, site))
        };
        every(neighbours).filter(listed).collect()
    }
}

/// Applies every rule wherever it fits: what tests compare with, and who only wants to see
/// routines.
#[doc(hidden)]
pub struct Everywhere;

impl LoweringChoice for Everywhere {
    fn choose(&self, neighbours: &[Neighbour<'_>]) -> BTreeSet<(usize, Rewrite)> {
        every(neighbours).collect()
    }
}

fn every(neighbours: &[Neighbour<'_>]) -> impl Iterator<Item = (usize, Rewrite)> {
    let places = 1..neighbours.len();
    places.flat_map(|place| Rewrite::ALL.iter().map(move |rewrite| (place, *rewrite)))
}
