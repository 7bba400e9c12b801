//! Pins that say nothing of a plan: they are about parts of tensors or shards of states and it has none,
//! or about something that the model has not, or they are half of what is asked for.

use crate::space::{
    decision::{Decision, Number},
    values::{has_sequences, has_windows},
};
use roundelay_dsl::{Learning, Model, Program, Search};
use roundelay_schedule::{Contraction, Images, Plan, Sequence};

/// A decision about something that not every plan has.
struct Pin {
    decision: Decision,
    /// As it stands in a program.
    line: &'static str,
    /// Whether a program leaves no other value.
    is_pinned: fn(&Search) -> bool,
    /// What not every model has and it is about.
    subject: Option<Subject>,
    /// What plans lack that have nothing of it.
    lacking: &'static str,
}

/// What some models have.
struct Subject {
    is_there: fn(&Model) -> bool,
    /// What is said of the others.
    absent: &'static str,
}

const PINS: [Pin; 5] = [
    Pin {
        decision: Decision::Sequence,
        line: "sequence split",
        is_pinned: |search| !search.sequence.allows(&Sequence::Whole),
        subject: Some(Subject {
            is_there: has_sequences,
            absent: "the model has no sequences",
        }),
        lacking: "no tensor there is split; `tensor { rows 2 }` would split them",
    },
    Pin {
        decision: Decision::Images,
        line: "images split",
        is_pinned: |search| !search.images.allows(&Images::Whole),
        subject: Some(Subject {
            is_there: has_windows,
            absent: "the model has no convolutions or pools of images",
        }),
        lacking: "no tensor there is split; `tensor { rows 2 }` would split them",
    },
    Pin {
        decision: Decision::Contraction,
        line: "tensor { contraction gather }",
        is_pinned: |search| {
            let others = [Contraction::Alternate, Contraction::Each];
            !others.iter().any(|other| search.contraction.allows(other))
        },
        subject: None,
        lacking: "tensors there have one column; `tensor { columns 2 }` would split them",
    },
    Pin {
        decision: Decision::Contraction,
        line: "tensor { contraction each }",
        is_pinned: |search| {
            let others = [Contraction::Alternate, Contraction::Gather];
            !others.iter().any(|other| search.contraction.allows(other))
        },
        subject: None,
        lacking: "tensors there have one column; `tensor { columns 2 }` would split them",
    },
    Pin {
        decision: Decision::Number(Number::Shards),
        line: "shards",
        is_pinned: |search| !search.shards.allows(1),
        subject: None,
        lacking: "its states are not split among some of its replicas; `states hsdp` would split \
                  them",
    },
];

/// What a program pins and the first plan has nothing of, each with why, or with what would give it a
/// meaning.
pub(crate) fn idle(program: &Program, plan: &Plan) -> Vec<String> {
    let pinned = PINS.iter().filter(|pin| (pin.is_pinned)(&program.search));
    let told = pinned.filter_map(|pin| {
        let absent = |subject: &&Subject| !(subject.is_there)(&program.model);
        let why = match pin.subject.as_ref().filter(absent) {
            Some(subject) => subject.absent,
            None if !pin.decision.is_about(plan) => pin.lacking,
            None => return None,
        };
        Some(format!("`{}` says nothing of the first plan, for {why}", pin.line))
    });
    told.chain(half_known(program.search.learning)).collect()
}

/// Constants of a time to the result that no plan has, for others are not known.
fn half_known(learning: Learning) -> Option<String> {
    let missing = learning.missing();
    (learning != Learning::default() && !missing.is_empty()).then(|| {
        format!("`result` says nothing of any plan, for it lacks {}", missing.join(", "))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample;
    use roundelay_dsl::{Extent, Node, Operation, Source};
    use roundelay_schedule::{Id, States, Tensor};

    /// A program of a model that has sequences and images.
    fn set(lines: &[&str]) -> Program {
        let mut program = sample::program(2, 8);
        let operand = Source::Node(Id::new(0));
        let conv = Operation::Conv2d { stride: 1, padding: 0, groups: 1 };
        for (operation, extents) in [(Operation::Relu, 3), (conv, 4)] {
            let (name, operands) = ("more".to_owned(), vec![operand]);
            let shape = vec![Extent::fixed(2); extents];
            program.model.nodes.push(Node { name, operation, operands, shape });
        }
        program.set_all(lines).unwrap_or_else(|mistake| panic!("{mistake}"));
        program
    }

    /// What is said where the first plan splits tensors like this.
    fn told(tensor: Tensor, lines: &[&str]) -> Vec<String> {
        told_of(&set(lines), tensor)
    }

    fn told_of(program: &Program, tensor: Tensor) -> Vec<String> {
        idle(program, &Plan { tensor, ..sample::plan_on(1) })
    }

    #[test]
    fn a_pin_about_parts_is_told_where_there_is_one_part_alone() {
        let split = ["sequence split", "images split", "tensor.contraction = gather"];
        let all = told(Tensor::WHOLE, &split);
        assert_eq!(all.len(), 3, "{all:?}");
        for (line, said) in split.iter().zip(&all) {
            let value = line.rsplit(' ').next().expect("a value ends the line");
            assert!(said.contains(value) && said.contains("would split"), "{said}");
        }
        assert_eq!(
            told(Tensor::grid(2, 1), &split).len(),
            1,
            "one column gathers nothing"
        );
        assert_eq!(told(Tensor::grid(2, 2), &split), [""; 0]);
        let open = ["sequence = split | whole", "images = whole | split"];
        assert_eq!(told(Tensor::WHOLE, &open), [""; 0]);
    }

    #[test]
    fn shards_are_told_where_no_states_are_split_among_some_replicas() {
        let plan = |states| Plan { states, ..sample::plan_on(1) };
        let program = set(&["shards = 2"]);
        let told = idle(&program, &plan(States::Zero2));
        assert!(told.len() == 1 && told[0].contains("`states hsdp` would"), "{told:?}");
        assert_eq!(idle(&program, &plan(States::Hsdp)), [""; 0]);
        for open in ["shards = 1 | 2", "stages = 2"] {
            assert_eq!(idle(&set(&[open]), &plan(States::Zero2)), [""; 0]);
        }
    }

    #[test]
    fn half_of_the_constants_of_a_result_are_told() {
        let said = |line: &str| told(Tensor::WHOLE, &[line]);
        let told = said("result { least_steps 5 }");
        assert!(told.len() == 1 && told[0].ends_with("lacks critical_batch, staleness"));
        let whole = "result { least_steps 5, critical_batch 1, staleness 1 }";
        assert_eq!(said(whole), [""; 0]);
    }

    /// Parts would give it no meaning either.
    #[test]
    fn a_pin_about_what_a_model_has_not_is_told_whatever_is_split() {
        let mut program = sample::program(2, 8);
        let lines = ["sequence split", "images split"];
        program.set_all(&lines).unwrap_or_else(|mistake| panic!("{mistake}"));
        for tensor in [Tensor::WHOLE, Tensor::grid(2, 1)] {
            let all = told_of(&program, tensor);
            assert_eq!(all.len(), 2, "{all:?}");
            assert!(all[0].ends_with("for the model has no sequences"), "{all:?}");
            assert!(all[1].contains("no convolutions or pools"), "{all:?}");
        }
    }
}
