//! Pooling.

use super::{
    Argument,
    columns::Columns,
    draft::{Draft, Shape, adding, count, extent},
    form::{Form, Role},
    source::POOL,
};
use crate::{
    pool::{
        AvgPool, AvgPoolBackward, GlobalPool, GlobalPoolBackward, MaxPool,
        MaxPoolBackward, Pool,
    },
    store::Store,
    window::Window,
};
use Role::{Either, Narrow};

/// A window over images: `WINDOW` of `window.h`.
pub(super) fn window(window: &Window) -> [Argument; 8] {
    let Window { input, output, kernel, stride, padding } = *window;
    [input[0], input[1], output[0], output[1], kernel[0], kernel[1], stride, padding]
        .map(|number| Argument::Unsigned(extent(number)))
}

/// How many elements or images there are, in how many channels, under which window.
fn extents(pool: &Pool, number: usize) -> impl Iterator<Item = Argument> {
    let channels = Argument::Unsigned(extent(pool.channels));
    [count(number), channels].into_iter().chain(window(&pool.window))
}

fn forward(draft: &mut Draft, name: &str, pool: &Pool) {
    let [x, y] = draft.operands(0);
    let elements = pool.batch * pool.result();
    let arguments = [x, y].into_iter().chain(extents(pool, elements)).collect();
    draft.narrow((POOL, name), Shape::each(elements, draft.at_once()), arguments);
}

/// The type in which taps of a window are numbered, and its bytes.
fn tap(window: &Window) -> (&'static str, usize) {
    let [height, width] = window.kernel;
    match height.saturating_mul(width) {
        ..=255 => ("u8", 1),
        _ => ("u32", 4),
    }
}

/// A pass back to images: a thread for each of their packs, or fewer where it takes several pixels.
fn backward(
    draft: &mut Draft,
    name: &str,
    pool: &Pool,
    inputs: &[Argument],
    store: Store,
) {
    let elements = pool.batch * pool.image();
    let extents = extents(pool, pool.batch).chain([adding(store)]);
    let arguments = inputs.iter().copied().chain(extents).collect();
    draft.pair((POOL, name), Shape::each(elements, draft.at_once()), arguments);
}

impl Form for MaxPool {
    fn roles(&self) -> Vec<Role> {
        vec![Narrow, Narrow]
    }
    fn write(&self, draft: &mut Draft) -> Result<(), String> {
        forward(draft, "max_pool", &self.pool);
        Ok(())
    }
}

impl Form for AvgPool {
    fn roles(&self) -> Vec<Role> {
        vec![Narrow, Narrow]
    }
    fn write(&self, draft: &mut Draft) -> Result<(), String> {
        forward(draft, "avg_pool", &self.pool);
        Ok(())
    }
}

impl Form for MaxPoolBackward {
    fn roles(&self) -> Vec<Role> {
        vec![Narrow, Narrow, Either]
    }
    fn write(&self, draft: &mut Draft) -> Result<(), String> {
        let [x, dy, dx] = draft.operands(0);
        let places = self.pool.batch * self.pool.result();
        let (number, bytes) = tap(&self.pool.window);
        let taps = Argument::Address(draft.scratch(places.saturating_mul(bytes)));
        let arguments = [x, taps].into_iter().chain(extents(&self.pool, places));
        let (shape, arguments) =
            (Shape::each(places, draft.at_once()), arguments.collect());
        let winning = format!("winning_taps_{number}");
        draft.narrow((POOL, &winning), shape, arguments);
        let (name, inputs) = (format!("max_pool_backward_{number}"), [taps, dy, dx]);
        backward(draft, &name, &self.pool, &inputs, self.store);
        Ok(())
    }
}

impl Form for AvgPoolBackward {
    fn roles(&self) -> Vec<Role> {
        vec![Narrow, Either]
    }
    fn write(&self, draft: &mut Draft) -> Result<(), String> {
        let inputs: [_; 2] = draft.operands(0);
        backward(draft, "avg_pool_backward", &self.pool, &inputs, self.store);
        Ok(())
    }
}

impl Form for GlobalPool {
    fn roles(&self) -> Vec<Role> {
        vec![Narrow, Narrow]
    }
    fn write(&self, draft: &mut Draft) -> Result<(), String> {
        let [x, y] = draft.operands(0);
        let extents = [self.batch, self.pixels, self.channels].map(count);
        let arguments = [x, y].into_iter().chain(extents).collect();
        let columns = Columns { rows: self.pixels, columns: self.channels };
        let shape = columns.each_image(draft, self.batch);
        draft.narrow((POOL, "global_pool"), shape, arguments);
        Ok(())
    }
}

impl Form for GlobalPoolBackward {
    fn roles(&self) -> Vec<Role> {
        vec![Narrow, Either]
    }
    fn write(&self, draft: &mut Draft) -> Result<(), String> {
        let [dy, dx] = draft.operands(0);
        let elements = self.batch * self.pixels * self.channels;
        let extents = [elements, self.pixels, self.channels].map(count);
        let extents = extents.into_iter().chain([adding(self.store)]);
        let arguments = [dy, dx].into_iter().chain(extents).collect();
        let name = "global_pool_backward";
        draft.pair((POOL, name), Shape::each(elements, draft.at_once()), arguments);
        Ok(())
    }
}
