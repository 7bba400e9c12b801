//! What the environment asks for.

use crate::clock::{Costs, Drift};
use std::{env, time::Duration};

/// In which order streams do their work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    /// At once.
    Early,
    /// When somebody waits for it, newest first.
    Late,
    /// Drawn, with this seed.
    Drawn(u64),
}

/// When a message to another rank is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sends {
    /// When the other one takes it; until then it is not read.
    Met,
    /// At once.
    Eager,
}

/// What becomes of products.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Multiplied {
    /// They are made.
    Well,
    /// There is no algorithm for them.
    Refused,
    /// There is one, which refuses what it is given.
    Failing,
}

/// How the library of products makes sums beside them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Summed {
    /// As it should.
    Fast,
    /// It takes longer.
    Slow,
    /// It rounds parts of them to 16 bits.
    Short,
    /// It does not.
    Refused,
}

impl Multiplied {
    fn named(text: Option<String>) -> Self {
        match text.as_deref() {
            Some("refuse") => Self::Refused,
            Some("fail") => Self::Failing,
            Some(_) | None => Self::Well,
        }
    }
}

impl Summed {
    fn named(text: Option<String>) -> Self {
        match text.as_deref() {
            Some("slow") => Self::Slow,
            Some("short") => Self::Short,
            Some("refuse") => Self::Refused,
            Some(_) | None => Self::Fast,
        }
    }
}

/// An engine of the library of graphs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Offered {
    /// As it should be.
    Fast,
    /// It takes longer.
    Slow,
    /// It says of itself that it makes other bits every time.
    Drifting,
    /// It makes other numbers.
    Wrong,
    /// It makes all numbers but the last.
    Torn,
    /// It takes more memory than small arrays are worth.
    Roomy,
    /// It takes more memory than anybody gives.
    Large,
    /// It shortens numbers.
    Short,
    /// It is offered, and then refuses.
    Failing,
    /// It loses digits, as it says itself.
    Winograd,
}

/// What a run of an engine counts as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Quality {
    Good,
    /// Others are faster.
    Slow,
    /// It makes other numbers.
    Wrong,
    /// Nobody should ever run it.
    Odd,
}

impl Offered {
    pub(crate) fn quality(self) -> Quality {
        match self {
            Self::Fast | Self::Roomy => Quality::Good,
            Self::Slow => Quality::Slow,
            Self::Wrong | Self::Torn => Quality::Wrong,
            Self::Drifting
            | Self::Large
            | Self::Short
            | Self::Failing
            | Self::Winograd => Quality::Odd,
        }
    }

    const ALL: [(&'static str, Self); 10] = [
        ("fast", Self::Fast),
        ("slow", Self::Slow),
        ("drifting", Self::Drifting),
        ("wrong", Self::Wrong),
        ("torn", Self::Torn),
        ("roomy", Self::Roomy),
        ("large", Self::Large),
        ("short", Self::Short),
        ("failing", Self::Failing),
        ("winograd", Self::Winograd),
    ];

    /// What the environment calls it.
    pub(crate) fn name(self) -> &'static str {
        let own = Self::ALL.iter().find(|(_, own)| *own == self);
        own.map_or("", |(name, _)| name)
    }

    /// Those that a text names, in its order.
    fn named(text: &str) -> Vec<Self> {
        let named = text.split(',').filter_map(|name| {
            Self::ALL.iter().find(|(own, _)| *own == name).map(|(_, own)| *own)
        });
        named.collect()
    }
}

/// A kernel launch, and what comes of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Launch {
    /// What the name of its function contains.
    name: String,
    /// Launches of such functions that are left until it comes.
    left: u64,
    /// Calls after it that are answered as if nothing had happened.
    calls: u64,
}

impl Launch {
    /// `NUMBER`, `NAME:NUMBER`, either with `/CALLS`.
    fn named(text: &str) -> Option<Self> {
        let (launch, calls) = text.split_once('/').unwrap_or((text, "0"));
        let (name, number) = launch.split_once(':').unwrap_or(("", launch));
        let (left, calls) = (number.parse().ok()?, calls.parse().ok()?);
        Some(Self { name: name.to_owned(), left, calls })
    }

    /// A function is launched: if this is it, how many calls after it are answered.
    pub(crate) fn comes(&mut self, symbol: &str) -> Option<u64> {
        let counts = symbol.contains(&self.name) && self.left > 0;
        self.left -= u64::from(counts);
        (counts && self.left == 0).then_some(self.calls)
    }
}

/// All of it.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub(crate) order: Order,
    pub(crate) devices: i32,
    pub(crate) driver: i32,
    /// Compute capability times ten.
    pub(crate) capability: i32,
    pub(crate) memory: u64,
    pub(crate) maps: bool,
    pub(crate) forget: Option<u64>,
    pub(crate) fail: Option<Launch>,
    pub(crate) hang: Option<Launch>,
    pub(crate) products: Multiplied,
    /// The number of a launch of a graph that is refused.
    pub(crate) refuse: Option<u64>,
    /// Sources that must once have been compiled at the same time, before any is done.
    pub(crate) compile_together: u64,
    /// Algorithms that are offered for a product.
    pub(crate) algorithms: u64,
    /// The place of the one that is fastest.
    pub(crate) fastest: u64,
    /// Whether products with a GELU are slow.
    pub(crate) slow_gelus: bool,
    pub(crate) sums: Summed,
    /// What names of functions contain that take long, one or another.
    pub(crate) slow: Vec<String>,
    /// How long these take besides.
    pub(crate) slow_for: Duration,
    /// What things take, where that is not left to the system's clock.
    pub(crate) costs: Option<Costs>,
    /// What refuses while a stream records it.
    pub(crate) unrecorded: Vec<String>,
    /// Version of the library of graphs.
    pub(crate) cudnn: usize,
    /// Engines that are offered for a graph.
    pub(crate) offers: Vec<Offered>,
    /// Those that take longer.
    pub(crate) slow_engines: Vec<Offered>,
    pub(crate) counts: Option<String>,
    pub(crate) nccl: i32,
    pub(crate) sends: Sends,
    pub(crate) stall: Option<u64>,
    pub(crate) corrupt: Option<u64>,
    pub(crate) reports_deaths: bool,
    pub(crate) aborts: bool,
    /// Bytes of its device that NCCL takes for each rank that it connects with.
    pub(crate) takes: u64,
    pub(crate) host: u64,
}

impl Settings {
    /// Whether the algorithm of a product that is offered in this place takes longer than another one.
    pub(crate) fn is_slow(&self, place: u64) -> bool {
        self.algorithms > 1 && place != self.fastest
    }

    /// As the environment has them.
    pub(crate) fn read() -> Self {
        let text = |name: &str| env::var(format!("STANDIN_CUDA_{name}")).ok();
        let number = |name: &str| text(name).and_then(|text| text.parse::<u64>().ok());
        let names = |name: &str| {
            text(name).map_or_else(Vec::new, |text| {
                text.split(',').map(str::to_owned).collect()
            })
        };
        let small = |name: &str, default: i32| {
            number(name).and_then(|n| i32::try_from(n).ok()).unwrap_or(default)
        };
        let of_cudnn = |name: &str| env::var(format!("STANDIN_CUDNN_{name}")).ok();
        let said_of_nccl = |name: &str| env::var(format!("STANDIN_NCCL_{name}")).ok();
        let of_nccl =
            |name: &str| said_of_nccl(name).and_then(|text| text.parse::<u64>().ok());
        let order = match text("ORDER").as_deref() {
            Some("late") => Order::Late,
            Some(seed) if seed.parse::<u64>().is_ok() => {
                Order::Drawn(seed.parse().unwrap_or(0))
            }
            Some(_) | None => Order::Early,
        };
        Self {
            order,
            devices: small("DEVICES", 2),
            driver: small("DRIVER", 13_000),
            capability: small("CAPABILITY", 90),
            memory: number("MEMORY").unwrap_or(1 << 30),
            maps: text("MAPS").as_deref() != Some("no"),
            forget: number("FORGET"),
            fail: text("FAIL").and_then(|text| Launch::named(&text)),
            hang: text("HANG").and_then(|text| Launch::named(&text)),
            compile_together: number("COMPILE_TOGETHER").unwrap_or(1),
            algorithms: number("ALGORITHMS").unwrap_or(1).max(1),
            fastest: number("FASTEST").unwrap_or(2),
            refuse: number("REFUSE"),
            products: Multiplied::named(text("PRODUCTS")),
            slow_gelus: text("GELUS").as_deref() == Some("slow"),
            sums: Summed::named(text("SUMS")),
            slow_for: Duration::from_millis(number("SLOW_FOR").unwrap_or(4)),
            slow: names("SLOW"),
            costs: text("CLOCK")
                .map(|costs| Costs::named(&costs, Drift::named(text("DRIFT")))),
            unrecorded: names("UNRECORDED"),
            cudnn: of_cudnn("VERSION")
                .and_then(|text| text.parse().ok())
                .unwrap_or(91_000),
            offers: Offered::named(of_cudnn("OFFERS").as_deref().unwrap_or("fast")),
            slow_engines: Offered::named(of_cudnn("SLOW").as_deref().unwrap_or("slow")),
            counts: text("COUNTS"),
            nccl: i32::try_from(of_nccl("VERSION").unwrap_or(22_809)).unwrap_or(0),
            sends: match said_of_nccl("SENDS").as_deref() {
                Some("eager") => Sends::Eager,
                Some(_) | None => Sends::Met,
            },
            stall: of_nccl("STALL"),
            corrupt: of_nccl("CORRUPT"),
            reports_deaths: said_of_nccl("DEATHS").as_deref() != Some("silent"),
            aborts: said_of_nccl("ABORT").as_deref() != Some("never"),
            takes: of_nccl("TAKES").unwrap_or(0),
            host: env::var("NCCL_HOSTID").map_or(0, |name| {
                name.bytes().fold(7, |sum, letter| sum * 31 + u64::from(letter))
            }),
        }
    }
}
