//! How arrays on a grid are made of parts: equations with names, as data.
//!
//! A term ([`super::term`]) is an array as the parts of a grid hold it. Directions are `r`, `c` and
//! `rc`, `w` is nobody; extents are `e0`, `e1`, …; `o` names the operation. What moves arrays: `gather`
//! makes all of parts, `cut` parts of all, `sum` the sum of shares, `scatter` parts of that sum; `vary`
//! changes no value, but everybody adds a share to its gradient; `gather_vary` is both in one.
//! `split` is a map on parts: who divides what it reads, and who what it makes.
//!
//! Each law is tested on random arrays, those of moves on gradients as well (`laws.rs`): each move has
//! its adjoint, which lowering tests.

use roundelay_schedule::MapWay;

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
    /// Where two directions cross.
    Crossing,
    /// Of norms that are made of sums.
    Sums,
    /// Where the parts of the direction divide all groups of channels.
    Groups,
    /// Of sums of two convolutions that are added up before they meet.
    Joins,
    /// The same where what they make is divided.
    JoinsOfParts,
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

pub(super) const MAP: &str = "(map ?o ?e ?x)";

/// All of them.
pub(super) const LAWS: [Law; 25] = [
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
    way(
        "map_by_sum_of_rows",
        MAP,
        "(sum r (split r w ?o (cut r ?e ?x)))",
        MapWay::RowsToWhole,
    ),
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
            "packed_attention_by_heads",
            "(attend_packed ?o ?e (gather ?d ?e ?x))",
            "(gather ?d ?e (attend_packed_own ?d ?o ?x))",
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
        fits: Fits::Groups,
        ..law(
            "own_channels",
            "(channels ?o ?e (gather ?d ?e ?x))",
            "(gather ?d ?e (channels_own ?d ?o ?x))",
        )
    },
    Law {
        fits: Fits::Groups,
        ..law(
            "pool_of_own_channels",
            "(pool ?o ?e (gather ?d ?e ?x))",
            "(gather ?d e1 (pool_own ?d ?o ?x))",
        )
    },
    Law {
        fits: Fits::JoinsOfParts,
        ..law(
            "sums_added_before_they_meet",
            "(pair ?o (sum ?d (split ?d ?t ?m ?x)) (sum ?d (split ?d ?t ?n ?y)))",
            "(sum ?d (pair ?o (split ?d ?t ?m ?x) (split ?d ?t ?n ?y)))",
        )
    },
    Law {
        fits: Fits::Joins,
        ..law(
            "sums_added_before_they_scatter",
            "(pair ?o (scatter c ?e (split c w ?m ?x)) (scatter c ?e (split c w ?n ?y)))",
            "(scatter c ?e (pair ?o (split c w ?m ?x) (split c w ?n ?y)))",
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
pub(super) const MOVES: [Law; 6] = [
    Law {
        fits: Fits::Crossing,
        ..law("shares_in_any_order", "(vary ?d (vary ?f ?x))", "(vary ?f (vary ?d ?x))")
    },
    law("shares_of_gather", "(vary ?d (gather ?d ?e ?x))", "(gather_vary ?d ?e ?x)"),
    Law {
        fits: Fits::Crossing,
        ..law(
            "shares_of_gathered_parts",
            "(vary ?d (gather ?f ?e ?x))",
            "(gather ?f ?e (vary ?d ?x))",
        )
    },
    Law {
        fits: Fits::Crossing,
        ..law(
            "shares_of_gathered_shares",
            "(vary ?d (gather_vary ?f ?e ?x))",
            "(gather_vary ?f ?e (vary ?d ?x))",
        )
    },
    Law {
        fits: Fits::Crossing,
        ..law(
            "shares_of_what_is_laid_out_anew",
            "(vary ?d (cut ?f ?e (gather ?d ?e ?x)))",
            "(cut ?f ?e (gather_vary ?d ?e ?x))",
        )
    },
    way(
        "cut_of_sum",
        "(cut c ?e (sum c (split c w ?o ?x)))",
        "(scatter c ?e (split c w ?o ?x))",
        MapWay::ColumnsToColumns,
    ),
];

/// All laws.
pub(super) fn all() -> impl Iterator<Item = &'static Law> {
    LAWS.iter().chain(&MOVES)
}
