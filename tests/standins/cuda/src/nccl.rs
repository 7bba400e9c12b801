//! `libnccl`: communicators that do not block. Work gets to a stream when somebody asks whether a
//! call is done, not before.

use crate::{
    contexts,
    exchange::{Communicator, Request, Setup},
    forbid,
    mesh::{self, INVALID_ARGUMENT, INVALID_USAGE, Mesh, SYSTEM_ERROR},
    work::Work,
    world::{World, world},
};
use std::{
    cell::RefCell,
    ffi::{CString, c_char, c_int, c_void},
    sync::{Arc, Mutex, OnceLock, PoisonError},
    thread,
};

const SUCCESS: u32 = 0;
const CUDA_ERROR: u32 = 1;
const REMOTE_ERROR: u32 = 6;
const IN_PROGRESS: u32 = 7;

/// Numbers of the types that are used, and of the sum.
const BYTES: u32 = 1;
const SINGLES: u32 = 7;
const SUM: u32 = 0;

#[repr(C)]
#[derive(Clone, Copy)]
struct Identity {
    bytes: [u8; 128],
}

/// The first fields of a configuration.
#[repr(C)]
struct Config {
    size: usize,
    magic: u32,
    version: u32,
    blocking: c_int,
}

/// A group under way: the communicator, the stream, and what is asked.
struct Group {
    depth: u32,
    requests: Vec<(u64, u64, Request)>,
}

thread_local! {
    /// That of the calling thread.
    static GROUP: RefCell<Group> =
        const { RefCell::new(Group { depth: 0, requests: Vec::new() }) };
}

static LAST: OnceLock<Mutex<CString>> = OnceLock::new();

fn note(what: &str) {
    let text = CString::new(what).unwrap_or_default();
    let last = LAST.get_or_init(Mutex::default);
    // A text that was handed out stays where it is.
    let old = std::mem::replace(
        &mut *last.lock().unwrap_or_else(PoisonError::into_inner),
        text,
    );
    std::mem::forget(old);
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ncclGetVersion(version: *mut c_int) -> u32 {
    // SAFETY: the caller gives room for a number.
    unsafe { *version = world().settings.nccl };
    SUCCESS
}

#[unsafe(no_mangle)]
extern "C" fn ncclGetErrorString(result: u32) -> *const c_char {
    let text = match result {
        SUCCESS => c"no error",
        CUDA_ERROR => c"unhandled cuda error",
        SYSTEM_ERROR => c"unhandled system error",
        INVALID_ARGUMENT => c"invalid argument",
        INVALID_USAGE => c"invalid usage",
        REMOTE_ERROR => c"remote process exited or there was a network error",
        IN_PROGRESS => c"NCCL operation in progress",
        _ => c"unknown result code",
    };
    text.as_ptr()
}

#[unsafe(no_mangle)]
extern "C" fn ncclGetLastError(_: u64) -> *const c_char {
    let last = LAST.get_or_init(Mutex::default);
    last.lock().unwrap_or_else(PoisonError::into_inner).as_ptr()
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ncclGetUniqueId(identity: *mut Identity) -> u32 {
    let Ok(port) = mesh::found() else { return SYSTEM_ERROR };
    let mut bytes = [0; 128];
    bytes[..2].copy_from_slice(&port.to_le_bytes());
    // SAFETY: the caller gives room for an identity.
    unsafe { *identity = Identity { bytes } };
    SUCCESS
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ncclCommInitRankConfig(
    communicator: *mut u64,
    size: c_int,
    identity: Identity,
    rank: c_int,
    config: *const Config,
) -> u32 {
    // SAFETY: the caller gives a configuration that begins like this.
    let Config { size: bytes, magic, version, blocking } = unsafe { config.read() };
    if bytes < size_of::<Config>() || magic != 0xcafe_beef || version < 21_800 {
        return INVALID_ARGUMENT;
    }
    if blocking != 0 {
        forbid("a communicator that blocks cannot be aborted");
    }
    let mut world = world();
    let number = world.number();
    let setup = Arc::new(Mutex::new(Setup::Busy));
    let count = size as usize;
    let own = Communicator {
        rank: rank as usize,
        size: count,
        setup: Arc::clone(&setup),
        waiting: Vec::new(),
        busy: true,
        connected: None,
        taken: 0,
        stream: None,
        ends: false,
        sent: vec![0; count],
        received: vec![0; count],
    };
    world.ranks.communicators.insert(number, own);
    let Some(device) = contexts::current() else {
        world.ranks.communicators.remove(&number);
        return INVALID_USAGE;
    };
    let host = world.settings.host;
    let port = u16::from_le_bytes([identity.bytes[0], identity.bytes[1]]);
    thread::spawn(move || {
        let met = Mesh::connect(port, [rank as u64, size as u64], device, host);
        let met = met.map_or_else(
            |(code, text)| {
                note(&text);
                Setup::Failed(code)
            },
            Setup::Met,
        );
        *setup.lock().unwrap_or_else(PoisonError::into_inner) = met;
    });
    // SAFETY: the caller gives room for a handle.
    unsafe { *communicator = number };
    IN_PROGRESS
}

/// Whether all is well with all ranks.
fn health(world: &World, number: u64) -> u32 {
    let Some(own) = world.ranks.communicators.get(&number) else {
        forbid("a communicator is used that is not there")
    };
    match &*own.setup.lock().unwrap_or_else(PoisonError::into_inner) {
        Setup::Busy => IN_PROGRESS,
        Setup::Failed(code) => *code,
        Setup::Met(mesh) if world.settings.reports_deaths && mesh.lost() => REMOTE_ERROR,
        Setup::Met(mesh) if own.ends && !mesh.all_end() => IN_PROGRESS,
        Setup::Met(_) => SUCCESS,
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ncclCommGetAsyncError(communicator: u64, state: *mut u32) -> u32 {
    let mut world = world();
    let mut now = health(&world, communicator);
    if now == SUCCESS
        && let Some(own) = world.ranks.communicators.get_mut(&communicator)
    {
        let waiting = std::mem::take(&mut own.waiting);
        own.busy = !waiting.is_empty();
        now = if own.busy { IN_PROGRESS } else { SUCCESS };
        for (stream, exchange) in waiting {
            if world.give(stream, Work::Exchange(exchange)) != 0 {
                now = 1;
            }
        }
    }
    // SAFETY: the caller gives room for a result.
    unsafe { *state = now };
    SUCCESS
}

/// Ends a communicator.
fn end(communicator: u64, how: impl Fn(&Mesh)) -> u32 {
    let mut world = world();
    let Some(own) = world.ranks.communicators.remove(&communicator) else {
        forbid("a communicator is ended twice")
    };
    world.memory.free += own.taken;
    drop(world);
    if let Setup::Met(mesh) = &*own.setup.lock().unwrap_or_else(PoisonError::into_inner) {
        how(mesh);
    }
    SUCCESS
}

#[unsafe(no_mangle)]
extern "C" fn ncclCommFinalize(communicator: u64) -> u32 {
    free_to_call(communicator);
    let mut world = world();
    let Some(own) = world.ranks.communicators.get_mut(&communicator) else {
        return INVALID_ARGUMENT;
    };
    own.ends = true;
    if let Setup::Met(mesh) = &*own.setup.lock().unwrap_or_else(PoisonError::into_inner) {
        mesh.end();
    }
    IN_PROGRESS
}

#[unsafe(no_mangle)]
extern "C" fn ncclCommDestroy(communicator: u64) -> u32 {
    if health(&world(), communicator) == IN_PROGRESS {
        forbid("a communicator is destroyed before all ranks have ended it");
    }
    end(communicator, Mesh::leave)
}

#[unsafe(no_mangle)]
extern "C" fn ncclCommAbort(communicator: u64) -> u32 {
    if !world().settings.aborts {
        loop {
            thread::park();
        }
    }
    end(communicator, Mesh::cut)
}

#[unsafe(no_mangle)]
extern "C" fn ncclGroupStart() -> u32 {
    GROUP.with_borrow_mut(|group| group.depth += 1);
    SUCCESS
}

#[unsafe(no_mangle)]
extern "C" fn ncclGroupEnd() -> u32 {
    let ended = GROUP.with_borrow_mut(|group| {
        group.depth = group.depth.checked_sub(1)?;
        let is_open = group.depth > 0;
        Some(if is_open { Vec::new() } else { std::mem::take(&mut group.requests) })
    });
    match ended.as_deref() {
        None => INVALID_USAGE,
        Some([]) => SUCCESS,
        Some(requests) => {
            launch(requests);
            IN_PROGRESS
        }
    }
}

fn free_to_call(communicator: u64) {
    let world = world();
    let own = world.ranks.communicators.get(&communicator);
    if own.is_none_or(|own| own.busy) {
        forbid("NCCL is called while an earlier call is under way");
    }
}

/// Keeps a group until somebody asks for it.
fn launch(requests: &[(u64, u64, Request)]) {
    let Some((communicator, stream, _)) = requests.first().copied() else { return };
    if requests.iter().any(|(own, at, _)| (*own, *at) != (communicator, stream)) {
        forbid("a group of several communicators or streams");
    }
    let mut world = world();
    let world = &mut *world;
    if world.streams.get(&stream).is_none_or(|own| own.captured.is_some()) {
        forbid("messages are recorded, or given to no stream");
    }
    let id = world.number();
    let asked: Vec<Request> = requests.iter().map(|(_, _, request)| *request).collect();
    world.ranks.group(communicator, &asked, id);
    if let Some(own) = world.ranks.communicators.get_mut(&communicator) {
        if own.stream.is_some_and(|known| known != stream) {
            forbid("a communicator is used on two streams");
        }
        own.stream = Some(stream);
        let messages = asked.iter().any(Request::is_message);
        match own.connected {
            None if messages => {
                let met = own.connect(&asked) as u64;
                let taken = met * world.settings.takes;
                match world.memory.free.checked_sub(taken) {
                    Some(left) => (world.memory.free, own.taken) = (left, taken),
                    None => {
                        note("out of memory");
                        let mut setup =
                            own.setup.lock().unwrap_or_else(PoisonError::into_inner);
                        *setup = Setup::Failed(CUDA_ERROR);
                    }
                }
            }
            Some(_) | None => {
                own.hold(&asked);
                world.counts.exchanges += 1;
                world.counts.grouped += u64::from(asked.len() > 1);
                world.counts.sent += asked.iter().map(Request::sent).sum::<u64>();
            }
        }
        own.waiting.push((stream, id));
        own.busy = true;
    }
}

fn ask(communicator: u64, stream: u64, request: Request, ranges: &[(u64, u64)]) -> u32 {
    free_to_call(communicator);
    let live = |(start, bytes): &(u64, u64)| world().memory.is_live(*start, *bytes);
    if !ranges.iter().all(live) {
        forbid("a message of no live memory");
    }
    let health = health(&world(), communicator);
    if health != SUCCESS {
        return health;
    }
    let grouped = GROUP.with_borrow_mut(|group| {
        let is_open = group.depth > 0;
        group.requests.extend(is_open.then_some((communicator, stream, request)));
        is_open
    });
    if grouped {
        return SUCCESS;
    }
    launch(&[(communicator, stream, request)]);
    IN_PROGRESS
}

#[unsafe(no_mangle)]
extern "C" fn ncclSend(
    from: *const c_void,
    bytes: usize,
    kind: u32,
    peer: c_int,
    communicator: u64,
    stream: u64,
) -> u32 {
    let (from, bytes, peer) = (from as u64, bytes as u64, peer as usize);
    if kind != BYTES {
        return INVALID_ARGUMENT;
    }
    ask(communicator, stream, Request::Send { from, bytes, peer }, &[(from, bytes)])
}

#[unsafe(no_mangle)]
extern "C" fn ncclRecv(
    to: *mut c_void,
    bytes: usize,
    kind: u32,
    peer: c_int,
    communicator: u64,
    stream: u64,
) -> u32 {
    let (to, bytes, peer) = (to as u64, bytes as u64, peer as usize);
    if kind != BYTES {
        return INVALID_ARGUMENT;
    }
    ask(communicator, stream, Request::Receive { to, bytes, peer }, &[(to, bytes)])
}

/// Numbers of ranks of a communicator.
fn size_of_world(communicator: u64) -> u64 {
    let world = world();
    world.ranks.communicators.get(&communicator).map_or(0, |own| own.size as u64)
}

#[unsafe(no_mangle)]
extern "C" fn ncclAllReduce(
    from: *const c_void,
    to: *mut c_void,
    count: usize,
    kind: u32,
    operation: u32,
    communicator: u64,
    stream: u64,
) -> u32 {
    if (kind, operation) != (SINGLES, SUM) {
        return INVALID_ARGUMENT;
    }
    let (from, to, bytes) = (from as u64, to as u64, 4 * count as u64);
    let request = Request::AllReduce { from, to, count };
    ask(communicator, stream, request, &[(from, bytes), (to, bytes)])
}

#[unsafe(no_mangle)]
extern "C" fn ncclReduceScatter(
    from: *const c_void,
    to: *mut c_void,
    count: usize,
    kind: u32,
    operation: u32,
    communicator: u64,
    stream: u64,
) -> u32 {
    if (kind, operation) != (SINGLES, SUM) {
        return INVALID_ARGUMENT;
    }
    let (from, to, bytes) = (from as u64, to as u64, 4 * count as u64);
    let whole = bytes * size_of_world(communicator);
    let request = Request::ReduceScatter { from, to, count };
    ask(communicator, stream, request, &[(from, whole), (to, bytes)])
}
