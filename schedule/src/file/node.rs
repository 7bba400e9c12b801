//! Any serde value as a tree of maps, lists and spelled scalars, ready to be laid out.

use serde::{Serialize, Serializer, ser};
use std::fmt;

/// A value; scalars are spelled as YAML wants them.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Node {
    /// A scalar.
    Text(String),
    /// A list.
    List(Vec<Node>),
    /// Keys and values, in order.
    Map(Vec<(String, Node)>),
}

/// The tree of a value.
pub(super) fn node<T: Serialize + ?Sized>(value: &T) -> Node {
    value
        .serialize(Builder)
        .expect("the types of the header serialise without conditions")
}

/// Words that some YAML reader takes for something other than a string.
const RESERVED: [&str; 9] = ["true", "false", "yes", "no", "on", "off", "y", "n", "null"];

fn spelled(text: &str) -> String {
    let mut bytes = text.bytes();
    let plain = bytes.next().is_some_and(|b| b.is_ascii_alphabetic() || b == b'_')
        && bytes.all(|b| b.is_ascii_alphanumeric() || b"_./-".contains(&b))
        && !RESERVED.contains(&text.to_ascii_lowercase().as_str());
    if plain { text.to_owned() } else { quoted(text) }
}

fn quoted(text: &str) -> String {
    let mut out = String::from('"');
    for c in text.chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            '\n' => out.push_str("\\n"),
            '\t' => out.push_str("\\t"),
            _ if c == ' ' || c.is_ascii_graphic() || c.is_alphanumeric() => out.push(c),
            _ => out.push_str(&format!("\\U{:08x}", u32::from(c))),
        }
    }
    out.push('"');
    out
}

fn real(value: f64) -> String {
    match value {
        _ if value.is_nan() => ".nan".to_owned(),
        f64::INFINITY => ".inf".to_owned(),
        f64::NEG_INFINITY => "-.inf".to_owned(),
        _ => format!("{value:?}"),
    }
}

struct Builder;

/// Items of a list, or pairs of a map, and the variant that they stand under.
struct Parts {
    items: Vec<Node>,
    pairs: Vec<(String, Node)>,
    variant: Option<&'static str>,
}

impl Parts {
    fn under(variant: Option<&'static str>) -> Self {
        Self { items: Vec::new(), pairs: Vec::new(), variant }
    }
    fn list(self) -> Node {
        wrap(self.variant, Node::List(self.items))
    }
    fn map(self) -> Node {
        wrap(self.variant, Node::Map(self.pairs))
    }
}

fn wrap(variant: Option<&'static str>, value: Node) -> Node {
    match variant {
        Some(name) => Node::Map(vec![(spelled(name), value)]),
        None => value,
    }
}

fn text(value: impl fmt::Display) -> Result<Node, fmt::Error> {
    Ok(Node::Text(value.to_string()))
}

macro_rules! scalars {
    ($($name:ident $type:ty)*) => {$(
        fn $name(self, value: $type) -> Result<Node, fmt::Error> {
            text(value)
        }
    )*};
}

impl Serializer for Builder {
    type Ok = Node;
    type Error = fmt::Error;
    type SerializeSeq = Parts;
    type SerializeTuple = Parts;
    type SerializeTupleStruct = Parts;
    type SerializeTupleVariant = Parts;
    type SerializeMap = Parts;
    type SerializeStruct = Parts;
    type SerializeStructVariant = Parts;

    scalars! {
        serialize_bool bool
        serialize_i8 i8
        serialize_i16 i16
        serialize_i32 i32
        serialize_i64 i64
        serialize_u8 u8
        serialize_u16 u16
        serialize_u32 u32
        serialize_u64 u64
    }
    fn serialize_f32(self, value: f32) -> Result<Node, fmt::Error> {
        text(real(f64::from(value)))
    }
    fn serialize_f64(self, value: f64) -> Result<Node, fmt::Error> {
        text(real(value))
    }
    fn serialize_char(self, value: char) -> Result<Node, fmt::Error> {
        text(spelled(&value.to_string()))
    }
    fn serialize_str(self, value: &str) -> Result<Node, fmt::Error> {
        text(spelled(value))
    }
    fn serialize_bytes(self, value: &[u8]) -> Result<Node, fmt::Error> {
        value.serialize(self)
    }
    fn serialize_none(self) -> Result<Node, fmt::Error> {
        text("null")
    }
    fn serialize_some<T: Serialize + ?Sized>(
        self,
        value: &T,
    ) -> Result<Node, fmt::Error> {
        value.serialize(self)
    }
    fn serialize_unit(self) -> Result<Node, fmt::Error> {
        text("null")
    }
    fn serialize_unit_struct(self, _name: &'static str) -> Result<Node, fmt::Error> {
        text("null")
    }
    fn serialize_unit_variant(
        self,
        _name: &'static str,
        _index: u32,
        variant: &'static str,
    ) -> Result<Node, fmt::Error> {
        text(spelled(variant))
    }
    fn serialize_newtype_struct<T: Serialize + ?Sized>(
        self,
        _name: &'static str,
        value: &T,
    ) -> Result<Node, fmt::Error> {
        value.serialize(self)
    }
    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        self,
        _name: &'static str,
        _index: u32,
        variant: &'static str,
        value: &T,
    ) -> Result<Node, fmt::Error> {
        Ok(wrap(Some(variant), value.serialize(self)?))
    }
    fn serialize_seq(self, _length: Option<usize>) -> Result<Parts, fmt::Error> {
        Ok(Parts::under(None))
    }
    fn serialize_tuple(self, _length: usize) -> Result<Parts, fmt::Error> {
        Ok(Parts::under(None))
    }
    fn serialize_tuple_struct(
        self,
        _name: &'static str,
        _length: usize,
    ) -> Result<Parts, fmt::Error> {
        Ok(Parts::under(None))
    }
    fn serialize_tuple_variant(
        self,
        _name: &'static str,
        _index: u32,
        variant: &'static str,
        _length: usize,
    ) -> Result<Parts, fmt::Error> {
        Ok(Parts::under(Some(variant)))
    }
    fn serialize_map(self, _length: Option<usize>) -> Result<Parts, fmt::Error> {
        Ok(Parts::under(None))
    }
    fn serialize_struct(
        self,
        _name: &'static str,
        _length: usize,
    ) -> Result<Parts, fmt::Error> {
        Ok(Parts::under(None))
    }
    fn serialize_struct_variant(
        self,
        _name: &'static str,
        _index: u32,
        variant: &'static str,
        _length: usize,
    ) -> Result<Parts, fmt::Error> {
        Ok(Parts::under(Some(variant)))
    }
}

macro_rules! lists {
    ($($name:ident $push:ident)*) => {$(
        impl ser::$name for Parts {
            type Ok = Node;
            type Error = fmt::Error;
            fn $push<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), fmt::Error> {
                self.items.push(node(value));
                Ok(())
            }
            fn end(self) -> Result<Node, fmt::Error> {
                Ok(self.list())
            }
        }
    )*};
}

macro_rules! structs {
    ($($name:ident)*) => {$(
        impl ser::$name for Parts {
            type Ok = Node;
            type Error = fmt::Error;
            fn serialize_field<T: Serialize + ?Sized>(
                &mut self,
                key: &'static str,
                value: &T,
            ) -> Result<(), fmt::Error> {
                self.pairs.push((spelled(key), node(value)));
                Ok(())
            }
            fn end(self) -> Result<Node, fmt::Error> {
                Ok(self.map())
            }
        }
    )*};
}

lists! {
    SerializeSeq serialize_element
    SerializeTuple serialize_element
    SerializeTupleStruct serialize_field
    SerializeTupleVariant serialize_field
}
structs! { SerializeStruct SerializeStructVariant }

impl ser::SerializeMap for Parts {
    type Ok = Node;
    type Error = fmt::Error;
    fn serialize_key<T: Serialize + ?Sized>(
        &mut self,
        key: &T,
    ) -> Result<(), fmt::Error> {
        self.items.push(node(key));
        Ok(())
    }
    fn serialize_value<T: Serialize + ?Sized>(
        &mut self,
        value: &T,
    ) -> Result<(), fmt::Error> {
        let Some(Node::Text(key)) = self.items.pop() else { return Err(fmt::Error) };
        self.pairs.push((key, node(value)));
        Ok(())
    }
    fn end(self) -> Result<Node, fmt::Error> {
        Ok(self.map())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_string_is_read_as_it_was() {
        let any = (0..0x3000).filter_map(char::from_u32).map(String::from);
        let words = [
            "", " a", "~", "null", "Yes", "a: b", "a #b", "- a", "[a", "1e5", ".", "0x1",
        ];
        for word in any.chain(words.map(str::to_owned)) {
            let line = format!("k: {{k: {}, m: 1}}", spelled(&word));
            type Nested = std::collections::BTreeMap<
                String,
                std::collections::BTreeMap<String, String>,
            >;
            let back: Nested = serde_saphyr::from_str(&line).unwrap();
            assert_eq!(back["k"]["k"], word, "{line}");
        }
    }

    #[test]
    fn every_real_is_read_as_it_was() {
        for value in
            [0.0, -0.0, 0.1, 1e16, 1e300, 5e-324, f64::MAX, f64::INFINITY, -1.5e-7]
        {
            let back: f64 = serde_saphyr::from_str(&real(value)).unwrap();
            assert_eq!(back.to_bits(), value.to_bits(), "{}", real(value));
        }
    }
}
