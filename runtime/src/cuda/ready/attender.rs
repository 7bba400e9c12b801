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
    compile::SM90,
    cudnn::{
        Cudnn, Handle, Refused, Unusable,
        engine::{self, Configuration, Engines, Target},
    },
    drawn::{Distance, extents},
    functions::{Functions, Loaded, digest_of},
    tools::Tools,
    tuning::{Bench, Choice, Known, Trials, Tried, Tuner},
};
use crate::{digest::Digest, machine::AttentionCounts};
use roundelay_kernels::cuda::{Attended, CallPlace, Either, Unattended};
use roundelay_schedule::Bytes;
use std::fmt;

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
    Own(Family),
    /// By the engine of the library that it offers in this place.
    Engine(usize),
}

/// Functions of ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Family {
    /// For every device.
    Usual,
    /// For this one.
    Special,
}

impl Family {
    fn name(self) -> &'static str {
        match self {
            Self::Usual => USUAL,
            Self::Special => SPECIAL,
        }
    }
}

/// How something is made.
struct Made {
    /// What it is.
    text: String,
    by: By,
}

/// By whom something is made, and why not by those that are asked first.
enum By {
    Usual { special: Reason, library: Reason },
    Special { library: Reason },
    Library(engine::Chosen),
}

impl By {
    /// By functions of ours, where those for this device and the library are absent as they say, or not
    /// taken for a reason.
    fn own(family: Family, absent: [Option<Reason>; 2], reason: &Reason) -> Self {
        let why = |absent: Option<Reason>| absent.unwrap_or_else(|| reason.clone());
        let [special, library] = absent.map(why);
        match family {
            Family::Usual => Self::Usual { special, library },
            Family::Special => Self::Special { library },
        }
    }

    /// What says it, in a digest.
    fn name(&self) -> &[u8] {
        match self {
            Self::Usual { .. } => USUAL.as_bytes(),
            Self::Special { .. } => SPECIAL.as_bytes(),
            Self::Library(chosen) => &chosen.name,
        }
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
        for Made { text, by } in &self.made {
            digest.add(text.as_bytes());
            digest.add(by.name());
        }
        format!("{:016x}", digest.value())
    }

    /// Memory that the library takes for a plan beside the arrays.
    pub(super) fn workspace(&self, plan: usize) -> Bytes {
        self.chosen(plan).plan.workspace()
    }

    /// The library's plan for what it makes.
    fn chosen(&self, plan: usize) -> &engine::Chosen {
        let chosen = match &self.made[plan].by {
            By::Library(chosen) => Some(chosen),
            By::Usual { .. } | By::Special { .. } => None,
        };
        chosen.expect("a step is the library's where it has a plan")
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
        Ok(match self.made[place].by {
            By::Usual { .. } => Chosen::Functions(case.usual),
            By::Special { .. } => Chosen::Functions(there(case.special)),
            By::Library(_) => Chosen::Library(case.places(), place),
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
        let counts = &mut self.counts;
        let (made, why_usual, why_own) = match &self.made[place].by {
            By::Usual { special, library } => {
                (&mut counts.usual, Some(special), Some(library))
            }
            By::Special { library } => (&mut counts.sm90, None, Some(library)),
            By::Library(_) => (&mut counts.library, None, None),
        };
        *made += 1;
        let both = [(&mut counts.why_usual, why_usual), (&mut counts.why_own, why_own)];
        for (told, why) in both {
            if told.is_none() {
                *told = why.map(Reason::to_string);
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
            Choice::First => (Way::Own(Family::Usual), Reason::Untried),
            Choice::Kept(place) => (trial.ways[place], slower(trial.ways[place])),
        };
        if let Some(wrong) = trial.wrong.take() {
            self.counts.wrong.get_or_insert(wrong);
        }
        let made = trial.made(text, way, &reason);
        if let (Way::Engine(_), By::Usual { .. }) = (way, &made.by) {
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
        self.chosen(place).run(places, binding, to)
    }
}

/// Why other ways are not taken where a trial kept this one.
fn slower(kept: Way) -> Reason {
    Reason::Slower(match kept {
        Way::Own(family) => family.name(),
        Way::Engine(_) => "cuDNN",
    })
}

/// What a way is made with that is open: only those are whose functions or engines are there.
fn there<T>(part: Result<T, impl fmt::Debug>) -> T {
    part.expect("an open way is there")
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
        places(there(self.attended.as_ref()))
    }

    /// How functions of ours make it where it is known that they do, or nothing may be found out.
    fn known(&self, text: &str, versions: &str, tuner: &mut Tuner) -> Option<Made> {
        let (family, reason) = match tuner.known(KIND, [versions, text]) {
            Known::Kept(kept) => {
                let family = self.family(&kept)?;
                (family, slower(Way::Own(family)))
            }
            Known::Closed => (Family::Usual, Reason::Untried),
            Known::Open => return None,
        };
        let absent = [self.special.as_ref().err(), self.attended.as_ref().err()];
        let by = By::own(family, absent.map(|why| why.cloned()), &reason);
        Some(Made { text: text.to_owned(), by })
    }

    /// The functions of ours that were kept; none where it was not they.
    fn family(&self, kept: &[u8]) -> Option<Family> {
        self.families().find(|family| family.name().as_bytes() == kept)
    }

    /// The functions of ours that are there.
    fn families(&self) -> impl Iterator<Item = Family> {
        let special = self.special.is_ok().then_some(Family::Special);
        [Family::Usual].into_iter().chain(special)
    }

    /// By the library in one turn and by functions for this device in the other, where both are there.
    fn in_turn(&self, turn: usize, text: String, cudnn: &mut Cudnn) -> Made {
        let trial = Trial::new(self, cudnn);
        let others: Vec<Way> = [Way::Own(Family::Special), Way::Engine(0)]
            .into_iter()
            .filter(|way| trial.ways.contains(way))
            .collect();
        let way = others.get(turn % others.len().max(1)).copied();
        trial.made(text, way.unwrap_or(Way::Own(Family::Usual)), &Reason::Untried)
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
        let own = case.families().map(Way::Own);
        let ways = own.chain((0..count).map(Way::Engine)).collect();
        Self { case, ways, engines, parameters: Parameters::default(), wrong: None }
    }

    /// How it is made from now on.
    fn made(self, text: String, way: Way, reason: &Reason) -> Made {
        let (family, library) = match way {
            Way::Own(family) => (family, self.engines.err()),
            Way::Engine(engine) => match there(self.engines).take(engine) {
                Ok(plan) => return Made { text, by: By::Library(plan) },
                Err(refused) => (Family::Usual, Some(self.case.refused(refused))),
            },
        };
        let special = self.case.special.as_ref().err().cloned();
        Made { text, by: By::own(family, [special, library], reason) }
    }

    fn tell(&mut self, way: Way, error: f64) {
        let maker = match way {
            Way::Own(family) => family.name().to_owned(),
            Way::Engine(engine) => format!("cuDNN's {}", self.configuration(engine)),
        };
        let words = &self.case.either.words;
        self.wrong.get_or_insert_with(|| {
            format!("{words} by {maker} is off by {error:.1e} of the largest number")
        });
    }

    fn configuration(&self, engine: usize) -> &Configuration {
        &there(self.engines.as_ref()).configurations()[engine]
    }
}

impl Tried for Trial<'_> {
    fn ways(&self) -> Vec<Vec<u8>> {
        let name = |way: &Way| match way {
            Way::Own(family) => family.name().into(),
            Way::Engine(engine) => self.configuration(*engine).bytes(),
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
        let loaded = match self.ways[way] {
            Way::Own(Family::Usual) => &self.case.usual,
            Way::Own(Family::Special) => there(self.case.special.as_ref()),
            Way::Engine(engine) => {
                let arrays = self.case.places().map(|place| binding.address(place));
                let engines = there(self.engines.as_mut());
                let done = engines.run(engine, &arrays, bench.workspace, stream);
                return done.map_err(Refused::of_run);
            }
        };
        loaded.give(&binding, &mut self.parameters, stream)
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
