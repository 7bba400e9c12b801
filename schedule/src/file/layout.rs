//! Lays a tree out as YAML: a value stands on one line when it fits, otherwise its items stand
//! on lines of their own.

use super::node::Node;

/// Widest line that holds a value with items.
const WIDTH: usize = 140;

/// Writes `key: value`; items of the value always stand on lines of their own.
pub(super) fn section(out: &mut String, key: &str, value: &Node) {
    out.push_str(key);
    out.push(':');
    match value {
        Node::Map(pairs) if !pairs.is_empty() => {
            new_line(out, 2);
            block(out, value, 2);
        }
        Node::Map(_) | Node::Text(_) | Node::List(_) => {
            out.push(' ');
            flow(out, value);
        }
    }
    out.push('\n');
}

fn new_line(out: &mut String, indent: usize) {
    out.push('\n');
    out.extend(std::iter::repeat_n(' ', indent));
}

/// Writes items line by line; the first line is indented already.
fn block(out: &mut String, value: &Node, indent: usize) {
    match value {
        Node::Text(text) => out.push_str(text),
        Node::List(items) => {
            for (k, item) in items.iter().enumerate() {
                if k > 0 {
                    new_line(out, indent);
                }
                out.push_str("- ");
                match fits(item, indent + 2) {
                    true => flow(out, item),
                    false => block(out, item, indent + 2),
                }
            }
        }
        Node::Map(pairs) => {
            for (k, (key, item)) in pairs.iter().enumerate() {
                if k > 0 {
                    new_line(out, indent);
                }
                out.push_str(key);
                out.push(':');
                if fits(item, indent + key.len() + 2) {
                    out.push(' ');
                    flow(out, item);
                } else {
                    new_line(out, indent + 2);
                    block(out, item, indent + 2);
                }
            }
        }
    }
}

/// Writes a value on one line.
pub(super) fn flow(out: &mut String, value: &Node) {
    match value {
        Node::Text(text) => out.push_str(text),
        Node::List(items) => {
            out.push('[');
            for (k, item) in items.iter().enumerate() {
                out.push_str(if k > 0 { ", " } else { "" });
                flow(out, item);
            }
            out.push(']');
        }
        Node::Map(pairs) => {
            out.push('{');
            for (k, (key, item)) in pairs.iter().enumerate() {
                out.push_str(if k > 0 { ", " } else { "" });
                out.push_str(key);
                out.push_str(": ");
                flow(out, item);
            }
            out.push('}');
        }
    }
}

/// Whether a value that starts in `column` fits on its line; scalars and lists of scalars always
/// do.
fn fits(value: &Node, column: usize) -> bool {
    match value {
        Node::Text(_) => true,
        Node::List(items) if items.iter().all(|item| matches!(item, Node::Text(_))) => {
            true
        }
        Node::List(_) | Node::Map(_) => {
            room_after(value, WIDTH.saturating_sub(column)).is_some()
        }
    }
}

/// The room that is left of `room` columns behind a value. Stops as soon as there is none, so
/// that laying out stays linear in the size of the tree.
fn room_after(value: &Node, room: usize) -> Option<usize> {
    match value {
        Node::Text(text) => room.checked_sub(text.len()),
        Node::List(items) => {
            let mut after = items.iter();
            after.try_fold(room.checked_sub(2)?, |left, item| {
                room_after(item, left.checked_sub(2)?)
            })
        }
        Node::Map(pairs) => {
            let mut after = pairs.iter();
            after.try_fold(room.checked_sub(2)?, |left, (key, item)| {
                room_after(item, left.checked_sub(key.len() + 4)?)
            })
        }
    }
}
