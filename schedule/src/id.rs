//! Typed handles: a row of one table, printed exactly as the schedule file spells it.

use crate::spelled::held_as_text;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use std::{fmt, marker::PhantomData, str::FromStr};

/// A row of one [`Table`]; prints as the file spells it (`b7`).
pub trait Id: Copy + Ord + fmt::Debug + fmt::Display {
    /// The letter in front of the number.
    const PREFIX: &'static str;
    /// The handle of row `index`; whether the row exists is the table's business.
    fn new(index: usize) -> Self;
    /// The handle of this row.
    fn numbered(number: u32) -> Self;
    /// The row number, as it is written.
    fn number(self) -> u32;
    /// The row number, as tables count.
    #[inline]
    fn index(self) -> usize {
        self.number() as usize
    }
}

/// Handles, each with the letter that stands in front of its number.
#[macro_export]
macro_rules! define_ids {
    ($($(#[$about:meta])* $name:ident $prefix:literal;)*) => {$(
        $(#[$about])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(u32);

        impl $crate::Id for $name {
            const PREFIX: &'static str = $prefix;
            #[inline]
            fn new(index: usize) -> Self {
                Self(u32::try_from(index).expect("tables hold fewer than 2^32 rows"))
            }
            #[inline]
            fn numbered(number: u32) -> Self {
                Self(number)
            }
            #[inline]
            fn number(self) -> u32 {
                self.0
            }
        }
        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                write!(f, "{}{}", $prefix, self.0)
            }
        }
        impl std::fmt::Debug for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                write!(f, "{self}")
            }
        }
    )*};
}

/// The same, which files have as text.
macro_rules! define_written_ids {
    ($($(#[$about:meta])* $name:ident $prefix:literal;)*) => {
        define_ids! {$(
            $(#[$about])*
            #[derive(Serialize, Deserialize)]
            #[serde(into = "String", try_from = "String")]
            $name $prefix;
        )*}
        $(
            impl FromStr for $name {
                type Err = String;
                fn from_str(text: &str) -> Result<Self, String> {
                    text.strip_prefix($prefix)
                        .filter(|digits| digits.bytes().all(|b| b.is_ascii_digit()))
                        .and_then(|digits| digits.parse().ok())
                        .map(Self)
                        .ok_or_else(|| {
                            format!("expected a handle like `{}0`, found `{text}`", $prefix)
                        })
                }
            }
            held_as_text!($name);
        )*
    };
}

define_written_ids! {
    /// A device of the target.
    DeviceId "d";
    /// A memory that one or more devices allocate from.
    PoolId "m";
    /// A level of links.
    LinkId "x";
    /// A symmetric dimension.
    AxisId "y";
    /// An ordered set of devices that turns.
    RingId "r";
    /// An ordered set of places for a collective.
    GroupId "g";
    /// What a launch runs.
    RoutineId "k";
    /// A range of one pool, in a ring of slots.
    BufferId "b";
    /// A line of the schedule.
    ActionId "a";
    /// A part of the model graph that is placed as one; counts from zero.
    Stage "s";
    /// The unit that flows through stages, counted within one cell from zero.
    MicroBatch "i";
    /// A value of the model graph that crosses a stage boundary.
    ValueId "v";
    /// An input of the model.
    InputId "n";
}

impl DeviceId {
    /// The device that lies this many behind this one.
    pub fn shifted(self, by: u32) -> Self {
        Self(self.0 + by)
    }
}

/// A list that only its own handle can index; it does not deref to a slice, which would
/// bring untyped indices back. In files it is a map from handles, in order, to rows.
#[derive(Clone, PartialEq)]
pub struct Table<I, T> {
    rows: Vec<T>,
    id: PhantomData<fn(I) -> I>,
}

impl<I: Id, T> Table<I, T> {
    /// An empty table.
    pub fn new() -> Self {
        Self { rows: Vec::new(), id: PhantomData }
    }
    /// Appends a row and returns its handle.
    pub fn push(&mut self, row: T) -> I {
        self.rows.push(row);
        I::new(self.rows.len() - 1)
    }
    /// The row, if the handle is in range.
    pub fn get(&self, id: I) -> Option<&T> {
        self.rows.get(id.index())
    }
    /// The number of rows.
    pub fn len(&self) -> usize {
        self.rows.len()
    }
    /// Whether there is no row.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }
    /// All handles, in order.
    pub fn ids(
        &self,
    ) -> impl DoubleEndedIterator<Item = I> + ExactSizeIterator + use<I, T> {
        (0..self.rows.len()).map(I::new)
    }
    /// All rows with their handles, in order.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = (I, &T)> + ExactSizeIterator {
        self.rows.iter().enumerate().map(|(index, row)| (I::new(index), row))
    }
    /// All rows with their handles, in order, to change.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = (I, &mut T)> {
        self.rows.iter_mut().enumerate().map(|(index, row)| (I::new(index), row))
    }
    /// All rows, in order.
    pub fn values(&self) -> impl DoubleEndedIterator<Item = &T> + ExactSizeIterator {
        self.rows.iter()
    }
}

impl<I: Id, T: Serialize> Serialize for Table<I, T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.iter().map(|(id, row)| (id.to_string(), row)))
    }
}

impl<'de, I: Id, T: Deserialize<'de>> Deserialize<'de> for Table<I, T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(Rows(Table::new()))
    }
}

struct Rows<I, T>(Table<I, T>);

impl<'de, I: Id, T: Deserialize<'de>> de::Visitor<'de> for Rows<I, T> {
    type Value = Table<I, T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "rows from `{}0:` on", I::PREFIX)
    }

    fn visit_map<A: de::MapAccess<'de>>(
        mut self,
        mut map: A,
    ) -> Result<Self::Value, A::Error> {
        while let Some(key) = map.next_key::<String>()? {
            let expected = I::new(self.0.len()).to_string();
            if key != expected {
                let message = format!("expected the handle {expected}, found `{key}`");
                return Err(de::Error::custom(message));
            }
            self.0.push(map.next_value()?);
        }
        Ok(self.0)
    }
}

impl<I: Id, T> Default for Table<I, T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<I: Id, T: fmt::Debug> fmt::Debug for Table<I, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}

impl<I: Id, T> FromIterator<T> for Table<I, T> {
    fn from_iter<S: IntoIterator<Item = T>>(rows: S) -> Self {
        Self { rows: rows.into_iter().collect(), id: PhantomData }
    }
}

impl<I: Id, T> std::ops::Index<I> for Table<I, T> {
    type Output = T;
    fn index(&self, id: I) -> &T {
        &self.rows[id.index()]
    }
}

impl<I: Id, T> std::ops::IndexMut<I> for Table<I, T> {
    fn index_mut(&mut self, id: I) -> &mut T {
        &mut self.rows[id.index()]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_handle_prints_as_it_is_read() {
        let id = BufferId::new(17);
        assert_eq!(id.to_string(), "b17");
        assert_eq!((id.number(), id.index()), (17, 17));
        assert_eq!(BufferId::numbered(17), id);
        assert_eq!("b17".parse::<BufferId>(), Ok(id));
        for wrong in ["", "b", "c1", "b-1", "b+1", "b 1", "b99999999999"] {
            assert!(wrong.parse::<BufferId>().is_err(), "{wrong}");
        }
    }
}
