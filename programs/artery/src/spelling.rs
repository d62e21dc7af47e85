//! Which name was meant by one that was mistyped.

/// Which of `names` is so like `wanted` that it may have been meant.
pub(crate) fn nearest<'a>(wanted: &str, names: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let distance = |name: &str| edits(&wanted.to_lowercase(), &name.to_lowercase());
    let (distance, name) = names.into_iter().map(|name| (distance(name), name)).min()?;
    (distance <= 1 + wanted.chars().count() / 4).then_some(name)
}

/// How many letters must be put in, left out or changed to make `b` of `a`.
fn edits(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, letter) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, other) in b.iter().enumerate() {
            let changed = diagonal + usize::from(letter != *other);
            diagonal = row[j + 1];
            row[j + 1] = changed.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn edits_are_counted_each_once() {
        assert_eq!(
            [edits("", "abc"), edits("abc", "abc"), edits("kitten", "sitting"), edits("ab", "")],
            [3, 0, 3, 2]
        );
    }

    #[test]
    fn only_what_is_like_it_is_meant() {
        let names = ["count", "rate", "reset"];
        assert_eq!(nearest("cuont", names), Some("count"));
        assert_eq!(nearest("coun", names), Some("count"));
        assert_eq!(nearest("Counts", names), Some("count"));
        assert_eq!(nearest("length", names), None);
    }
}
