//! Did you mean …?

use super::Elaborator;

impl Elaborator<'_, '_> {
    /// The remedy for an unknown class.
    pub(super) fn class_suggestion(&self, name: &str) -> String {
        if let Some(option) = option_for(name) {
            return option.to_string();
        }
        match closest_name(name, self.classes.class_names().iter().map(String::as_str)) {
            Some(similar) => format!("did you mean `{similar}`?"),
            None => format!(
                "`artery elements` lists the classes there are; define others with `elementclass {name} {{ … \
                 }}`, or require the library that does"
            ),
        }
    }

    /// The remedy for an undeclared element.
    pub(super) fn element_suggestion(&self, name: &str) -> String {
        let elements = self.current.by_name.keys().map(String::as_str).filter(|name| !name.starts_with(';'));
        if let Some(similar) = closest_name(name, elements) {
            return format!("did you mean `{similar}`?");
        }
        if let Some(option) = option_for(name) {
            return option.to_string();
        }
        match closest_name(name, self.classes.class_names().iter().map(String::as_str)) {
            Some(similar) => format!("did you mean the class `{similar}`?"),
            None if name.starts_with(|first: char| first.is_ascii_uppercase()) => {
                format!("no class is called `{name}` either; `artery elements` lists those there are")
            }
            None => format!("declare it before it is used: `{name} :: Class(arguments);`"),
        }
    }
}

/// What does here, by an option of the program, what a class of Click does.
fn option_for(name: &str) -> Option<&'static str> {
    (name == "ControlSocket")
        .then_some("`artery run -p PORT` and `-u FILE` listen for ControlSocket's commands")
}

/// The name most like `name`, if any is like it at all; of equals the first in the alphabet.
fn closest_name<'a>(name: &str, names: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let limit = 1 + name.chars().count() / 4;
    let distances = names.filter(|other| *other != name).map(|other| (edit_distance(name, other), other));
    distances.filter(|(distance, _)| *distance <= limit).min().map(|(_, other)| other)
}

/// Edit distance; a change of case costs nothing but the first time.
fn edit_distance(a: &str, b: &str) -> usize {
    if a.eq_ignore_ascii_case(b) {
        return 1;
    }
    let (a, b) = (a.as_bytes(), b.as_bytes());
    if a.len().abs_diff(b.len()) > 3 || a.len() > 64 {
        return usize::MAX;
    }
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.iter().enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], i + 1);
        for (j, y) in b.iter().enumerate() {
            let substitute = diagonal + usize::from(!x.eq_ignore_ascii_case(y));
            diagonal = row[j + 1];
            row[j + 1] = substitute.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Options;
    use crate::testing::compile_with;

    #[test]
    fn a_word_that_names_nothing_is_told_by_what_it_could_be() {
        let help = |text: &str| compile_with(text, &Options::default()).1[0].help.clone().unwrap();
        assert_eq!(help("Idle -> Discrad"), "did you mean the class `Discard`?");
        assert_eq!(help("dis :: Discard; Idle -> disx"), "did you mean `dis`?");
        assert_eq!(help("Idle -> x"), "declare it before it is used: `x :: Class(arguments);`");
        let found = help("Idle -> Foo(1) -> Discard");
        assert_eq!(found, "no class is called `Foo` either; `artery elements` lists those there are");
        let expected = "`artery elements` lists the classes there are; define";
        assert!(help("Idle -> x :: Foo").starts_with(expected));
        for text in ["ControlSocket(TCP, 7777)", "c :: ControlSocket(TCP, 7777)"] {
            assert!(help(text).starts_with("`artery run -p PORT`"));
        }
    }

    #[test]
    fn the_closest_name_is_suggested_and_a_distant_one_is_not() {
        let names = ["Discard", "Idle", "Queue", "Print"];
        assert_eq!(closest_name("discard", names.into_iter()), Some("Discard"));
        assert_eq!(closest_name("Queeu", names.into_iter()), Some("Queue"));
        assert_eq!(closest_name("Diskard", names.into_iter()), Some("Discard"));
        assert_eq!(closest_name("Tee", names.into_iter()), None);
        assert_eq!(closest_name("Foobar", names.into_iter()), None);
    }
}
