//! On which grids laws are choices, and of which operations of a region they hold: laws as rewrites
//! of its terms.

use super::{
    region::{Grid, Kind, Part},
    rules::{Fits, Law, On, all},
};
use crate::rewrite::Terms;
use egg::{
    ConditionalApplier, ENodeOrVar, Id, Language, Pattern, PatternAst, RecExpr,
    SymbolLang,
};
use roundelay_schedule::Contraction;
use std::sync::Arc;

/// The laws that are choices for a region, as rewrites of its terms.
pub(super) fn rewrites(
    grid: Grid,
    operations: &Arc<[Part]>,
) -> Vec<egg::Rewrite<SymbolLang, ()>> {
    let laws = all().filter(|law| law.on.is_on(grid));
    laws.map(|law| law.rewrite(grid, operations.clone())).collect()
}

impl On {
    pub(super) fn is_on(self, grid: Grid) -> bool {
        match self {
            On::All => true,
            On::Rows => grid.columns == 1,
            On::Columns => grid.columns > 1,
            On::Turns => grid.contraction != Contraction::Each,
            On::Ways => grid.contraction == Contraction::Each && grid.rows > 1,
        }
    }
}

impl Grid {
    /// How many parts a direction has.
    pub(super) fn parts(self, direction: &str) -> u64 {
        match direction {
            "r" => self.rows,
            "c" => self.columns,
            "rc" => self.rows * self.columns,
            _ => 1,
        }
    }

    /// The direction that has nothing to move: a single column; a single row, but where maps take
    /// turns, for then it counts whose turn it is.
    pub(super) fn idle(self) -> Option<&'static str> {
        match (self.columns, self.rows, self.contraction) {
            (1, ..) => Some("c"),
            (_, 1, Contraction::Each | Contraction::Gather) => Some("r"),
            _ => None,
        }
    }
}

/// What moves arrays along the direction that it reads first.
pub(super) const MOVING: [&str; 6] =
    ["gather", "cut", "sum", "scatter", "vary", "gather_vary"];

/// A pattern without the moves in a direction.
pub(super) fn without(
    pattern: &PatternAst<SymbolLang>,
    direction: Option<&str>,
) -> PatternAst<SymbolLang> {
    let mut made = RecExpr::default();
    let mut places: Vec<Id> = Vec::new();
    for node in pattern.as_ref() {
        let is_idle = |child: &Id| match &pattern[*child] {
            ENodeOrVar::ENode(leaf) => Some(leaf.op.as_str()) == direction,
            ENodeOrVar::Var(_) => false,
        };
        let place = match node {
            ENodeOrVar::ENode(term)
                if MOVING.contains(&term.op.as_str())
                    && term.children.first().is_some_and(is_idle) =>
            {
                let last = term.children.last().expect("a move has an operand");
                places[usize::from(*last)]
            }
            ENodeOrVar::ENode(term) => {
                let children = term.children.iter().map(|id| places[usize::from(*id)]);
                made.add(ENodeOrVar::ENode(SymbolLang::new(
                    term.op.as_str(),
                    children.collect(),
                )))
            }
            ENodeOrVar::Var(name) => made.add(ENodeOrVar::Var(*name)),
        };
        places.push(place);
    }
    // The root stands last.
    let root = *places.last().expect("a pattern has a root");
    made[root].build_recexpr(|id| made[id].clone())
}

impl Law {
    /// Both sides on a grid.
    pub(super) fn sides(&self, grid: Grid) -> [PatternAst<SymbolLang>; 2] {
        [self.left, self.right].map(|text| {
            let pattern: Pattern<SymbolLang> = text.parse().expect("a law is a pattern");
            without(&pattern.ast, grid.idle())
        })
    }

    fn rewrite(
        &self,
        grid: Grid,
        operations: Arc<[Part]>,
    ) -> egg::Rewrite<SymbolLang, ()> {
        let [left, right] = self.sides(grid).map(Pattern::new);
        let fits = self.fits;
        let condition = move |terms: &mut Terms, _: Id, names: &egg::Subst| {
            fits.holds(terms, names, grid, &operations)
        };
        let right = ConditionalApplier { condition, applier: right };
        let rewrite = egg::Rewrite::new(self.name, left, right);
        rewrite.expect("a law makes nothing from nowhere")
    }
}

/// The name of a leaf.
pub(super) fn leaf(terms: &Terms, id: Id) -> &'static str {
    let leaves = terms[id].nodes.iter().filter(|term| term.children.is_empty());
    leaves.map(|term| term.op.as_str()).next().unwrap_or_default()
}

/// The operation that a leaf names.
pub(super) fn operation(name: &str) -> Option<usize> {
    name.strip_prefix('o')?.parse().ok()
}

/// Whether the parts of a direction divide all heads or groups of an operation.
pub(super) fn is_divided(kind: &Kind, grid: Grid, direction: &str) -> bool {
    let parts = grid.parts(direction);
    direction != "rc" && kind.counted().all(|size| size.is_multiple_of(parts))
}

impl Fits {
    fn holds(
        self,
        terms: &Terms,
        names: &egg::Subst,
        grid: Grid,
        operations: &[Part],
    ) -> bool {
        let named = |name: &str| {
            let variable = name.parse().expect("it is a variable");
            names.get(variable).map_or("", |id| leaf(terms, *id))
        };
        let kind = operation(named("?o")).map(|number| &operations[number].kind);
        match (self, kind) {
            (Fits::All, _) => true,
            (Fits::OtherExtent, _) => named("?e") != named("?f"),
            (Fits::Way(way), Some(Kind::Map { open, .. })) => open.contains(&Some(way)),
            (Fits::Sums, Some(Kind::Norm { sums })) => {
                sums.is_some() && named("?d") != "rc"
            }
            (Fits::Heads | Fits::Groups, Some(kind)) => {
                is_divided(kind, grid, named("?d"))
            }
            (Fits::Joins, Some(Kind::Join)) => true,
            (Fits::JoinsOfParts, Some(Kind::Join)) => named("?t") != "w",
            (
                Fits::Way(_)
                | Fits::Sums
                | Fits::Heads
                | Fits::Groups
                | Fits::Joins
                | Fits::JoinsOfParts,
                _,
            ) => false,
        }
    }
}

impl Kind {
    /// Heads and key heads, or groups of channels.
    fn counted(&self) -> impl Iterator<Item = u64> {
        let counted = match self {
            Kind::Attend { heads } | Kind::Scores { heads } | Kind::Mix { heads } => {
                *heads
            }
            Kind::Rotary { heads: size }
            | Kind::Channels { groups: size, .. }
            | Kind::Pool { channels: size } => [*size; 2],
            Kind::Map { .. }
            | Kind::Each
            | Kind::Pair
            | Kind::Join
            | Kind::Norm { .. }
            | Kind::Loss
            | Kind::Whole => [0; 2],
        };
        counted.into_iter()
    }
}
