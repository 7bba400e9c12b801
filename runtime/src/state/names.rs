//! Names of the arrays of a state, under which checkpoints have them: `name` for θ_T, `name@-1` for
//! θ_{T−1} and so on, `name#mean` for optimizer state.

/// A parameter's version, `age` before the newest.
pub(crate) fn version(parameter: &str, age: u32) -> String {
    match age {
        0 => parameter.to_owned(),
        _ => format!("{parameter}@-{age}"),
    }
}

/// An array of a parameter's optimizer state.
pub(crate) fn optimizer(parameter: &str, array: &str) -> String {
    format!("{parameter}#{array}")
}

/// Whether an array with this name is the newest version of a parameter.
pub(crate) fn is_newest(name: &str) -> bool {
    !name.contains(['@', '#'])
}

/// Whether an array with this name is one of optimizer state.
pub(crate) fn is_optimizer(name: &str) -> bool {
    name.contains('#')
}
