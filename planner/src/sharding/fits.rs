//! On which grids laws are choices, and of which operations of a region they hold: laws as rewrites
//! of its terms.

use super::{
    region::{Grid, Kind, Part},
    rules::{Fits, Law, On, all},
    sketch::name,
};
use crate::rewrite::{Term, Terms};
use egg::{ConditionalApplier, ENodeOrVar, Id, Language, Pattern, PatternAst, RecExpr};
use roundelay_schedule::{Contraction, Direction};
use std::{
    collections::BTreeMap,
    sync::{Arc, LazyLock},
};

/// The laws that are choices for a region, as rewrites of its terms.
pub(super) fn rewrites(
    grid: Grid,
    operations: &Arc<[Part]>,
) -> Vec<egg::Rewrite<Term, ()>> {
    let sides = SIDES.get(&grid.idle).into_iter().flatten();
    let laws = all().zip(sides).filter(|(law, _)| law.on.is_on(grid));
    laws.map(|(law, sides)| law.rewrite(sides.clone(), grid, operations.clone()))
        .collect()
}

/// Both sides of one law.
type Sides = [Pattern<Term>; 2];

/// Both sides of each law, by the direction that has nothing to move.
static SIDES: LazyLock<BTreeMap<Option<Direction>, Vec<Sides>>> = LazyLock::new(|| {
    let idle = [None, Some(Direction::Rows), Some(Direction::Columns)];
    let of = |idle: Option<Direction>| {
        let sides = all().map(|law| law.sides(idle).map(Pattern::new));
        (idle, sides.collect())
    };
    idle.into_iter().map(of).collect()
});

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

    /// The direction that has nothing to move.
    pub(super) fn idle(self) -> Option<&'static str> {
        self.idle.map(name)
    }
}

/// What moves arrays along the direction that it reads first.
pub(super) const MOVING: [&str; 6] =
    ["gather", "cut", "sum", "scatter", "vary", "gather_vary"];

/// A pattern without the moves in a direction: what all parts of a single row divide its columns do.
pub(super) fn without(
    pattern: &PatternAst<Term>,
    direction: Option<&str>,
) -> PatternAst<Term> {
    let mut made: PatternAst<Term> = RecExpr::default();
    let mut places: Vec<Id> = Vec::new();
    for node in pattern.as_ref() {
        let is_idle = |child: &Id| match &pattern[*child] {
            ENodeOrVar::ENode(leaf) => Some(leaf.op) == direction,
            ENodeOrVar::Var(_) => false,
        };
        let place = match node {
            ENodeOrVar::ENode(term)
                if MOVING.contains(&term.op)
                    && term.children.first().is_some_and(is_idle) =>
            {
                let last = term.children.last().expect("a move has an operand");
                places[usize::from(*last)]
            }
            ENodeOrVar::ENode(term) => {
                let children = term.children.iter().map(|id| places[usize::from(*id)]);
                let mut children: Vec<Id> = children.collect();
                if MOVING.contains(&term.op) {
                    children[0] = along(&mut made, children[0], direction);
                }
                made.add(ENodeOrVar::ENode(Term::new(term.op, children)))
            }
            ENodeOrVar::Var(name) => made.add(ENodeOrVar::Var(*name)),
        };
        places.push(place);
    }
    // The root stands last.
    let root = *places.last().expect("a pattern has a root");
    made[root].build_recexpr(|id| made[id].clone())
}

/// Along which direction something moves where another one may be idle.
fn along(pattern: &mut PatternAst<Term>, direction: Id, idle: Option<&str>) -> Id {
    let name = match &pattern[direction] {
        ENodeOrVar::ENode(name) => of_one_row(name.op, idle),
        ENodeOrVar::Var(_) => return direction,
    };
    pattern.add(ENodeOrVar::ENode(Term::new(name, vec![])))
}

/// The name of a direction where another one may be idle.
pub(super) fn of_one_row<'n>(name: &'n str, idle: Option<&str>) -> &'n str {
    match (name, idle) {
        ("rc", Some("r")) => "c",
        _ => name,
    }
}

impl Law {
    /// Both sides where a direction may have nothing to move.
    pub(super) fn sides(&self, idle: Option<Direction>) -> [PatternAst<Term>; 2] {
        [self.left, self.right].map(|text| {
            let pattern: Pattern<Term> = text.parse().expect("a law is a pattern");
            without(&pattern.ast, idle.map(name))
        })
    }

    fn rewrite(
        &self,
        [left, right]: Sides,
        grid: Grid,
        operations: Arc<[Part]>,
    ) -> egg::Rewrite<Term, ()> {
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
    leaves.map(|term| term.op).next().unwrap_or_default()
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
            (Fits::Crossing, _) => {
                let both = [named("?d"), named("?f")];
                both == ["r", "c"] || both == ["c", "r"]
            }
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
            Kind::Attend { heads }
            | Kind::AttendPacked { heads }
            | Kind::Scores { heads }
            | Kind::Mix { heads } => [heads.all, heads.keys],
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
