//! plan.yaml: every decision of one plan, written down and read back against a program.

mod origin;

use crate::{
    rewrite::Algebra,
    space::{
        counts::Counts,
        cuts::Chain,
        family::Family,
        laws::{check_cuts, check_delay, check_shards, check_sizes, has_devices},
        reason::Reason,
    },
};
use origin::Origin;
use roundelay_codegen::{Divided, LowerError, LoweringChoice, Neighbour, node_costs};
use roundelay_dsl::Program;
use roundelay_schedule::{
    MapWays, Misfit, Nanos, Plan, PlanFault, Rewrite, Tie, YamlError, YamlFault,
    read_yaml,
};
use std::{collections::BTreeSet, fmt};

/// What is wrong with a plan file: all mistakes, by line.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct PlanMistakes(pub Vec<PlanMistake>);

/// One mistake in a plan file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlanMistake {
    /// Line, counted from one.
    pub line: usize,
    /// What is wrong, as a sentence without full stop.
    pub message: String,
}

/// A plan as YAML, with the names of the program that it is for.
pub fn write_plan(plan: &Plan, program: &Program) -> String {
    let text = serde_saphyr::to_string(plan);
    let text = text.expect("a plan is made of numbers, names and lists");
    format!("{}\n{}", text.trim_end(), origin::lines(program))
}

/// Reads a plan, whatever program it is for.
///
/// # Errors
/// The place where the text is no plan.
pub fn parse_plan(text: &str) -> Result<Plan, PlanMistakes> {
    parse_decisions(&Origin::take(text)?.1)
}

fn parse_decisions(text: &str) -> Result<Plan, PlanMistakes> {
    read_yaml(text).map_err(|error| PlanMistakes(vec![explained(&error)]))
}

/// What is wrong with a text that is no plan, with what to do about it.
fn explained(YamlError { line, fault, .. }: &YamlError) -> PlanMistake {
    let message = match fault {
        YamlFault::Missing(decision) => {
            let message = format!(
                "the decision `{decision}` is missing: a plan file has every one made; \
                 `plan F.rdl -o plan.yaml` writes one"
            );
            return PlanMistake { line: 1, message };
        }
        YamlFault::Unknown { name, message, .. } if name == "depth" => format!(
            "{message}; a depth is written as `states: zero3` among all replicas, or as \
             `states: hsdp` with as many `shards`"
        ),
        YamlFault::Unknown { .. } | YamlFault::Number(_) | YamlFault::Other(_) => {
            fault.hinted()
        }
    };
    PlanMistake { line: *line, message }
}

/// Reads a plan and checks it against a program.
///
/// # Errors
/// The place where the text is no plan; or every decision that does not go with the program, and first
/// that the text names another one, where it does.
pub fn read_plan(text: &str, program: &Program) -> Result<Plan, PlanMistakes> {
    let (origin, decisions) = Origin::take(text)?;
    let plan = parse_decisions(&decisions)?;
    let mistakes: Vec<PlanMistake> = check_plan(&plan, program)
        .into_iter()
        .map(|(key, message)| PlanMistake { line: line_of(text, key), message })
        .collect();
    match mistakes.is_empty() {
        true => Ok(plan),
        false => {
            let other = origin.mistake(program).into_iter();
            Err(PlanMistakes(other.chain(mistakes).collect()))
        }
    }
}

/// What is to be said of a plan that was read and cannot be lowered: that its text names another program,
/// or what is wrong, at the decision that it is about; nothing where it is about none.
pub fn unlowered(
    text: &str,
    program: &Program,
    error: &LowerError,
) -> Option<PlanMistake> {
    let stranger = Origin::take(text).ok()?.0.mistake(program);
    stranger.or_else(|| {
        let line = line_of(text, error.decision()?);
        Some(PlanMistake { line, message: error.to_string() })
    })
}

/// What is to be said of a plan that goes with a program though its text names another one.
pub fn doubt(text: &str, program: &Program) -> Option<PlanMistake> {
    Origin::take(text).ok()?.0.doubt(program)
}

/// Every decision that does not go with the program: its name and what is wrong.
pub(crate) fn check_plan(plan: &Plan, program: &Program) -> Vec<(&'static str, String)> {
    match program.under(plan.rule) {
        Ok(program) => check_trained(plan, &program),
        Err(mistake) => vec![("rule", mistake.message)],
    }
}

/// What does not go with the program that the plan's rule trains.
fn check_trained(plan: &Plan, program: &Program) -> Vec<(&'static str, String)> {
    let mut mistakes: Vec<_> = plan.zeros().map(told).collect();
    if !mistakes.is_empty() {
        return mistakes;
    }
    let family = Family::from(plan);
    let (n, s) = (plan.micro_batches, plan.stages);
    let counts = Counts::from(plan);
    let sizes = check_sizes(program, family, counts, &plan.lists)
        .and_then(|()| check_shards(family, counts))
        .and_then(|()| check_delay(family, n, s));
    if let Err(reason) = sizes {
        mistakes.push((decision(&reason, plan), reason.to_string()));
        return mistakes;
    }
    let (dtype, all) = (program.train.dtype, counts.all_micro_batches());
    let none = vec![Nanos(0); program.model.nodes.len()];
    let chain =
        Chain::new(&program.model, none, u64::from(program.train.batch / all), dtype)
            .with(family.users(program, plan.slices));
    let boundaries = program.model.boundaries();
    if plan.boundaries != boundaries {
        let message = format!("units of {} begin at {boundaries:?}", plan.rule);
        mistakes.push(("boundaries", message));
    }
    if let Err(reason) = check_cuts(&chain, &plan.cuts, s) {
        mistakes.push(("cuts", reason.to_string()));
    }
    let ties = chain.stage_ties(&plan.cuts);
    if plan.ties != ties && mistakes.is_empty() {
        let ties: Vec<_> = ties.into_iter().map(|Tie(users)| users).collect();
        let message =
            format!("between its cuts stages use the same parameters: {ties:?}");
        mistakes.push(("ties", message));
    }
    let enough = has_devices(program, plan.device_count());
    mistakes.extend(
        enough.clone().err().map(|reason| (decision(&reason, plan), reason.to_string())),
    );
    for (key, message) in plan.faults(&program.target).map(told) {
        if mistakes.iter().all(|(known, _)| *known != key) {
            mistakes.push((key, message));
        }
    }
    if enough.is_ok() {
        mistakes.extend(check_tensor(plan, program));
    }
    mistakes
}

/// A fault with the decision that it is about.
fn told(fault: PlanFault) -> (&'static str, String) {
    (fault.decision(), fault.to_string())
}

/// The decision that a reason about numbers speaks of first.
fn decision(reason: &Reason, plan: &Plan) -> &'static str {
    match reason {
        Reason::Plan(fault) => fault.decision(),
        Reason::OddHalves { .. } | Reason::OtherDepth { .. } => "tensor",
        Reason::OneReplica | Reason::MirroredReplicas => "replicas",
        Reason::Indivisible { .. } if plan.replicas != 1 => "replicas",
        Reason::Indivisible { .. }
        | Reason::ManyMicroBatches { .. }
        | Reason::ManyLanes { .. }
        | Reason::TooLong { .. }
        | Reason::NotAsMany { .. }
        | Reason::DelayTooShort { .. } => "micro_batches",
        Reason::OneWorker | Reason::Clash(_) => "placement",
        Reason::Misfit(misfit) => misfitting(*misfit, plan),
        Reason::Uncuttable(_) | Reason::NoStage { .. } => "stages",
        Reason::WrongCuts(_) => "cuts",
        Reason::WrongLists(_) => "lists",
        Reason::Refused(_) => "order",
        Reason::TooFewDevices { .. }
        | Reason::BehindTheLast { .. }
        | Reason::DevicesNotAllowed { .. }
        | Reason::Endless(_)
        | Reason::Unproven(_)
        | Reason::Memory(_) => "devices",
        Reason::Equal(_) => "rule",
    }
}

/// The decision with which an order does not go; one chunk stands in no file.
fn misfitting(misfit: Misfit, plan: &Plan) -> &'static str {
    match misfit {
        Misfit::Chunks(_)
        | Misfit::FewChunks
        | Misfit::UnevenChunks
        | Misfit::OddChunks
            if plan.chunks != 1 =>
        {
            "chunks"
        }
        Misfit::Chunks(_)
        | Misfit::FewChunks
        | Misfit::UnevenChunks
        | Misfit::OddChunks
        | Misfit::MicroBatches(_)
        | Misfit::FewMicroBatches(_)
        | Misfit::FewSlices
        | Misfit::OddDevices => "order",
        Misfit::Slices => "slices",
    }
}

/// Whether the model has operations that these parts split, and maps that go the ways of the plan.
fn check_tensor(plan: &Plan, program: &Program) -> Option<(&'static str, String)> {
    let way = plan.maps.iter().next();
    match (plan.tensor.parts(), way) {
        (1, None) => return None,
        (1, Some((site, way))) => {
            return Some(("maps", LowerError::Maps { site, way }.to_string()));
        }
        _ => {}
    }
    let examples = u64::from(program.train.batch / plan.all_micro_batches().max(1));
    let (size, dtype) = ((examples, plan.tensor), program.train.dtype);
    let listed = Listed { maps: &plan.maps, algebra: Algebra::default() };
    let error = node_costs(&program.model, size, dtype, &listed).err()?;
    Some((error.decision().unwrap_or("tensor"), error.to_string()))
}

/// The ways that a plan lists, or those that are found where it lists none.
struct Listed<'a> {
    maps: &'a MapWays,
    algebra: Algebra,
}

impl LoweringChoice for Listed<'_> {
    fn choose(&self, neighbours: &[Neighbour<'_>]) -> BTreeSet<(usize, Rewrite)> {
        self.algebra.choose(neighbours)
    }

    fn ways(&self, divided: &Divided<'_>) -> MapWays {
        match self.maps.is_empty() {
            true => self.algebra.ways(divided),
            false => self.maps.clone(),
        }
    }
}

/// The line of a key at the start of a line; the first line when it stands nowhere.
fn line_of(text: &str, key: &str) -> usize {
    let is_key = |line: &str| {
        line.strip_prefix(key).is_some_and(|rest| rest.trim_start().starts_with(':'))
    };
    text.lines().position(is_key).map_or(1, |index| index + 1)
}

impl fmt::Display for PlanMistakes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, PlanMistake { line, message }) in self.0.iter().enumerate() {
            let end = if index + 1 < self.0.len() { "\n" } else { "" };
            write!(f, "line {line}: {message}{end}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample;
    use roundelay_schedule::{Order, Placement, Rule, Tensor};

    fn plan() -> Plan {
        sample::plan(Rule::CyclicV2, Placement::Shared, Order::Cyclic, 2, 2)
    }

    #[test]
    fn a_plan_reads_back_as_written() {
        let program = sample::program(4, 8);
        let text = write_plan(&plan(), &program);
        assert_eq!(read_plan(&text, &program), Ok(plan()));
        assert_eq!(parse_plan(&text), Ok(plan()));
    }

    #[test]
    fn a_plan_of_a_quarter_of_a_million_passes_reads_back() {
        let plan = sample::plan(Rule::Sync, Placement::Pipeline, Order::Gpipe, 512, 512);
        let text = write_plan(&plan, &sample::program(4, 8));
        assert_eq!(parse_plan(&text), Ok(plan));
    }

    #[test]
    fn values_that_do_not_read_are_told_in_our_words() {
        let text = write_plan(&plan(), &sample::program(4, 8));
        for (from, to, words) in [
            ("stages: 2", "stages: two", "expected a whole number below 2^32; write"),
            ("stages: 2", "stages: 2\nstages: 2", "the key `stages` stands here twice"),
            ("stages: 2", "stages: &two 2", "anchors and aliases may not stand here"),
            ("rule: cyclic_v2", "rule:", "expected a text, found nothing"),
            ("cuts:", "cuts: all\nrest:", "expected a list"),
        ] {
            assert!(text.contains(from), "{from} stands in\n{text}");
            let PlanMistakes(told) =
                parse_plan(&text.replacen(from, to, 1)).expect_err(to);
            assert!(told[0].message.starts_with(words), "{told:?}");
        }
    }

    #[test]
    fn fields_that_are_missing_or_unknown_are_told_with_what_to_do() {
        let text = write_plan(&plan(), &sample::program(4, 8));
        let told = |text: &str| parse_plan(text).unwrap_err().0.remove(0);
        let unknown = told(&text.replace("stages:", "stagez:"));
        assert!(unknown.message.contains("unknown field `stagez`"), "{unknown:?}");
        assert!(unknown.message.ends_with("; did you mean `stages`?"), "{unknown:?}");
        assert_eq!(unknown.line, line_of(&text, "stages"));
        let rest: Vec<&str> =
            text.lines().filter(|line| !line.starts_with("rule:")).collect();
        let missing = told(&rest.join("\n"));
        assert!(
            missing.message.starts_with("the decision `rule` is missing"),
            "{missing:?}"
        );
        assert_eq!(missing.line, 1);
    }

    #[test]
    fn a_plan_of_another_program_is_told_before_what_does_not_fit() {
        let own = sample::program(4, 8);
        let mut other = sample::program(1, 5);
        let text = write_plan(&plan(), &own);
        let told = |program: &Program| read_plan(&text, program).unwrap_err().0;
        let misfits = told(&other);
        assert!(misfits.iter().all(|misfit| !misfit.message.contains("another program")));
        other.model.name = "bert".to_owned();
        let all = told(&other);
        assert_eq!(all[1..], misfits, "what does not fit follows");
        let PlanMistake { line, message } = &all[0];
        assert_eq!(*line, line_of(&text, "model"));
        assert!(message.contains("the program's is `bert`"), "{message}");
        assert!(!message.contains("cluster"), "{message}");
        other.target.name = "selene".to_owned();
        assert!(told(&other)[0].message.contains("the program's is `selene`"));
        // What fits is a plan, whatever it was written for.
        let mut renamed = own.clone();
        renamed.model.name = "b".to_owned();
        assert_eq!(read_plan(&text, &renamed), Ok(plan()));
    }

    #[test]
    fn every_wrong_decision_is_reported_with_its_line() {
        let program = sample::program(4, 8);
        let text = write_plan(&plan(), &program);
        let line = |key: &str| line_of(&text, key);
        let wrong = |from: &str, to: &str| {
            assert!(text.contains(from), "{from} stands in\n{text}");
            let PlanMistakes(mistakes) =
                read_plan(&text.replacen(from, to, 1), &program).unwrap_err();
            mistakes.into_iter().map(|mistake| mistake.line).collect::<Vec<_>>()
        };
        assert_eq!(wrong("cyclic_v2", "cyclic_v1"), [line("delays")]);
        assert_eq!(wrong("rule: ", "rule: x"), [line("rule")]);
        assert_eq!(wrong("by_device", "sequential"), [line("reduction")]);
        assert_eq!(
            wrong("micro_batches: 2", "micro_batches: 3"),
            [line("micro_batches")]
        );
        assert_eq!(wrong("d1", "d9"), [line("devices")]);
        assert_eq!(wrong("d1", "d0"), [line("devices")]);
        assert_eq!(wrong("- none\n- none", "- none"), [line("recompute")]);
        assert_eq!(wrong("- none", "- some"), [line("recompute") + 1]);
        assert_eq!(wrong("replicas: 1", "replicas: 2"), [line("replicas")]);
        for (from, key) in [
            ("replicas: 1", "replicas"),
            ("micro_batches: 2", "micro_batches"),
            ("stages: 2", "stages"),
        ] {
            assert_eq!(wrong(from, &format!("{key}: 0")), [line(key)]);
        }
    }

    #[test]
    fn a_name_that_is_said_twice_is_refused_like_any_key() {
        let program = sample::program(4, 8);
        let text = write_plan(&plan(), &program);
        let again = format!("{text}model: other\n");
        let line = again.lines().count();
        for read in [parse_plan(&again), read_plan(&again, &program)] {
            let PlanMistakes(mistakes) = read.unwrap_err();
            assert_eq!(mistakes.len(), 1, "{mistakes:?}");
            assert_eq!(mistakes[0].line, line);
            assert!(
                mistakes[0].message.contains("`model` is said twice"),
                "{mistakes:?}"
            );
        }
    }

    #[test]
    fn names_that_mean_nothing_to_yaml_are_names_in_quotes_alone() {
        let mut program = sample::program(4, 8);
        for name in ["null", "true", "no", &"long_".repeat(100)] {
            program.model.name = name.to_owned();
            let text = write_plan(&plan(), &program);
            assert_eq!(parse_plan(&text), Ok(plan()), "{text}");
            assert_eq!(doubt(&text, &program), None, "{text}");
        }
        let text = write_plan(&plan(), &sample::program(4, 8));
        let line = line_of(&text, "model");
        let own = text.lines().nth(line - 1).expect("a plan says whose it is");
        for nothing in ["model: null", "model: ~", "model:", "model: # none"] {
            let PlanMistakes(told) =
                parse_plan(&text.replace(own, nothing)).expect_err(nothing);
            let message = "expected a text, found nothing".to_owned();
            assert_eq!(told, [PlanMistake { line, message }]);
        }
    }

    /// The keys on whose lines the mistakes stand that one change makes.
    fn keys(plan: &Plan, from: &str, to: &str) -> Vec<String> {
        let text = write_plan(plan, &sample::program(8, 8));
        assert!(text.contains(from), "{from} stands in\n{text}");
        let wrong = text.replacen(from, to, 1);
        let PlanMistakes(mistakes) =
            read_plan(&wrong, &sample::program(8, 8)).unwrap_err();
        let key = |mistake: PlanMistake| {
            let line = wrong.lines().nth(mistake.line - 1).unwrap_or_default();
            line.split(':').next().unwrap_or_default().to_owned()
        };
        mistakes.into_iter().map(key).collect()
    }

    #[test]
    fn numbers_that_do_not_fit_are_told_at_their_own_line() {
        let plan = |placement, order, n| sample::plan(Rule::Sync, placement, order, n, 4);
        let gpipe = plan(Placement::Pipeline, Order::Gpipe, 2).replicated(2, 1);
        assert_eq!(keys(&gpipe, "order: gpipe", "order: interleaved"), ["order"]);
        assert_eq!(keys(&gpipe, "stages: 4", "stages: 40"), ["stages"]);
        assert_eq!(keys(&gpipe, "micro_batches: 2", "micro_batches: 3"), ["replicas"]);
        let looped = plan(Placement::Pipeline, Order::Interleaved, 4).with_chunks(2);
        assert_eq!(keys(&looped, "chunks: 2", "chunks: 3"), ["chunks"]);
        assert_eq!(keys(&looped, "micro_batches: 4", "micro_batches: 1"), ["order"]);
        let workers = sample::plan(Rule::Sync, Placement::Data, Order::Parallel, 2, 1);
        let one = keys(&workers, "micro_batches: 2", "micro_batches: 1");
        assert_eq!(one, ["placement"]);
        let mirrored = plan(Placement::Pipeline, Order::Chimera, 4);
        assert_eq!(keys(&mirrored, "replicas: 1", "replicas: 2"), ["replicas"]);
        let grid = plan(Placement::Accumulate, Order::Sequential, 2);
        let grid = grid.with_tensor(Tensor::grid(2, 2));
        for wide in ["columns: 5", "columns: 4000000000"] {
            assert_eq!(keys(&grid, "columns: 2", wide), ["devices"]);
        }
    }
}
