//! What e-graphs count against what lowering sends: kind by kind, line by line, pass by pass, for
//! random small models whose maps may go random ways.

use super::{
    arrays::line,
    exchanges::{Exchange, Pass},
    image_tests::{GROUPED, JOINED, NARROWED},
    region::Kind,
    term::Term,
    tests::{EXAMPLES, lowered, model},
    *,
};
use roundelay_codegen::{LoweringChoice, Neighbour, StageError, Stages};
use roundelay_kernels::{Joint, Kernel, random::Stream};
use roundelay_schedule::{Collective, Id, Line, Rewrite, Tensor};
use std::{collections::BTreeSet, sync::Mutex};

/// Numbers that are sent.
type Sent = BTreeMap<(Pass, Collective, (u32, u32)), u64>;

/// Draws numbers, one after another.
struct Draw {
    stream: Stream,
    next: u64,
}

impl Draw {
    fn new(seed: u64) -> Self {
        Self { stream: Stream::new(seed, &[]), next: 0 }
    }

    fn below(&mut self, count: usize) -> usize {
        self.next += 1;
        (self.stream.bits(self.next) >> 20) as usize % count
    }

    fn of<'t>(&mut self, all: &[&'t str]) -> &'t str {
        all[self.below(all.len())]
    }
}

/// Limits every map to some ways, takes the cheapest of them, and keeps what that counts.
struct Limited {
    draw: Mutex<Draw>,
    /// None where some region has no such way.
    counted: Mutex<Option<Counted>>,
}

/// What e-graphs count.
#[derive(Default)]
struct Counted {
    sent: Sent,
    /// Whether a value that others count on lies otherwise than they do, until it is moved.
    moves_fixed: bool,
}

impl LoweringChoice for Limited {
    fn choose(&self, _: &[Neighbour<'_>]) -> BTreeSet<(usize, Rewrite)> {
        BTreeSet::new()
    }

    fn ways(&self, divided: &Divided<'_>) -> MapWays {
        let mut ways = divided.ways.clone();
        if is_stuck(divided) {
            return ways;
        }
        let mut draw = self.draw.lock().unwrap();
        let mut counted = Some(Counted::default());
        for Found { mut region, sites } in regions(divided) {
            limit(&mut region, &mut draw);
            let (terms, cheapest, stop) = solved(&region, STEPS_MAX);
            if stop != Stop::Saturated || cheapest.cost.is_none() {
                counted = None;
                continue;
            }
            let found = region.ways(&terms, &cheapest);
            for (site, way) in sites.iter().zip(found) {
                ways.send(u32::try_from(site.index()).unwrap(), way);
            }
            let Some(all) = &mut counted else { continue };
            let exchanged = cheapest.exchanges(&region, &terms);
            let total: u64 = exchanged.iter().map(|own| own.sent).sum();
            assert_eq!(Some(total), cheapest.cost.map(|cost| cost.sent));
            for own in exchanged {
                add(&mut all.sent, divided.tensor, own);
            }
            all.moves_fixed |= moves_fixed(&region, &terms, &cheapest);
        }
        *self.counted.lock().unwrap() = counted;
        ways
    }
}

fn moves_fixed(region: &Region, terms: &Terms, cheapest: &Cheapest) -> bool {
    let needed = Sketch::new(region).needed.into_iter();
    let mut made = needed.filter_map(|id| cheapest.term(terms.find(id)));
    made.any(|term| matches!(term, Term::Gather(_) | Term::Cut(_)))
}

fn limit(region: &mut Region, draw: &mut Draw) {
    for part in &mut region.operations {
        if let Kind::Map { open, .. } = &mut part.kind {
            let kept: Vec<bool> = open.iter().map(|_| draw.below(3) == 0).collect();
            let any = draw.below(open.len());
            let mut place = 0..;
            open.retain(|_| {
                let place = place.next().unwrap();
                kept[place] || place == any
            });
        }
    }
}

fn add(sent: &mut Sent, tensor: Tensor, own: Exchange) {
    let Line { parts, stride } = line(tensor, own.along);
    if own.sent > 0 {
        let key = (own.pass, own.collective, (parts, stride));
        *sent.entry(key).or_default() += EXAMPLES * own.sent;
    }
}

/// What the routines of the only stage send.
fn sent_by(code: &Stages, tensor: Tensor) -> Sent {
    let stage = &code.stages[Id::new(0)];
    let backward = stage.backward.first()[0];
    let mut sent = Sent::new();
    for (pass, routine) in [(Pass::Forward, &stage.forward), (Pass::Backward, backward)] {
        let kernels = routine.calls.iter().map(|call| Kernel::parse(call).expect("one"));
        for exchange in kernels.filter_map(|kernel| kernel.exchange()) {
            let Joint::Collective(collective) = exchange.kind else {
                panic!("images are whole")
            };
            let Line { parts, stride } = exchange.line;
            let all = u64::from(parts - 1) * u64::from(tensor.parts());
            let own = exchange.elements() as u64 * collective.rounds() * all;
            if own > 0 {
                *sent.entry((pass, collective, (parts, stride))).or_default() +=
                    own / u64::from(parts);
            }
        }
    }
    sent
}

/// A model of random operations, one after another.
struct Chain {
    text: String,
    /// Each value with its width.
    values: Vec<(String, usize)>,
}

impl Chain {
    /// The last value.
    fn last(&self) -> (&str, usize) {
        let (name, width) = self.values.last().expect("there is an input");
        (name, *width)
    }

    fn push(&mut self, made: &str, width: usize) {
        let name = format!("v{}", self.values.len());
        self.text += &format!("{name} = {made}\n");
        self.values.push((name, width));
    }

    /// The last value and another one of its width, in some order.
    fn pair(&mut self, draw: &mut Draw) {
        let (name, width) = self.last();
        let fits = |(other, own): &&(String, usize)| *own == width && other != name;
        let others: Vec<&str> =
            self.values.iter().filter(fits).map(|(other, _)| other.as_str()).collect();
        if others.is_empty() {
            return;
        }
        let (other, sign) = (draw.of(&others), draw.of(&["+", "*"]));
        let made = match draw.below(2) {
            0 => format!("{name} {sign} {other}"),
            _ => format!("{other} {sign} {name}"),
        };
        self.push(&made, width);
    }
}

/// Heads that every direction divides, and some that a line of four does not.
const HEADS: [&str; 4] =
    ["8, key_heads = 4", "2", "2, rotary = 100.0", "4, key_heads = 2, rotary = 100.0"];

/// Features of tokens.
fn features(draw: &mut Draw) -> String {
    let text = "input x: real[batch, 4, 8]\n".to_owned();
    let mut chain = Chain { text, values: vec![("x".to_owned(), 8)] };
    for _ in 0..3 + draw.below(4) {
        let (name, width) = chain.last();
        let (made, width) = match draw.below(10) {
            0..=3 => {
                let (width, bias) =
                    ([8, 16][draw.below(2)], draw.of(&["", ", bias = false"]));
                (format!("linear({name}, {width}{bias})"), width)
            }
            4 => (format!("{}({name})", draw.of(&["relu", "gelu", "silu"])), width),
            5 => {
                let norm = draw.of(&["layer_norm", "rms_norm", "softmax"]);
                (format!("{norm}({name})"), width)
            }
            6 => {
                let heads = draw.of(&HEADS);
                let stored = draw.of(&["", ", stored_scores = true"]);
                (format!("attention({name}, {heads}{stored})"), width)
            }
            _ => {
                chain.pair(draw);
                continue;
            }
        };
        chain.push(&made, width);
    }
    let name = chain.last().0;
    let end = match draw.below(2) {
        0 => format!("input y: real[batch, 4, 8]\nloss mse(linear({name}, 8), y)"),
        _ => {
            // As many as parts, and more.
            let classes = [4, 8, 16][draw.below(3)];
            format!(
                "input y: i32[batch, 4]\nloss cross_entropy(linear({name}, {classes}), y)"
            )
        }
    };
    chain.text + &end
}

/// Channels of images.
fn channels(draw: &mut Draw) -> String {
    let text =
        "input x: real[batch, 4, 4, 8]\ninput y: real[batch, 4, 4, 8]\n".to_owned();
    let mut chain = Chain { text, values: vec![("x".to_owned(), 8)] };
    for _ in 0..3 + draw.below(4) {
        let (name, width) = chain.last();
        let (made, width) = match draw.below(10) {
            0..=3 => {
                let (width, more) = (
                    [8, 16][draw.below(2)],
                    draw.of(&["", ", bias = false", ", kernel = 1, bias = false"]),
                );
                (format!("conv2d({name}, {width}{more})"), width)
            }
            4 => (format!("{}({name})", draw.of(&["relu", "gelu", "silu"])), width),
            5 => {
                let groups = [2, 4, 8][draw.below(3)];
                (format!("group_norm({name}, {groups})"), width)
            }
            6 => {
                let made = match draw.below(3) {
                    0 => format!("batch_norm({name})"),
                    1 => format!("conv2d({name}, {width}, groups = 8)"),
                    _ => format!("upsample(max_pool({name}, 2))"),
                };
                (made, width)
            }
            _ => {
                chain.pair(draw);
                continue;
            }
        };
        chain.push(&made, width);
    }
    let name = chain.last().0;
    let end = format!("loss mse(conv2d({name}, 8), y)");
    chain.text + &end
}

/// What is counted and what is sent; none where some region has no such ways, or they divide no
/// parameter. Lowering takes all else that is found.
fn outcome(text: &str, tensor: Tensor, draw: Draw) -> Option<(Counted, Sent, MapWays)> {
    let limited = Limited { draw: Mutex::new(draw), counted: Mutex::default() };
    let code = lowered(&model(text), tensor, &limited);
    let counted = limited.counted.into_inner().unwrap()?;
    match code {
        Ok(code) => Some((counted, sent_by(&code, tensor), code.maps.clone())),
        Err(StageError::Unsplit { .. }) => None,
        Err(refused) => panic!("{tensor:?}: {refused}\n{text}"),
    }
}

const GRIDS: [(u32, u32); 7] = [(2, 1), (4, 1), (1, 2), (1, 4), (2, 2), (4, 2), (2, 4)];

/// Each grid with each contraction that it can have.
fn grids() -> impl Iterator<Item = Tensor> {
    let each = |(rows, columns)| {
        let contractions = [Contraction::Alternate, Contraction::Each].into_iter();
        contractions
            .map(move |contraction| Tensor { contraction, ..Tensor::grid(rows, columns) })
    };
    GRIDS.into_iter().flat_map(each).filter(Tensor::can_contract)
}

/// Models: random ones, and some of sums that are added before they meet.
fn models(count: u64) -> impl Iterator<Item = (u64, String)> {
    let random = move |seed: u64| match seed % 2 {
        0 => features(&mut Draw::new(seed)),
        _ => channels(&mut Draw::new(seed)),
    };
    let fixed = [JOINED, NARROWED, GROUPED].map(str::to_owned);
    let fixed = (count..).zip((0..10).flat_map(move |_| fixed.clone()));
    (0..count).map(move |seed| (seed, random(seed))).chain(fixed)
}

/// What is counted is what is sent, kind by kind. In one column values that are fixed may be moved
/// where they are made, which is counted there and not where they are read.
#[test]
fn what_is_counted_is_what_is_sent() {
    let mut compared: BTreeMap<(u32, u32, bool), usize> = BTreeMap::new();
    let mut kinds = BTreeSet::new();
    for (seed, text) in models(200) {
        for tensor in grids() {
            let draw = Draw::new(seed + 1_000_000);
            let Some((counted, sent, ways)) = outcome(&text, tensor, draw) else {
                continue;
            };
            let key = (tensor.rows, tensor.columns, counted.moves_fixed);
            *compared.entry(key).or_default() += 1;
            if counted.moves_fixed && tensor.columns == 1 {
                continue;
            }
            assert_eq!(counted.sent, sent, "{tensor:?} {ways:?}\n{text}");
            kinds
                .extend(sent.into_keys().map(|(pass, collective, _)| (pass, collective)));
        }
    }
    // Sums, gathers and scatters in both passes, on every grid; few of them move what is fixed.
    assert_eq!(kinds.len(), 6, "{kinds:?}");
    for (rows, columns) in GRIDS {
        let of = |moves| compared.get(&(rows, columns, moves)).copied().unwrap_or(0);
        assert!(of(false) > 100 && of(true) < of(false) / 4, "{compared:?}");
    }
}
