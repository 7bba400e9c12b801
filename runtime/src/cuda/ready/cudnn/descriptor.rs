//! What cuDNN calls descriptors: parts of a graph of operations and of its plan, each with attributes.
//!
//! Numbers are those of `cudnn_graph.h`; none of them has changed since version 8.
#![expect(unsafe_code, reason = "cuDNN is called here")]

use super::{Done, check};
use crate::cuda::driver::cudnn::{self, Raw};
use std::{
    ffi::{c_int, c_void},
    marker::PhantomData,
    ptr,
};

/// What a descriptor describes: `cudnnBackendDescriptorType_t`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub(in crate::cuda::ready) enum Kind {
    Pointwise = 0,
    Convolution = 1,
    Engine = 2,
    Configuration = 3,
    Heuristics = 4,
    Plan = 5,
    ConvolutionForward = 10,
    ConvolutionFilters = 11,
    ConvolutionImages = 12,
    PointwiseOperation = 13,
    Graph = 15,
    VariantPack = 16,
    Tensor = 17,
    Matmul = 18,
    MatmulOperation = 19,
    Reduction = 21,
    ReductionOperation = 22,
    #[cfg(test)]
    Device = 38,
}

/// A type of attributes, with its number in `cudnnBackendAttributeType_t`.
pub(in crate::cuda::ready) trait Value: Copy {
    const TYPE: c_int;
}

/// Declares types of attributes that are numbers of an enumeration.
macro_rules! enumerations {
    ($($(#[$words:meta])* $name:ident = $number:literal;)*) => {$(
        $(#[$words])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(transparent)]
        pub(in crate::cuda::ready) struct $name(pub(in super::super) c_int);

        impl Value for $name {
            const TYPE: c_int = $number;
        }
    )*};
}

enumerations! {
    /// A type of numbers.
    Data = 1;
    /// Whether filters are turned.
    Correlation = 7;
    /// How engines are looked for.
    Search = 8;
    /// What an engine says of its numbers.
    Note = 11;
    /// What is done number by number.
    Mode = 14;
    /// How numbers become one.
    Operator = 18;
}

impl Value for bool {
    const TYPE: c_int = 2;
}

impl Value for i64 {
    const TYPE: c_int = 3;
}

impl Value for f32 {
    const TYPE: c_int = 4;
}

/// An address of the device, or of a number of the host.
impl Value for *const c_void {
    const TYPE: c_int = 6;
}

/// Text.
#[cfg(test)]
impl Value for u8 {
    const TYPE: c_int = 24;
}

/// The library, started; and other descriptors, which are no values.
const HANDLE: c_int = 0;
const DESCRIPTOR: c_int = 15;

/// An attribute, by its number in `cudnnBackendAttributeName_t`, and the type of its values.
pub(in crate::cuda::ready) struct Attribute<T> {
    name: c_int,
    values: PhantomData<T>,
}

impl<T> Clone for Attribute<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Attribute<T> {}

impl<T> Attribute<T> {
    pub(in crate::cuda::ready) const fn new(name: c_int) -> Self {
        Self { name, values: PhantomData }
    }
}

/// A part of a graph or of its plan.
pub(in crate::cuda::ready) struct Descriptor(Raw);

// SAFETY: descriptors are plain data of the library, used by one thread at a time.
unsafe impl Send for Descriptor {}

impl Descriptor {
    /// One without attributes.
    pub(in crate::cuda::ready) fn new(kind: Kind) -> Done<Self> {
        let mut raw = ptr::null_mut();
        // SAFETY: a descriptor is written.
        check(unsafe {
            cudnn::cudnnBackendCreateDescriptor(kind as c_int, &raw mut raw)
        })?;
        Ok(Self(raw))
    }

    fn give<T>(&mut self, name: c_int, kind: c_int, values: &[T]) -> Done {
        let (count, at) = (values.len() as i64, values.as_ptr().cast());
        // SAFETY: the descriptor is live; the library copies this many values of that type.
        check(unsafe { cudnn::cudnnBackendSetAttribute(self.0, name, kind, count, at) })
    }

    /// With an attribute.
    pub(in crate::cuda::ready) fn with<T: Value>(
        mut self,
        attribute: Attribute<T>,
        values: &[T],
    ) -> Done<Self> {
        self.give(attribute.name, T::TYPE, values)?;
        Ok(self)
    }

    /// With other descriptors, which must live as long.
    pub(in crate::cuda::ready) fn with_parts(
        mut self,
        attribute: Attribute<Self>,
        parts: &[&Self],
    ) -> Done<Self> {
        let parts: Vec<Raw> = parts.iter().map(|part| part.0).collect();
        self.give(attribute.name, DESCRIPTOR, &parts)?;
        Ok(self)
    }

    /// For the library that was started, which must live as long.
    pub(in crate::cuda::ready) fn for_library(
        mut self,
        attribute: Attribute<super::Handle>,
        handle: &super::Handle,
    ) -> Done<Self> {
        self.give(attribute.name, HANDLE, &[handle.raw()])?;
        Ok(self)
    }

    /// The same, complete: from now on its attributes stand.
    pub(in crate::cuda::ready) fn finish(self) -> Done<Self> {
        // SAFETY: the descriptor is live.
        check(unsafe { cudnn::cudnnBackendFinalize(self.0) })?;
        Ok(self)
    }

    /// Up to `most` values of an attribute of a complete descriptor, in the places of `filler`.
    pub(in crate::cuda::ready) fn values<T: Value>(
        &self,
        attribute: Attribute<T>,
        filler: T,
        most: usize,
    ) -> Done<Vec<T>> {
        let mut found = vec![filler; most];
        let count = self.ask(attribute.name, T::TYPE, &mut found)?;
        found.truncate(count);
        Ok(found)
    }

    /// A descriptor that an attribute has; it becomes one of this kind.
    pub(in crate::cuda::ready) fn part(
        &self,
        attribute: Attribute<Self>,
        kind: Kind,
    ) -> Done<Self> {
        let part = Self::new(kind)?;
        self.ask(attribute.name, DESCRIPTOR, &mut [part.0])?;
        Ok(part)
    }

    /// Up to `most` descriptors of one kind that an attribute has.
    pub(in crate::cuda::ready) fn parts(
        &self,
        attribute: Attribute<Self>,
        kind: Kind,
        most: usize,
    ) -> Done<Vec<Self>> {
        let mut parts = (0..most).map(|_| Self::new(kind)).collect::<Done<Vec<_>>>()?;
        let mut raw: Vec<Raw> = parts.iter().map(|part| part.0).collect();
        let count = self.ask(attribute.name, DESCRIPTOR, &mut raw)?;
        parts.truncate(count);
        Ok(parts)
    }

    /// Writes values into the places of others, and says how many.
    fn ask<T>(&self, name: c_int, kind: c_int, places: &mut [T]) -> Done<usize> {
        let (mut count, at) = (0, places.as_mut_ptr().cast());
        let most = places.len() as i64;
        // SAFETY: the descriptor is live; at most this many values of that type and a count are written.
        check(unsafe {
            cudnn::cudnnBackendGetAttribute(self.0, name, kind, most, &raw mut count, at)
        })?;
        Ok(usize::try_from(count).unwrap_or(0).min(places.len()))
    }

    pub(in crate::cuda::ready) fn raw(&self) -> Raw {
        self.0
    }
}

impl Drop for Descriptor {
    fn drop(&mut self) {
        // SAFETY: the descriptor is live.
        let _ = unsafe { cudnn::cudnnBackendDestroyDescriptor(self.0) };
    }
}
