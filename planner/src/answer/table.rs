//! The human answer: ranked plans, weaker classes with the line that would allow them, remarks.

mod columns;

use crate::{
    answer::{
        aligned::{line, widths},
        approach::Leader,
        front::Front,
        remarks::remarks,
        workload::Workload,
    },
    search::{
        candidate::Candidate,
        objective::Goal,
        ranking::{Ranking, Weaker},
    },
};
use columns::{COLUMNS, Cell, Shown, decided};
use roundelay_dsl::Program;
use roundelay_schedule::{Nanos, counted};
use std::collections::BTreeMap;

/// The cells of a plan.
type Row = [String; COLUMNS.len()];

/// The width of every column; one that is left out has none.
type Widths = [usize; COLUMNS.len()];

/// The whole answer as text; every line ends with a newline.
pub fn table(ranking: &Ranking, program: &Program) -> String {
    let goal = &ranking.goal;
    let rows = numbered(&ranking.plans, goal);
    let leaders: Vec<Told> =
        ranking.approaches.iter().map(|leader| led(leader, ranking)).collect();
    let weaker: Vec<Told> =
        ranking.weaker.iter().map(|weaker| allowing(weaker, goal)).collect();
    let told = leaders.iter().chain(&weaker).filter_map(|(row, _)| row.as_ref());
    let (header, widths) = layout(&rows.iter().chain(told).collect::<Vec<_>>());
    let ranked = std::iter::once(&header).chain(&rows).map(|row| line_of(row, &widths));
    let mut text = ranked.collect::<String>() + &searched(ranking);
    text += &format!("{}\n", Workload::new(program, ranking));
    text += &section("Best plan of each approach:", &leaders, &widths);
    let lines = "Best plans of weaker exactness, and the line that would allow them:";
    text += &section(lines, &weaker, &widths);
    for (index, remark) in remarks(ranking, program).into_iter().enumerate() {
        text += if index == 0 { "\n" } else { "" };
        text += &format!("note: {remark}\n");
    }
    text
}

/// A plan, where there is one, and what is said of it.
type Told = (Option<Row>, String);

fn section(title: &str, all: &[Told], widths: &Widths) -> String {
    if all.is_empty() {
        return String::new();
    }
    let each = all.iter().map(|(row, words)| {
        let row = row.as_ref().map(|row| line_of(row, widths)).unwrap_or_default();
        format!("{row}      {words}\n")
    });
    format!("\n{title}\n{}", each.collect::<String>())
}

/// The best plan of an approach, with its rank where it has one.
fn led(leader: &Leader, ranking: &Ranking) -> Told {
    let Leader { approach, candidate, gap, is_complete } = leader;
    let Some(best) = candidate else {
        let found =
            if *is_complete { "no plan" } else { "none of those that were clocked" };
        return (None, format!("# {approach}: {found}"));
    };
    let rank = ranking.plans.iter().position(|ranked| ranked.plan == best.plan);
    let rank = rank.map_or("-".to_owned(), |place| (place + 1).to_string());
    (Some(row((&rank, ""), best, &ranking.goal)), format!("# {approach}{}", doubt(*gap)))
}

/// The best plan of a weaker class, with the line that would allow it.
fn allowing(weaker: &Weaker, goal: &Goal) -> Told {
    let (change, doubt) = (weaker.exactness.change(), doubt(weaker.gap));
    let words = format!("{}    # {change}{doubt}", weaker.line);
    (Some(row(("-", ""), &weaker.candidate, goal)), words)
}

/// The header, and the width of every column; a column that only says what is usual has none.
fn layout(rows: &[&Row]) -> (Row, Widths) {
    let header = COLUMNS.map(|column| column.title.to_owned());
    let mut widths = widths(rows.iter().copied().chain([&header]));
    for (number, column) in COLUMNS.iter().enumerate() {
        if let Shown::Unless(usual) = column.shown
            && rows.iter().all(|row| usual.contains(&row[number].as_str()))
        {
            widths[number] = 0;
        }
    }
    (header, widths)
}

fn line_of(row: &Row, widths: &Widths) -> String {
    line(row, &COLUMNS.map(|column| column.side), widths)
}

/// The front as text, and whether it is whole; every line ends with a newline.
pub fn front_table(front: &Front, goal: &Goal) -> String {
    let Front { candidates, pruned, clocked, open, .. } = front;
    let verdict = match front.is_complete() {
        true => "none is missing".to_owned(),
        false => format!("{open} are left open, so some may be missing"),
    };
    format!(
        "Plans that no other beats in step time, peak memory and devices together:\n{}\
         {}: {clocked} clocked, {pruned} bounded away; {verdict}\n",
        listed(&front.plans, goal),
        counted(*candidates as u64, "plan")
    )
}

/// Plans under each other, numbered; every line ends with a newline.
fn listed(plans: &[Candidate], goal: &Goal) -> String {
    let rows = numbered(plans, goal);
    let (header, widths) = layout(&rows.iter().collect::<Vec<_>>());
    std::iter::once(&header).chain(&rows).map(|row| line_of(row, &widths)).collect()
}

/// Rows of plans, with the cuts of those that differ in nothing else.
fn numbered(plans: &[Candidate], goal: &Goal) -> Vec<Row> {
    let mut alike = BTreeMap::<Vec<String>, usize>::new();
    for candidate in plans {
        *alike.entry(decided(&candidate.plan)).or_default() += 1;
    }
    let number = |(rank, candidate): (usize, &Candidate)| {
        let cuts = match alike[&decided(&candidate.plan)] {
            1 => String::new(),
            _ => format!("{:?}", candidate.plan.cuts),
        };
        row((&rank.to_string(), &cuts), candidate, goal)
    };
    (1..).zip(plans).map(number).collect()
}

fn row((rank, cuts): (&str, &str), candidate: &Candidate, goal: &Goal) -> Row {
    COLUMNS.map(|column| match column.cell {
        Cell::Rank => rank.to_owned(),
        Cell::Decision(of) => of(&candidate.plan),
        Cell::Cost(of) => of(candidate, goal),
        Cell::Cuts => cuts.to_owned(),
    })
}

/// Nanoseconds as hours or minutes, where they are many.
pub(crate) fn long(nanos: u64) -> String {
    let seconds = nanos as f64 / 1e9;
    match seconds {
        hours if hours >= 7200.0 => format!("{:.2} h", hours / 3600.0),
        minutes if minutes >= 120.0 => format!("{:.2} min", minutes / 60.0),
        _ => Nanos(nanos).to_string(),
    }
}

/// By how much something may be better, which is said even where it rounds to nothing.
pub fn improvement(share: f64) -> String {
    match 100.0 * share {
        percent if percent < 0.05 => "less than 0.1 %".to_owned(),
        percent => format!("{percent:.1} %"),
    }
}

/// What better plan of its kind may have been missed.
fn doubt(gap: f64) -> String {
    match gap {
        gap if gap > 0.0 => {
            let better = improvement(gap);
            format!("; not searched to the end: its best may be {better} better")
        }
        _ => String::new(),
    }
}

/// What was tried, and how sure the first rank is.
fn searched(ranking: &Ranking) -> String {
    let Ranking { candidates, pruned, clocked, .. } = ranking;
    let verdict = match (ranking.is_optimal(), ranking.is_first_lessened()) {
        (true, false) => "the first is the best of the space".to_owned(),
        (true, true) => {
            "the first is better than all plans of the space, which compute again whole \
             kinds or nothing"
                .to_owned()
        }
        (false, _) => {
            format!("the best of the space may be {} better", improvement(ranking.gap()))
        }
    };
    let left = match (ranking.left_open(), ranking.is_optimal()) {
        (0, _) => String::new(),
        (left, true) => format!(", {left} of weaker exactness left open"),
        (left, false) => format!(", {left} left open"),
    };
    let plans = counted(*candidates as u64, "plan");
    format!("{plans}: {clocked} clocked, {pruned} bounded away{left}; {verdict}\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample;
    use roundelay_schedule::{Exactness, Order, Placement, Recompute, Rule};

    #[test]
    fn the_table_is_aligned_and_says_what_would_allow_more() {
        let sync = sample::plan(
            Rule::Sync,
            Placement::Pipeline,
            Order::OneForwardOneBackward,
            8,
            4,
        );
        let cyclic = sample::plan(Rule::CyclicV2, Placement::Data, Order::Cyclic, 4, 4);
        let mut ranking = sample::ranking();
        let single = sample::candidate(&sample::plan_on(1), Nanos(31_000_000), 1);
        ranking.plans = vec![sample::candidate(&sync, Nanos(1_250_000), 0), single];
        ranking.weaker = vec![Weaker {
            exactness: Exactness::Delayed,
            candidate: sample::candidate(&cyclic, Nanos(1_000_000), 2),
            line: "plan { exactness delayed }".into(),
            gap: 0.5,
        }];
        let text = table(&ranking, &sample::program(4, 8));
        let expected = "\
rank  rule       exactness  placement   order       N  S  states      devices  step time  samples/s  peak memory  staleness  stale  bubble
   1  sync       exact      pipeline    1f1b        8  4  replicated        4    1.25 ms     6400.0      1.50 kB          0    0 %    25 %
   2  sync       exact      accumulate  sequential  1  1  replicated        1   31.00 ms      258.1      1.50 kB          0    0 %    25 %
12 plans: 3 clocked, 9 bounded away; the first is the best of the space
1024 parameters; 46.72 kFLOP forward and backward in a step of 8 examples

Best plans of weaker exactness, and the line that would allow them:
   -  cyclic_v2  delayed    data        cyclic      4  4  replicated        4    1.00 ms     8000.0      1.50 kB          1   38 %    25 %
      plan { exactness delayed }    # some gradients are taken at older parameters; not searched to the end: its best may be 50.0 % better

note: in placement data the cyclic rule does not lower a device's activation peak, only that of all devices together
note: local rules were not searched, for they have another objective; `exactness truncated`: units train on losses of their own, gradients hop back one unit and no further; `exactness local`: units train on losses of their own, no gradient passes between them
note: devices that share a memory are taken as separate processors: where they are virtual, times are predictions, memory and numbers are real
";
        assert_eq!(text, expected);
    }

    #[test]
    fn plans_that_nobody_looked_at_are_counted() {
        let mut ranking = sample::ranking();
        (ranking.candidates, ranking.pruned, ranking.clocked) = (20, 9, 3);
        let plan = sample::plan(
            Rule::Sync,
            Placement::Pipeline,
            Order::OneForwardOneBackward,
            8,
            4,
        );
        ranking.plans = vec![sample::candidate(&plan, Nanos(1_000), 0)];
        ranking.open = Some((875, [0; 4]));
        let expected = "20 plans: 3 clocked, 9 bounded away, 8 left open; \
                        the best of the space may be 12.5 % better";
        assert!(table(&ranking, &sample::program(4, 8)).contains(expected));
        ranking.open = None;
        let expected =
            "8 of weaker exactness left open; the first is the best of the space";
        assert!(table(&ranking, &sample::program(4, 8)).contains(expected));
    }

    #[test]
    fn what_is_computed_again_stands_there_where_something_is() {
        let plan = |recompute| {
            sample::plan(Rule::Sync, Placement::Pipeline, Order::Gpipe, 8, 2)
                .recomputing(recompute)
        };
        let mut mixed = plan(Recompute::Full);
        mixed.recompute[1] = Recompute::None;
        let mut ranking = sample::ranking();
        let candidate = |plan: &_| sample::candidate(plan, Nanos(1_000), 0);
        ranking.plans = vec![candidate(&plan(Recompute::None)), candidate(&mixed)];
        let program = sample::program(4, 8);
        let text = table(&ranking, &program);
        let cells: Vec<&str> = text.lines().take(3).collect();
        assert!(cells[0].contains("states      recompute   devices"), "{text}");
        assert!(cells[1].contains("replicated  none        "), "{text}");
        assert!(cells[2].contains("replicated  full, none  "), "{text}");
        ranking.plans.pop();
        assert!(!table(&ranking, &program).contains("recompute"));
    }
}
