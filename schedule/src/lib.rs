//! The contract between compiler and runtime.
//!
//! A [`Schedule`] is a modulo schedule: one period of the steady state, as a list of actions in
//! an order in which they could legally run one by one. [`check`] turns it into [`Checked`];
//! [`replay`] drives any [`Machine`] with it. This crate must not know: files other than
//! schedules and tables of measured times, how a schedule was found, what a kernel computes, which
//! devices exist.

mod action;
mod beside;
mod buffer;
mod check;
mod clock;
mod element;
mod exchanged;
mod extents;
mod file;
mod hash;
mod horizon;
mod id;
mod job;
mod levels;
mod link;
mod list;
mod local;
mod map;
mod metric;
mod multiple;
mod near;
mod norm;
mod order;
mod plan;
mod profile;
mod queues;
mod repeated;
mod replay;
mod rewrite;
mod routine;
mod rule;
mod schedule;
mod segment;
mod shared;
mod slices;
mod spelled;
mod sum;
mod target;
mod tensor;
mod text;
mod ties;
mod timeline;
mod turned;
mod unit;
mod waits;
mod writes;
mod yaml;

pub use action::{Action, Collective, Content, Queue, Spot, Task, Wait, Work};
pub use beside::{Doing, Touching, in_turn, most_open, needed_by, time_beside};
pub use buffer::{
    Axis, Buffer, Group, KeptKind, Kind, Place, Rest, Ring, Row, Slice, Splits, Subject,
};
pub use check::{
    Checked, Culprit, Duty, Facts, Held, LANES_MAX, MICRO_BATCHES_MAX, SLACK_MAX,
    Violation, Violations, check,
};
pub use clock::{Clock, Entry, simulate};
pub use element::{Element, Float, GradientSums, Native, NoFloat};
pub use exchanged::{Exchanged, Exchanging, Meanwhile, Strips};
pub use extents::Extents;
pub use file::{FileError, FileErrors, Lines, begins_schedule, read, seal, write};
pub use hash::Fnv;
pub use horizon::Horizon;
pub use id::{
    ActionId, AxisId, BufferId, DeviceId, GroupId, Id, InputId, LinkId, MicroBatch,
    PoolId, RingId, RoutineId, Stage, Table, ValueId,
};
pub use job::{
    Augmentation, Belonging, Data, Evaluation, Initial, Input, Job, Method, Optimizer,
    Origin, Parameter, ParameterKind, Rate, TokenWidth, Treatment,
};
pub use levels::Levels;
pub use link::{Form, Level, Link, LinkSpan, Protocol, Way};
pub use list::{
    DeviceList, Item, ItemTime, ListFault, Listed, Stuck, Unlisted, item_times,
    list_faults, listed_in, lists_of, pass_length, plan_faults,
};
pub use local::Units;
pub use map::{MapWay, MapWays};
pub use metric::{Metric, Reading};
pub use multiple::{gcd, lcm, strided};
pub use near::{nearest, nearest_hint};
pub use norm::uncounted;
pub use order::{Fold, Misfit, Order};
pub use plan::{
    Placement, Plan, PlanFault, Recompute, Reduction, Share, States, StatesFault,
};
pub use profile::{
    CallTime, Copies, CopyTime, PROFILE_FORMAT, Profile, ProfileMistake, ProfileMistakes,
    feed_text, kernel_of, read_profile, write_profile,
};
pub use queues::Queues;
pub use repeated::Repeated;
pub use replay::{Issue, Machine, Marks, replay};
pub use rewrite::{Rewrite, Rewrites, Sites};
pub use routine::{
    Access, Argument, Attribute, Attributes, Call, Catalogue, Constants, Footprint,
    Indices, Name, Operand, Pass, Role, Routine, Unit,
};
pub use rule::{Delays, Exactness, Hop, Rule, Timeline};
pub use schedule::{FORMAT, PhysicalQueue, Schedule, Touch};
pub use segment::{Instance, Segment};
pub use shared::Shared;
pub use sum::{Parts, Run, Sum};
pub use target::{Device, Domain, Host, Pool, Products, Target};
pub use tensor::{
    Contraction, Direction, Division, Images, Line, Sequence, Split, Tensor,
};
pub use text::{printable, unmarked};
pub use ties::Tie;
pub use timeline::{Endless, Simulation, Trace, grid, page, simulate_steady, trace};
pub use turned::{Cells, Turned};
pub use unit::{
    Bytes, BytesPerSecond, Flops, FlopsPerSecond, Nanos, Thousandths, counted,
};
pub use waits::Waits;
pub use writes::Writes;
pub use yaml::{YamlError, YamlFault, read_yaml};
