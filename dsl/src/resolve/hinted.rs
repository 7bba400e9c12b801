//! What `--set` may have meant by a name that it does not know: the nearest key in full, and what has
//! such a key for whoever sets it of something else.

use super::{
    component::{DEVICE_KEYS, LINK_KEYS},
    objective::{RESULT_KEYS, kind_of},
    plan::{KEYS, TENSOR},
    settable::Key,
    train,
};
use crate::{
    Code, Mistake, Program, Span,
    near::{Asked, borrowed},
    syntax::Entry,
};
use roundelay_schedule::nearest;
use std::collections::BTreeSet;

/// A first name that no part and no decision has.
pub(super) fn unknown_part(program: &Program, entry: &Entry) -> Mistake {
    let name = entry.key.text.as_str();
    let what = "decision, device, link or shared memory";
    let mistake = Mistake::new(Code::UnknownName, format!("unknown {what} `{name}`"));
    let inner = entry.entries.iter().map(|inner| inner.key.text.as_str());
    let key = inner.filter_map(Key::named).next();
    if name == program.target.name {
        return mistake.hint(match key {
            Some(key) => key.told(program),
            None => format!(
                "write `cluster.devices = …`; {}; {}",
                devices(program, Key::DEVICE[0]),
                links(program, Key::LINK[0])
            ),
        });
    }
    let mut names = program.part_names();
    names.extend(KEYS.map(str::to_owned));
    let full = full_keys(program);
    if let Some(hint) = borrowed(Asked::Key("plan"), name)
        && full.iter().all(|(key, _)| *key != name)
    {
        return mistake.hint(hint);
    }
    let known = names.iter().map(String::as_str);
    let inner = full.iter().map(|(key, _)| *key);
    match (nearest(name, known.clone().chain(inner)), key) {
        (Some(found), _) if !names.iter().any(|name| name == found) => {
            let meant = full.iter().filter(|(key, _)| *key == found);
            let meant: Vec<String> = meant.map(|(_, full)| format!("`{full}`")).collect();
            mistake.hint(format!("did you mean {}?", meant.join(" or ")))
        }
        (None, Some(key)) => mistake.hint(key.told(program)),
        (Some(_), _) | (None, None) => mistake.near(name, known),
    }
}

/// Keys that another kind of part has, with what has them, and keys that files alone say; the others
/// are left.
pub(super) fn foreign_keys<'e>(
    program: &Program,
    name: &str,
    entries: &'e [Entry],
    known: &[Key],
) -> (Vec<(Span, Mistake)>, Vec<&'e Entry>) {
    let (mut foreign, mut rest) = (Vec::new(), Vec::new());
    for entry in entries {
        let key = entry.key.text.as_str();
        let own = known.iter().any(|known| known.name() == key);
        match Key::named(key) {
            Some(found) if !own => {
                foreign.push((entry.key.span, found.lacking(program, name)));
            }
            None if is_written(known, key) => {
                foreign.push((entry.key.span, fixed(name, key, known)));
            }
            Some(_) | None => rest.push(entry),
        }
    }
    (foreign, rest)
}

/// Whether a file may say this key of what has the known ones.
fn is_written(known: &[Key], key: &str) -> bool {
    known.iter().any(|known| match known {
        Key::Link(_) => LINK_KEYS.contains(&key),
        Key::Device(_) => DEVICE_KEYS.contains(&key),
        Key::Train(_) => train::KEYS.contains(&key),
        Key::Sharing | Key::Devices => false,
    })
}

/// That a key stands in files alone.
fn fixed(name: &str, key: &str, known: &[Key]) -> Mistake {
    let known: Vec<String> =
        known.iter().map(|key| format!("`{name}.{}`", key.name())).collect();
    let message = format!("`--set` does not change `{key}` of `{name}`");
    let hint =
        format!("write `{key}` in the file; what can be set is {}", known.join(", "));
    Mistake::new(Code::UnknownKey, message).hint(hint)
}

impl Key {
    /// That something else has no such key.
    fn lacking(self, program: &Program, name: &str) -> Mistake {
        let key = self.name();
        let message = match self {
            Self::Link(_) => format!("`{name}` is not a link, so it has no `{key}`"),
            Self::Device(_) => format!("`{name}` is not a device, so it has no `{key}`"),
            Self::Devices | Self::Train(_) | Self::Sharing => {
                format!("`{name}` has no `{key}`")
            }
        };
        Mistake::new(Code::UnknownKey, message).hint(self.told(program))
    }

    /// What there is of it in a program, and how to write its key.
    fn told(self, program: &Program) -> String {
        match self {
            Self::Link(_) => links(program, self),
            Self::Device(_) => devices(program, self),
            Self::Sharing => pools(program),
            Self::Devices => "write `cluster.devices = …` for how many there are, and \
                              `devices = …` for how many a plan takes"
                .to_owned(),
            Self::Train(_) => format!("write `train.{} = …`", self.name()),
        }
    }
}

/// Each name once, in order, in backticks; and the first.
fn quoted<'a>(names: impl Iterator<Item = &'a str>) -> (String, Option<&'a str>) {
    let mut told = BTreeSet::new();
    let names: Vec<&str> = names.filter(|name| told.insert(*name)).collect();
    let all: Vec<String> = names.iter().map(|name| format!("`{name}`")).collect();
    (all.join(", "), names.first().copied())
}

/// The kinds of devices of the cluster.
fn devices(program: &Program, key: Key) -> String {
    let key = key.name();
    let target = &program.target;
    match quoted(target.devices.values().map(|device| kind_of(&device.name))) {
        (_, None) => format!("cluster `{}` has no devices", target.name),
        (all, Some(first)) => format!(
            "the devices of cluster `{}` are {all}; write `{first}.{key} = …`",
            target.name
        ),
    }
}

/// The memories that groups share.
fn pools(program: &Program) -> String {
    let shared = program.shared_pools().map(|pool| pool.name.as_str());
    match quoted(shared.filter(|name| !name.contains('.'))) {
        (_, None) => "no group shares a memory".to_owned(),
        (all, Some(first)) => {
            format!("groups that share a memory are {all}; write `{first}.sharing = …`")
        }
    }
}

/// The links of the cluster, innermost first.
fn links(program: &Program, key: Key) -> String {
    let key = key.name();
    let target = &program.target;
    let links = target.domains.iter().map(|domain| &target.links[domain.link].name);
    match quoted(links.map(String::as_str)) {
        (_, None) => format!("cluster `{}` has no links", target.name),
        (all, Some(first)) => format!(
            "the links of cluster `{}` are {all}, innermost first; write \
             `{first}.{key} = …`",
            target.name
        ),
    }
}

/// Every key that stands behind a name, and both.
fn full_keys(program: &Program) -> BTreeSet<(&'static str, String)> {
    let names: BTreeSet<String> = program.part_names().into_iter().collect();
    let of_parts = names.iter().flat_map(|name| {
        let keys = program.parts(name).into_iter().map(Key::name);
        keys.map(move |key| (key, format!("{name}.{key}")))
    });
    let of_decisions = [("tensor", &TENSOR[..]), ("result", &RESULT_KEYS)];
    let of_decisions = of_decisions.into_iter().flat_map(|(name, keys)| {
        keys.iter().map(move |key| (*key, format!("{name}.{key}")))
    });
    of_parts.chain(of_decisions).collect()
}
