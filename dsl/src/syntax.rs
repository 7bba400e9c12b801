//! The syntax tree: what a file says, with places, before any name is resolved.

use crate::Span;

/// A whole file.
#[derive(Clone, Debug, Default)]
pub(crate) struct File {
    /// Its items, in order.
    pub(crate) items: Vec<Item>,
    /// Items with mistakes that are reported already, and that could not be kept.
    pub(crate) broken: usize,
}

/// `NAME`.
#[derive(Clone, Debug)]
pub(crate) struct Name {
    /// How it is written.
    pub(crate) text: String,
    /// Where.
    pub(crate) span: Span,
}

/// What may stand at the outermost level.
#[derive(Clone, Debug)]
pub(crate) enum Item {
    /// `import "path"`.
    Import(Name),
    /// `model NAME { … }`.
    Model(Model),
    /// `block NAME(names) { … }`.
    Block(Block),
    /// `device NAME { … }`.
    Device(Component),
    /// `link NAME { … }`.
    Link(Component),
    /// `cluster NAME { … }`.
    Cluster(Cluster),
    /// `train { … }`.
    Train(Section),
    /// `plan { … }`.
    Plan(Section),
}

/// `model NAME { … }`.
#[derive(Clone, Debug)]
pub(crate) struct Model {
    /// Name.
    pub(crate) name: Name,
    /// Statements.
    pub(crate) body: Vec<Statement>,
}

/// `block NAME(names) { … }`.
#[derive(Clone, Debug)]
pub(crate) struct Block {
    /// Name.
    pub(crate) name: Name,
    /// Names of the arguments.
    pub(crate) formals: Vec<Name>,
    /// Statements; the last returns.
    pub(crate) body: Vec<Statement>,
}

/// `device NAME { … }` and `link NAME { … }`.
#[derive(Clone, Debug)]
pub(crate) struct Component {
    /// Name.
    pub(crate) name: Name,
    /// What is said of it.
    pub(crate) entries: Vec<Entry>,
}

/// `train { … }` and `plan { … }`.
#[derive(Clone, Debug)]
pub(crate) struct Section {
    /// The keyword.
    pub(crate) span: Span,
    /// What is decided.
    pub(crate) entries: Vec<Entry>,
}

/// `cluster NAME { tier* group }`.
#[derive(Clone, Debug)]
pub(crate) struct Cluster {
    /// Name.
    pub(crate) name: Name,
    /// Named groups, each of devices and of tiers above it.
    pub(crate) tiers: Vec<(Name, Group)>,
    /// All of it.
    pub(crate) whole: Whole,
}

/// The last line of a cluster.
#[derive(Clone, Debug)]
pub(crate) enum Whole {
    /// The group of all devices.
    Group(Group),
    /// There is none.
    Missing,
    /// A line has a mistake that is reported already.
    Broken,
}

/// `4 x core + 2 x big joined by bus sharing 8 GB`.
#[derive(Clone, Debug)]
pub(crate) struct Group {
    /// `4 x core`: how many of what.
    pub(crate) members: Vec<(Expression, Name)>,
    /// The link level that joins the members.
    pub(crate) link: Option<Name>,
    /// Capacity of the pool that all devices of the group share.
    pub(crate) sharing: Option<Expression>,
}

/// A statement of a model or block.
#[derive(Clone, Debug)]
pub(crate) struct Statement {
    /// What it does.
    pub(crate) kind: StatementKind,
    /// Where.
    pub(crate) span: Span,
}

/// What a statement does.
#[derive(Clone, Debug)]
pub(crate) enum StatementKind {
    /// `NAME = expr`.
    Bind(Name, Expression),
    /// `input NAME: element[shape]`.
    Input(Name, Name, Vec<Expression>),
    /// `param NAME: [shape] = initialiser`.
    Parameter(Name, Vec<Expression>, Option<Expression>),
    /// `repeat expr as NAME { … }`.
    Repeat(Expression, Option<Name>, Vec<Statement>),
    /// `loss expr`.
    Loss(Expression),
    /// `metric expr`.
    Metric(Expression),
    /// `return expr`.
    Return(Expression),
    /// `head after expr { … }`.
    Head(Expression, Vec<Statement>),
    /// A statement with a mistake that is reported already, and the name that it would have bound.
    Broken(Name),
}

/// `key value { entries }`.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    /// What is decided.
    pub(crate) key: Name,
    /// What it may be.
    pub(crate) value: Setting,
    /// Entries inside.
    pub(crate) entries: Vec<Entry>,
}

/// What a key is set to.
#[derive(Clone, Debug)]
pub(crate) enum Setting {
    /// Nothing but entries.
    Nothing,
    /// `a | b .. c`.
    OneOf(Vec<Choice>),
    /// `<= expr`.
    AtMost(Expression),
    /// `>= expr`.
    AtLeast(Expression),
    /// Something with a mistake that is reported already.
    Broken,
}

/// `expr` or `expr .. expr`.
#[derive(Clone, Debug)]
pub(crate) struct Choice {
    /// The value, or the first of a range.
    pub(crate) first: Expression,
    /// The last of a range.
    pub(crate) last: Option<Expression>,
}

/// An expression.
#[derive(Clone, Debug)]
pub(crate) struct Expression {
    /// What it is.
    pub(crate) kind: ExpressionKind,
    /// Where.
    pub(crate) span: Span,
}

/// What an expression is. Sums and products are lists, so that long ones do not nest.
#[derive(Clone, Debug)]
pub(crate) enum ExpressionKind {
    /// `4`, `1e-3`, `2 GB`: digits and perhaps a unit.
    Number(String, Option<String>),
    /// `"text"`.
    Text(String),
    /// `[a, b]`.
    Shape(Vec<Expression>),
    /// `NAME`.
    Name(String),
    /// `NAME(a, b = c)`.
    Call(Name, Vec<Argument>),
    /// `x[i]`.
    Index(Box<Expression>, Box<Expression>),
    /// `-x`.
    Negative(Box<Expression>),
    /// `a + b - c`, `a * b / c`.
    Chain(Box<Expression>, Vec<(Operator, Expression)>),
}

/// An infix operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operator {
    /// `+`.
    Add,
    /// `-`.
    Subtract,
    /// `*`.
    Multiply,
    /// `/`.
    Divide,
}

/// `name = expr` or `expr` in a call.
#[derive(Clone, Debug)]
pub(crate) struct Argument {
    /// The name, when it is given.
    pub(crate) name: Option<Name>,
    /// The value.
    pub(crate) value: Expression,
}
