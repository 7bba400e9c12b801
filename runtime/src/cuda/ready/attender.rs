//! By whom attention is made that has several ways: by functions of ours for every device, by those for
//! this one, or by cuDNN, where a trial found them faster and their numbers the same.

use super::{
    super::{
        CudaError,
        bounce::Unreached,
        driver::{Device, DriverError, Parameters, Stream},
    },
    attentions::{OLDEST, graph},
    code::{Binding, Room},
    cudnn::{
        Cudnn, Handle, Refused, Unusable,
        engine::{self, Engines, Target},
    },
    drawn::{Distance, extents},
    functions::{Functions, Loaded, digest_of},
    tools::Tools,
    tuning::{Bench, Choice, Known, Trials, Tried, Tuner},
};
use crate::{digest::Digest, machine::AttentionCounts};
use roundelay_kernels::cuda::{Attended, CallPlace, Either, Unattended};
use roundelay_schedule::Bytes;

/// The devices that have the instructions of `sm_90a`.
pub(super) const SM90: (u32, u32) = (9, 0);

/// What is tried, in the names of files that keep choices.
const KIND: &str = "attention";

/// What says which functions are best, in files and in words.
const USUAL: &str = "functions for every device";
const SPECIAL: &str = "functions for sm_90a";

/// Why something is not made in one of its ways.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
enum Reason {
    /// Functions for every device were requested.
    #[error("functions for every device were requested")]
    Unwanted,
    /// The device has no others.
    #[error("a device of compute capability {}.{} has no warp groups", .0.0, .0.1)]
    Device((u32, u32)),
    /// There are no others for heads of this size.
    #[error("warp groups make no heads of this size")]
    Unmade,
    /// Others are not there.
    #[error("functions for sm_90a are unavailable: {0}")]
    Absent(String),
    /// The library makes nothing here.
    #[error(transparent)]
    Unusable(#[from] Unusable),
    /// The library makes none of this.
    #[error("cuDNN {0} makes no attention, {OLDEST} and newer ones do")]
    Old(usize),
    /// Nor of such calls.
    #[error("{}", unattended(*.0))]
    Unattended(Unattended),
    /// It has no way to make it.
    #[error("of {words} cuDNN {refused}")]
    Refused { refused: Refused, words: String },
    /// Nobody tried what is faster.
    #[error("no trial was kept that says what is faster")]
    Untried,
    /// Another way was faster.
    #[error("{0} won the trial")]
    Slower(&'static str),
}

/// Why the library makes no such call.
fn unattended(why: Unattended) -> &'static str {
    match why {
        Unattended::Gradients => {
            "cuDNN's deterministic gradient needs memory for all scores"
        }
        Unattended::Window => "a window bounds what positions see",
        Unattended::Cap => "scores are capped",
        Unattended::MoreKeys => "there are more keys than queries",
        Unattended::Uneven => {
            "keys and values lie between queries whose heads share them"
        }
    }
}

/// By whom something is made.
pub(super) enum Chosen {
    /// By functions of ours, one after another.
    Functions(Loaded),
    /// By the library and one of its plans, of q, k, v, o and the logarithms here.
    Library([CallPlace; 5], usize),
}

/// A way that something may be made in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Usual,
    Special,
    /// By the engine of the library that it offers in this place.
    Engine(usize),
}

/// How something is made, and why not in other ways.
struct Made {
    /// What it is.
    text: String,
    way: Way,
    /// The library's plan, where it makes it.
    plan: Option<engine::Chosen>,
    /// Why functions for every device make it, and why the library does not.
    why_usual: Option<Reason>,
    why_own: Option<Reason>,
}

impl Made {
    /// In a way, where those of `special` and of the library are not there as they say, or not taken for a
    /// reason.
    fn new(
        text: String,
        (way, plan): (Way, Option<engine::Chosen>),
        [special, library]: [Option<Reason>; 2],
        reason: Reason,
    ) -> Self {
        let why = |absent: Option<Reason>| Some(absent.unwrap_or_else(|| reason.clone()));
        let (why_usual, why_own) = match way {
            Way::Usual => (why(special), why(library)),
            Way::Special => (None, why(library)),
            Way::Engine(_) => (None, None),
        };
        Self { text, way, plan, why_usual, why_own }
    }
}

/// Chooses for one GPU.
pub(super) struct Attender {
    usable: Result<(), Reason>,
    /// Of what times and engines depend on.
    versions: String,
    /// All that was chosen.
    made: Vec<Made>,
    /// How often something was made ready without trials.
    turns: usize,
    counts: AttentionCounts,
}

impl Attender {
    /// For a GPU.
    pub(super) fn new(device: &Device) -> Self {
        let facts = device.facts();
        let (driver, compiler) = (&facts.driver, &facts.compiler);
        Self {
            usable: usable(facts.capability),
            versions: format!("{driver:?} {compiler:?} {:?}", facts.convolutions),
            made: Vec::new(),
            turns: 0,
            counts: AttentionCounts::default(),
        }
    }

    /// Forgets all that was chosen, but not what trials found to be wrong.
    pub(super) fn forget(&mut self) {
        self.made.clear();
        let wrong = self.counts.wrong.take();
        self.counts = AttentionCounts { wrong, ..AttentionCounts::default() };
    }

    /// Takes functions for every device alone.
    pub(super) fn take_usual(&mut self) {
        self.usable = Err(Reason::Unwanted);
    }

    /// By whom that was made of which was asked so far.
    pub(super) fn counts(&self) -> &AttentionCounts {
        &self.counts
    }

    /// How it is made, as for products.
    pub(super) fn ways(&self) -> String {
        let mut digest = Digest::new();
        for Made { text, way, plan, .. } in &self.made {
            digest.add(text.as_bytes());
            digest.add(match (way, plan) {
                (Way::Engine(_), Some(plan)) => &plan.name,
                (way, _) => own_name(*way),
            });
        }
        format!("{:016x}", digest.value())
    }

    /// Memory that the library takes for a plan beside the arrays.
    pub(super) fn workspace(&self, plan: usize) -> Bytes {
        let made = self.made[plan].plan.as_ref();
        made.map_or(Bytes(0), |chosen| chosen.plan.workspace())
    }

    /// By whom something of a call with this room is made.
    ///
    /// # Errors
    /// When there are no functions for it.
    pub(super) fn choose(
        &mut self,
        either: &Either,
        room: Room<'_>,
        tools: &mut Tools,
    ) -> Result<Chosen, CudaError> {
        let case = Case {
            either,
            usual: tools.functions.all(&either.usual)?,
            special: self.special(either, &mut tools.functions),
            attended: attended(either, &tools.cudnn, room),
            scratch: room.scratch,
        };
        let turn = self.turn(tools.tuner.trials);
        let text = case.text(turn);
        let known = self.made.iter().position(|made| made.text == text);
        let place = known.unwrap_or_else(|| {
            let made = match turn {
                Some(turn) => case.in_turn(turn, text, &mut tools.cudnn),
                None => self.best(&case, text, tools),
            };
            self.made.push(made);
            self.made.len() - 1
        });
        self.count(place);
        Ok(match self.made[place].way {
            Way::Usual => Chosen::Functions(case.usual),
            Way::Special => {
                Chosen::Functions(case.special.expect("a way that is taken is there"))
            }
            Way::Engine(_) => Chosen::Library(case.places(), place),
        })
    }

    fn special(
        &self,
        either: &Either,
        functions: &mut Functions,
    ) -> Result<Loaded, Reason> {
        self.usable.clone()?;
        let special = functions.all(either.sm90.as_ref().ok_or(Reason::Unmade)?);
        special.map_err(|reason| Reason::Absent(reason.to_string()))
    }

    /// Where nothing is tried, the ways that are there take turns.
    fn turn(&mut self, trials: Trials) -> Option<usize> {
        (trials == Trials::Skipped).then(|| {
            self.turns += 1;
            self.turns % 2
        })
    }

    fn count(&mut self, place: usize) {
        let (made, counts) = (&self.made[place], &mut self.counts);
        match made.way {
            Way::Usual => counts.usual += 1,
            Way::Special => counts.sm90 += 1,
            Way::Engine(_) => counts.library += 1,
        }
        let both = [
            (&mut counts.why_usual, &made.why_usual),
            (&mut counts.why_own, &made.why_own),
        ];
        for (told, why) in both {
            if told.is_none() {
                *told = why.as_ref().map(Reason::to_string);
            }
        }
    }

    /// The way that is known to be best, or found to be now. Where that is one of functions of ours the library
    /// is not started, which takes time and memory. What is found where it does not start says nothing of
    /// runs in which it does, and is kept under another name.
    fn best(&mut self, case: &Case<'_>, text: String, tools: &mut Tools) -> Made {
        let mut versions = self.versions.clone();
        if let Some(own) = case.known(&text, &versions, &mut tools.tuner) {
            return own;
        }
        if case.attended.is_ok() && tools.cudnn.start().is_err() {
            tools.tuner.withdraw(KIND, [&versions, &text]);
            versions.push_str(", not started");
            if let Some(own) = case.known(&text, &versions, &mut tools.tuner) {
                return own;
            }
        }
        let mut trial = Trial::new(case, &mut tools.cudnn);
        let choice = tools.tuner.choose(&mut trial, KIND, [&versions, &text]);
        let (way, reason) = match choice {
            Choice::First => (Way::Usual, Reason::Untried),
            Choice::Kept(place) => (trial.ways[place], slower(trial.ways[place])),
        };
        if let Some(wrong) = trial.wrong.take() {
            self.counts.wrong.get_or_insert(wrong);
        }
        let made = trial.made(text, way, reason);
        if made.way != way {
            tools.tuner.withdraw(KIND, [&versions, &made.text]);
        }
        made
    }

    /// Gives a call that the library makes, whose arrays are here, to a stream.
    ///
    /// # Errors
    /// When the library refuses it.
    pub(super) fn run(
        &self,
        place: usize,
        places: [CallPlace; 5],
        binding: &Binding<'_>,
        to: (&Handle, &Stream),
    ) -> Result<(), DriverError> {
        let chosen = self.made[place].plan.as_ref();
        let chosen = chosen.expect("a step is the library's where it has a plan");
        chosen.run(places, binding, to)
    }
}

/// Why other ways are not taken where a trial kept this one.
fn slower(kept: Way) -> Reason {
    Reason::Slower(match kept {
        Way::Usual => USUAL,
        Way::Special => SPECIAL,
        Way::Engine(_) => "cuDNN",
    })
}

/// What says which functions make something; the library's engines have names of their own.
fn own_name(way: Way) -> &'static [u8] {
    match way {
        Way::Usual => USUAL.as_bytes(),
        Way::Special => SPECIAL.as_bytes(),
        Way::Engine(_) => &[],
    }
}

/// Whether a device has functions of its own.
fn usable(capability: (u32, u32)) -> Result<(), Reason> {
    match capability {
        SM90 => Ok(()),
        other => Err(Reason::Device(other)),
    }
}

/// What the library may make of a call with this room.
fn attended(either: &Either, cudnn: &Cudnn, room: Room<'_>) -> Result<Attended, Reason> {
    let version = cudnn.version()?;
    if version < OLDEST {
        return Err(Reason::Old(version));
    }
    let attended = either.attended.map_err(Reason::Unattended)?;
    cudnn.reaches(places(&attended), room.operands)?;
    Ok(attended)
}

/// Where q, k, v, o and the logarithms are.
fn places(of: &Attended) -> [CallPlace; 5] {
    let [q, k, v, o] = of.tokens.map(|array| array.place);
    [q, k, v, o, of.logarithms.place]
}

/// Something that has several ways, as far as they are known without the library.
struct Case<'a> {
    either: &'a Either,
    usual: Loaded,
    special: Result<Loaded, Reason>,
    /// What the library may make of it.
    attended: Result<Attended, Reason>,
    scratch: Bytes,
}

impl Case<'_> {
    /// What is made, by which sources, and with which libraries.
    fn text(&self, turn: Option<usize>) -> String {
        let Either { words, arrays, .. } = self.either;
        let mut text = format!("{words} {arrays:?}");
        for way in [Some(&self.usual), self.special.as_ref().ok()].into_iter().flatten() {
            text += &format!(" by {:016x}", digest_of(way.launches()));
            for launch in way.launches() {
                text += &format!(" {:?}", launch.arguments);
            }
        }
        text + &format!(" {:?} {turn:?}", self.attended.as_ref().ok())
    }

    fn places(&self) -> [CallPlace; 5] {
        places(self.attended.as_ref().expect("the library makes what it may make"))
    }

    /// How functions of ours make it where it is known that they do, or nothing may be found out.
    fn known(&self, text: &str, versions: &str, tuner: &mut Tuner) -> Option<Made> {
        let (way, reason) = match tuner.known(KIND, [versions, text]) {
            Known::Kept(kept) => self.own_way(&kept).map(|way| (way, slower(way)))?,
            Known::Closed => (Way::Usual, Reason::Untried),
            Known::Open => return None,
        };
        let absent = [self.special.as_ref().err(), self.attended.as_ref().err()];
        let absent = absent.map(|reason| reason.cloned());
        Some(Made::new(text.to_owned(), (way, None), absent, reason))
    }

    /// The way of functions of ours that was kept; none where it is not theirs.
    fn own_way(&self, kept: &[u8]) -> Option<Way> {
        match kept {
            usual if usual == USUAL.as_bytes() => Some(Way::Usual),
            special if special == SPECIAL.as_bytes() && self.special.is_ok() => {
                Some(Way::Special)
            }
            _ => None,
        }
    }

    /// By the library in one turn and by functions for this device in the other, where both are there.
    fn in_turn(&self, turn: usize, text: String, cudnn: &mut Cudnn) -> Made {
        let trial = Trial::new(self, cudnn);
        let others: Vec<Way> = [Way::Special, Way::Engine(0)]
            .into_iter()
            .filter(|way| trial.ways.contains(way))
            .collect();
        let way = others.get(turn % others.len().max(1)).copied();
        trial.made(text, way.unwrap_or(Way::Usual), Reason::Untried)
    }

    /// The library's engines for it.
    fn engines<'b>(&self, cudnn: &'b mut Cudnn) -> Result<Engines<'b>, Reason> {
        let attended = self.attended.clone()?;
        let handle = cudnn.start()?;
        let graph = graph(&attended, Target::Started(handle));
        Ok(Engines::new(graph.map_err(|refused| self.refused(refused))?, handle))
    }

    fn refused(&self, refused: Refused) -> Reason {
        Reason::Refused { refused, words: self.either.words.clone() }
    }
}

/// Something that is tried in all of its ways.
struct Trial<'a> {
    case: &'a Case<'a>,
    ways: Vec<Way>,
    engines: Result<Engines<'a>, Reason>,
    parameters: Parameters,
    /// In words how far the numbers of another way are from those of the usual one.
    wrong: Option<String>,
}

impl<'a> Trial<'a> {
    fn new(case: &'a Case<'a>, cudnn: &'a mut Cudnn) -> Self {
        let engines = case.engines(cudnn);
        let count = engines.as_ref().map_or(0, |own| own.configurations().len());
        let special = case.special.is_ok().then_some(Way::Special);
        let ways = [Way::Usual].into_iter().chain(special);
        let ways = ways.chain((0..count).map(Way::Engine)).collect();
        Self { case, ways, engines, parameters: Parameters::default(), wrong: None }
    }

    /// How it is made from now on.
    fn made(self, text: String, way: Way, reason: Reason) -> Made {
        let special = self.case.special.as_ref().err().cloned();
        let (way, plan, library) = match (way, self.engines) {
            (Way::Engine(engine), Ok(engines)) => match engines.take(engine) {
                Ok(plan) => (way, Some(plan), None),
                Err(refused) => (Way::Usual, None, Some(self.case.refused(refused))),
            },
            (way, engines) => (way, None, engines.err()),
        };
        Made::new(text, (way, plan), [special, library], reason)
    }

    fn tell(&mut self, way: Way, error: f64) {
        let maker = match (way, &self.engines) {
            (Way::Engine(engine), Ok(engines)) => {
                format!("cuDNN's {}", engines.configurations()[engine])
            }
            (Way::Engine(_) | Way::Special | Way::Usual, _) => SPECIAL.to_owned(),
        };
        let words = &self.case.either.words;
        self.wrong.get_or_insert_with(|| {
            format!("{words} by {maker} is off by {error:.1e} of the largest number")
        });
    }
}

impl Tried for Trial<'_> {
    fn ways(&self) -> Vec<Vec<u8>> {
        let name = |way: &Way| match (way, &self.engines) {
            (Way::Engine(engine), Ok(engines)) => {
                engines.configurations()[*engine].bytes()
            }
            (way, _) => own_name(*way).into(),
        };
        self.ways.iter().map(name).collect()
    }

    fn extents(&self) -> Vec<Bytes> {
        extents(&self.case.either.arrays, self.case.scratch)
    }

    fn prepare(&mut self, bench: &mut Bench) -> Result<Vec<bool>, Unreached> {
        let arrays = &self.case.either.arrays;
        let distances = bench.distances(self, arrays)?;
        for (place, distance) in distances.iter().enumerate() {
            if let Distance::Far(error) = distance {
                self.tell(self.ways[place], *error);
            }
        }
        Ok(distances.iter().map(|distance| *distance == Distance::Near).collect())
    }

    fn run(&mut self, way: usize, bench: &Bench) -> Result<(), DriverError> {
        let (binding, stream) = (bench.binding(), &bench.stream);
        let launches = match (self.ways[way], &mut self.engines, &self.case.special) {
            (Way::Engine(engine), Ok(engines), _) => {
                let arrays = self.case.places().map(|place| binding.address(place));
                let done = engines.run(engine, &arrays, bench.workspace, stream);
                return done.map_err(Refused::of_run);
            }
            (Way::Special, _, Ok(special)) => special,
            (Way::Usual | Way::Special | Way::Engine(_), _, _) => &self.case.usual,
        };
        launches.give(&binding, &mut self.parameters, stream)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `sm_90a` is no base of later architectures.
    #[test]
    fn neither_older_nor_newer_devices_have_warp_groups() {
        assert_eq!(usable(SM90), Ok(()));
        for other in [(8, 0), (8, 9), (10, 0), (12, 1)] {
            let said = usable(other).map_err(|reason| reason.to_string());
            let (major, minor) = other;
            let expected = format!(
                "a device of compute capability {major}.{minor} has no warp groups"
            );
            assert_eq!(said, Err(expected));
        }
    }
}
