//! Calls that all rows make together, once what every row brings is at hand.
#![expect(unsafe_code, reason = "rows read what other rows have claimed")]

use crate::memory::Views;
use roundelay_kernels::{Exchange, Joint, Real, Store};
use roundelay_schedule::{Collective, Native};

/// What one row brings to such a call, and where it gets its result.
#[derive(Clone, Copy)]
pub(crate) struct Ends {
    pub(crate) exchange: Exchange,
    pub(crate) dtype: Native,
    /// Address and bytes of what it brings.
    pub(crate) brought: (*mut u8, u64),
    /// Address and bytes of what it gets.
    pub(crate) got: (*mut u8, u64),
}

/// How ranks make together what a part gets, each with the bits of a machine that has all parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// Every part gets what all bring, and makes its result alone.
    Bring,
    /// Every part gets what all bring of a share of the elements, sums it, and gives it to all.
    Share,
    /// Every part gets what all bring of its own columns, and sums it.
    Cut,
    /// Every part gets the rows of others that it needs.
    Strips,
}

impl Way {
    /// A sum that is added to something is no sum of shares, for shares would be rounded before.
    pub(crate) fn of(exchange: &Exchange) -> Self {
        match exchange.kind {
            Joint::Collective(Collective::AllReduce) => match exchange.store {
                Store::Write => Self::Share,
                Store::Add => Self::Bring,
            },
            Joint::Collective(Collective::ReduceScatter) => Self::Cut,
            Joint::Collective(Collective::AllGather) => Self::Bring,
            Joint::Halo(_) | Joint::HaloAdd(_) => Self::Strips,
        }
    }
}

/// Room to look at what all rows bring; sized once.
pub(crate) struct Join {
    singles: Views<f32>,
    doubles: Views<f64>,
}

impl Join {
    /// Room for this many rows of numbers of a type.
    pub(crate) fn new(dtype: Native, rows: usize) -> Self {
        let room = |own| if dtype == own { rows } else { 0 };
        Self {
            singles: Views::new(room(Native::F32)),
            doubles: Views::new(room(Native::F64)),
        }
    }

    /// Makes what row `part` gets, from the addresses of what all rows bring, in their order.
    ///
    /// # Safety
    /// Every address is that of an array as `ends` brings one, aligned and written, which nobody
    /// writes now. What `ends` gets is aligned, the caller's own, and overlaps none of them.
    ///
    /// # Panics
    /// When there are more or fewer rows than the call says.
    pub(crate) unsafe fn join(
        &mut self,
        ends: &Ends,
        part: usize,
        brought: impl Iterator<Item = *mut u8>,
    ) {
        // SAFETY: as for the caller.
        unsafe {
            match ends.dtype {
                Native::F32 => join(&mut self.singles, ends, part, brought),
                Native::F64 => join(&mut self.doubles, ends, part, brought),
            }
        }
    }
}

/// # Safety
/// As for [`Join::join`].
unsafe fn join<R: Real>(
    views: &mut Views<R>,
    ends: &Ends,
    part: usize,
    brought: impl Iterator<Item = *mut u8>,
) {
    views.clear();
    brought.for_each(|first| views.push(first, ends.brought.1));
    let (first, bytes) = ends.got;
    let count = bytes as usize / size_of::<R>();
    // SAFETY: the caller says that all arrays are aligned and written, that nobody writes those
    // that are brought, and that the result is its own and apart from them.
    unsafe {
        let got = std::slice::from_raw_parts_mut(first.cast::<R>(), count);
        ends.exchange.join(views.all(), part, got);
    }
}
