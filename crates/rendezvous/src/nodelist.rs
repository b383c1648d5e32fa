//! Slurm's list of hosts, as far as it is needed: `gpu[07-09,12],login1`.

/// The first host of a list; `None` where it is none.
pub(crate) fn first_host(list: &str) -> Option<String> {
    let list = list.trim();
    let end = list.find([',', '[']).unwrap_or(list.len());
    let (start, rest) = list.split_at(end);
    let mut host = start.to_string();
    if let Some(rest) = rest.strip_prefix('[') {
        let (numbers, rest) = rest.split_once(']')?;
        let first = numbers.split([',', '-']).next().filter(|first| !first.is_empty())?;
        if !first.bytes().all(|byte| byte.is_ascii_digit()) {
            return None;
        }
        // Brackets may follow on brackets: `rack[1-2]node[1-4]`.
        host += first;
        let mut parts = 0;
        let end = rest.find(|c| {
            parts += i32::from(c == '[') - i32::from(c == ']');
            c == ',' && parts == 0
        });
        let rest = &rest[..end.unwrap_or(rest.len())];
        if !rest.is_empty() {
            host += &first_host(rest)?;
        }
    }
    (!host.is_empty()).then_some(host)
}

#[cfg(test)]
mod tests {
    use super::first_host;

    #[test]
    fn the_first_of_any_list_is_found() {
        for (list, first) in [
            ("node1", Some("node1")),
            ("node1,node2", Some("node1")),
            ("gpu[07-09,12]", Some("gpu07")),
            ("gpu[3,1]", Some("gpu3")),
            ("gpu[007]-ib", Some("gpu007-ib")),
            ("a[1-2]-x,b[3-4]", Some("a1-x")),
            ("rack[1-2]node[03-04]", Some("rack1node03")),
            ("rack[1-2]node[03-04],other", Some("rack1node03")),
            (" node1 ", Some("node1")),
            ("", None),
            ("gpu[", None),
            ("gpu[]", None),
            ("gpu[a-b]", None),
            (",x", None),
        ] {
            assert_eq!(first_host(list).as_deref(), first, "{list}");
        }
    }
}
