//! What this process may still take of the host's memory: what the host has left, and what limits
//! on the process and on its control groups leave. A host that promises more than it has ends whoever
//! believes it, and a limit turns a promise down in the middle of a run.

use super::host::{HostMemory, kibibytes};
use roundelay_schedule::Bytes;
use std::{
    fs,
    path::{Component, Path, PathBuf},
};

/// A bound, and what it leaves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Room {
    pub(crate) bound: MemoryBound,
    pub(crate) left: Bytes,
}

/// What bounds the memory that a process can have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MemoryBound {
    /// The memory of the host.
    Host,
    /// A limit on the addresses that the process may have (`ulimit -v`), used or not.
    Addresses,
    /// A limit on those that hold its data (`ulimit -d`).
    Data,
    /// The limit of a control group that the process is in: its folder.
    Group(PathBuf),
}

impl Room {
    /// Asks the system for all that it says.
    pub(crate) fn read() -> Vec<Self> {
        let host = HostMemory::read();
        let left = host.and_then(|host| host.left);
        let host_room = left.map(|left| Self { bound: MemoryBound::Host, left });
        let swap = host.map_or(Bytes(0), |host| host.swap);
        let groups = Groups::below(Path::new("/"), swap);
        host_room.into_iter().chain(of_process()).chain(groups).collect()
    }
}

impl MemoryBound {
    /// How much it leaves, as the start of a sentence.
    pub(crate) fn leaves(&self, left: Bytes) -> String {
        match self {
            MemoryBound::Host => format!("this machine has {left} of memory left"),
            MemoryBound::Addresses => {
                format!("the limit on addresses (`ulimit -v`) leaves {left} of memory")
            }
            MemoryBound::Data => {
                format!("the limit on data (`ulimit -d`) leaves {left} of memory")
            }
            MemoryBound::Group(folder) => {
                format!(
                    "the control group `{}` leaves {left} of memory",
                    folder.display()
                )
            }
        }
    }

    /// What would leave more, as an order.
    pub(crate) fn remedy(&self) -> &'static str {
        match self {
            MemoryBound::Host => "close what else runs here",
            MemoryBound::Addresses => {
                "raise the limit; threads take less of it with `MALLOC_ARENA_MAX=1`"
            }
            MemoryBound::Data => "raise the limit",
            MemoryBound::Group(_) => "give the group more",
        }
    }
}

/// What limits on the process itself leave.
#[cfg(target_os = "linux")]
fn of_process() -> Vec<Room> {
    use rustix::process::{Resource, getrlimit};
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let of = |(bound, resource, used)| {
        let limit = Bytes(getrlimit(resource).current?);
        Some(Room { bound, left: limit - kibibytes(&status, used)? })
    };
    let limits = [
        (MemoryBound::Addresses, Resource::As, "VmSize:"),
        (MemoryBound::Data, Resource::Data, "VmData:"),
    ];
    limits.into_iter().filter_map(of).collect()
}

/// Other systems do not say what a process has.
#[cfg(not(target_os = "linux"))]
fn of_process() -> Vec<Room> {
    Vec::new()
}

/// A hierarchy of control groups that count memory.
struct Groups {
    /// The folder of the group that the process is in.
    own: PathBuf,
    /// The folder of the outermost group that is seen here.
    top: PathBuf,
    version: Version,
}

/// How groups name what they count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Version {
    One,
    Two,
}

impl Groups {
    /// What the groups of this process leave, by the files below `root`; a host has so much swap.
    fn below(root: &Path, swap: Bytes) -> Vec<Room> {
        let read = |name: &str| fs::read_to_string(root.join(name)).unwrap_or_default();
        let (groups, mounts) = (read("proc/self/cgroup"), read("proc/self/mountinfo"));
        let found = mounts.lines().filter_map(|mount| Self::of(root, mount, &groups));
        found.flat_map(|groups| groups.rooms(swap)).collect()
    }

    /// The groups below a mount, if it has some that count memory.
    fn of(root: &Path, mount: &str, groups: &str) -> Option<Self> {
        let (place, kind) = mount.split_once(" - ")?;
        let mut place = place.split(' ').skip(3);
        let (mounted, at) = (place.next()?, place.next()?);
        let mut kind = kind.split(' ');
        let version = match kind.next()? {
            "cgroup2" => Version::Two,
            "cgroup" if kind.nth(1)?.split(',').any(|own| own == "memory") => {
                Version::One
            }
            _ => return None,
        };
        let path = groups.lines().find_map(|line| version.path(line))?;
        let inside = Path::new(path).strip_prefix(mounted).ok()?;
        let is_plain = |part| matches!(part, Component::Normal(_));
        if !inside.components().all(is_plain) {
            return None;
        }
        let top = root.join(at.trim_start_matches('/'));
        Some(Self { own: top.join(inside), top, version })
    }

    /// What each group leaves from the process's own up to the outermost.
    fn rooms(&self, swap: Bytes) -> Vec<Room> {
        let all = self.own.ancestors().take_while(|folder| folder.starts_with(&self.top));
        let room = |folder: &Path| {
            let left = self.version.left(folder, swap)?;
            Some(Room { bound: MemoryBound::Group(folder.to_owned()), left })
        };
        all.filter_map(room).collect()
    }
}

impl Version {
    /// The path of the process's group, where a line of `/proc/self/cgroup` says it.
    fn path(self, line: &str) -> Option<&str> {
        let mut parts = line.splitn(3, ':').skip(1);
        let (controllers, path) = (parts.next()?, parts.next()?);
        let is_own = match self {
            Version::One => controllers.split(',').any(|own| own == "memory"),
            Version::Two => controllers.is_empty(),
        };
        is_own.then_some(path)
    }

    /// What a group leaves if it has a limit: that, less what is used and cannot be dropped; and
    /// swap, which the first version counts apart.
    fn left(self, folder: &Path, swap: Bytes) -> Option<Bytes> {
        let read = |name: &str| fs::read_to_string(folder.join(name)).ok();
        let number = |name: &str| read(name)?.trim().parse().ok().map(Bytes);
        let (limit, used, dropped): (_, _, &[&str]) = match self {
            Version::One => (
                "memory.limit_in_bytes",
                "memory.usage_in_bytes",
                &["total_active_file", "total_inactive_file"],
            ),
            Version::Two => (
                "memory.max",
                "memory.current",
                &["active_file", "inactive_file", "slab_reclaimable"],
            ),
        };
        let limit = number(limit)?;
        let stat = read("memory.stat").unwrap_or_default();
        let dropped: Bytes = stat
            .lines()
            .filter_map(|line| line.split_once(' '))
            .filter(|(name, _)| dropped.contains(name))
            .filter_map(|(_, bytes)| bytes.trim().parse().ok().map(Bytes))
            .sum();
        let used = number(used)? - dropped;
        let swap = match self {
            Version::One => Bytes(0),
            Version::Two => match number("memory.swap.max") {
                Some(most) => {
                    let used = number("memory.swap.current").unwrap_or_default();
                    (most - used).min(swap)
                }
                None => swap,
            },
        };
        Some(limit - used + swap)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scratch::Scratch;

    /// What a process sees below a root with these files.
    fn rooms(name: &str, files: &[(&str, &str)]) -> Vec<(PathBuf, u64)> {
        let scratch = Scratch::new(name);
        files.iter().for_each(|(path, text)| scratch.write(path, text.as_bytes()));
        let root = scratch.path().to_owned();
        let told = |room: Room| match room.bound {
            MemoryBound::Group(folder) => {
                (folder.strip_prefix(&root).unwrap().to_owned(), room.left.0)
            }
            other => panic!("{other:?} is no group"),
        };
        Groups::below(&root, Bytes(100)).into_iter().map(told).collect()
    }

    fn expected(all: &[(&str, u64)]) -> Vec<(PathBuf, u64)> {
        all.iter().map(|(path, left)| (PathBuf::from(path), *left)).collect()
    }

    #[test]
    fn every_group_up_to_the_outermost_may_bind() {
        let mounts = "31 23 0:28 / /sys/fs/cgroup rw shared:4 - cgroup2 cgroup2 rw\n";
        let found = rooms(
            "groups-2",
            &[
                ("proc/self/cgroup", "0::/user/job\n"),
                ("proc/self/mountinfo", mounts),
                ("sys/fs/cgroup/user/job/memory.max", "5000\n"),
                ("sys/fs/cgroup/user/job/memory.current", "3000\n"),
                (
                    "sys/fs/cgroup/user/job/memory.stat",
                    "anon 10\ninactive_file 300\nactive_file 150\nslab_reclaimable 50\n",
                ),
                ("sys/fs/cgroup/user/job/memory.swap.max", "0\n"),
                ("sys/fs/cgroup/user/memory.max", "max\n"),
                ("sys/fs/cgroup/user/memory.current", "4000\n"),
                ("sys/fs/cgroup/memory.max", "4000\n"),
                ("sys/fs/cgroup/memory.current", "9000\n"),
            ],
        );
        assert_eq!(
            found,
            expected(&[("sys/fs/cgroup/user/job", 2500), ("sys/fs/cgroup", 100)])
        );
    }

    #[test]
    fn the_first_version_has_a_hierarchy_of_its_own() {
        let mounts = "30 23 0:27 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n\
                      35 31 0:32 /outer /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n\
                      41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n";
        let found = rooms(
            "groups-1",
            &[
                ("proc/self/cgroup", "8:cpu:/a\n4:memory:/outer/job\n0::/\n"),
                ("proc/self/mountinfo", mounts),
                ("sys/fs/cgroup/memory/job/memory.limit_in_bytes", "7000\n"),
                ("sys/fs/cgroup/memory/job/memory.usage_in_bytes", "6000\n"),
                (
                    "sys/fs/cgroup/memory/job/memory.stat",
                    "inactive_file 9\ntotal_inactive_file 600\ntotal_active_file 400\n",
                ),
                ("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n"),
                ("sys/fs/cgroup/memory/memory.usage_in_bytes", "6000\n"),
            ],
        );
        let unlimited = 9_223_372_036_854_771_712 - 6000;
        let all =
            [("sys/fs/cgroup/memory/job", 2000), ("sys/fs/cgroup/memory", unlimited)];
        assert_eq!(found, expected(&all));
    }

    #[test]
    fn without_control_groups_nothing_binds() {
        assert_eq!(rooms("groups-0", &[]), []);
        let outside = "35 31 0:32 /other /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n";
        let files = [("proc/self/cgroup", "0::/job\n"), ("proc/self/mountinfo", outside)];
        assert_eq!(rooms("groups-outside", &files), []);
        let above = "35 31 0:32 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n";
        let files =
            [("proc/self/cgroup", "0::/../job\n"), ("proc/self/mountinfo", above)];
        assert_eq!(rooms("groups-above", &files), []);
    }
}
