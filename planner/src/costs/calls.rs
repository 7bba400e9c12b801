//! Time of kernel calls: the table of measured times where a device has one, else a roofline.
//!
//! Law of the roofline: a call takes max(FLOPs / compute, bytes / bandwidth) + overhead, each
//! quotient rounded up to whole nanoseconds. Updates of parameters stream through long arrays at a
//! rate of memory of their own, and so do losses over classes. Where a device says what small products lose, a
//! product's arithmetic takes `ramp` more, so one that takes as long as `ramp` reaches half of the
//! rate; attention has the share of `compute` that the device says, and so have products some row
//! of which is no whole number of 16 bytes. Exchanges between the parts of split tensors take what
//! the links between them say: parts wait for each other there, and nothing is hidden, but where
//! exchanges go on beside the calls of the other half ([`time_beside`]). No call
//! takes less than issuing one: the host is never further ahead than by one call. An exchange waits
//! for the slowest of its hosts, which is not ahead: what issuing takes stands before it. A routine takes
//! the sum of its calls, but for what goes on beside others, and on a device with a table what a
//! launch takes besides. So more FLOPs, more bytes or more calls never take less time, a faster
//! device never takes more, and times of routines add.

use crate::{
    costs::{
        measured::{Measured, Origin, Origins},
        part_links::PartLinks,
    },
    rewrite::Algebra,
};
use roundelay_dsl::Program;
use roundelay_kernels::Kernel;
use roundelay_schedule::{
    Attribute, BytesPerSecond, Call, Device, DeviceId, Doing, Exchanged, Exchanging,
    Float, FlopsPerSecond, Footprint, Id, Input, Job, Line, Meanwhile, Nanos, Place,
    Products, Profile, Repeated, RoutineId, Schedule, Table, Thousandths, Touching, Unit,
    Work, feed_text, needed_by, time_beside,
};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

/// A kernel call that the catalogue does not know.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("kernel `{kernel}` cannot be priced: {message}")]
pub struct Unpriced {
    /// Its name.
    pub kernel: String,
    /// What is wrong, as a sentence without full stop.
    pub message: String,
}

/// Time of one call on a device, by the law of this module.
pub fn roofline(footprint: Footprint, device: &Device) -> Nanos {
    let Products { ramp, attention, unaligned } = device.products;
    let at = |share| footprint.flops.at(FlopsPerSecond(part(device.compute.0, share)));
    let arithmetic = match footprint.unit {
        Unit::Vector | Unit::Update | Unit::Loss => at(Thousandths::ALL),
        Unit::Product => at(Thousandths::ALL) + ramp,
        Unit::Unaligned => at(unaligned) + ramp,
        Unit::Attention => at(attention) + ramp,
    };
    let streams = match footprint.unit {
        Unit::Update => device.updates,
        Unit::Loss => device.losses,
        Unit::Vector | Unit::Product | Unit::Unaligned | Unit::Attention => {
            Thousandths::ALL
        }
    };
    let traffic = footprint.bytes.at(BytesPerSecond(part(device.bandwidth.0, streams)));
    arithmetic.max(traffic) + device.overhead
}

/// A share of a rate, which is never nothing.
fn part(rate: u64, share: Thousandths) -> u64 {
    share.of(rate).max(1)
}

/// A call as the cost model sees it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Priced {
    pub(crate) footprint: Footprint,
    /// How tables spell it.
    pub(crate) spelled: Spelled,
    /// What devices that split tensors exchange in it; kernels are nobody's business but their own.
    pub(crate) exchange: Option<Exchanged>,
}

/// A call as tables spell it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Spelled {
    /// No device has a table.
    Nowhere,
    /// The call.
    Alone(String),
    /// Where either may be made: the call that writes a sum, and the one that adds to it.
    OrAdding([String; 2]),
}

impl Spelled {
    /// The call itself first.
    fn texts(&self) -> &[String] {
        match self {
            Self::Nowhere => &[],
            Self::Alone(text) => std::slice::from_ref(text),
            Self::OrAdding(both) => both,
        }
    }
}

impl Priced {
    /// Whether the other one may be the same call of a micro-batch of another size.
    pub(crate) fn is_like(&self, other: &Self) -> bool {
        let exchange = |call: &Self| call.exchange.map(|own| (own.kind, own.line));
        self.footprint.unit == other.footprint.unit && exchange(self) == exchange(other)
    }
}

/// Kinds of devices on which a launch runs: it takes as long as on the slowest of them.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Kinds(Arc<[usize]>);

impl Kinds {
    /// Of kinds by number.
    pub(crate) fn new(kinds: impl Iterator<Item = usize>) -> Self {
        // They are few, however many devices there are.
        let mut known = Vec::new();
        for kind in kinds {
            if !known.contains(&kind) {
                known.push(kind);
            }
        }
        known.sort_unstable();
        Self(known.into())
    }

    /// Each of them, in order.
    pub(crate) fn each(&self) -> impl Iterator<Item = usize> {
        self.0.iter().copied()
    }

    /// Whether all devices are of one kind.
    pub(crate) fn is_single(&self) -> bool {
        self.0.len() == 1
    }

    /// What the slowest of them takes.
    pub(crate) fn slowest(&self, time: impl Fn(usize) -> Nanos) -> Nanos {
        self.0.iter().map(|kind| time(*kind)).max().unwrap_or_default()
    }
}

/// For which devices a cost is good.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum On {
    /// All of the program: no device takes less.
    Any,
    /// Those of one kind.
    Kind(usize),
}

/// What a launch takes at least, on each kind of device: sums over its calls.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Floor(Vec<Busy>);

/// How long some calls keep a device busy, and the links over which its parts exchange.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Busy {
    /// Calls that compute, and exchanges that are waited for.
    device: Nanos,
    /// All exchanges along each kind of line, which is on one link.
    lines: BTreeMap<Line, Nanos>,
}

impl Busy {
    /// The calls take no less, however much goes on beside.
    fn least(&self) -> Nanos {
        self.lines.values().copied().fold(self.device, Nanos::max)
    }

    /// With this many times what the first of two others has more than the second.
    fn with(mut self, times: u64, [more, less]: [&Self; 2]) -> Self {
        let rise =
            |more: Nanos, less: Nanos| Nanos(more.0.saturating_sub(less.0)) * times;
        self.device += rise(more.device, less.device);
        for (line, time) in &more.lines {
            let less = less.lines.get(line).copied().unwrap_or_default();
            *self.lines.entry(*line).or_default() += rise(*time, less);
        }
        self
    }
}

impl Floor {
    /// The whole launch, on the fastest device.
    pub(crate) fn time(&self) -> Nanos {
        self.0.iter().map(Busy::least).min().unwrap_or_default()
    }

    /// The whole launch, on the slowest device of some kinds.
    pub(crate) fn on(&self, kinds: &Kinds) -> Nanos {
        kinds.slowest(|kind| self.0[kind].least())
    }

    /// With this many times the calls that the first of two others has more than the second.
    pub(crate) fn with(self, times: u64, [more, less]: [&Self; 2]) -> Self {
        let kinds = self.0.into_iter().zip(more.0.iter().zip(&less.0));
        Self(kinds.map(|(own, (more, less))| own.with(times, [more, less])).collect())
    }
}

/// What calls take on the devices of a program.
#[derive(Debug)]
pub(crate) struct Costs {
    dtype: Float,
    part_links: PartLinks,
    /// Which calls are one, and so take the time of one.
    pub(crate) algebra: Algebra,
    kinds: Vec<KindOfDevice>,
    /// The kind of every device.
    of: Table<DeviceId, usize>,
}

/// One kind of device.
#[derive(Debug)]
struct KindOfDevice {
    device: Device,
    measured: Option<Measured>,
}

impl Costs {
    /// The devices of a program; those of one kind once.
    pub(crate) fn new(program: &Program) -> Self {
        let mut kinds: BTreeMap<_, usize> = BTreeMap::new();
        let mut costs = Self {
            dtype: program.train.dtype,
            part_links: PartLinks::new(program),
            algebra: Algebra::default(),
            kinds: Vec::new(),
            of: Table::new(),
        };
        for (id, device) in program.target.devices.iter() {
            let profile = program.profiles.get(&id);
            let key = (
                device.compute,
                (device.bandwidth, [device.updates, device.losses]),
                [device.overhead, device.issue],
                device.products,
                profile.map(Arc::as_ptr),
            );
            let number = *kinds.entry(key).or_insert_with(|| {
                costs.kinds.push(KindOfDevice::new(device, profile.map(Arc::as_ref)));
                costs.kinds.len() - 1
            });
            costs.of.push(number);
        }
        costs
    }

    /// How many kinds of devices there are.
    pub(crate) fn kinds(&self) -> usize {
        self.kinds.len()
    }

    /// The kinds of some devices.
    pub(crate) fn kinds_of(&self, devices: impl Iterator<Item = DeviceId>) -> Kinds {
        Kinds::new(devices.filter_map(|device| self.of.get(device).copied()))
    }

    /// The number of a device's kind.
    pub(crate) fn kind_of(&self, device: DeviceId) -> usize {
        self.of[device]
    }

    /// What one launch of each routine takes on each kind of device, while all devices of the plan
    /// compute.
    ///
    /// # Errors
    /// When the catalogue does not know a call.
    pub(crate) fn on_each_kind(
        &self,
        schedule: &Schedule,
    ) -> Result<BTreeMap<RoutineId, Vec<Nanos>>, Unpriced> {
        let devices = &schedule.plan.devices;
        let mut known = Repeated::default();
        let routines = schedule.routines.iter().map(|(id, routine)| {
            let calls = self.priced_knowing(&mut known, &routine.calls)?;
            let needed = exchanges_needed(&routine.calls, &calls, self.dtype)?;
            let on = |kind| self.slowest(&[kind].into(), (&calls, &needed), devices).0;
            Ok((id, (0..self.kinds()).map(on).collect()))
        });
        routines.collect()
    }

    fn kinds_on(&self, on: On) -> &[KindOfDevice] {
        match on {
            On::Any => &self.kinds,
            On::Kind(kind) => &self.kinds[kind..=kind],
        }
    }

    /// Calls ready to be priced.
    ///
    /// # Errors
    /// When the catalogue does not know a call.
    pub(crate) fn priced<'a>(
        &self,
        calls: impl IntoIterator<Item = &'a Call>,
    ) -> Result<Vec<Priced>, Unpriced> {
        self.priced_knowing(&mut Repeated::default(), calls)
    }

    /// The same, with what is known of calls by now.
    ///
    /// # Errors
    /// When the catalogue does not know a call.
    pub(crate) fn priced_knowing<'a>(
        &self,
        known: &mut Repeated<'a, Priced>,
        calls: impl IntoIterator<Item = &'a Call>,
    ) -> Result<Vec<Priced>, Unpriced> {
        let one = |call| known.of(call, |call| Ok(self.parsed(call)?.1)).cloned();
        calls.into_iter().map(one).collect()
    }

    /// Calls of the first micro-batch of a sum as no other one takes less for them, which adds to the sum.
    ///
    /// # Errors
    /// When the catalogue does not know a call.
    pub(crate) fn surely_priced<'a>(
        &self,
        calls: impl IntoIterator<Item = &'a Call>,
    ) -> Result<Vec<Priced>, Unpriced> {
        let one = |call: &Call| {
            let (kernel, own) = self.parsed(call)?;
            let footprint = kernel.sure_footprint(self.dtype);
            let Spelled::Alone(text) = own.spelled else {
                return Ok(Priced { footprint, ..own });
            };
            let mut adding = call.clone();
            adding.attributes.insert("accumulate".into(), Attribute::Flag(true));
            let spelled = match Kernel::parse(&adding) {
                Ok(_) => Spelled::OrAdding([text, adding.text()]),
                Err(_) => Spelled::Alone(text),
            };
            Ok(Priced { footprint, spelled, ..own })
        };
        calls.into_iter().map(one).collect()
    }

    fn parsed(&self, call: &Call) -> Result<(Kernel, Priced), Unpriced> {
        let unpriced = |message| Unpriced { kernel: call.kernel.to_string(), message };
        let kernel = Kernel::parse(call).map_err(unpriced)?;
        let footprint = kernel.footprint(self.dtype);
        let exchange = kernel.exchange().map(|one| one.exchanged(self.dtype));
        let measured = self.kinds.iter().any(|kind| kind.measured.is_some());
        let spelled = match measured {
            true => Spelled::Alone(call.text()),
            false => Spelled::Nowhere,
        };
        Ok((kernel, Priced { footprint, spelled, exchange }))
    }

    /// No device takes less for these calls in one launch, however many others are busy.
    pub(crate) fn floor(&self, calls: &[(Priced, u64)]) -> Floor {
        let busy = |kind: &KindOfDevice| {
            let busy = self.busy(kind, calls);
            Busy { device: busy.device + kind.launch(), ..busy }
        };
        Floor(self.kinds.iter().map(busy).collect())
    }

    /// None of these devices takes less for them as a part of a launch. Exchanges that go on beside others count
    /// for nothing: other parts may hide them.
    pub(crate) fn part(&self, on: On, calls: &[(Priced, u64)]) -> Nanos {
        let least = self.kinds_on(on).iter().map(|kind| self.busy(kind, calls).device);
        least.min().unwrap_or_default()
    }

    /// None of these devices takes less for these calls as a part of a launch than what it takes for those that
    /// they contain, and this. What a table says of calls in one may be more than what it says of
    /// them apart, so there calls that contain others count for nothing.
    pub(crate) fn more(
        &self,
        on: On,
        calls: &[(Priced, u64)],
        contained: &[(Priced, u64)],
    ) -> Nanos {
        let more = |kind: &KindOfDevice| match (&kind.measured, contained) {
            (Some(_), [_, ..]) => Nanos(0),
            (Some(_), []) | (None, _) => {
                self.busy(kind, calls).device - self.busy(kind, contained).device
            }
        };
        self.kinds_on(on).iter().map(more).min().unwrap_or_default()
    }

    /// How long calls keep one kind of device and its link busy, each where it takes least.
    fn busy(&self, kind: &KindOfDevice, calls: &[(Priced, u64)]) -> Busy {
        let mut busy = Busy { device: kind.least(calls), lines: BTreeMap::new() };
        for (call, count) in counted(calls) {
            let Some(exchange) = call.exchange else { continue };
            let wire = self.part_links.least(exchange);
            let time = kind.exchange(call, exchange, wire) * count;
            *busy.lines.entry(exchange.line).or_default() += time;
            busy.device += match exchange.meanwhile {
                Meanwhile::Waits => time,
                Meanwhile::GoesOn => Nanos(0),
            };
        }
        busy
    }

    /// What filling each input takes, where feeds were measured; nothing elsewhere.
    fn feeds(&self, job: &Job, busy: u32) -> Vec<Nanos> {
        let tables = self.kinds.iter().filter_map(|kind| kind.measured.as_ref());
        let table = tables.max_by_key(|table| table.launch);
        let Some(table) = table else { return Vec::new() };
        let time = |input: &Input| {
            let bytes = input.bytes(job.dtype).0;
            let found = table.time(&feed_text(input), Nanos(bytes), busy);
            found.map_or(Nanos(0), |(time, _)| time)
        };
        job.inputs.values().map(time).collect()
    }

    /// The kinds of all devices at these places; places turn, so the whole ring counts.
    fn kinds_at(&self, schedule: &Schedule, places: &BTreeSet<Place>) -> BTreeSet<usize> {
        if self.kinds.len() == 1 && !places.is_empty() {
            return [0].into();
        }
        let shifts = schedule.shifts();
        let rings: BTreeSet<_> = places.iter().map(|place| place.ring).collect();
        let cell = rings.iter().flat_map(|ring| &schedule.rings[*ring].devices);
        let repeated =
            cell.flat_map(|device| shifts.iter().map(|shift| device.shifted(*shift)));
        repeated.map(|device| self.of[device]).collect()
    }

    /// One launch of these calls on the slowest of some kinds, while all devices of a plan compute; these
    /// of the exchanges that go on are done before each call.
    fn slowest(
        &self,
        kinds: &BTreeSet<usize>,
        (calls, needed): (&[Priced], &[Vec<usize>]),
        devices: &[DeviceId],
    ) -> (Nanos, Origins) {
        let busy = u32::try_from(devices.len()).unwrap_or(u32::MAX);
        let launched = |kind: &KindOfDevice| {
            let mut origins = Origins::default();
            let time = |call: &Priced| match call.exchange {
                Some(exchange) => {
                    let (time, link) = self.part_links.most(exchange, devices);
                    let (meanwhile, link) = (exchange.meanwhile, link.index());
                    let time = kind.exchange(call, exchange, time);
                    (time, Doing::Exchanges { meanwhile, link })
                }
                // Exchanges are no kernels of one device.
                None => {
                    let (time, origin) = kind.time(call, busy);
                    origins.count(origin);
                    (time, Doing::Computes)
                }
            };
            let time = time_beside(calls.iter().map(time), needed);
            (time + kind.launch(), origins)
        };
        let times = kinds.iter().map(|kind| launched(&self.kinds[*kind]));
        times.max_by_key(|(time, _)| *time).unwrap_or_default()
    }
}

impl KindOfDevice {
    fn new(device: &Device, profile: Option<&Profile>) -> Self {
        let mut device = device.clone();
        if profile.is_some() {
            // Tables tell kernels apart, not the rows of their matrices.
            device.products.unaligned = Products::default().unaligned;
        }
        let measured = profile.map(|profile| Measured::new(profile, &device));
        Self { device, measured }
    }

    fn launch(&self) -> Nanos {
        self.measured.as_ref().map_or(Nanos(0), |measured| measured.launch)
    }

    fn time(&self, call: &Priced, busy: u32) -> (Nanos, Origin) {
        self.spelled((call, call.spelled.texts().first()), busy)
    }

    /// By what a table says of a text, where there are both.
    fn spelled(
        &self,
        (call, text): (&Priced, Option<&String>),
        busy: u32,
    ) -> (Nanos, Origin) {
        let roofline = roofline(call.footprint, &self.device);
        let both = self.measured.as_ref().zip(text);
        let measured =
            both.and_then(|(measured, text)| measured.time(text, roofline, busy));
        let (time, origin) = measured.unwrap_or((roofline, Origin::Guessed));
        (time.max(self.device.issue), origin)
    }

    /// Time of an exchange that takes so long over its links: strips lie beside own rows, which the
    /// device moves there itself.
    fn exchange(&self, call: &Priced, exchange: Exchanged, wire: Nanos) -> Nanos {
        let moved = match exchange.kind {
            Exchanging::Collective(_) => Nanos(0),
            Exchanging::Strips(_) => roofline(call.footprint, &self.device),
        };
        wire + moved + self.device.issue
    }

    /// Time of calls, each with the number of busy devices that makes it least.
    fn least(&self, calls: &[(Priced, u64)]) -> Nanos {
        let least = |(call, count): (&Priced, u64)| {
            let levels = self.measured.iter().flat_map(Measured::levels);
            let times = levels.flat_map(|busy| {
                let texts = call.spelled.texts().iter();
                texts.map(move |text| self.spelled((call, Some(text)), busy).0)
            });
            times.min().unwrap_or_else(|| self.time(call, 1).0) * count
        };
        counted(calls).filter(|(call, _)| call.exchange.is_none()).map(least).sum()
    }
}

fn counted(calls: &[(Priced, u64)]) -> impl Iterator<Item = (&Priced, u64)> {
    calls.iter().map(|(call, count)| (call, *count))
}

/// Fills in the predicted time of every routine: that on the slowest device that launches it,
/// while all devices of the plan compute.
///
/// # Errors
/// When the catalogue does not know a call.
pub fn price(schedule: &mut Schedule, program: &Program) -> Result<Origins, Unpriced> {
    price_with(schedule, &Costs::new(program))
}

/// Prices a schedule like [`price`]; says where the times of the calls of all launched routines
/// come from.
pub(crate) fn price_with(
    schedule: &mut Schedule,
    costs: &Costs,
) -> Result<Origins, Unpriced> {
    let places = launch_places(schedule);
    let busy = u32::try_from(schedule.plan.devices.len()).unwrap_or(u32::MAX);
    let mut all = Origins::default();
    let mut predicted = Vec::with_capacity(schedule.routines.len());
    let mut known = Repeated::default();
    for (id, routine) in schedule.routines.iter() {
        let calls = costs.priced_knowing(&mut known, &routine.calls)?;
        let kinds = places.get(&id).map(|places| costs.kinds_at(schedule, places));
        let needed = exchanges_needed(&routine.calls, &calls, costs.dtype)?;
        let kinds = kinds.unwrap_or_default();
        let (time, origins) =
            costs.slowest(&kinds, (&calls, &needed), &schedule.plan.devices);
        all += origins;
        predicted.push(time);
    }
    for ((_, routine), time) in schedule.routines.iter_mut().zip(predicted) {
        routine.predicted = time;
    }
    schedule.target.host.feeds = costs.feeds(&schedule.job, busy);
    Ok(all)
}

/// Which of the exchanges that go on are done before each call.
fn exchanges_needed(
    calls: &[Call],
    priced: &[Priced],
    dtype: Float,
) -> Result<Vec<Vec<usize>>, Unpriced> {
    let mut exchanges = priced.iter().filter_map(|call| call.exchange);
    if exchanges.all(|exchange| exchange.meanwhile == Meanwhile::Waits) {
        return Ok(vec![Vec::new(); calls.len() + 1]);
    }
    let touching = |call: &Call| {
        let unpriced = |message| Unpriced { kernel: call.kernel.to_string(), message };
        let kernel = Kernel::parse(call).map_err(unpriced)?;
        Ok(kernel.touching(call, dtype))
    };
    let calls: Vec<Touching> = calls.iter().map(touching).collect::<Result<_, _>>()?;
    Ok(needed_by(&calls))
}

fn launch_places(schedule: &Schedule) -> BTreeMap<RoutineId, BTreeSet<Place>> {
    let mut places: BTreeMap<RoutineId, BTreeSet<Place>> = BTreeMap::new();
    for action in schedule.actions.values() {
        if let Work::Launch { at, routine, .. } = &action.work {
            places.entry(*routine).or_default().insert(*at);
        }
    }
    places
}

#[cfg(test)]
pub(crate) mod tests;
