//! Everything that is going on: pieces of work that wait for each other, streams, events,
//! captures and graphs.
//!
//! A piece may be done when all that it waits for is done; a stream is the last piece that it was
//! given, and an event the pieces that it was set to. So whatever order is allowed can be drawn.

use crate::{
    backlog::{Backlog, Pending},
    capture::{Capture, Recorded},
    clock::Clock,
    contexts::Contexts,
    exchange::Ranks,
    forbid,
    memory::Memory,
    random::Random,
    settings::{Order, Settings},
    work::Work,
};
use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError},
};

/// Results of the driver that are used.
pub(crate) const SUCCESS: i32 = 0;
pub(crate) const INVALID_VALUE: i32 = 1;
pub(crate) const OUT_OF_MEMORY: i32 = 2;
pub(crate) const NO_DEVICE: i32 = 100;
pub(crate) const INVALID_DEVICE: i32 = 101;
pub(crate) const INVALID_IMAGE: i32 = 200;
pub(crate) const INVALID_CONTEXT: i32 = 201;
pub(crate) const INVALID_HANDLE: i32 = 400;
pub(crate) const NOT_FOUND: i32 = 500;
pub(crate) const NOT_READY: i32 = 600;
pub(crate) const ILLEGAL_ADDRESS: i32 = 700;
pub(crate) const CAPTURE_UNSUPPORTED: i32 = 900;
pub(crate) const CAPTURE_INVALIDATED: i32 = 901;
pub(crate) const CAPTURE_UNMATCHED: i32 = 903;
pub(crate) const CAPTURE_UNJOINED: i32 = 904;
pub(crate) const CAPTURE_ISOLATION: i32 = 905;
pub(crate) const CAPTURED_EVENT: i32 = 907;

/// A stream: what whatever it is given next waits for.
#[derive(Default)]
pub(crate) struct Stream {
    pub(crate) tail: Vec<u64>,
    /// The capture that it takes part in, and where it is there.
    pub(crate) captured: Option<(u64, Vec<usize>)>,
}

/// What an event was set to.
#[derive(Clone, Default)]
pub(crate) enum Event {
    /// Nothing.
    #[default]
    Unset,
    /// Pieces of work.
    Set(Vec<u64>),
    /// A moment of a capture.
    Captured(u64, Vec<usize>),
}

/// What was counted.
#[derive(Default)]
pub(crate) struct Counts {
    pub(crate) waits: u64,
    pub(crate) kernels: u64,
    pub(crate) products: u64,
    /// Those by an algorithm that others are faster than.
    pub(crate) slow_products: u64,
    /// Those with a matrix of which tensor cores cannot load some column.
    pub(crate) unaligned_products: u64,
    /// Those with a GELU or the slope of one.
    pub(crate) gelus: u64,
    /// Those with sums beside them.
    pub(crate) sums: u64,
    pub(crate) convolutions: u64,
    /// Those by an algorithm that others are faster than.
    pub(crate) slow_convolutions: u64,
    /// Those by an algorithm that makes other numbers.
    pub(crate) wrong_convolutions: u64,
    /// Those by an algorithm that nobody should ever run.
    pub(crate) odd_convolutions: u64,
    /// Graphs of operations, and as for convolutions.
    pub(crate) attentions: u64,
    pub(crate) slow_attentions: u64,
    pub(crate) wrong_attentions: u64,
    pub(crate) odd_attentions: u64,
    /// Those of which an array has other numbers between its own.
    pub(crate) packed_attentions: u64,
    pub(crate) graphs: u64,
    pub(crate) graph_launches: u64,
    /// Queues that streams share.
    pub(crate) queues: u64,
    pub(crate) compilations: u64,
    /// Sources that are being compiled, and the most that ever were.
    pub(crate) compiling: u64,
    pub(crate) compiled_at_once: u64,
    /// Groups of messages between ranks, and those of more than one message.
    pub(crate) exchanges: u64,
    pub(crate) grouped: u64,
    /// Bytes of messages to other ranks.
    pub(crate) sent: u64,
}

/// Whether the device has failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Health {
    Well,
    /// It has, but this many calls do not hear of it.
    Failing(u64),
    Failed,
}

/// All of it.
pub(crate) struct World {
    pub(crate) settings: Settings,
    pub(crate) clock: Clock,
    pub(crate) memory: Memory,
    backlog: Backlog,
    next: u64,
    random: Random,
    pub(crate) streams: BTreeMap<u64, Stream>,
    pub(crate) events: BTreeMap<u64, Event>,
    /// When events were, which keep that.
    pub(crate) stamps: BTreeMap<u64, Arc<OnceLock<u64>>>,
    pub(crate) captures: BTreeMap<u64, Capture>,
    pub(crate) graphs: BTreeMap<u64, Vec<Recorded>>,
    pub(crate) counts: Counts,
    pub(crate) ranks: Ranks,
    pub(crate) contexts: Contexts,
    /// Modules that are loaded.
    pub(crate) modules: BTreeSet<u64>,
    pub(crate) health: Health,
}

/// The one world of the process.
pub(crate) fn world() -> MutexGuard<'static, World> {
    static WORLD: OnceLock<Mutex<World>> = OnceLock::new();
    let world = WORLD.get_or_init(|| Mutex::new(World::new()));
    world.lock().unwrap_or_else(PoisonError::into_inner)
}

impl World {
    fn new() -> Self {
        let settings = Settings::read();
        let seed = match settings.order {
            Order::Early | Order::Late => 0,
            Order::Drawn(seed) => seed,
        };
        Self {
            memory: Memory::new(settings.memory),
            clock: Clock::new(settings.costs.clone()),
            settings,
            backlog: Backlog::default(),
            next: 1,
            random: Random::new(seed),
            streams: BTreeMap::new(),
            events: BTreeMap::new(),
            stamps: BTreeMap::new(),
            captures: BTreeMap::new(),
            graphs: BTreeMap::new(),
            counts: Counts::default(),
            ranks: Ranks::default(),
            contexts: Contexts::default(),
            modules: BTreeSet::new(),
            health: Health::Well,
        }
    }

    /// A number that nothing else has; a handle of something.
    pub(crate) fn number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    /// Gives a piece of work to a stream, or to the capture that it takes part in.
    pub(crate) fn give(&mut self, stream: u64, work: Work) -> i32 {
        if let Some(failure) = self.heard() {
            return failure;
        }
        if self.is_unrecorded(stream, &work) {
            return self.spoil().unwrap_or(CAPTURE_UNSUPPORTED);
        }
        self.clock.call(&work);
        let Some(own) = self.streams.get_mut(&stream) else { return INVALID_HANDLE };
        if let Some((capture, place)) = &mut own.captured {
            let capture = self.captures.get_mut(capture);
            let Some(capture) = capture else { return CAPTURE_INVALIDATED };
            *place = vec![capture.add(work, place)];
            return SUCCESS;
        }
        let after = std::mem::take(&mut own.tail);
        let number = self.add(work, after);
        if let Some(own) = self.streams.get_mut(&stream) {
            own.tail = vec![number];
        }
        self.early();
        SUCCESS
    }

    /// Whether a stream records, and the environment says that this cannot be recorded.
    fn is_unrecorded(&self, stream: u64, work: &Work) -> bool {
        let records = self.streams.get(&stream).is_some_and(|own| own.captured.is_some());
        let named = |name: String| self.settings.unrecorded.contains(&name);
        records && work.name().is_some_and(named)
    }

    /// A new piece of work.
    pub(crate) fn add(&mut self, work: Work, after: Vec<u64>) -> u64 {
        let number = self.number();
        self.backlog.add(number, (work, self.clock.host()), after);
        number
    }

    /// Does everything, if that is the order.
    pub(crate) fn early(&mut self) {
        if self.settings.order == Order::Early {
            self.finish();
        }
    }

    /// Does all work that is left, in the order in which it was given, as far as it does not wait
    /// for other ranks.
    pub(crate) fn finish(&mut self) {
        let mut held_up = BTreeSet::new();
        loop {
            let mut ready = self.backlog.ready().iter().copied();
            let next = ready.find(|number| !held_up.contains(number));
            let Some(number) = next else { return };
            if !self.run(number) {
                held_up.insert(number);
            }
        }
    }

    /// Does a piece; says whether it is done, or waits for another rank or for ever.
    fn run(&mut self, number: u64) -> bool {
        let Some(Pending { work, given, .. }) = self.backlog.get(number) else {
            forbid("work was to be done before what it waits for");
        };
        let done = match work {
            Work::Exchange(exchange) => self.ranks.advance(*exchange, &self.settings),
            Work::Endless => false,
            Work::Stamp(time) => {
                let _ = time.set(self.clock.done(work, *given));
                true
            }
            work => {
                self.clock.done(work, *given);
                work.run();
                true
            }
        };
        if done {
            self.backlog.end(number);
        }
        done
    }

    /// Whether pieces of work are done, after some work was done for whoever asks.
    pub(crate) fn ask(&mut self, pieces: &[u64]) -> bool {
        match self.settings.order {
            Order::Early => self.finish(),
            Order::Late => self.run_for(pieces),
            Order::Drawn(_) => self.run_some(),
        }
        let done = !pieces.iter().any(|piece| self.backlog.has(*piece));
        if done {
            self.clock.seen();
        }
        done
    }

    /// Does what pieces need and no more, the newest first that is ready.
    fn run_for(&mut self, pieces: &[u64]) {
        let mut needed = self.backlog.needs(pieces);
        let newest = |backlog: &Backlog, needed: &BTreeSet<u64>| {
            backlog.ready().iter().rev().copied().find(|piece| needed.contains(piece))
        };
        while let Some(piece) = newest(&self.backlog, &needed) {
            // What waits for another rank is tried again when somebody asks again.
            needed.remove(&piece);
            self.run(piece);
        }
    }

    /// Does a few pieces, drawn among those that are ready.
    fn run_some(&mut self) {
        for _ in 0..=self.random.below(32) {
            let count = self.backlog.ready().len();
            if count == 0 {
                return;
            }
            let drawn = self.random.below(count);
            if let Some(piece) = self.backlog.ready().iter().nth(drawn).copied() {
                self.run(piece);
            }
        }
    }

    /// What a call answers if the device has failed: whatever was under way is lost then.
    pub(crate) fn heard(&mut self) -> Option<i32> {
        match &mut self.health {
            Health::Well => None,
            Health::Failed => Some(ILLEGAL_ADDRESS),
            Health::Failing(0) => {
                self.health = Health::Failed;
                self.backlog.clear();
                Some(ILLEGAL_ADDRESS)
            }
            Health::Failing(calls) => {
                *calls -= 1;
                None
            }
        }
    }

    /// Whether no work is left.
    pub(crate) fn is_idle(&self) -> bool {
        self.backlog.is_empty()
    }

    /// Spoils every capture: something was called that cannot be recorded.
    pub(crate) fn spoil(&mut self) -> Option<i32> {
        if self.captures.is_empty() {
            return None;
        }
        self.captures.values_mut().for_each(|capture| capture.spoiled = true);
        Some(CAPTURE_UNSUPPORTED)
    }

    /// Writes what was counted where the environment wants it.
    pub(crate) fn tell(&self) {
        let Counts {
            waits,
            kernels,
            products,
            slow_products,
            unaligned_products,
            gelus,
            sums,
            convolutions,
            slow_convolutions,
            wrong_convolutions,
            odd_convolutions,
            attentions,
            slow_attentions,
            wrong_attentions,
            odd_attentions,
            packed_attentions,
            graphs,
            graph_launches,
            queues,
            compilations,
            compiling: _,
            compiled_at_once,
            exchanges,
            grouped,
            sent,
        } = &self.counts;
        if let Some(file) = &self.settings.counts {
            let held = self.contexts.held();
            let text = format!(
                "held {held}\nwaits {waits}\nkernels {kernels}\nproducts {products}\n\
                 slow_products {slow_products}\nunaligned_products {unaligned_products}\ngelus {gelus}\nsums {sums}\nconvolutions {convolutions}\n\
                 slow_convolutions {slow_convolutions}\nwrong_convolutions {wrong_convolutions}\n\
                 odd_convolutions {odd_convolutions}\nattentions {attentions}\n\
                 slow_attentions {slow_attentions}\nwrong_attentions {wrong_attentions}\n\
                 odd_attentions {odd_attentions}\npacked_attentions {packed_attentions}\ngraphs {graphs}\ngraph_launches {graph_launches}\nqueues {queues}\ncompilations {compilations}\ncompiled_at_once {compiled_at_once}\n\
                 exchanges {exchanges}\ngrouped {grouped}\nsent {sent}\n"
            );
            let _ = fs::write(file, text);
        }
    }
}
