//! Slurm's lists of nodes, `n[01-03,7],login` (scontrol(1), "hostlist").

/// The position of `node` in `list`, from 0 on. `None` where it is not there, or where the list has a form that is not
/// read here: a wrong position would be worse than none.
pub(crate) fn position(list: &str, node: &str) -> Option<usize> {
    let mut before = 0;
    for part in split(list)? {
        match part.split_once('[') {
            None if part == node => return Some(before),
            None => before += 1,
            Some((prefix, numbers)) => {
                let number = node.strip_prefix(prefix);
                for range in numbers.strip_suffix(']')?.split(',') {
                    let Range { low, high, width } = Range::parse(range)?;
                    if let Some(n) = number.and_then(|text| of_width(text, width))
                        && (low..=high).contains(&n)
                    {
                        return before.checked_add(n - low);
                    }
                    before = (high - low).checked_add(1)?.checked_add(before)?;
                }
            }
        }
    }
    None
}

/// The first node of `list`. `None` where that has a form that is not read here.
pub(crate) fn first(list: &str) -> Option<String> {
    let part = *split(list)?.first()?;
    match part.split_once('[') {
        None => Some(part.to_owned()).filter(|name| !name.is_empty()),
        Some((prefix, numbers)) => {
            let numbers = numbers.strip_suffix(']')?;
            numbers.split(',').try_for_each(|range| Range::parse(range).map(|_| ()))?;
            let end = numbers.find([',', '-']).unwrap_or(numbers.len());
            Some(format!("{prefix}{}", &numbers[..end]))
        }
    }
}

/// The numbers `LOW-HIGH`, or one number, within brackets.
struct Range {
    low: usize,
    high: usize,
    /// With how many digits the first is written.
    width: usize,
}

impl Range {
    fn parse(text: &str) -> Option<Range> {
        // What `parse` takes as a number may begin with `+`.
        let number = |text: &str| text.parse().ok().filter(|_| text.bytes().all(|c| c.is_ascii_digit()));
        let (first, last) = text.split_once('-').unwrap_or((text, text));
        let (low, high) = (number(first)?, number(last)?);
        (low <= high).then_some(Range { low, high, width: first.len() })
    }
}

/// The parts of the list: a comma inside brackets separates numbers, any other separates parts.
fn split(list: &str) -> Option<Vec<&str>> {
    let mut inside = false;
    for c in list.chars() {
        match c {
            '[' if !inside => inside = true,
            ']' if inside => inside = false,
            '[' | ']' => return None,
            _ => {}
        }
    }
    let mut depth = 0;
    let outside = move |c: char| {
        match c {
            '[' => depth += 1,
            ']' => depth -= 1,
            _ => {}
        }
        c == ',' && depth == 0
    };
    (!inside).then(|| list.split(outside).collect())
}

/// The number in `text`, where it is written with at least `width` digits and with leading zeros up to that width, as
/// Slurm writes the numbers of a range whose first has so many digits.
fn of_width(text: &str, width: usize) -> Option<usize> {
    let plain = text.len() == width || (text.len() > width && !text.starts_with('0'));
    text.parse().ok().filter(|_| plain && text.bytes().all(|c| c.is_ascii_digit()))
}

#[cfg(test)]
mod tests {
    use super::{first, position};

    #[test]
    fn a_list_has_a_first_node() {
        for (list, node) in [
            ("n1", "n1"),
            ("n[01-03,7],login", "n01"),
            ("a[7],b", "a7"),
            ("login,n[1-2]", "login"),
            ("n[3,5]", "n3"),
        ] {
            assert_eq!(first(list).as_deref(), Some(node), "{list}");
        }
        for list in
            ["", "n[1-2", "n[1]x", "n[]", "n[a-b]", "n[-3]", "n[3-1]", "n[+1-3]", "n[1-2,x]", "n[1-2]x[1-2]"]
        {
            assert_eq!(first(list), None, "{list}");
        }
    }

    #[test]
    fn nodes_have_their_places() {
        for (list, node, place) in [
            ("vm", "vm", Some(0)),
            ("a,b,c", "c", Some(2)),
            ("n[1-3]", "n2", Some(1)),
            ("n[1-3,7],m", "n7", Some(3)),
            ("n[1-3,7],m", "m", Some(4)),
            ("n[8-11]", "n10", Some(2)),
            ("n[08-11]", "n08", Some(0)),
            ("n[08-11]", "n8", None),
            ("rack1-n[1-2],rack2-n[1-2]", "rack2-n1", Some(2)),
            ("n[1-3]", "n4", None),
            ("n[0-18446744073709551615],m", "m", None),
            ("n[1-3]", "n", None),
            ("", "n1", None),
        ] {
            assert_eq!(position(list, node), place, "{node} in {list}");
        }
    }

    #[test]
    fn other_forms_are_not_guessed() {
        for list in ["n[1-3", "n[1-3]x[1-2]", "n[a-c]", "n[3-1]", "n]1[", "n[[1]]", "n[+1-3]"] {
            assert_eq!(position(list, "n01"), None, "{list}");
            assert_eq!(position(list, "n1"), None, "{list}");
        }
    }

    #[test]
    fn huge_ranges_are_counted_and_not_listed() {
        assert_eq!(position("n[0-18446744073709551615],m", "m"), None);
        assert_eq!(position("n[1-9223372036854775807],n[1-9223372036854775807],n[1-9],m", "m"), None);
        assert_eq!(position("n[1-1000000000000],m", "m"), Some(1_000_000_000_000));
    }
}
