//! Slurm's way to write host names: `node[001-004,7],rack[1-2]n[3-4],other`.

/// The first host of a list; none when the text is no such list.
pub(super) fn first(list: &str) -> Option<String> {
    let (mut host, mut rest) = (String::new(), list);
    while let Some(end) = rest.find(['[', ',']) {
        let (head, tail) = rest.split_at(end);
        host.push_str(head);
        // What stands in brackets is several numbers, of which the first host has the first.
        let Some(numbers) = tail.strip_prefix('[') else {
            rest = "";
            break;
        };
        let (numbers, after) = numbers.split_once(']')?;
        host.push_str(numbers.split(['-', ',']).next()?);
        rest = after;
    }
    host.push_str(rest);
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
            ("rack[1-2]n[3-4]", "rack1n3"),
            ("rack[01,3]n[4,5]-ib,c[1-2]", "rack01n4-ib"),
        ];
        for (list, host) in lists {
            assert_eq!(first(list).as_deref(), Some(host), "{list}");
        }
    }

    #[test]
    fn what_is_no_list_has_none() {
        for list in ["", ",", "node[1", "a b", "rack[1-2]n[3", "[]"] {
            assert_eq!(first(list), None, "{list}");
        }
    }
}
