//! Calls of operators as text: arguments that say nothing new are left out.

use std::fmt;

/// A call whose first argument comes last.
#[derive(Clone, Debug)]
pub(super) struct Call {
    operator: &'static str,
    arguments: Vec<String>,
}

impl Call {
    pub(super) fn new(operator: &'static str) -> Self {
        Self { operator, arguments: Vec::new() }
    }

    /// A further argument by position.
    pub(super) fn then(mut self, value: impl fmt::Display) -> Self {
        self.arguments.push(value.to_string());
        self
    }

    /// An argument by name.
    pub(super) fn with(mut self, name: &str, value: impl fmt::Display) -> Self {
        self.arguments.push(format!("{name} = {value}"));
        self
    }

    /// An argument by name, where there is something to say.
    pub(super) fn maybe(self, name: &str, value: Option<impl fmt::Display>) -> Self {
        match value {
            Some(value) => self.with(name, value),
            None => self,
        }
    }

    /// The call with its first argument.
    pub(super) fn of(&self, x: &str) -> String {
        let rest: String = self.arguments.iter().map(|a| format!(", {a}")).collect();
        format!("{}({x}{rest})", self.operator)
    }
}

/// A real number as the language writes it.
pub(super) fn number(value: f64) -> String {
    match value.abs() {
        size if size != 0.0 && !(1e-3..1e16).contains(&size) => format!("{value:e}"),
        _ => format!("{value}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_and_numbers_are_spelled() {
        let call = Call::new("attention").then("heads").with("causal", true);
        let call = call.maybe("cap", Some(50)).maybe("scale", None::<f64>);
        assert_eq!(call.of("x"), "attention(x, heads, causal = true, cap = 50)");
        let spelled = [1e-5, 1e-12, 10_000.0, 0.02, 0.0, 5e5, 1e300].map(number);
        assert_eq!(spelled, ["1e-5", "1e-12", "10000", "0.02", "0", "500000", "1e300"]);
    }
}
