//! Slurm's way to write host names: `node[001-004,7],other`.

/// The first host of a list; none when the text is no such list.
pub(super) fn first(list: &str) -> Option<String> {
    let (head, rest) = match list.find(['[', ',']) {
        None => (list, ""),
        Some(end) => list.split_at(end),
    };
    let host = match rest.strip_prefix('[') {
        None => head.to_owned(),
        Some(rest) => {
            let (numbers, after) = rest.split_once(']')?;
            let number = numbers.split(['-', ',']).next()?;
            let tail = after.split(',').next().unwrap_or("");
            if tail.contains('[') {
                return None;
            }
            format!("{head}{number}{tail}")
        }
    };
    let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | '_');
    (!host.is_empty() && host.chars().all(allowed)).then_some(host)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_host_of_a_list_is_found() {
        let lists = [
            ("alone", "alone"),
            ("one,two", "one"),
            ("node[001-004]", "node001"),
            ("node[3,7-9],other", "node3"),
            ("rack[12]-ib.local,b", "rack12-ib.local"),
        ];
        for (list, host) in lists {
            assert_eq!(first(list).as_deref(), Some(host), "{list}");
        }
    }

    #[test]
    fn what_is_no_list_has_none() {
        for list in ["", ",", "node[1", "a b", "rack[1-2]n[3-4]", "[]"] {
            assert_eq!(first(list), None, "{list}");
        }
    }
}
