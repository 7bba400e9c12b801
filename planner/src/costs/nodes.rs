//! What each node of a model takes for micro-batches of every size: for whoever chooses cuts and
//! for the first bounds. Models repeat layers, so most nodes are of few kinds.

use crate::costs::{
    bill::{Bill, PROOF, Reach},
    calls::{Costs, On, Priced, Unpriced},
    load::LoadError,
};
use roundelay_codegen::{NodeCost, PassCost, Piece};
use roundelay_dsl::{Model, Program};
use roundelay_schedule::{Bytes, Nanos, Tensor};
use std::collections::BTreeMap;

/// The nodes of a program.
#[derive(Clone, Debug)]
pub(crate) struct Nodes {
    /// Micro-batches of which sizes these numbers are good for.
    pub reach: Reach,
    /// Elements of the parameters that each node is the first to use.
    pub elements: Vec<u64>,
    /// Whether the backward pass of each node reads parameters.
    pub reads: Vec<bool>,
    /// The mark of each node.
    pub marks: Vec<Mark>,
    kinds: Vec<Kind>,
    /// The kind of each node.
    of: Vec<usize>,
}

/// What of a node does not follow from what it does in the whole model.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Mark {
    /// Its layer; none where it stands before or behind them.
    pub layer: Option<u32>,
    /// The size of its result.
    pub output: Bytes,
    /// Elements of its parameters.
    pub parameters: u64,
    /// How many calls it takes.
    pub calls: usize,
}

/// What all nodes of a kind take in both directions.
#[derive(Clone, Debug)]
struct Kind {
    all: Net,
    /// The same with the first half of the backward pass alone.
    turned: Net,
}

/// What a node adds to the calls of its neighbours.
#[derive(Clone, Debug)]
struct Net {
    calls: Bill,
    /// Calls of neighbours that are done as well, and counted there.
    contained: Bill,
}

/// What each node of a model takes for one micro-batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Times {
    /// Forward and backward, as a weight for whoever cuts.
    pub weights: Vec<Nanos>,
    /// What forward and backward add to any stage at least.
    pub passes: Vec<Nanos>,
    /// What forward adds at least, and what the backward pass makes for the nodes before where it is
    /// in halves.
    pub turns: Vec<Nanos>,
}

/// One node at several sizes.
type Costed<'a> = Vec<&'a NodeCost>;

/// The nodes of a model, or of a short one, where tensors are split in one way.
#[derive(Debug)]
pub(crate) struct Split {
    tensor: Tensor,
    /// For most sizes, where their calls are on lines.
    most: Option<Nodes>,
    /// For micro-batches of this many examples alone.
    ones: BTreeMap<u32, Result<Nodes, LoadError>>,
}

impl Split {
    /// Those for micro-batches of these numbers of examples.
    ///
    /// # Errors
    /// When the model cannot be differentiated or split.
    pub(crate) fn new(
        (program, model): (&Program, &Model),
        (sizes, tensor): (&[u32], Tensor),
        costs: &Costs,
    ) -> Result<Self, LoadError> {
        let piece = Piece::new(model, (&[], tensor), &costs.algebra)?;
        let lined = |size: &u32| Reach::Most.holds(*size, tensor);
        let most = match program.profiles.is_empty() && sizes.iter().any(lined) {
            true => Nodes::within(program, &piece, Reach::Most, costs).ok().flatten(),
            false => None,
        };
        let alone = sizes.iter().filter(|size| most.is_none() || !lined(size));
        let one = |size: &u32| (*size, Nodes::of_one(program, &piece, *size, costs));
        Ok(Self { tensor, ones: alone.map(one).collect(), most })
    }

    /// Those for micro-batches of a number that was named.
    ///
    /// # Errors
    /// When a kernel is unknown.
    pub(crate) fn of(&self, examples: u32) -> Result<&Nodes, &LoadError> {
        match &self.most {
            Some(most) if most.reach.holds(examples, self.tensor) => Ok(most),
            _ => self.ones[&examples].as_ref(),
        }
    }

    /// Those that stand for this way to split tensors: for most sizes, else for the smallest that is no
    /// exception.
    pub(crate) fn into_widest(self) -> Option<Nodes> {
        let excepted = |size: &u32| !Reach::Most.holds(*size, self.tensor);
        let ones = self.ones.into_iter();
        let first = ones.min_by_key(|(size, _)| (excepted(size), *size));
        self.most.or_else(|| first?.1.ok())
    }
}

impl Nodes {
    /// Those for micro-batches of one number of examples, and of most others where lines hold.
    #[cfg(test)]
    pub(crate) fn new(
        model: (&Program, &Model),
        (examples, tensor): (u32, Tensor),
        costs: &Costs,
    ) -> Result<Self, String> {
        let split = Split::new(model, (&[examples], tensor), costs);
        let split = split.map_err(|error| error.to_string())?;
        split.of(examples).cloned().map_err(ToString::to_string)
    }

    /// Those for micro-batches of one number of examples alone.
    #[cfg(test)]
    pub(crate) fn alone(
        (program, model): (&Program, &Model),
        (examples, tensor): (u32, Tensor),
        costs: &Costs,
    ) -> Result<Self, String> {
        let piece = Piece::new(model, (&[], tensor), &costs.algebra);
        let piece = piece.map_err(|error| error.to_string())?;
        let own = Self::of_one(program, &piece, examples, costs);
        own.map_err(|error| error.to_string())
    }

    fn of_one(
        program: &Program,
        piece: &Piece<'_>,
        examples: u32,
        costs: &Costs,
    ) -> Result<Self, LoadError> {
        let one = Self::within(program, piece, Reach::One(examples), costs)?;
        Ok(one.expect("a node goes together with itself"))
    }

    fn within(
        program: &Program,
        piece: &Piece<'_>,
        reach: Reach,
        costs: &Costs,
    ) -> Result<Option<Self>, LoadError> {
        let dtype = program.train.dtype;
        let algebra = &costs.algebra;
        let at = |examples: u32| piece.node_costs(examples.into(), dtype, algebra);
        let sizes = match reach {
            Reach::Most => reach.sizes().into_iter().chain([PROOF]).map(at).collect(),
            Reach::One(examples) => at(examples).map(|nodes| vec![nodes]),
        };
        let sizes: Vec<Vec<NodeCost>> = sizes?;
        let nodes = &sizes[0];
        let (seen, of) = kinds(&sizes);
        let kinds = seen.iter().map(|node| Kind::new(node, costs));
        let kinds = match kinds.collect::<Result<Option<Vec<Kind>>, Unpriced>>() {
            Ok(kinds) => kinds,
            Err(unpriced) => {
                // This error names the node as well.
                reach
                    .sizes()
                    .into_iter()
                    .try_for_each(|size| piece.admit(size.into()))?;
                return Err(unpriced.into());
            }
        };
        let mark = |node: &NodeCost| {
            let calls = node.forward.calls.len() + node.backward.calls.len();
            let NodeCost { layer, output, parameters, .. } = *node;
            Mark { layer, output, parameters, calls }
        };
        Ok(kinds.map(|kinds| Self {
            reach,
            elements: nodes.iter().map(|node| node.parameters).collect(),
            reads: nodes.iter().map(|node| node.reads).collect(),
            marks: nodes.iter().map(mark).collect(),
            kinds,
            of,
        }))
    }

    /// What each node takes for one micro-batch on some devices.
    pub(crate) fn times(&self, examples: u32, on: On, costs: &Costs) -> Times {
        let of = |time: &dyn Fn(&Kind) -> Nanos| -> Vec<Nanos> {
            let times: Vec<Nanos> = self.kinds.iter().map(time).collect();
            self.of.iter().map(|kind| times[*kind]).collect()
        };
        Times {
            weights: of(&|kind| kind.all.weight(examples, on, costs)),
            passes: of(&|kind| kind.all.least(examples, on, costs)),
            turns: of(&|kind| kind.turned.least(examples, on, costs)),
        }
    }
}

/// The nodes that differ in what they call, at several sizes, and which of them each node is like.
fn kinds(sizes: &[Vec<NodeCost>]) -> (Vec<Costed<'_>>, Vec<usize>) {
    let mut seen: Vec<Costed<'_>> = Vec::new();
    let nodes = 0..sizes[0].len();
    let of = nodes.map(|node| {
        let own: Costed<'_> = sizes.iter().map(|all| &all[node]).collect();
        let is_own = |other: &Costed<'_>| {
            own.iter().zip(other).all(|(one, other)| {
                (&one.forward, &one.backward, &one.turn)
                    == (&other.forward, &other.backward, &other.turn)
            })
        };
        seen.iter().position(is_own).unwrap_or_else(|| {
            seen.push(own);
            seen.len() - 1
        })
    });
    let of = of.collect();
    (seen, of)
}

/// The calls of a pass, and what they contain.
type Prices = [Vec<Priced>; 2];

impl Kind {
    /// Nothing if the node's calls are on no line.
    fn new(node: &Costed<'_>, costs: &Costs) -> Result<Option<Self>, Unpriced> {
        let each = |pass: fn(&NodeCost) -> &PassCost| {
            let at = |cost: &&NodeCost| prices(pass(cost), costs);
            node.iter().map(at).collect::<Result<Vec<Prices>, Unpriced>>()
        };
        let forward = each(|cost| &cost.forward)?;
        let all = Net::new(&forward, &each(|cost| &cost.backward)?);
        let turned = Net::new(&forward, &each(|cost| &cost.turn)?);
        Ok(all.zip(turned).map(|(all, turned)| Self { all, turned }))
    }
}

fn prices(pass: &PassCost, costs: &Costs) -> Result<Prices, Unpriced> {
    Ok([costs.surely_priced(&pass.calls)?, costs.surely_priced(&pass.contained)?])
}

impl Net {
    /// Of two passes at several sizes; nothing if their calls are on no line.
    fn new(forward: &[Prices], back: &[Prices]) -> Option<Self> {
        let both = |of: usize| {
            let sizes = forward.iter().zip(back);
            straight(
                sizes.map(|(one, other)| [&*one[of], &*other[of]].concat()).collect(),
            )
        };
        Some(Self { calls: both(0)?, contained: both(1)? })
    }

    fn weight(&self, examples: u32, on: On, costs: &Costs) -> Nanos {
        let [calls, contained] = self.at(examples).map(|calls| costs.part(on, &calls));
        calls - contained
    }

    fn least(&self, examples: u32, on: On, costs: &Costs) -> Nanos {
        let [calls, contained] = self.at(examples);
        costs.more(on, &calls, &contained)
    }

    fn at(&self, examples: u32) -> [Vec<(Priced, u64)>; 2] {
        [&self.calls, &self.contained].map(|bill| bill.at(examples))
    }
}

/// The bill of the same calls at several sizes, if they are on lines.
fn straight(sizes: Vec<Vec<Priced>>) -> Option<Bill> {
    let mut sizes = sizes.into_iter();
    let first = sizes.next()?;
    let second = sizes.next().unwrap_or_else(|| first.clone());
    let bill = Bill::new([first, second])?;
    let proven = match sizes.next() {
        Some(proof) => Bill::new([proof.clone(), proof])?.at(PROOF) == bill.at(PROOF),
        None => true,
    };
    proven.then_some(bill)
}
