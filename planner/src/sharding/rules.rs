//! How arrays on a grid are made of parts: equations with names, as data.
//!
//! A term is an array as the parts of a grid hold it. Directions are `r`, `c` and `rc`, `w` is
//! nobody; extents are `e0`, `e1`, …; `o` names the operation. What moves arrays: `gather` makes
//! all of parts, `cut` parts of all, `sum` the sum of shares, `scatter` parts of that sum; `vary`
//! changes no value, but everybody adds a share to its gradient; `gather_vary` is both in one.
//! `split` is a map on parts: who divides what it reads, and who what it makes.
//!
//! Each law is tested on random arrays (`laws.rs`); that of gradients follows, for each move has
//! its adjoint, which lowering tests.

use super::region::{Grid, Kind, Part};
use crate::rewrite::Terms;
use egg::{
    ConditionalApplier, ENodeOrVar, Id, Language, Pattern, PatternAst, RecExpr,
    SymbolLang,
};
use roundelay_schedule::{Contraction, MapWay};
use std::sync::Arc;

/// An equation.
#[derive(Clone, Copy, Debug)]
pub(super) struct Law {
    pub(super) name: &'static str,
    pub(super) left: &'static str,
    pub(super) right: &'static str,
    pub(super) fits: Fits,
    pub(super) on: On,
}

/// Of which operations an equation holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fits {
    /// Of all.
    All,
    /// Of maps that can go this way.
    Way(MapWay),
    /// Where the parts of the direction divide all heads.
    Heads,
    /// Where the divided extent is another one.
    OtherExtent,
    /// Of norms that are made of sums.
    Sums,
}

/// On which grids an equation is a choice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum On {
    /// On all.
    All,
    /// Where there is one column.
    Rows,
    /// Where there are several columns.
    Columns,
    /// Where maps take turns.
    Turns,
    /// Where each map goes its way, in several rows.
    Ways,
}

const fn law(name: &'static str, left: &'static str, right: &'static str) -> Law {
    Law { name, left, right, fits: Fits::All, on: On::All }
}

const fn way(
    name: &'static str,
    left: &'static str,
    right: &'static str,
    way: MapWay,
) -> Law {
    Law { fits: Fits::Way(way), ..law(name, left, right) }
}

const MAP: &str = "(map ?o ?e ?x)";

/// All of them.
pub(super) const LAWS: [Law; 20] = [
    way(
        "map_from_columns_to_rows",
        MAP,
        "(gather r ?e (sum c (split c r ?o (vary r (cut c ?e ?x)))))",
        MapWay::ColumnsToRows,
    ),
    Law {
        on: On::Turns,
        ..way(
            "map_in_turn",
            "(map ?o ?e (gather r ?e ?x))",
            "(gather c ?e (sum r (split r c ?o (vary c ?x))))",
            MapWay::RowsToColumns,
        )
    },
    Law {
        on: On::Ways,
        ..way(
            "map_from_rows_to_columns",
            MAP,
            "(gather c ?e (sum r (split r c ?o (vary c (cut r ?e ?x)))))",
            MapWay::RowsToColumns,
        )
    },
    way(
        "map_of_own_columns",
        MAP,
        "(gather c ?e (split w c ?o (vary c ?x)))",
        MapWay::WholeToColumns,
    ),
    way(
        "map_by_scatter",
        MAP,
        "(gather c ?e (scatter c ?e (split c w ?o (cut c ?e ?x))))",
        MapWay::ColumnsToColumns,
    ),
    way(
        "map_by_sum_of_columns",
        MAP,
        "(sum c (split c w ?o (cut c ?e ?x)))",
        MapWay::ColumnsToWhole,
    ),
    Law {
        on: On::Ways,
        ..way(
            "map_by_sum_of_rows",
            MAP,
            "(sum r (split r w ?o (cut r ?e ?x)))",
            MapWay::RowsToWhole,
        )
    },
    Law {
        on: On::Columns,
        ..way(
            "map_of_classes",
            MAP,
            "(gather rc ?e (split w rc ?o (vary r (vary c ?x))))",
            MapWay::WholeToAll,
        )
    },
    law(
        "element_by_element",
        "(each ?o (gather ?d ?e ?x))",
        "(gather ?d ?e (each ?o ?x))",
    ),
    law(
        "pair_with_the_first",
        "(pair ?o (gather ?d ?e ?x) ?y)",
        "(gather ?d ?e (pair ?o ?x (cut ?d ?e ?y)))",
    ),
    law(
        "pair_with_the_second",
        "(pair ?o ?x (gather ?d ?e ?y))",
        "(gather ?d ?e (pair ?o (cut ?d ?e ?x) ?y))",
    ),
    Law {
        fits: Fits::OtherExtent,
        ..law(
            "norm_of_parts",
            "(norm ?o ?e (gather ?d ?f ?x))",
            "(gather ?d ?f (norm ?o ?e ?x))",
        )
    },
    Law {
        fits: Fits::Sums,
        on: On::Columns,
        ..law(
            "norm_by_sums",
            "(norm ?o ?e (gather ?d ?e ?x))",
            "(gather ?d ?e (norm_part ?d ?o ?x))",
        )
    },
    Law {
        fits: Fits::Heads,
        ..law(
            "attention_by_heads",
            "(attend ?o ?e (gather ?d ?e ?q) (gather ?d ?e ?k) (gather ?d ?e ?v))",
            "(gather ?d ?e (attend_own ?d ?o ?q ?k ?v))",
        )
    },
    Law {
        fits: Fits::Heads,
        ..law(
            "scores_by_heads",
            "(scores ?o ?e (gather ?d ?e ?q) (gather ?d ?e ?k))",
            "(gather ?d e1 (scores_own ?d ?o ?q ?k))",
        )
    },
    Law {
        fits: Fits::Heads,
        ..law(
            "mix_by_heads",
            "(mix ?o ?e (gather ?d e1 ?w) (gather ?d ?e ?v))",
            "(gather ?d ?e (mix_own ?d ?o ?w ?v))",
        )
    },
    Law {
        fits: Fits::Heads,
        ..law(
            "rotary_by_heads",
            "(rotary ?o ?e (gather ?d ?e ?x))",
            "(gather ?d ?e (rotary_own ?d ?o ?x))",
        )
    },
    Law {
        on: On::Rows,
        ..law("loss_over_rows", "(loss ?o ?e (gather r ?e ?x))", "(loss_own r ?o ?x)")
    },
    Law {
        on: On::Columns,
        ..law("loss_over_all", "(loss ?o ?e (gather rc ?e ?x))", "(loss_own rc ?o ?x)")
    },
    law("cut_of_gather", "(cut ?d ?e (gather ?d ?e ?x))", "?x"),
];

/// Those that say what two moves are together.
pub(super) const MOVES: [Law; 3] = [
    law("shares_in_any_order", "(vary ?d (vary ?f ?x))", "(vary ?f (vary ?d ?x))"),
    law("shares_of_gather", "(vary ?d (gather ?d ?e ?x))", "(gather_vary ?d ?e ?x)"),
    way(
        "cut_of_sum",
        "(cut ?d ?e (sum ?d (split ?d w ?o ?x)))",
        "(scatter ?d ?e (split ?d w ?o ?x))",
        MapWay::ColumnsToColumns,
    ),
];

/// All laws.
pub(super) fn all() -> impl Iterator<Item = &'static Law> {
    LAWS.iter().chain(&MOVES)
}

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
            (Fits::Way(way), Some(Kind::Map { fitting, alone, .. })) => {
                // Maps that are told how to multiply do so, but for classes of a loss.
                let classes =
                    grid.contraction != Contraction::Each && way == MapWay::WholeToAll;
                fitting.contains(&way) && (!classes || *alone == Some(way))
            }
            (Fits::Sums, Some(Kind::Norm { sums })) => sums.is_some(),
            (Fits::Heads, Some(kind)) => {
                let direction = named("?d");
                let parts = grid.parts(direction);
                direction != "rc" && kind.heads().all(|heads| heads.is_multiple_of(parts))
            }
            (Fits::Way(_) | Fits::Sums | Fits::Heads, _) => false,
        }
    }
}

impl Kind {
    fn heads(&self) -> impl Iterator<Item = u64> {
        let heads = match self {
            Kind::Attend { heads } | Kind::Scores { heads } | Kind::Mix { heads } => {
                *heads
            }
            Kind::Rotary { heads } => [*heads; 2],
            Kind::Map { .. }
            | Kind::Each
            | Kind::Pair
            | Kind::Norm { .. }
            | Kind::Loss => [0; 2],
        };
        heads.into_iter()
    }
}
