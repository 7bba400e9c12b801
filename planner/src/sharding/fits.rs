//! On which grids laws are choices, and of which operations of a region they hold: laws as rewrites
//! of its terms.

use super::{
    region::{Grid, Kind, Part},
    rules::{Fits, Law, On, all},
    term::{self, Along, Term, Terms, along, extent},
};
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
    /// How many parts there are along something.
    pub(super) fn parts(self, along: Along) -> u64 {
        match along {
            Along::Columns => self.columns,
            Along::Rows => self.rows,
            Along::Both => self.rows * self.columns,
            Along::Nobody => 1,
        }
    }
}

impl Along {
    /// The same where a direction may be idle: what all parts of a single row divide its columns do.
    pub(super) fn beside(self, idle: Option<Direction>) -> Self {
        match (self, idle) {
            (Self::Both, Some(Direction::Rows)) => Self::Columns,
            _ => self,
        }
    }
}

/// A pattern without the moves along a direction.
pub(super) fn without(
    pattern: &PatternAst<Term>,
    idle: Option<Direction>,
) -> PatternAst<Term> {
    let mut made: PatternAst<Term> = RecExpr::default();
    let mut places: Vec<Id> = Vec::new();
    let is_idle = |along: Id| match pattern[along] {
        ENodeOrVar::ENode(Term::Along(own)) => Some(own) == idle.map(Along::from),
        ENodeOrVar::ENode(_) | ENodeOrVar::Var(_) => false,
    };
    for node in pattern.as_ref() {
        let place = match node {
            ENodeOrVar::Var(_) => made.add(node.clone()),
            ENodeOrVar::ENode(term) => match term.moves() {
                Some([along, array]) if is_idle(along) => places[usize::from(array)],
                moves => {
                    let mut term = term.clone();
                    term.update_children(|id| places[usize::from(id)]);
                    if moves.is_some() {
                        let along = &mut term.children_mut()[0];
                        *along = beside(&mut made, *along, idle);
                    }
                    made.add(ENodeOrVar::ENode(term))
                }
            },
        };
        places.push(place);
    }
    // The root stands last.
    let root = *places.last().expect("a pattern has a root");
    made[root].build_recexpr(|id| made[id].clone())
}

/// Along what something moves where a direction may be idle.
fn beside(pattern: &mut PatternAst<Term>, along: Id, idle: Option<Direction>) -> Id {
    match pattern[along] {
        ENodeOrVar::ENode(Term::Along(own)) => {
            pattern.add(ENodeOrVar::ENode(Term::Along(own.beside(idle))))
        }
        ENodeOrVar::ENode(_) | ENodeOrVar::Var(_) => along,
    }
}

impl Law {
    /// Both sides where a direction may have nothing to move.
    pub(super) fn sides(&self, idle: Option<Direction>) -> [PatternAst<Term>; 2] {
        [self.left, self.right].map(|text| {
            let pattern: Pattern<Term> = text.parse().expect("a law is a pattern");
            without(&pattern.ast, idle)
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

/// Whether the parts along something divide all heads or groups of an operation.
pub(super) fn is_divided(kind: &Kind, grid: Grid, along: Along) -> bool {
    let parts = grid.parts(along);
    along != Along::Both && kind.counted().all(|size| size.is_multiple_of(parts))
}

impl Fits {
    fn holds(
        self,
        terms: &Terms,
        names: &egg::Subst,
        grid: Grid,
        operations: &[Part],
    ) -> bool {
        let id = |name: &str| names[name.parse().expect("it is a variable")];
        let kind = || &operations[term::operation(terms, id("?o"))].kind;
        let direction = || along(terms, id("?d"));
        match self {
            Fits::All => true,
            Fits::OtherExtent => extent(terms, id("?e")) != extent(terms, id("?f")),
            Fits::Crossing => matches!(
                (direction(), along(terms, id("?f"))),
                (Along::Rows, Along::Columns) | (Along::Columns, Along::Rows)
            ),
            Fits::Way(way) => {
                matches!(kind(), Kind::Map { open, .. } if open.contains(&Some(way)))
            }
            Fits::Sums => {
                matches!(kind(), Kind::Norm { sums: Some(_) })
                    && direction() != Along::Both
            }
            Fits::Heads | Fits::Groups => is_divided(kind(), grid, direction()),
            Fits::Joins => *kind() == Kind::Join,
            Fits::JoinsOfParts => {
                *kind() == Kind::Join && along(terms, id("?t")) != Along::Nobody
            }
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
