//! Signals that ask a command to end: Ctrl-C, SIGTERM, which launchers and schedulers of jobs send before they end
//! a process, and SIGHUP, which a terminal sends that is closed.

use signal_hook::{
    consts::{SIGHUP, SIGTERM},
    iterator::Signals,
};
use std::io;

/// Calls a handler whenever one of them comes.
pub(super) fn listen(handler: impl Fn() + Clone + Send + 'static) -> io::Result<()> {
    on_endings(handler.clone())?;
    ctrlc::set_handler(handler).map_err(io::Error::other)
}

/// Calls a handler whenever another one than Ctrl-C comes. SIGHUP that is ignored stays so, as `nohup` wants it.
fn on_endings(handler: impl Fn() + Send + 'static) -> io::Result<()> {
    let hangup = (!is_ignored(SIGHUP)).then_some(SIGHUP);
    let mut signals = Signals::new([SIGTERM].into_iter().chain(hangup))?;
    let listening = move || signals.forever().for_each(|_| handler());
    std::thread::Builder::new().spawn(listening).map(drop)
}

/// Whether this process ignores a signal; where the system does not say, it is left to what it does.
fn is_ignored(signal: i32) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    // Signals count from one.
    mask.is_none_or(|mask| mask >> (signal - 1) & 1 == 1)
}
