//! The fitted constants: printed, kept in `fitted.csv`, and put where embedded files name them.

use std::{collections::BTreeMap, error::Error, fmt, fs, path::PathBuf};

/// Constants by key, each as the language spells it.
#[derive(Debug, Default)]
pub(crate) struct Record(BTreeMap<String, String>);

/// What marks a line of an embedded file whose value is fitted.
const MARK: &str = "# fitted: ";

impl Record {
    /// A rate in bytes per second.
    pub(crate) fn rate(&mut self, key: &str, bytes_per_second: f64) {
        self.0.insert(key.to_owned(), format!("{:.0} MB/s", bytes_per_second / 1e6));
    }
    /// A time in nanoseconds.
    pub(crate) fn time(&mut self, key: &str, nanos: f64) {
        self.0.insert(key.to_owned(), format!("{nanos:.0} ns"));
    }
    /// A share.
    pub(crate) fn share(&mut self, key: &str, share: f64) {
        self.0.insert(key.to_owned(), format!("{share:.3}"));
    }

    /// Leaves out a constant that no row depends on.
    pub(crate) fn forget(&mut self, key: &str) {
        self.0.remove(key);
    }

    /// Writes `fitted.csv` and the embedded files.
    pub(crate) fn write(&self) -> Result<(), Box<dyn Error>> {
        let root = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
        let lines = self.0.iter().map(|(key, value)| format!("{key},{value}\n"));
        let table: String = lines.collect();
        fs::write(
            root.join("benches/calibrate/fitted.csv"),
            format!("key,value\n{table}"),
        )?;
        for folder in ["dsl/devices", "dsl/clusters"] {
            for file in fs::read_dir(root.join(folder))? {
                let path = file?.path();
                let text = fs::read_to_string(&path)?;
                let lines: Vec<String> =
                    text.lines().map(|line| self.line(line)).collect();
                fs::write(&path, lines.join("\n") + "\n")?;
            }
        }
        Ok(())
    }

    /// A line with the fitted value in place of the one that stands there.
    fn line(&self, line: &str) -> String {
        let marked = line.split_once(MARK);
        let Some((before, key)) = marked else { return line.to_owned() };
        let Some(value) = self.0.get(key.trim()) else { return line.to_owned() };
        let indent: String = before.chars().take_while(|c| c.is_whitespace()).collect();
        let name = before.split_whitespace().next().unwrap_or_default();
        format!("{:<44}{MARK}{}", format!("{indent}{name} {value}"), key.trim())
    }
}

impl fmt::Display for Record {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "\n## Constants\n\n| key | value |\n| --- | --- |")?;
        self.0.iter().try_for_each(|(key, value)| writeln!(f, "| `{key}` | {value} |"))
    }
}
