//! One number of a resolved program changed, as `--set` says it: a decision of its `plan`
//! section, or what a device, a link, a shared memory, the cluster or the training has.

use super::{
    cuts,
    hinted::{foreign_keys, unknown_part},
    objective::{kind_of, lacking, unmade},
    optimizer,
    plan::{KEYS, set_entry},
    repeated::refuse_repeated,
    resized::resize,
    set::Set,
    settable::{DeviceKey, Key, LinkKey, TrainKey},
    settings::{Settings, quantity, refuse_nothing, single, whole},
    train,
};
use crate::{
    Code, Diagnostic, Dimension, Files, Mistake, NanoDollarsPerHour, NoFiles, Program,
    limit,
    report::{Known, Report},
    syntax::{Entry, Setting},
};
use roundelay_schedule::{
    Bytes, BytesPerSecond, DeviceId, FlopsPerSecond, LinkId, Nanos, Pool,
};
use std::collections::BTreeSet;

impl Program {
    /// Sets one thing after another. `key=value` is a decision as in [`crate::Search::set`];
    /// `NAME.key=value` is `memory`, `compute`, `bandwidth`, `issue` or `price` of all devices NAME
    /// (rates as they are reached; updates and losses keep their shares of the memory's), `bandwidth` or
    /// `latency` of the link NAME (its other protocols gain or lose in proportion), or `sharing` of
    /// the memory that a group NAME shares;
    /// `cluster.devices=n` repeats or leaves out devices at the end of the cluster;
    /// `train.batch=n` is the batch, and `optimizer`, `steps` and `seed` of `train` are set like it: another
    /// optimizer decays what it says itself. `train.dtype` is set by [`crate::parse_set`] alone, because
    /// rates of devices depend on it. No key is set twice.
    ///
    /// # Errors
    /// The first thing that is wrong, or what the objective needs and the program does not say;
    /// the program is unchanged then.
    ///
    /// ```
    /// let mut program = roundelay_dsl::Program::new(roundelay_dsl::Model::default());
    /// program.set_all(&["core.memory=3 GB", "stages=2"])?;
    /// assert_eq!(program.target.devices.values().next().map(|d| d.memory.0), Some(3_000_000_000));
    /// # Ok::<(), roundelay_dsl::Diagnostic>(())
    /// ```
    pub fn set_all(&mut self, settings: &[impl AsRef<str>]) -> Result<(), Diagnostic> {
        self.set_all_from(settings, &NoFiles)
    }

    /// Sets like [`Program::set_all`]; lists that a line names are one of the files.
    ///
    /// # Errors
    /// Those of [`Program::set_all`], and what is wrong with the lists.
    pub fn set_all_from(
        &mut self,
        settings: &[impl AsRef<str>],
        files: &dyn Files,
    ) -> Result<(), Diagnostic> {
        let sets: Vec<Set<'_>> =
            settings.iter().map(|text| Set::new(text.as_ref())).collect();
        refuse_repeated(&sets)?;
        let mut changed = self.clone();
        for set in &sets {
            changed.set(set, files)?;
        }
        if let Some((mistake, set)) = unmet(&changed, &sets) {
            return set.said(|entry, report| Err(report.error(entry.key.span, mistake)));
        }
        *self = changed;
        Ok(())
    }

    fn set(&mut self, set: &Set<'_>, files: &dyn Files) -> Result<(), Diagnostic> {
        set.said(|entry, report| match KEYS.contains(&entry.key.text.as_str()) {
            true => set_entry(&mut self.search, entry, files, report),
            false => self.set_part(entry, report),
        })
    }

    /// `NAME { key value }`.
    fn set_part(&mut self, entry: &Entry, report: &mut Report) -> Known<()> {
        let name = entry.key.text.as_str();
        let known = self.parts(name);
        if known.is_empty() {
            return Err(report.error(entry.key.span, unknown_part(self, entry)));
        }
        if entry.entries.is_empty() || !matches!(entry.value, Setting::Nothing) {
            let first = known[0].name();
            let message = format!("`{name}` takes a key, such as `{name}.{first} = …`");
            let mistake = Mistake::new(Code::Type, message);
            return Err(report.error(entry.key.span, mistake));
        }
        let (foreign, own) = foreign_keys(self, name, &entry.entries, &known);
        let told = foreign.into_iter().map(|(span, mistake)| report.error(span, mistake));
        let told = told.last();
        let names: Vec<&str> = known.iter().map(|key| key.name()).collect();
        let inner = Settings::new(name, own, &names, report);
        if let Some(told) = told {
            return Err(told);
        }
        let found = known.iter().filter_map(|key| Some((*key, inner.get(key.name())?)));
        let found: Vec<(Key, &Entry)> = found.collect();
        found
            .into_iter()
            .try_for_each(|(key, entry)| self.set_key(name, key, entry, report))
    }

    fn set_key(
        &mut self,
        name: &str,
        key: Key,
        entry: &Entry,
        report: &mut Report,
    ) -> Known<()> {
        match key {
            Key::Devices => {
                let count = whole(single(entry, report)?, 1, limit::DEVICES, report)?;
                resize(self, u32::try_from(count).unwrap_or(u32::MAX))
                    .map_err(|mistake| report.error(entry.key.span, mistake))
            }
            Key::Train(key) => self.set_train(key, entry, report),
            Key::Sharing => self.set_pool(name, entry, report),
            Key::Link(key) => self.set_link(name, key, entry, report),
            Key::Device(key) => self.set_device(name, key, entry, report),
        }
    }

    /// The keys that a name has.
    pub(super) fn parts(&self, name: &str) -> Vec<Key> {
        let mut keys: Vec<Key> = Vec::new();
        if !self.devices_of(name).is_empty() {
            keys.extend(Key::DEVICE);
        }
        if !self.links_of(name).is_empty() {
            keys.extend(Key::LINK);
        }
        if self.shared_pools().any(|pool| pool.name == name) {
            keys.push(Key::Sharing);
        }
        match name {
            "cluster" => keys.push(Key::Devices),
            "train" => keys.extend(Key::TRAIN),
            _ => {}
        }
        keys
    }

    pub(super) fn part_names(&self) -> Vec<String> {
        let target = &self.target;
        let devices = target.devices.values().map(|device| kind_of(&device.name));
        let links = target.links.values().map(|link| link.name.as_str());
        let shared = self.shared_pools().map(|pool| pool.name.as_str());
        let shared = shared.filter(|name| !name.contains('.'));
        let names = devices.chain(links).chain(shared).chain(["cluster", "train"]);
        names.map(str::to_owned).collect()
    }

    /// The memories that groups share; any other is one device's own, and called as the device.
    pub fn shared_pools(&self) -> impl Iterator<Item = &Pool> {
        let devices = self.target.devices.values().map(|device| device.name.as_str());
        let own: BTreeSet<&str> = devices.collect();
        let pools = self.target.pools.values();
        pools.filter(move |pool| !own.contains(pool.name.as_str()))
    }

    fn devices_of(&self, kind: &str) -> Vec<DeviceId> {
        let devices = self.target.devices.iter();
        let named = devices.filter(|(_, device)| kind_of(&device.name) == kind);
        named.map(|(id, _)| id).collect()
    }

    fn links_of(&self, name: &str) -> Vec<LinkId> {
        let links = self.target.links.iter();
        links.filter(|(_, link)| link.name == name).map(|(id, _)| id).collect()
    }

    fn set_train(
        &mut self,
        key: TrainKey,
        entry: &Entry,
        report: &mut Report,
    ) -> Known<()> {
        match key {
            TrainKey::Batch => {
                let batch = single(entry, report)?;
                let batch = whole(batch, 1, limit::BATCH.into(), report)?;
                self.train.batch = u32::try_from(batch).unwrap_or(limit::BATCH);
                super::bound_results(&self.model, &self.train, entry.key.span, report);
            }
            TrainKey::Optimizer => {
                let written = single(entry, report)?;
                let (optimizer, no_decay) = optimizer::optimizer(written, report)?;
                self.train.optimizer = optimizer;
                train::hold_optimizer(&self.train, &no_decay, report);
                optimizer::keep_spared(&self.model, &no_decay, report)?;
                optimizer::spare(&mut self.model, &no_decay);
            }
            TrainKey::Steps => {
                let steps = single(entry, report)?;
                self.train.steps = whole(steps, 0, train::STEPS_MAX, report)?;
            }
            TrainKey::Seed => {
                let seed = single(entry, report)?;
                self.train.seed = whole(seed, 0, train::SEED_MAX, report)?;
            }
            TrainKey::Dtype => {
                if train::dtype(entry, report)? != self.train.dtype {
                    let message = "`dtype` is set where a program is read";
                    let mistake = Mistake::new(Code::Value, message);
                    let hint = "read the program with it (`parse_set`)";
                    return Err(report.error(entry.key.span, mistake.hint(hint)));
                }
            }
        }
        Ok(())
    }

    fn set_pool(&mut self, name: &str, entry: &Entry, report: &mut Report) -> Known<()> {
        let capacity = positive(entry, Dimension::Memory, report).map(Bytes)?;
        let pools = self.target.pools.iter_mut();
        let named = pools.filter(|(_, pool)| pool.name == name);
        named.for_each(|(_, pool)| pool.capacity = capacity);
        Ok(())
    }

    fn set_link(
        &mut self,
        name: &str,
        key: LinkKey,
        entry: &Entry,
        report: &mut Report,
    ) -> Known<()> {
        let links = self.links_of(name).into_iter();
        match key {
            LinkKey::Latency => {
                let time = quantity(single(entry, report)?, Dimension::Time, report)?;
                links.for_each(|id| self.target.links[id].latency = Nanos(time));
            }
            LinkKey::Bandwidth => {
                let rate = BytesPerSecond(positive(entry, Dimension::ByteRate, report)?);
                links.for_each(|id| self.target.links[id].set_bandwidth(rate));
            }
        }
        Ok(())
    }

    fn set_device(
        &mut self,
        kind: &str,
        key: DeviceKey,
        entry: &Entry,
        report: &mut Report,
    ) -> Known<()> {
        let devices = self.devices_of(kind);
        let all = devices.iter().copied();
        match key {
            DeviceKey::Memory => self.set_memory(&devices, entry, report)?,
            DeviceKey::Issue => {
                let time = quantity(single(entry, report)?, Dimension::Time, report)?;
                all.for_each(|id| self.target.devices[id].issue = Nanos(time));
            }
            DeviceKey::Price => {
                let price = positive(entry, Dimension::Price, report)?;
                self.prices.extend(all.map(|id| (id, NanoDollarsPerHour(price))));
            }
            DeviceKey::Compute => {
                self.unmeasured(kind, &devices, entry, report)?;
                let rate = FlopsPerSecond(positive(entry, Dimension::FlopRate, report)?);
                all.for_each(|id| self.target.devices[id].compute = rate);
                // It is a rate that is reached, of a peak that nobody knows.
                self.peaks.retain(|id, _| !devices.contains(id));
            }
            DeviceKey::Bandwidth => {
                self.unmeasured(kind, &devices, entry, report)?;
                let rate = BytesPerSecond(positive(entry, Dimension::ByteRate, report)?);
                all.for_each(|id| self.target.devices[id].bandwidth = rate);
            }
        }
        Ok(())
    }

    /// Refuses a rate of devices whose times a table says.
    fn unmeasured(
        &self,
        kind: &str,
        devices: &[DeviceId],
        entry: &Entry,
        report: &mut Report,
    ) -> Known<()> {
        if !devices.iter().any(|id| self.profiles.contains_key(id)) {
            return Ok(());
        }
        let key = &entry.key.text;
        let message = format!("`{key}` of `{kind}` comes from its measured table");
        let mistake = Mistake::new(Code::Value, message);
        let hint = "remove `measured` from the program, or measure another table";
        Err(report.error(entry.key.span, mistake.hint(hint)))
    }

    /// The memory of devices with what is reserved of it; a pool of its own grows along.
    fn set_memory(
        &mut self,
        devices: &[DeviceId],
        entry: &Entry,
        report: &mut Report,
    ) -> Known<()> {
        let memory = Bytes(positive(entry, Dimension::Memory, report)?);
        for id in devices {
            let device = &mut self.target.devices[*id];
            let reserved = device.reserved;
            if reserved >= memory {
                let message = format!("{reserved} of {memory} are reserved");
                let mistake = Mistake::new(Code::Value, message);
                return Err(report.error(entry.key.span, mistake));
            }
            device.memory = memory - reserved;
            let pool = &mut self.target.pools[device.pool];
            if pool.name == device.name {
                pool.capacity = device.memory;
            }
        }
        Ok(())
    }
}

/// What settings that are well said ask for before a program is read.
pub(super) fn asked(settings: &[impl AsRef<str>]) -> train::Asked {
    let mut asked = train::Asked::default();
    for set in settings.iter().map(|text| Set::new(text.as_ref())) {
        for inner in of_train(&set) {
            let dtype = || set.said(|_, report| train::dtype(inner, report));
            match inner.key.text.as_str() {
                "dtype" => asked.dtype = dtype().ok().or(asked.dtype),
                "optimizer" => asked.optimizer = train::OptimizerIn::Setting,
                _ => {}
            }
        }
    }
    asked
}

/// What a setting says of the training.
fn of_train<'a>(set: &'a Set<'_>) -> impl Iterator<Item = &'a Entry> {
    let entry = set.entry.iter().filter(|entry| entry.key.text == "train");
    entry.flat_map(|entry| &entry.entries)
}

/// What a changed program lacks for the last setting that asks for it.
fn unmet<'a>(changed: &Program, sets: &'a [Set<'a>]) -> Option<(Mistake, &'a Set<'a>)> {
    let says = |set: &Set<'_>, keys: &[&str]| {
        set.entry.as_ref().is_ok_and(|entry| keys.contains(&&*entry.key.text))
    };
    let last = |keys: &[&str]| sets.iter().rev().find(|set| says(set, keys));
    let lacking = lacking(changed).into_iter().map(|(_, mistake)| mistake).next();
    let objective = lacking.zip(last(&["minimize", "result"]));
    let rule = unmade(changed).into_iter().next().zip(last(&["rule"]));
    let stages = cuts::other_stages(&changed.search).map(|(_, mistake)| mistake);
    let stages = stages.zip(last(&["stages", "cuts", "order"]));
    let is_optimizer =
        |set: &&Set<'_>| of_train(set).any(|own| own.key.text == "optimizer");
    let unnamed = sets.iter().find(is_optimizer).and_then(|set| {
        Some((
            optimizer::unnamed(changed, &changed.model.spared).into_iter().next()?,
            set,
        ))
    });
    objective.or(rule).or(stages).or(unnamed)
}

fn positive(entry: &Entry, dimension: Dimension, report: &mut Report) -> Known<u64> {
    let expression = single(entry, report)?;
    let amount = quantity(expression, dimension, report)?;
    refuse_nothing(&entry.key.text, (amount, dimension), expression, report)?;
    Ok(amount)
}
