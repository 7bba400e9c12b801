//! A model of repeated layers, and what it comes down to: the same model with few of them.
//!
//! Law: what a stage takes is a sum over its nodes, each of which depends on its neighbours alone.
//! So a stage of many equal layers takes what one of few takes, and for each further layer what a
//! layer between others adds ([`Core::slope`]). Parts of a split tensor that keep a parameter from the
//! first of its users to the last are neighbours of all that lies between ([`Core::keeps`]).

use roundelay_dsl::{Model, Node, NodeId, Program, Source};
use roundelay_schedule::{Id, Table, Tensor};
use std::ops::Range;

/// Where a stage is in a list of nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Place {
    /// The first node of the stage before; its own where there is none.
    pub before: usize,
    /// Its first node.
    pub start: usize,
    /// The first node behind it.
    pub end: usize,
}

/// The stages between cuts of nodes that can be cut before `end`.
pub(crate) fn places(cuts: &[u32], end: usize) -> impl Iterator<Item = Place> {
    let starts = std::iter::once(0).chain(cuts.iter().map(|cut| *cut as usize));
    let bounds: Vec<usize> = starts.chain([end]).collect();
    let place = move |stage: usize| Place {
        before: bounds[stage.saturating_sub(1)],
        start: bounds[stage],
        end: bounds[stage + 1],
    };
    (0..=cuts.len()).map(place)
}

/// The nodes of each stage between cuts of nodes before `end`.
pub(crate) fn stages_between(
    cuts: &[u32],
    end: usize,
) -> impl Iterator<Item = Range<usize>> + Clone {
    let cuts = || cuts.iter().map(|cut| *cut as usize);
    let starts = std::iter::once(0).chain(cuts());
    starts.zip(cuts().chain([end])).map(|(start, end)| start..end)
}

/// Layers that the short model has: two before a stage, those of a stage, two behind it.
const LAYERS: usize = 7;
/// Whole layers of a stage that are looked at.
const INSIDE: usize = 2;
/// How far from another node a node may tell, in layers.
const NEAR: usize = 2;
/// Steps that the search for layers may take at most.
const STEPS: usize = 1 << 24;

/// Nodes that repeat: node i + `length` does what node i does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Layers {
    first: usize,
    /// Nodes of one layer.
    length: usize,
    /// Layers of the model.
    count: usize,
}

/// A model with few of its layers.
#[derive(Clone, Debug)]
pub(crate) struct Core {
    /// The short model; the model itself where nothing repeats often enough.
    pub model: Model,
    /// Nodes of the model up to the loss.
    end: usize,
    layers: Option<Layers>,
    /// The first and the last user, in the model, of each parameter that is used on both sides of all
    /// layers.
    spans: Vec<(usize, usize)>,
}

/// Which model has a stage.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Within {
    /// The short one.
    Short,
    /// The model itself.
    Whole,
}

/// A stage that does what one of the model does, but for whole layers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Shortened {
    /// Which model has it.
    pub within: Within,
    /// Where it is there.
    pub place: Place,
    /// Layers that are missing.
    pub missing: u64,
}

impl Core {
    /// The model itself, whatever repeats.
    pub(crate) fn whole(program: &Program) -> Self {
        let model = program.model.clone();
        Self { end: model.cuttable(), model, layers: None, spans: Vec::new() }
    }

    /// The model of a program with few of its layers.
    pub(crate) fn new(program: &Program) -> Self {
        let model = &program.model;
        // Heads stand between the layers of a model in units.
        let found = Some(model).filter(|model| model.auxiliary.is_empty());
        let found = found.and_then(layers).filter(|layers| layers.count > LAYERS);
        let short = found.and_then(|layers| {
            let spans = layers.spans(model)?;
            Some((shortened(model, layers)?, layers, spans))
        });
        // A table may say different times of the same calls in different places.
        match short.filter(|_| program.profiles.is_empty()) {
            Some((short, layers, spans)) => {
                let (end, layers) = (model.cuttable(), Some(layers));
                Self { model: short, end, layers, spans }
            }
            None => Self::whole(program),
        }
    }

    /// The stages between cuts of the model, with tensors split like this.
    pub(crate) fn stages(&self, cuts: &[u32], tensor: Tensor) -> Vec<Shortened> {
        let of = |place| match self.keeps(place) && !tensor.is_whole() {
            true => Shortened { within: Within::Whole, place, missing: 0 },
            false => self.short(place),
        };
        places(cuts, self.end).map(of).collect()
    }

    /// Whether a stage has both ends of a span: what parts of split tensors keep of a parameter between
    /// its users depends on all layers there.
    fn keeps(&self, Place { start, end, .. }: Place) -> bool {
        self.spans.iter().any(|(first, last)| start <= *first && *last < end)
    }

    /// Two stages of the short model that a whole layer makes differ: what each further layer adds
    /// is what the first takes without what the second does. None where no layer is missing.
    pub(crate) fn slope(&self) -> Option<[Place; 2]> {
        let at = |layers: Layers, layer| layers.first + layer * layers.length;
        self.layers.map(|layers| {
            [INSIDE, INSIDE - 1].map(|inside| Place {
                before: at(layers, 1),
                start: at(layers, NEAR),
                end: at(layers, NEAR + inside),
            })
        })
    }

    /// For each node of the model the one of the short model that does the same.
    pub(crate) fn nodes(&self, model: &Model) -> Vec<usize> {
        let of = |node: usize| match self.layers {
            None => node,
            Some(layers) => {
                let Layers { first, length, count } = layers;
                let kept = first + NEAR * length;
                let behind = first + (count - (LAYERS - NEAR)) * length;
                match node {
                    _ if node < kept => node,
                    _ if node >= behind => node - (count - LAYERS) * length,
                    _ => first + length + (node - first) % length,
                }
            }
        };
        (0..model.nodes.len()).map(of).collect()
    }

    fn short(&self, place: Place) -> Shortened {
        let within = Within::Short;
        let Some(layers) = self.layers else {
            return Shortened { within, place, missing: 0 };
        };
        let Place { before, start, end } = place;
        let Layers { length, count, .. } = layers;
        let end_at = layers.of(end);
        let start_at = if start == 0 { At::Before } else { layers.of(start) };
        let (start, end, missing) = match (start_at, end_at) {
            (At::Before, At::Before) => (start, end, 0),
            (At::Before, At::Inside(layer, _)) => {
                let kept = layer.min(INSIDE);
                (start, end - (layer - kept) * length, layer - kept)
            }
            (At::Before, At::Behind) => (start, layers.short_of(end), count - LAYERS),
            (At::Inside(first, offset), At::Inside(last, _)) => {
                let kept = (last - first).min(INSIDE);
                let short = layers.first + NEAR * length + offset;
                let missing = last - first - kept;
                (short, short + (end - start) - missing * length, missing)
            }
            (At::Inside(layer, _), At::Behind) => {
                let left = count - layer;
                let missing = left - left.min(INSIDE + 1);
                (layers.short_of(start + missing * length), layers.short_of(end), missing)
            }
            (At::Behind, _) => (layers.short_of(start), layers.short_of(end), 0),
            (At::Inside(..), At::Before) => unreachable!("a stage ends behind its start"),
        };
        let before = self.short_before(layers, before, (place.start, start));
        let place = Place { before, start, end };
        Shortened { within, place, missing: missing as u64 }
    }

    /// Where the stage before starts: as far from the stage's own start as it is, or as far as a
    /// node tells.
    fn short_before(
        &self,
        layers: Layers,
        before: usize,
        (start, short): (usize, usize),
    ) -> usize {
        match layers.of(before) {
            _ if before == 0 => before,
            At::Before => before,
            At::Inside(..) | At::Behind => {
                short - (start - before).min(NEAR * layers.length)
            }
        }
    }
}

/// Where a node stands: in which layer, and where in it.
#[derive(Clone, Copy, Debug)]
enum At {
    Before,
    Inside(usize, usize),
    Behind,
}

impl Layers {
    fn of(self, node: usize) -> At {
        match node.checked_sub(self.first) {
            None => At::Before,
            Some(inside) if inside >= self.count * self.length => At::Behind,
            Some(inside) => At::Inside(inside / self.length, inside % self.length),
        }
    }

    /// Both users of each parameter that is used on both sides of all layers. None where one has more of
    /// them: each stage with two of these would depend on the layers between them.
    fn spans(self, model: &Model) -> Option<Vec<(usize, usize)>> {
        let behind = self.first + self.count * self.length;
        let spans = |users: &Vec<usize>| {
            users.first().is_some_and(|first| *first < self.first)
                && users.last().is_some_and(|last| *last >= behind)
        };
        let spanning = users(model).into_iter().filter(spans);
        spanning.map(|users| <[usize; 2]>::try_from(users).ok().map(Into::into)).collect()
    }

    /// The node of the short model that is as far from the end as a node of the model.
    fn short_of(self, node: usize) -> usize {
        node - (self.count - LAYERS) * self.length
    }
}

/// The model without all but [`LAYERS`] of its layers: those that are missing stood behind the
/// first ones, so what read of the last of them reads of the ones that are left. None where
/// something reads of the others.
fn shortened(model: &Model, layers: Layers) -> Option<Model> {
    let gone = (layers.count - LAYERS) * layers.length;
    let near = NEAR * layers.length;
    let cut = layers.first + near;
    let moved = |reader: usize, made: NodeId| match made.index() {
        at if reader < cut => Some(NodeId::new(at)),
        at if at + near >= cut + gone => Some(NodeId::new(at - gone)),
        at if at < layers.first => Some(made),
        _ => None,
    };
    let mut short = Model { nodes: Table::new(), ..model.clone() };
    for (id, node) in model.nodes.iter() {
        let reader = id.index();
        if (cut..cut + gone).contains(&reader) {
            continue;
        }
        let own = |operand: &Source| match *operand {
            Source::Node(made) => moved(reader, made).map(Source::Node),
            other => Some(other),
        };
        let operands = node.operands.iter().map(own).collect::<Option<_>>()?;
        short.nodes.push(Node { operands, ..node.clone() });
    }
    let behind = |id: NodeId| moved(model.nodes.len(), id);
    short.loss = match model.loss {
        Some(loss) => Some(behind(loss)?),
        None => None,
    };
    for metric in &mut short.metrics {
        metric.node = behind(metric.node)?;
    }
    Some(short)
}

/// The layers of which most nodes can be left out. The outermost ones are not among them: what
/// stands beside them may tell how their values are split.
fn layers(model: &Model) -> Option<Layers> {
    let alike = Alike::new(model);
    let nodes = model.cuttable();
    let longest = (nodes / (LAYERS + 1)).min(STEPS / nodes.max(1));
    let runs = (1..=longest).filter_map(|length| {
        let (first, run) = longest_run(nodes - length, |at| alike.follow(at, length));
        let count = (run / length + 1).saturating_sub(2);
        (count > 0).then_some(Layers { first: first + length, length, count })
    });
    runs.rev().max_by_key(|layers| layers.count.saturating_sub(LAYERS) * layers.length)
}

/// Start and length of the longest run.
fn longest_run(end: usize, holds: impl Fn(usize) -> bool) -> (usize, usize) {
    let (mut best, mut start) = ((0, 0), 0);
    for at in 0..=end {
        if at == end || !holds(at) {
            if at - start > best.1 {
                best = (start, at - start);
            }
            start = at + 1;
        }
    }
    best
}

/// The nodes that use each parameter, in order.
fn users(model: &Model) -> Vec<Vec<usize>> {
    let mut users = vec![Vec::new(); model.parameters.len()];
    for (user, node) in model.nodes.iter() {
        for operand in &node.operands {
            if let Source::Parameter(id) = operand {
                users[id.index()].push(user.index());
            }
        }
    }
    users
}

/// What decides whether nodes do the same.
struct Alike<'a> {
    model: &'a Model,
    /// The last reader of each node.
    last: Vec<usize>,
    /// The first and the last reader of each parameter.
    users: Vec<(usize, usize)>,
}

impl<'a> Alike<'a> {
    fn new(model: &'a Model) -> Self {
        let mut last = vec![0; model.nodes.len()];
        for (user, node) in model.nodes.iter() {
            for operand in &node.operands {
                match operand {
                    Source::Node(made) => last[made.index()] = user.index(),
                    Source::Parameter(_) | Source::Input(_) => {}
                }
            }
        }
        let ends = |own: Vec<usize>| own.first().copied().zip(own.last().copied());
        let users = users(model).into_iter().map(|own| ends(own).unwrap_or_default());
        let users = users.collect();
        Self { model, last, users }
    }

    /// Whether the node `length` behind another one does the same among the same neighbours.
    fn follow(&self, at: usize, length: usize) -> bool {
        let [one, other] = [at, at + length].map(|at| &self.model.nodes[NodeId::new(at)]);
        one.operation == other.operation
            && one.shape == other.shape
            && self.last[at] + length == self.last[at + length]
            && one.operands.len() == other.operands.len()
            && one
                .operands
                .iter()
                .zip(&other.operands)
                .all(|(one, other)| self.reads_alike((*one, *other), length))
    }

    fn reads_alike(&self, operands: (Source, Source), length: usize) -> bool {
        match operands {
            (Source::Node(one), Source::Node(other)) => {
                other == one || other.index() == one.index() + length
            }
            (Source::Parameter(one), Source::Parameter(other)) => {
                let [own, next] = [one, other].map(|id| &self.model.parameters[id]);
                let [(first, last), (later, latest)] =
                    [one, other].map(|id| self.users[id.index()]);
                let moved = (later, latest) == (first + length, last + length);
                let same = own.shape == next.shape && own.treatment == next.treatment;
                one == other || (same && moved)
            }
            (Source::Input(one), Source::Input(other)) => one == other,
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use roundelay_dsl::{NoFiles, SourceFile, parse};

    /// Whether all layers of a model are kept.
    fn keeps_all(body: &str) -> bool {
        let input =
            "input x: real[batch, 16]\ninput y: i32[batch]\nparam w: [16, 16]\nz = x";
        let source = SourceFile::new("m.rdl", format!("model m {{\n{input}\n{body}\n}}"));
        let (program, _) =
            parse(&source, &NoFiles).unwrap_or_else(|wrong| panic!("{wrong}"));
        Core::new(&program).model == program.model
    }

    /// With two users each at its end, one stage alone has both; with more of them any stage may have some.
    #[test]
    fn what_more_than_both_ends_use_holds_all_layers() {
        let map =
            |weight: &str| format!("linear(layer_norm(z), 16{weight}, bias = false)");
        let (own, shared) = (map(""), map(", weight = w").replace(", 16,", ","));
        let layers = |map: &str| format!("repeat 16 as layer {{ z = z + {map} }}\n");
        let loss = |map: &str| format!("loss cross_entropy({map}, y)\n");
        let first = format!("z = {shared}\n");
        let (plain, ends) = (layers(&own), loss(&shared));
        assert!(!keeps_all(&(plain.clone() + &loss(&own))));
        assert!(!keeps_all(&(first.clone() + &plain + &ends)), "two users");
        let again = format!("z = z + {shared}\n");
        assert!(keeps_all(&(first + &plain + &again + &ends)), "a third one behind");
        assert!(keeps_all(&(layers(&shared) + &ends)), "every layer");
    }
}
