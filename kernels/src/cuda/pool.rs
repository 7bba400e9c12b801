//! Pooling.

use super::{
    Argument,
    draft::{Draft, Shape, adding, count, extent},
    form::{Form, Role},
    source::POOL,
};
use crate::{
    pool::{
        AvgPool, AvgPoolBackward, GlobalPool, GlobalPoolBackward, MaxPool,
        MaxPoolBackward, Pool,
    },
    window::Window,
};
use Role::{Either, Narrow};

/// A window over images: `WINDOW` of `window.h`.
pub(super) fn window(window: &Window) -> [Argument; 8] {
    let Window { input, output, kernel, stride, padding } = *window;
    [input[0], input[1], output[0], output[1], kernel[0], kernel[1], stride, padding]
        .map(|number| Argument::Unsigned(extent(number)))
}

/// How many elements there are, in how many channels, under which window.
fn extents(pool: &Pool, elements: usize) -> impl Iterator<Item = Argument> {
    let channels = Argument::Unsigned(extent(pool.channels));
    [count(elements), channels].into_iter().chain(window(&pool.window))
}

fn forward(draft: &mut Draft, name: &str, pool: &Pool) {
    let [x, y] = draft.operands(0);
    let elements = pool.batch * pool.result();
    let arguments = [x, y].into_iter().chain(extents(pool, elements)).collect();
    draft.narrow((POOL, name), Shape::each(elements, 1), arguments);
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
        let elements = self.pool.batch * self.pool.image();
        let extents = extents(&self.pool, elements).chain([adding(self.store)]);
        let arguments = [x, dy, dx].into_iter().chain(extents).collect();
        draft.pair((POOL, "max_pool_backward"), Shape::each(elements, 1), arguments);
        Ok(())
    }
}

impl Form for AvgPoolBackward {
    fn roles(&self) -> Vec<Role> {
        vec![Narrow, Either]
    }
    fn write(&self, draft: &mut Draft) -> Result<(), String> {
        let [dy, dx] = draft.operands(0);
        let elements = self.pool.batch * self.pool.image();
        let extents = extents(&self.pool, elements).chain([adding(self.store)]);
        let arguments = [dy, dx].into_iter().chain(extents).collect();
        draft.pair((POOL, "avg_pool_backward"), Shape::each(elements, 1), arguments);
        Ok(())
    }
}

impl Form for GlobalPool {
    fn roles(&self) -> Vec<Role> {
        vec![Narrow, Narrow]
    }
    fn write(&self, draft: &mut Draft) -> Result<(), String> {
        let [x, y] = draft.operands(0);
        let elements = self.batch * self.channels;
        let extents = [elements, self.pixels, self.channels].map(count);
        let arguments = [x, y].into_iter().chain(extents).collect();
        draft.narrow((POOL, "global_pool"), Shape::each(elements, 1), arguments);
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
        draft.pair((POOL, name), Shape::each(elements, 1), arguments);
        Ok(())
    }
}
