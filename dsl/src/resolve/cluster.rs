//! Clusters: nested groups of devices to the devices, pools and domains of a [`Target`].

use super::{
    component::{Described, device_of, link_of},
    constant::constant,
    definitions::{Definitions, beginning},
    measured::{Shelf, Tables},
    settings::{quantity, refuse_nothing},
    tiers::tiers,
};
use crate::{
    Code, Dimension, Mistake, NanoDollarsPerHour, NoFiles, Span, Value, import, limit,
    near, parse,
    report::{Known, Report},
    syntax::{Cluster, Component, Expression, File, Group, Item, Name, Whole},
};
use roundelay_schedule::{
    Bytes, Device, DeviceId, Domain, Float, FlopsPerSecond, Link, LinkId, Pool, PoolId,
    Profile, Target,
};
use std::{collections::BTreeMap, sync::Arc};

/// Tables of the devices that name one.
type Profiles = BTreeMap<DeviceId, Arc<Profile>>;

/// Prices of the devices that name one.
type Prices = BTreeMap<DeviceId, NanoDollarsPerHour>;

/// Rates of the devices that name one, and the share of it that they reach.
type Peaks = BTreeMap<DeviceId, FlopsPerSecond>;

/// The devices, and what is known of some of them.
pub(super) struct Machines {
    pub(super) target: Target,
    pub(super) profiles: Profiles,
    pub(super) prices: Prices,
    pub(super) peaks: Peaks,
}

/// The cluster that is trained on; one plain device when the program describes none.
pub(super) fn resolve(
    definitions: &Definitions<'_>,
    dtype: Float,
    shelf: &mut Shelf<'_>,
    report: &mut Report,
) -> Known<Machines> {
    check_components(definitions, dtype, shelf, report);
    match definitions.cluster().map_err(|m| report.error(beginning(), m))? {
        Some(cluster) => expand(definitions, cluster, dtype, shelf, report),
        None => {
            if report.errors() == 0 {
                warn_of_idle(definitions, report);
            }
            let (profiles, prices) = (Profiles::new(), Prices::new());
            Ok(Machines { target: plain(), profiles, prices, peaks: Peaks::new() })
        }
    }
}

/// A program that describes devices and joins them in no cluster is planned without them.
fn warn_of_idle(definitions: &Definitions<'_>, report: &mut Report) {
    let Some((what, name)) = definitions.first_part() else { return };
    let message = format!(
        "{what} `{}` is in no cluster: the program is planned on one plain core",
        name.text
    );
    let hint = "write a cluster, such as `cluster NAME { 4 x DEVICE joined by LINK }`";
    report.warning(name.span, Mistake::new(Code::Unused, message).hint(hint));
}

/// One plain device, `core`.
pub(crate) fn plain() -> Target {
    let text = import::embedded("roundelay:devices/core.rdl").unwrap_or_default();
    let (File { items, .. }, _) = parse::file(text, 0);
    let mut report = Report::default();
    let core = items.iter().find_map(|item| match item {
        Item::Device(device) => {
            let mut shelf = Shelf::new(&NoFiles, Tables::Leave);
            let described = device_of(device, Float::F32, &mut shelf, &mut report);
            described.ok().map(|described| described.device)
        }
        Item::Import(_)
        | Item::Model(_)
        | Item::Block(_)
        | Item::Link(_)
        | Item::Cluster(_)
        | Item::Train(_)
        | Item::Plan(_) => None,
    });
    let core = core.expect("the embedded file describes one device");
    let mut target = Target { name: "core".into(), ..Target::default() };
    let pool = Pool { name: "core".into(), capacity: core.memory };
    let pool = target.pools.push(pool);
    target.devices.push(Device { pool, ..core });
    target
}

/// Every device and link is checked, used or not.
fn check_components(
    definitions: &Definitions<'_>,
    dtype: Float,
    shelf: &mut Shelf<'_>,
    report: &mut Report,
) {
    for device in definitions.devices.values() {
        let _: Known<Described> = device_of(device, dtype, shelf, report);
    }
    for link in definitions.links.values() {
        let _: Known<Link> = link_of(link, shelf, report);
    }
}

fn expand(
    definitions: &Definitions<'_>,
    cluster: &Cluster,
    dtype: Float,
    shelf: &mut Shelf<'_>,
    report: &mut Report,
) -> Known<Machines> {
    let errors = report.errors();
    let tiers = tiers(definitions, cluster, report)?;
    let whole = match &cluster.whole {
        Whole::Group(whole) => whole,
        Whole::Broken => return Err(report.earlier()),
        Whole::Missing => {
            let message = format!("cluster `{}` names no devices", cluster.name.text);
            let mistake = Mistake::new(Code::Missing, message);
            let hint = "end it with a group such as `4 x core joined by bus`";
            return Err(report.error(cluster.name.span, mistake.hint(hint)));
        }
    };
    let mut expansion = Expansion::new(definitions, tiers, dtype, shelf, report);
    expansion.target.name = cluster.name.text.clone();
    expansion.group(&cluster.name.text, whole, None, 0)?;
    let Expansion { target, profiles, prices, peaks, .. } = expansion;
    if report.errors() == errors {
        joined(cluster, &target, report)?;
    }
    match report.errors() > errors {
        true => Err(report.earlier()),
        false => Ok(Machines { target, profiles, prices, peaks }),
    }
}

/// Every two devices of a cluster are joined by a link at some level.
fn joined(cluster: &Cluster, target: &Target, report: &mut Report) -> Known<()> {
    let count = target.devices.len();
    let whole = |domain: &Domain| {
        domain.devices.start == 0 && domain.devices.end as usize == count
    };
    if count < 2 || target.domains.iter().any(whole) {
        return Ok(());
    }
    let last = target.devices.values().next_back().map_or("", |device| &device.name);
    let first = target.devices.values().next().map_or("", |device| &device.name);
    let name = &cluster.name;
    let message = format!("no link joins `{first}` and `{last}` of `{}`", name.text);
    let hint = "end its last group with `joined by` and the name of a link";
    let mistake = Mistake::new(Code::Missing, message).hint(hint);
    Err(report.error(name.span, mistake))
}

/// A cluster that grows device by device.
struct Expansion<'a, 's> {
    definitions: &'a Definitions<'a>,
    tiers: BTreeMap<&'a str, &'a Group>,
    dtype: Float,
    shelf: &'a mut Shelf<'s>,
    report: &'a mut Report,
    target: Target,
    profiles: Profiles,
    prices: Prices,
    peaks: Peaks,
    links: BTreeMap<&'a str, LinkId>,
    numbers: BTreeMap<&'a str, u32>,
}

impl<'a, 's> Expansion<'a, 's> {
    fn new(
        definitions: &'a Definitions<'a>,
        tiers: BTreeMap<&'a str, &'a Group>,
        dtype: Float,
        shelf: &'a mut Shelf<'s>,
        report: &'a mut Report,
    ) -> Self {
        Self {
            definitions,
            tiers,
            dtype,
            shelf,
            report,
            target: Target::default(),
            profiles: Profiles::new(),
            prices: Prices::new(),
            peaks: Peaks::new(),
            links: BTreeMap::new(),
            numbers: BTreeMap::new(),
        }
    }

    /// All devices of a group, in order; then the domain that joins them.
    fn group(
        &mut self,
        name: &str,
        group: &'a Group,
        pool: Option<PoolId>,
        depth: usize,
    ) -> Known<()> {
        let shared = match &group.sharing {
            None => pool,
            Some(sharing) => Some(self.pool(name, sharing, pool)?),
        };
        let first = self.count();
        for (count, member) in &group.members {
            let times = self.times(count)?;
            for _ in 0..times {
                self.member(member, shared, depth)?;
            }
        }
        if let Some(link) = &group.link {
            let link = self.link(link)?;
            let devices = first..self.count();
            self.target.domains.push(Domain { link, devices });
        }
        Ok(())
    }

    fn count(&self) -> u32 {
        crate::source::count(self.target.devices.len())
    }

    /// `sharing 8 GB`.
    fn pool(
        &mut self,
        name: &str,
        sharing: &Expression,
        outer: Option<PoolId>,
    ) -> Known<PoolId> {
        if outer.is_some() {
            let message = "the group around this one shares its memory already";
            let mistake = Mistake::new(Code::Duplicate, message);
            return Err(self.report.error(sharing.span, mistake));
        }
        let capacity = quantity(sharing, Dimension::Memory, self.report)?;
        refuse_nothing("sharing", (capacity, Dimension::Memory), sharing, self.report)?;
        let capacity = Bytes(capacity);
        Ok(self.target.pools.push(Pool { name: name.to_owned(), capacity }))
    }

    fn times(&mut self, count: &Expression) -> Known<u64> {
        let value = constant(count, self.report)?;
        match value {
            Value::Integer(times @ 1..) => Ok(times.unsigned_abs()),
            _ => {
                let mistake = Mistake::new(Code::Value, "a group has at least 1 member");
                Err(self.report.error(count.span, mistake))
            }
        }
    }

    /// A device, or a tier that stands above.
    fn member(
        &mut self,
        name: &'a Name,
        pool: Option<PoolId>,
        depth: usize,
    ) -> Known<()> {
        if let Some(tier) = self.tiers.get(name.text.as_str()).copied() {
            if depth >= usize::from(limit::DEPTH) {
                let message = format!("tiers nest at most {} deep", limit::DEPTH);
                return self.fail(name.span, Mistake::new(Code::Limit, message));
            }
            return self.group(&name.text, tier, pool, depth + 1);
        }
        let Some(component) = self.definitions.devices.get(name.text.as_str()) else {
            return self.unknown_member(name);
        };
        self.device(component, name, pool)
    }

    fn device(
        &mut self,
        component: &'a Component,
        name: &Name,
        pool: Option<PoolId>,
    ) -> Known<()> {
        if u64::from(self.count()) >= limit::DEVICES {
            let message = format!("a cluster has at most {} devices", limit::DEVICES);
            return self.fail(name.span, Mistake::new(Code::Limit, message));
        }
        let Described { device, profile, price, peak } =
            device_of(component, self.dtype, self.shelf, self.report)?;
        let number = self.numbers.entry(&component.name.text).or_default();
        let label = format!("{}.{number}", component.name.text);
        *number += 1;
        let own = Pool { name: label.clone(), capacity: device.memory };
        let pool = pool.unwrap_or_else(|| self.target.pools.push(own));
        let id = self.target.devices.push(Device { name: label, pool, ..device });
        if let Some(profile) = profile {
            let host = &mut self.target.host;
            host.wake = host.wake.max(profile.wake);
            self.profiles.insert(id, profile);
        }
        self.prices.extend(price.map(|price| (id, price)));
        self.peaks.extend(peak.map(|peak| (id, peak)));
        Ok(())
    }

    fn link(&mut self, name: &'a Name) -> Known<LinkId> {
        if let Some(id) = self.links.get(name.text.as_str()) {
            return Ok(*id);
        }
        let Some(component) = self.definitions.links.get(name.text.as_str()) else {
            return self.unknown_link(name);
        };
        let link = link_of(component, self.shelf, self.report)?;
        let id = self.target.links.push(link);
        self.links.insert(&name.text, id);
        Ok(id)
    }

    fn unknown_member<T>(&mut self, name: &Name) -> Known<T> {
        self.definitions.only_if_whole(self.report)?;
        let known = self.definitions.devices.keys().chain(self.tiers.keys()).copied();
        let mistake = near::unknown("device or tier", &name.text, known);
        self.fail(name.span, mistake.hint("write `device NAME { … }`, or import it"))
    }

    fn unknown_link<T>(&mut self, name: &Name) -> Known<T> {
        self.definitions.only_if_whole(self.report)?;
        let known = self.definitions.links.keys().copied();
        let text = name.text.as_str();
        let is_group = self.tiers.contains_key(text) || self.target.name == text;
        let mistake = match is_group {
            true => {
                let known: Vec<String> = known.map(|link| format!("`{link}`")).collect();
                let message = format!("`{text}` is a group of devices, no link");
                let hint = match &known[..] {
                    [] => "no link is defined".to_owned(),
                    known => format!("links are {}", known.join(", ")),
                };
                Mistake::new(Code::UnknownName, message).hint(hint)
            }
            false => near::unknown("link", text, known),
        };
        self.fail(name.span, mistake.hint("write `link NAME { … }`, or import it"))
    }

    fn fail<T>(&mut self, span: Span, mistake: Mistake) -> Known<T> {
        Err(self.report.error(span, mistake))
    }
}
