//! Pins that say nothing of a plan: they are about parts of tensors, and it has but one.

use roundelay_dsl::Search;
use roundelay_schedule::{Contraction, Images, Plan, Sequence, Tensor};

/// A decision about parts of tensors.
struct Pin {
    /// As it stands in a program.
    line: &'static str,
    /// Whether a program leaves no other value.
    is_pinned: fn(&Search) -> bool,
    /// Whether tensors that are split like this have what it is about.
    has_subject: fn(&Tensor) -> bool,
    /// What they lack without.
    lacking: &'static str,
}

/// Law: where `has_subject` is false the space takes one value whatever a program says.
const PINS: [Pin; 3] = [
    Pin {
        line: "sequence split",
        is_pinned: |search| !search.sequence.allows(&Sequence::Whole),
        has_subject: |tensor| tensor.parts() > 1,
        lacking: "no tensor there is split; `tensor { rows 2 }` would split them",
    },
    Pin {
        line: "images split",
        is_pinned: |search| !search.images.allows(&Images::Whole),
        has_subject: |tensor| tensor.parts() > 1,
        lacking: "no tensor there is split; `tensor { rows 2 }` would split them",
    },
    Pin {
        line: "tensor { contraction gather }",
        is_pinned: |search| !search.contraction.allows(&Contraction::Alternate),
        has_subject: |tensor| tensor.columns > 1,
        lacking: "tensors there have one column; `tensor { columns 2 }` would split them",
    },
];

/// What a program pins and the first plan has nothing of, each with what would give it a meaning.
pub(crate) fn idle(search: &Search, plan: &Plan) -> Vec<String> {
    let idle = PINS
        .iter()
        .filter(|pin| (pin.is_pinned)(search) && !(pin.has_subject)(&plan.tensor));
    let told = |Pin { line, lacking, .. }: &Pin| {
        format!("`{line}` says nothing of the first plan, for {lacking}")
    };
    idle.map(told).collect()
}

#[cfg(test)]
mod tests {
    use crate::{remarks::remarks, sample};
    use roundelay_dsl::Program;
    use roundelay_schedule::{Nanos, Tensor};

    fn set(lines: &[&str]) -> Program {
        let mut program = sample::program(2, 8);
        program.set_all(lines).unwrap_or_else(|mistake| panic!("{mistake}"));
        program
    }

    /// What is said where the first plan splits tensors like this.
    fn told(tensor: Tensor, lines: &[&str]) -> Vec<String> {
        let plan = sample::plan_on(1);
        let plan = roundelay_schedule::Plan { tensor, ..plan };
        let mut ranking = sample::ranking();
        ranking.plans = vec![sample::candidate(&plan, Nanos(1_000), 0)];
        let all = remarks(&ranking, &set(lines)).into_iter();
        all.filter(|remark| remark.contains("says nothing of the first plan")).collect()
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
}
