//! Where the inputs, parameters and nodes of a graph were written, and what is said of those that the
//! loss does not need.

use crate::{Code, Mistake, Source, Span, report::Report};
use roundelay_schedule::Id;
use std::{collections::BTreeSet, ops::Range};

/// Where the rows of a graph were written.
#[derive(Default)]
pub(super) struct Origins {
    /// Of inputs, parameters and nodes.
    spans: [Vec<Span>; 3],
    /// Calls of blocks; those in the body of another call stand behind it.
    calls: Vec<Call>,
}

/// A call of a block, and the rows that its body made.
struct Call {
    span: Span,
    made: [Range<usize>; 3],
}

impl Origins {
    /// How many inputs, parameters and nodes are known.
    pub(super) fn sizes(&self) -> [usize; 3] {
        self.spans.each_ref().map(Vec::len)
    }

    /// All rows that are new were written here.
    pub(super) fn grow(&mut self, sizes: [usize; 3], span: Span) {
        for (spans, size) in self.spans.iter_mut().zip(sizes) {
            spans.resize(size, span);
        }
    }

    /// The body of a block that is called here comes next; returns the number of the call.
    pub(super) fn enter(&mut self, span: Span) -> usize {
        self.calls.push(Call { span, made: self.sizes().map(|size| size..size) });
        self.calls.len() - 1
    }

    /// The body of that call ends.
    pub(super) fn leave(&mut self, call: usize) {
        let sizes = self.sizes();
        for (made, size) in self.calls[call].made.iter_mut().zip(sizes) {
            made.end = size;
        }
    }

    /// Warns of each place once: whoever computes something that is left out need not hear of its
    /// parameters.
    pub(super) fn warn_unused(mut self, unused: &[Source], report: &mut Report) {
        self.blame_calls(unused);
        let is_node = |source: &&Source| matches!(source, Source::Node(_));
        let (nodes, others): (Vec<&Source>, Vec<&Source>) =
            unused.iter().partition(is_node);
        let mut seen = BTreeSet::new();
        for source in nodes.into_iter().chain(others) {
            let (kind, index) = row(source);
            let span = self.spans[kind][index];
            if seen.insert(span) {
                let message =
                    format!("{} does not reach the loss and is left out", told(source));
                report.warning(span, Mistake::new(Code::Unused, message));
            }
        }
    }

    /// Where all that a call made is unused, the line of the call is to blame and not the body, which
    /// others may call too; the outermost such call.
    fn blame_calls(&mut self, unused: &[Source]) {
        let mut is_unused = self.sizes().map(|size| vec![false; size]);
        for (kind, index) in unused.iter().map(row) {
            is_unused[kind][index] = true;
        }
        for Call { span, made } in self.calls.iter().rev() {
            let mut kinds = made.iter().zip(&is_unused);
            if !kinds.all(|(made, unused)| unused[made.clone()].iter().all(|one| *one)) {
                continue;
            }
            for (made, spans) in made.iter().zip(&mut self.spans) {
                spans[made.clone()].fill(*span);
            }
        }
    }
}

/// The kind of a row, as [`Origins`] counts them, and its number.
fn row(source: &Source) -> (usize, usize) {
    match source {
        Source::Input(id) => (0, id.index()),
        Source::Parameter(id) => (1, id.index()),
        Source::Node(id) => (2, id.index()),
    }
}

fn told(source: &Source) -> &'static str {
    match source {
        Source::Input(_) => "this input",
        Source::Parameter(_) => "a parameter made here",
        Source::Node(_) => "what is computed here",
    }
}
