//! What parameters with several users leave of a model's cut points.

use crate::space::cuts::{Chain, Tie};
use roundelay_dsl::{Model, NodeId};
use roundelay_schedule::Id;
use std::fmt;

/// Parameters that are named in one sentence.
const NAMED: usize = 3;

/// Parameters with several users, and the stages that are left.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tied {
    /// Each such parameter with its first user, by operation and name, and the name of its last;
    /// those that forbid most cuts come first.
    pub parameters: Vec<[String; 3]>,
    /// The most stages that are possible.
    pub most: usize,
    /// The most that would be possible without them.
    pub nodes: usize,
}

impl Tied {
    /// What the ties of a model leave; nothing when there are none.
    pub(crate) fn new(model: &Model, chain: &Chain) -> Option<Self> {
        let name = |at: usize| model.nodes[NodeId::new(at)].name.clone();
        let mut ties: Vec<&Tie> = chain.ties.iter().collect();
        let nodes = chain.times.len();
        ties.sort_by_key(|tie| (nodes - (tie.last() - tie.first()), tie.first()));
        let row = |tie: &Tie| {
            let operation = model.nodes[NodeId::new(tie.first())].operation.to_string();
            let first = format!("{operation} `{}`", name(tie.first()));
            [tie.parameter.clone(), first, name(tie.last())]
        };
        let parameters: Vec<[String; 3]> = ties.into_iter().map(row).collect();
        let most = chain.positions().len() - 1;
        (!parameters.is_empty()).then_some(Self { parameters, most, nodes })
    }
}

impl fmt::Display for Tied {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { parameters, most, nodes } = self;
        let shown = parameters.iter().take(NAMED).map(|[parameter, first, last]| {
            format!("{first} and `{last}` both use `{parameter}`")
        });
        let others = match parameters.len().saturating_sub(NAMED) {
            0 => String::new(),
            count => format!(", and {count} more are shared"),
        };
        let shown = shown.collect::<Vec<_>>().join(", ");
        write!(
            f,
            "{shown}{others}; cuts part the users of a parameter in synchronous pipelines of \
             replicated states alone, where sums may be reordered, so elsewhere at most {most} of \
             {nodes} stages are possible"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{sample, space::cuts::cut};
    use roundelay_schedule::{Float, Nanos};

    fn chain(model: &Model) -> Chain {
        Chain::new(model, vec![Nanos(1); model.nodes.len()], 1, Float::F32)
    }

    #[test]
    fn a_tied_head_leaves_the_loss_to_cut_off_and_says_so() {
        let free = sample::gpt(2, 8, 16, false);
        assert_eq!(Tied::new(&free, &chain(&free)), None);
        let model = sample::gpt(2, 8, 16, true);
        let tied = Tied::new(&model, &chain(&model)).expect("the table has two users");
        let count = model.nodes.len();
        let last = format!("node.{}", count - 2);
        let said =
            format!("embedding `node.0` and `{last}` both use `table`; cuts part ");
        let row = ["table".to_owned(), "embedding `node.0`".to_owned(), last];
        assert_eq!((tied.parameters.as_slice(), tied.most), (&[row][..], 2));
        assert!(tied.to_string().starts_with(&said), "{tied}");
        let most = format!("at most 2 of {count} stages are possible");
        assert!(tied.to_string().ends_with(&most), "{tied}");
        let before_loss = u32::try_from(count - 1).unwrap();
        assert_eq!(cut(&chain(&model), 2), Ok(vec![before_loss]));
    }
}
