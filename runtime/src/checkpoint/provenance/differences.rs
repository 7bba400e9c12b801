//! In what two runs differ, in the words of the language.

use super::Provenance;
use roundelay_schedule::{Method, Optimizer, Rate};
use std::fmt::Display;

/// The entries on which the numbers of a run depend, besides the model, and how they are told apart.
const DECISIVE: [(&str, Telling); 6] = [
    ("rule", Telling::Plain("rule")),
    ("micro_batches", Telling::Plain("micro_batches times replicas")),
    ("batch", Telling::Plain("batch")),
    ("seed", Telling::Plain("seed")),
    ("optimizer", Telling::Optimizer),
    ("data", Telling::Data),
];

/// How it is told that an entry is another one.
#[derive(Clone, Copy)]
enum Telling {
    /// By its values, under a name.
    Plain(&'static str),
    /// By those of its numbers that are others.
    Optimizer,
    /// By how much of it there is, for the entry is a digest.
    Data,
}

/// What was otherwise in an earlier run, so that this one is another run.
pub(super) fn between(earlier: &Provenance, run: &Provenance) -> Vec<String> {
    let differs = |(name, _): &(&str, _)| run.entry(name) != earlier.entry(name);
    let told = |(entry, telling)| match telling {
        Telling::Plain(name) => {
            changed(name, &earlier.entry(entry), &run.entry(entry)).into_iter().collect()
        }
        Telling::Optimizer => optimizer(earlier.entry(entry), run.entry(entry)),
        Telling::Data => vec![data(earlier, run)],
    };
    DECISIVE.into_iter().filter(differs).flat_map(told).collect()
}

/// That something is another one, if it is.
fn changed<T: PartialEq + Display>(name: &str, before: &T, now: &T) -> Option<String> {
    (before != now).then(|| format!("{name} was {before} and is {now}"))
}

/// What of an optimizer is otherwise; of one that this program does not write, nobody knows.
fn optimizer(before: &str, now: &str) -> Vec<String> {
    let read = |entry| serde_json::from_str::<Optimizer>(entry).ok();
    let told = read(before).zip(read(now)).map(|(before, now)| settings(&before, &now));
    match told {
        Some(told) if !told.is_empty() => told,
        Some(_) | None => vec!["the optimizer is another one".to_owned()],
    }
}

/// The settings that are others.
fn settings(before: &Optimizer, now: &Optimizer) -> Vec<String> {
    let mut told = methods(before.method, now.method);
    told.extend(changed("lr", &rate(&before.rate), &rate(&now.rate)));
    told.extend(changed("weight_decay", &before.weight_decay, &now.weight_decay));
    told.extend(changed("clip", &before.clip, &now.clip));
    told
}

/// The method if it is another one, else the settings that it has alone.
fn methods(before: Method, now: Method) -> Vec<String> {
    let told = match (before, now) {
        (
            Method::Sgd { momentum, nesterov },
            Method::Sgd { momentum: other, nesterov: ahead },
        ) => vec![
            changed("momentum", &momentum, &other),
            changed("nesterov", &nesterov, &ahead),
        ],
        (
            Method::Adamw { beta1, beta2, epsilon },
            Method::Adamw { beta1: mean, beta2: square, epsilon: least },
        ) => vec![
            changed("beta1", &beta1, &mean),
            changed("beta2", &beta2, &square),
            changed("epsilon", &epsilon, &least),
        ],
        (Method::Sgd { .. }, Method::Adamw { .. })
        | (Method::Adamw { .. }, Method::Sgd { .. }) => {
            vec![changed("optimizer", &before.kernel(), &now.kernel())]
        }
    };
    told.into_iter().flatten().collect()
}

/// A rate as programs have it.
fn rate(own: &Rate) -> String {
    match own {
        Rate::Constant(rate) => rate.to_string(),
        Rate::Step { initial, factor, every } => {
            format!("step({initial}, {factor}, {every})")
        }
        Rate::Cosine { initial, steps, last } => {
            format!("cosine({initial}, {steps}, last = {last})")
        }
        Rate::Warmup { steps, after } => format!("warmup({steps}, {})", rate(after)),
    }
}

fn data(earlier: &Provenance, run: &Provenance) -> String {
    match (earlier.entry("data_size"), run.entry("data_size")) {
        (before, now) if before.is_empty() || now.is_empty() => {
            "the data is other data, or is read otherwise".to_owned()
        }
        (before, now) if before == now => {
            format!(
                "the data is other data, or is read otherwise, though it has {now} as before"
            )
        }
        (before, now) => format!("the data had {before}, and has {now}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_of_an_optimizer_are_named_as_programs_name_them() {
        let optimizer =
            |method, rate, clip| Optimizer { method, rate, weight_decay: 0.1, clip };
        let adamw = |beta1| Method::Adamw { beta1, beta2: 0.999, epsilon: 1e-8 };
        let cosine = Rate::Cosine { initial: 3e-4, steps: 500, last: 0.0 };
        let warmup = Rate::Warmup { steps: 20, after: Box::new(cosine) };
        let before = optimizer(adamw(0.9), Rate::Constant(0.001), 0.0);
        let told = settings(&before, &optimizer(adamw(0.95), warmup, 1.0));
        let expected = [
            "beta1 was 0.9 and is 0.95",
            "lr was 0.001 and is warmup(20, cosine(0.0003, 500, last = 0))",
            "clip was 0 and is 1",
        ];
        assert_eq!(told, expected);
        let sgd = |momentum| Method::Sgd { momentum, nesterov: false };
        let other = optimizer(sgd(0.0), Rate::Constant(0.001), 0.0);
        assert_eq!(settings(&before, &other), ["optimizer was adamw and is sgd"]);
        let told = settings(&other, &Optimizer { method: sgd(0.5), ..other.clone() });
        assert_eq!(told, ["momentum was 0 and is 0.5"]);
    }

    #[test]
    fn an_optimizer_that_nobody_can_read_is_told_to_be_another_one() {
        assert_eq!(
            optimizer("{\"method\":\"lion\"}", "{}"),
            ["the optimizer is another one"]
        );
    }
}
