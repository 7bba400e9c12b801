//! One layer of a transformer as statements.

use super::{
    call::{Call, number},
    pattern::Kind,
    rotary::stretched,
};
use roundelay_dsl::Stretch;

/// A layer: attention and a feed-forward block, each on a branch of its own.
#[derive(Clone, Debug)]
pub(super) struct Layer {
    /// Attention, but for window and rotary positions.
    pub(super) attention: Call,
    pub(super) feed: Feed,
    pub(super) norm: Norm,
    pub(super) branches: Branches,
    /// Probability of dropout at the end of each branch.
    pub(super) dropout: f64,
}

/// The feed-forward block.
#[derive(Clone, Debug)]
pub(super) enum Feed {
    /// Two affine maps with an activation between them.
    Plain { up: Call, activation: &'static str, down: Call },
    /// A gated block.
    Gated(Call),
}

/// How rows are normalised.
#[derive(Clone, Debug)]
pub(super) struct Norm(pub(super) Call);

/// How branches and norms follow one another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Branches {
    /// A norm before each branch.
    NormsBefore,
    /// A norm after each sum.
    NormsAfter,
    /// A norm before and after each branch.
    NormsAround,
    /// Both branches from one x, each with a norm before.
    Parallel,
}

impl Norm {
    /// With this ε, which has a name unless it is what norms have anyway.
    pub(super) fn new(operator: &'static str, epsilon: f64) -> Self {
        let named = (epsilon != USUAL).then_some("epsilon");
        Self(Call::new(operator).maybe("epsilon", named))
    }

    pub(super) fn of(&self, x: &str) -> String {
        self.0.of(x)
    }
}

/// The name of what divides a layer's angles, where layers differ in it.
pub(super) const FACTOR: &str = "factor";

/// ε of norms that say no other.
pub(super) const USUAL: f64 = 1e-5;

impl Feed {
    fn of(&self, x: &str) -> String {
        match self {
            Feed::Gated(call) => call.of(x),
            Feed::Plain { up, activation, down } => {
                down.of(&format!("{activation}({})", up.of(x)))
            }
        }
    }
}

/// Drops of x, where there are any.
pub(super) fn dropped(x: &str, rate: f64) -> String {
    if rate == 0.0 { x.to_owned() } else { format!("dropout({x}, {})", number(rate)) }
}

/// What x is first. It is bound under a name that nothing binds again, so that its parameters have that name
/// whether there is dropout or not.
pub(super) fn bound(x: &str, rate: f64) -> [String; 2] {
    [format!("embedded = {x}"), format!("x = {}", dropped("embedded", rate))]
}

impl Layer {
    /// The statements that rebind x.
    pub(super) fn lines(&self, kind: &Kind) -> Vec<String> {
        let attention = self.attention.clone();
        let attention = attention.maybe("window", kind.window.map(|w| w.to_string()));
        let attention = attention.maybe("rotary", kind.rotary.as_deref());
        self.written(&stretched(attention, kind.stretch))
    }

    /// The same for a block that takes the window, the base of the angles where layers differ in it,
    /// and what divides them where no stretch is that of all.
    pub(super) fn open_lines(
        &self,
        rotary: Option<&str>,
        stretch: Option<Stretch>,
    ) -> Vec<String> {
        let attention = self.attention.clone().with("window", "window");
        let attention = attention.maybe("rotary", rotary);
        self.written(&match stretch {
            Some(stretch) => stretched(attention, stretch),
            None => attention.with("rotary_factor", FACTOR),
        })
    }

    fn written(&self, attention: &Call) -> Vec<String> {
        let Self { feed, norm, branches, dropout, .. } = self;
        let branch = |text: String| dropped(&text, *dropout);
        let [attend, feed]: [&dyn Fn(&str) -> String; 2] =
            [&|x| branch(attention.of(x)), &|x| branch(feed.of(x))];
        let before = norm.of("x");
        match branches {
            Branches::NormsBefore => vec![
                format!("x = x + {}", attend(&before)),
                format!("x = x + {}", feed(&before)),
            ],
            Branches::NormsAfter => vec![
                format!("x = {}", norm.of(&format!("x + {}", attend("x")))),
                format!("x = {}", norm.of(&format!("x + {}", feed("x")))),
            ],
            Branches::NormsAround => vec![
                format!("x = x + {}", norm.of(&attend(&before))),
                format!("x = x + {}", norm.of(&feed(&before))),
            ],
            Branches::Parallel => {
                vec![format!("x = x + {} + {}", attend(&before), feed(&before))]
            }
        }
    }
}
