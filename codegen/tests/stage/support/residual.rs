//! A small model of residual layers, whose units are looked at.

use roundelay_dsl::{Extent, Mistake, Model, ModelBuilder};
use roundelay_schedule::Element;

/// Residual layers between two linear maps, each behind a norm.
pub(crate) fn residual(norm: &str, layers: usize) -> Model {
    let build = || -> Result<Model, Mistake> {
        let mut model = ModelBuilder::new("residual");
        let rows = [Extent::batch(), Extent::fixed(4)];
        let x = model.input("x", Element::Real, &rows)?;
        let y = model.input("y", Element::Real, &[Extent::batch(), Extent::fixed(3)])?;
        let first = model.call("linear", vec![x.into(), 4.into()])?;
        let last = model.repeat("layer", layers, first, |model, x| {
            let normal = model.call(norm, vec![x.clone().into()])?;
            let wide = model.call("linear", vec![normal.into(), 6.into()])?;
            let wide = model.call("gelu", vec![wide.into()])?;
            let narrow = model.call("linear", vec![wide.into(), 4.into()])?;
            model.add(x, &narrow)
        })?;
        let last = model.call("layer_norm", vec![last.into()])?;
        let last = model.call("linear", vec![last.into(), 3.into()])?;
        let loss = model.call("mse", vec![last.into(), y.into()])?;
        model.loss(&loss)
    };
    build().expect("the model is right")
}
