//! Ports for ranks that meet on this machine.

use std::{
    net::TcpListener,
    process,
    sync::atomic::{AtomicU32, Ordering},
};

/// A port that nobody listens at, nor at the one behind it, below those that the system gives to
/// connections; nobody else in this process gets it.
pub(crate) fn free_port() -> u16 {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    loop {
        let number = process::id() * 61 + NEXT.fetch_add(1, Ordering::Relaxed);
        let port = 20_000 + 2 * (number % 4_500) as u16;
        let free = |port: u16| TcpListener::bind(("127.0.0.1", port)).is_ok();
        if free(port) && free(port + 1) {
            return port;
        }
    }
}
