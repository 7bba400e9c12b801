//! Where the inputs, parameters and nodes of a graph were written, and what is said of those that the
//! loss does not need.

use crate::{Code, Mistake, Source, Span, Value, report::Report};
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

/// A call of a block, the rows that its body made, and the row that it returned.
struct Call {
    span: Span,
    made: [Range<usize>; 3],
    returned: Option<(usize, usize)>,
}

impl Call {
    /// Whether what it returned was made in its body.
    fn returns_its_own(&self) -> bool {
        self.returned.is_some_and(|(kind, index)| self.made[kind].contains(&index))
    }
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
        let made = self.sizes().map(|size| size..size);
        self.calls.push(Call { span, made, returned: None });
        self.calls.len() - 1
    }

    /// The body of that call ends, and returns this.
    pub(super) fn leave(&mut self, call: usize, returned: Option<&Value>) {
        let sizes = self.sizes();
        let call = &mut self.calls[call];
        for (made, size) in call.made.iter_mut().zip(sizes) {
            made.end = size;
        }
        call.returned = match returned {
            Some(Value::Tensor(tensor)) => Some(row(&tensor.source)),
            Some(_) | None => None,
        };
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

    /// Where all that a call made is unused, and what it returned is of that, the line of the call is to
    /// blame and not the body, which others may call too; the outermost such call.
    fn blame_calls(&mut self, unused: &[Source]) {
        let mut is_unused = self.sizes().map(|size| vec![false; size]);
        for (kind, index) in unused.iter().map(row) {
            is_unused[kind][index] = true;
        }
        let calls = self.calls.iter().rev().filter(|call| call.returns_its_own());
        for Call { span, made, returned: _ } in calls {
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
