//! Devices and links: what they may write down, as the numbers that the cost model uses.
//!
//! A rate in braces says what of it can be reached: `compute 312 TFLOP/s { reach 0.8 }`. Devices
//! and links keep the product.

use super::{
    measured::Shelf,
    plan::{alternatives, word},
    settings::Settings,
};
use crate::{
    Code, Dimension, Mistake, NanoDollarsPerHour,
    report::{Known, Report},
    syntax::{Component, Entry, Name, Setting},
};
use roundelay_schedule::{
    Bytes, BytesPerSecond, Device, Float, FlopsPerSecond, Form, Id, Link, Nanos,
    Products, Profile, Protocol, Thousandths, Way,
};
use std::sync::Arc;

/// What a device may say of itself.
pub(super) const DEVICE_KEYS: [&str; 10] = [
    "memory",
    "compute",
    "bandwidth",
    "reserved",
    "threads",
    "overhead",
    "issue",
    "overlap",
    "price",
    "measured",
];
/// What its rate of arithmetic may say besides.
pub(super) const COMPUTE_KEYS: [&str; 9] = {
    let [f64, f32, bf16, f16] = TYPES;
    ["reach", "ramp", "attention", "unaligned", "lacks", f64, f32, bf16, f16]
};
/// What the rate of its memory may say besides.
pub(super) const MEMORY_RATE_KEYS: [&str; 3] = ["reach", "update", "loss"];
/// What a link may say of itself.
pub(super) const LINK_KEYS: [&str; 7] =
    ["bandwidth", "latency", "startup", "form", "short", "nvls", "measured"];
/// What its rate may say besides.
pub(super) const RATE_KEYS: [&str; 1] = ["reach"];
/// What a link's protocol may say of itself.
pub(super) const PROTOCOL_KEYS: [&str; 2] = ["bandwidth", "startup"];

/// Number types that a device may name a rate of arithmetic for besides its own, or may lack.
const TYPES: [&str; 4] = ["f64", "f32", "bf16", "f16"];

/// The name of a type among them.
fn named_rate(dtype: Float) -> &'static str {
    match dtype {
        Float::F32 => "f32",
        Float::F64 => "f64",
        Float::Bf16(_) => "bf16",
        Float::F16(_) => "f16",
    }
}

/// What a device says about itself; its pool is set later.
pub(super) struct Described {
    pub(super) device: Device,
    /// Its table, when it names one.
    pub(super) profile: Option<Arc<Profile>>,
    /// Its price, when it names one.
    pub(super) price: Option<NanoDollarsPerHour>,
    /// The rate of which it reaches a share, when it names both.
    pub(super) peak: Option<FlopsPerSecond>,
}

/// `device NAME { memory …, compute …, bandwidth …, reserved …, threads …, overhead …, issue …, overlap …,
/// price …, measured "…" }` for a training in `dtype`.
pub(super) fn device_of(
    component: &Component,
    dtype: Float,
    shelf: &mut Shelf<'_>,
    report: &mut Report,
) -> Known<Described> {
    let Component { name, entries } = component;
    let settings = Settings::new("device", entries, &DEVICE_KEYS, report);
    let memory = memory_of(&settings, name, report);
    let compute = compute_of(&settings, name, dtype, report);
    let bandwidth = memory_rates_of(&settings, name, report);
    let threads = settings.whole("threads", 1, 1 << 10, report);
    let overhead = settings.quantity("overhead", Dimension::Time, report);
    let issue = settings.quantity("issue", Dimension::Time, report);
    let overlap = settings.share_or_none("overlap", report);
    let price = settings.quantity("price", Dimension::Price, report);
    let profile = shelf.profile(settings.get("measured"), report);
    let ((memory, reserved), compute) = (memory?, compute?);
    let ArithmeticRates { compute, peak, products } = compute;
    let MemoryRates { bandwidth, updates, losses } = bandwidth?;
    let device = Device {
        name: name.text.clone(),
        pool: Id::new(0),
        memory,
        compute,
        bandwidth,
        updates,
        losses,
        threads: threads?.and_then(|threads| u32::try_from(threads).ok()).unwrap_or(1),
        overhead: Nanos(overhead?.unwrap_or(0)),
        issue: Nanos(issue?.unwrap_or(0)),
        products,
        reserved,
        overlap: overlap?.unwrap_or(Thousandths::NONE),
    };
    let (profile, price) = (profile?, price?.map(NanoDollarsPerHour));
    if let Some(profile) = &profile {
        shelf.check_threads(profile, device.threads, name, report)?;
    }
    Ok(Described { device, profile, price, peak })
}

/// What of its memory is left for schedules, and what is reserved.
fn memory_of(
    settings: &Settings<'_>,
    name: &Name,
    report: &mut Report,
) -> Known<(Bytes, Bytes)> {
    let memory = Bytes(settings.required("memory", Dimension::Memory, name, report)?);
    let reserved = settings.quantity_or_none("reserved", Dimension::Memory, report)?;
    let reserved = Bytes(reserved.unwrap_or(0));
    match settings.get("reserved") {
        Some(entry) if reserved >= memory => {
            let message = format!("{reserved} of {memory} are reserved; nothing is left");
            let hint = "`reserved` is the part of `memory` that schedules cannot use";
            let mistake = Mistake::new(Code::Value, message).hint(hint);
            Err(report.error(entry.key.span, mistake))
        }
        _ => Ok((memory - reserved, reserved)),
    }
}

/// What a device computes.
struct ArithmeticRates {
    compute: FlopsPerSecond,
    peak: Option<FlopsPerSecond>,
    products: Products,
}

/// `compute 312 TFLOP/s { reach 0.8, unaligned 0.3, f32 19.5 TFLOP/s }`.
fn compute_of(
    settings: &Settings<'_>,
    name: &Name,
    dtype: Float,
    report: &mut Report,
) -> Known<ArithmeticRates> {
    let own = settings.required_outer("compute", Dimension::FlopRate, name, report)?;
    let entries = settings.get("compute").map_or(&[][..], |entry| &entry.entries);
    let inner = Settings::new("compute", entries, &COMPUTE_KEYS, report);
    for key in TYPES {
        inner.quantity(key, Dimension::FlopRate, report)?;
    }
    if let Some(entry) = inner.get("lacks") {
        tell_lacking(name, dtype, entry, report)?;
    }
    let named = inner.quantity(named_rate(dtype), Dimension::FlopRate, report)?;
    let peak = named.unwrap_or(own);
    let compute = FlopsPerSecond(reached(peak, &inner, report)?);
    let peak = inner.get("reach").map(|_| FlopsPerSecond(peak));
    let ramp = inner.quantity("ramp", Dimension::Time, report)?.unwrap_or(0);
    let mut share = |key| Ok(inner.share(key, report)?.unwrap_or(Thousandths::ALL));
    let (attention, unaligned) = (share("attention")?, share("unaligned")?);
    let products = Products { ramp: Nanos(ramp), attention, unaligned };
    Ok(ArithmeticRates { compute, peak, products })
}

/// `lacks bf16`: a warning where a program trains in a type that the device has no units for.
fn tell_lacking(
    name: &Name,
    dtype: Float,
    entry: &Entry,
    report: &mut Report,
) -> Known<()> {
    let dtype = named_rate(dtype);
    let lacking = alternatives(entry, report, |value, report| {
        word(value, "number type", &TYPES, report)
    })?;
    if lacking.contains(&dtype) {
        let message = format!(
            "device `{}` has no units for {dtype}, so its times in this program are those of \
             a device that has",
            name.text
        );
        let mistake = Mistake::new(Code::Value, message);
        let mut usual = ["f32", "bf16", "f16", "f64"].into_iter();
        let hint = match usual.find(|own| !lacking.contains(own)) {
            Some(other) => format!("write `dtype {other}` in `train`"),
            None => "it lacks all types: name fewer".to_owned(),
        };
        report.warning(entry.key.span, mistake.hint(hint));
    }
    Ok(())
}

/// The rate of a memory, and those of updates and of losses over classes as shares of it.
struct MemoryRates {
    bandwidth: BytesPerSecond,
    updates: Thousandths,
    losses: Thousandths,
}

/// `bandwidth 2 TB/s { reach 0.5, update 0.7, loss 0.1 }`.
fn memory_rates_of(
    settings: &Settings<'_>,
    name: &Name,
    report: &mut Report,
) -> Known<MemoryRates> {
    let peak = settings.required_outer("bandwidth", Dimension::ByteRate, name, report)?;
    let entries = settings.get("bandwidth").map_or(&[][..], |entry| &entry.entries);
    let inner = Settings::new("bandwidth", entries, &MEMORY_RATE_KEYS, report);
    let rate = reached(peak, &inner, report)?;
    let reach = inner.share("reach", report)?.unwrap_or(Thousandths::ALL);
    let mut of_rate = |key| Ok(inner.share(key, report)?.unwrap_or(reach).over(reach));
    let (updates, losses) = (of_rate("update")?, of_rate("loss")?);
    Ok(MemoryRates { bandwidth: BytesPerSecond(rate), updates, losses })
}

/// `bandwidth 25 GB/s { reach 0.9 }`.
fn rate_of(
    settings: &Settings<'_>,
    name: &Name,
    report: &mut Report,
) -> Known<BytesPerSecond> {
    let peak = settings.required_outer("bandwidth", Dimension::ByteRate, name, report)?;
    let entries = settings.get("bandwidth").map_or(&[][..], |entry| &entry.entries);
    let inner = Settings::new("bandwidth", entries, &RATE_KEYS, report);
    reached(peak, &inner, report).map(BytesPerSecond)
}

/// The part of a rate that is reached, at least one.
fn reached(peak: u64, inner: &Settings<'_>, report: &mut Report) -> Known<u64> {
    let reach = inner.share("reach", report)?.unwrap_or(Thousandths::ALL);
    Ok(reach.of(peak).max(1))
}

/// `link NAME { bandwidth …, latency …, startup …, form …, short { … }, nvls { … } }` or
/// `link NAME { measured "…" }`.
pub(super) fn link_of(
    component: &Component,
    shelf: &mut Shelf<'_>,
    report: &mut Report,
) -> Known<Link> {
    let Component { name, entries } = component;
    let settings = Settings::new("link", entries, &LINK_KEYS, report);
    if let Some(entry) = settings.get("measured") {
        return measured_link(&settings, entry, name, shelf, report);
    }
    let bandwidth = rate_of(&settings, name, report);
    let latency = settings.required("latency", Dimension::Time, name, report);
    let startup = settings.quantity("startup", Dimension::Time, report);
    let forms = forms_of(settings.get("form"), report);
    let short = protocol_of(&settings, "short", name, report);
    let nvls = protocol_of(&settings, "nvls", name, report);
    let forms = forms?.into_iter().map(Way::Form);
    let ways = forms.chain(short?.map(Way::Short)).chain(nvls?.map(Way::Nvls));
    let plain = Link::plain(&name.text, bandwidth?, Nanos(latency?));
    Ok(Link { startup: Nanos(startup?.unwrap_or(0)), ways: ways.collect(), ..plain })
}

/// `form rails | tree`.
fn forms_of(entry: Option<&Entry>, report: &mut Report) -> Known<Vec<Form>> {
    const FORMS: [(&str, Form); 4] = [
        ("ring", Form::Ring),
        ("rails", Form::Rails),
        ("tree", Form::Tree),
        ("nested", Form::Nested),
    ];
    let Some(entry) = entry else { return Ok(Vec::new()) };
    let named = alternatives(entry, report, |value, report| {
        word(value, "form", &FORMS.map(|(name, _)| name), report)
    })?;
    let form = |name| FORMS.iter().find(|(known, _)| *known == name);
    Ok(named.into_iter().filter_map(form).map(|(_, form)| *form).collect())
}

/// `short { bandwidth …, startup … }`.
fn protocol_of(
    settings: &Settings<'_>,
    key: &str,
    name: &Name,
    report: &mut Report,
) -> Known<Option<Protocol>> {
    let Some(entry) = settings.get(key) else { return Ok(None) };
    if !matches!(entry.value, Setting::Nothing) {
        let message = format!("`{key}` takes entries in braces");
        let hint = format!("write `{key} {{ bandwidth 40 GB/s, startup 3 us }}`");
        let mistake = Mistake::new(Code::Type, message).hint(hint);
        return Err(report.error(entry.key.span, mistake));
    }
    let inner = Settings::new(key, &entry.entries, &PROTOCOL_KEYS, report);
    let bandwidth =
        rate_of(&inner, &Name { text: name.text.clone(), span: entry.key.span }, report)?;
    let startup = inner.quantity("startup", Dimension::Time, report)?;
    Ok(Some(Protocol { bandwidth, startup: Nanos(startup.unwrap_or(0)) }))
}

/// A link whose rate and latency are those of a table.
fn measured_link(
    settings: &Settings<'_>,
    entry: &Entry,
    name: &Name,
    shelf: &mut Shelf<'_>,
    report: &mut Report,
) -> Known<Link> {
    let profile = shelf.profile(Some(entry), report);
    for key in LINK_KEYS.into_iter().filter(|key| *key != "measured") {
        if let Some(given) = settings.get(key) {
            let message = match key {
                "form" | "short" | "nvls" => {
                    format!("`{key}` says nothing of a link whose times are in a table")
                }
                _ => format!("`{key}` comes from the table"),
            };
            let mistake = Mistake::new(Code::Duplicate, message);
            let hint = format!("delete `{key}` or `measured`");
            return Err(report.error(given.key.span, mistake.hint(hint)));
        }
    }
    let nominal = (BytesPerSecond(8_000_000_000), Nanos(2_000));
    let of = |profile: Arc<Profile>| (profile.copies.bandwidth, profile.copies.latency);
    let (bandwidth, latency) = profile?.map_or(nominal, of);
    Ok(Link::plain(&name.text, bandwidth, latency))
}
