//! Contexts: each thread has a current one, what is made belongs to it, and when it is given back for the
//! last time nothing of it may be left.

use crate::{
    forbid,
    world::{INVALID_CONTEXT, INVALID_HANDLE, World},
};
use std::{cell::Cell, collections::BTreeMap};

thread_local! {
    /// The device whose context is the calling thread's.
    static CURRENT: Cell<Option<u64>> = const { Cell::new(None) };
}

/// Makes a device's context, or none, that of the calling thread.
pub(crate) fn enter(device: Option<u64>) {
    CURRENT.set(device);
}

/// The device whose context is the calling thread's.
pub(crate) fn current() -> Option<u64> {
    CURRENT.get()
}

/// What belongs to contexts.
#[derive(Default)]
pub(crate) struct Contexts {
    /// How often the context of a device is held.
    held: BTreeMap<u64, u64>,
    /// The device of what has a handle or an address, and what it is.
    owned: BTreeMap<u64, (u64, &'static str)>,
}

impl Contexts {
    pub(crate) fn retain(&mut self, device: u64) {
        *self.held.entry(device).or_default() += 1;
    }

    /// Gives a context back; ends the process when something of it is left.
    pub(crate) fn release(&mut self, device: u64) -> i32 {
        match self.held.get_mut(&device) {
            None | Some(0) => return INVALID_HANDLE,
            Some(times) => *times -= 1,
        }
        if self.held[&device] == 0
            && let Some((_, what)) = self.owned.values().find(|(own, _)| *own == device)
        {
            forbid(&format!("a context is given back before {what} of it"));
        }
        0
    }

    /// How many are held.
    pub(crate) fn held(&self) -> usize {
        self.held.values().filter(|times| **times > 0).count()
    }

    fn own(&mut self, handle: u64, what: &'static str) -> Result<(), i32> {
        let device = current().ok_or(INVALID_CONTEXT)?;
        self.owned.insert(handle, (device, what));
        Ok(())
    }

    /// It is no more.
    pub(crate) fn end(&mut self, handle: u64) {
        self.owned.remove(&handle);
    }

    /// Whether two handles are of one context.
    pub(crate) fn are_of_one(&self, handles: [u64; 2]) -> bool {
        let [one, other] = handles.map(|handle| self.owned.get(&handle));
        one.map(|(device, _)| device) == other.map(|(device, _)| device)
    }
}

impl World {
    /// Something new belongs to the context of the calling thread.
    ///
    /// # Errors
    /// What the driver answers where there is none, or its device has failed.
    pub(crate) fn make(&mut self, handle: u64, what: &'static str) -> Result<(), i32> {
        match self.heard() {
            Some(failure) => Err(failure),
            None => self.contexts.own(handle, what),
        }
    }
}
