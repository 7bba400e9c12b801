//! Which inputs of the model hold token sequences, and which the tokens that follow.

use super::DataError;
use roundelay_schedule::{Element, Input, InputId, Job};

/// Two inputs of shape [examples, sequence]: tokens, and the token that follows each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Pair {
    /// The tokens.
    pub(super) tokens: InputId,
    /// Their successors.
    pub(super) targets: InputId,
    /// Tokens of one example; a window has one more.
    pub(super) sequence: u64,
    /// Below which the inputs declare all tokens to be.
    pub(super) declared: Option<u64>,
}

impl Pair {
    /// The inputs called `tokens` and `targets`, or else the model's two inputs in order; in both
    /// cases i32 of one shape, and nothing besides them.
    pub(super) fn of(job: &Job) -> Option<Self> {
        let named = |name: &str| job.data_inputs().find(|(_, input)| input.name == name);
        let mut ordered = job.data_inputs();
        let (tokens, targets) = match (named("tokens"), named("targets")) {
            (Some(tokens), Some(targets)) => (tokens, targets),
            _ => (ordered.next()?, ordered.next()?),
        };
        let serves = job.data_inputs().count() == 2
            && job.data_inputs().all(|(_, input)| input.element == Element::I32)
            && tokens.1.shape == targets.1.shape;
        let [examples, sequence] = *tokens.1.shape.as_slice() else { return None };
        (serves && examples > 0 && sequence > 0).then(|| Self {
            tokens: tokens.0,
            targets: targets.0,
            sequence,
            declared: [tokens.1, targets.1].into_iter().filter_map(declared).min(),
        })
    }

    /// The pair, or an error that lists what the model has.
    pub(super) fn required(job: &Job, data: &'static str) -> Result<Self, DataError> {
        let missing = || DataError::Inputs { data, found: spell(job) };
        Self::of(job).ok_or_else(missing)
    }

    /// All tokens are below.
    pub(super) fn bound(&self) -> u64 {
        self.declared.unwrap_or(INTEGERS)
    }

    /// How many tokens into a window the input begins.
    pub(super) fn shift(&self, input: InputId) -> u64 {
        u64::from(input == self.targets)
    }

    /// The input with the smaller bound.
    pub(super) fn tightest<'a>(&self, job: &'a Job) -> &'a str {
        let [tokens, targets] = [&job.inputs[self.tokens], &job.inputs[self.targets]];
        if bound(targets) < bound(tokens) { &targets.name } else { &tokens.name }
    }
}

/// Below this are all that i32 can hold.
pub(super) const INTEGERS: u64 = 1 << 31;

/// Integers of an input are below this.
pub(super) fn bound(input: &Input) -> u64 {
    declared(input).unwrap_or(INTEGERS)
}

/// Below which an input declares its integers to be.
pub(super) fn declared(input: &Input) -> Option<u64> {
    (input.bound > 0).then(|| input.bound.min(INTEGERS))
}

/// The inputs of a model that data brings, for messages.
pub(super) fn spell(job: &Job) -> String {
    let one = |(_, input): (InputId, &Input)| {
        let element = match input.element {
            Element::Real | Element::Wide => "real",
            Element::I32 => "i32",
        };
        format!("`{}: {element}{:?}`", input.name, input.shape)
    };
    let all: Vec<_> = job.data_inputs().map(one).collect();
    if all.is_empty() { "no input".to_string() } else { all.join(", ") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::tests::{input, job};
    use roundelay_schedule::{Data, Id};

    fn pair(inputs: &[Input]) -> Result<Pair, DataError> {
        Pair::required(&job(Data::Synthetic, inputs), "text")
    }

    #[test]
    fn names_come_before_order() {
        let [a, b] =
            ["targets", "tokens"].map(|name| input(name, Element::I32, &[2, 5], 7));
        let found = pair(&[a, b]).unwrap();
        assert_eq!((found.tokens, found.targets), (InputId::new(1), InputId::new(0)));
        let [a, b] = ["x", "y"].map(|name| input(name, Element::I32, &[2, 5], 0));
        let found = pair(&[a, b]).unwrap();
        assert_eq!((found.tokens, found.targets), (InputId::new(0), InputId::new(1)));
        assert_eq!((found.sequence, found.declared), (5, None));
        assert_eq!(found.bound(), 1 << 31);
    }

    #[test]
    fn the_smaller_bound_counts() {
        let tokens = input("tokens", Element::I32, &[2, 5], 256);
        let targets = input("targets", Element::I32, &[2, 5], 128);
        let job = job(Data::Synthetic, &[tokens, targets]);
        let pair = Pair::of(&job).unwrap();
        assert_eq!((pair.bound(), pair.tightest(&job)), (128, "targets"));
    }

    #[test]
    fn other_inputs_are_listed() {
        let tokens = || input("tokens", Element::I32, &[2, 5], 0);
        let cases = [
            vec![],
            vec![tokens()],
            vec![tokens(), input("targets", Element::Real, &[2, 5], 0)],
            vec![tokens(), input("targets", Element::I32, &[2], 0)],
            vec![tokens(), tokens(), tokens()],
            vec![
                input("a", Element::I32, &[2, 0], 0),
                input("b", Element::I32, &[2, 0], 0),
            ],
        ];
        for case in cases {
            let error = pair(&case).unwrap_err().to_string();
            for one in &case {
                assert!(error.contains(&format!("`{}: ", one.name)), "{error}");
            }
        }
    }
}
