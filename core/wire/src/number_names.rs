//! Names of numbers, such as those of ports and protocols.

/// A table as text: names, each with its number behind it, with blanks between. Numbers are decimal or, after
/// `0x`, hexadecimal. Of several names of a number the first is the one that is printed.
#[derive(Clone, Copy, Debug)]
pub struct NumberNames(pub &'static str);

impl NumberNames {
    /// All names with their numbers.
    pub fn iter(self) -> impl Iterator<Item = (&'static str, u32)> {
        let mut words = self.0.split_ascii_whitespace();
        std::iter::from_fn(move || Some((words.next()?, parse_number(words.next()?))))
    }

    /// The number that has this name.
    pub fn number_of(self, name: &str) -> Option<u32> {
        self.iter().find(|(known, _)| *known == name).map(|(_, number)| number)
    }

    /// The first name of a number.
    pub fn name_of(self, number: impl Into<u32>) -> Option<&'static str> {
        let number = number.into();
        self.iter().find(|(_, known)| *known == number).map(|(name, _)| name)
    }
}

fn parse_number(word: &str) -> u32 {
    let number =
        word.strip_prefix("0x").map_or_else(|| word.parse(), |digits| u32::from_str_radix(digits, 16));
    number.expect("a table has a number behind each name")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_several_names_the_first_is_printed_and_each_is_known() {
        let names = NumberNames("http 80  www 80\n  telnet 0x17");
        assert_eq!(names.iter().collect::<Vec<_>>(), [("http", 80), ("www", 80), ("telnet", 23)]);
        assert_eq!((names.number_of("www"), names.number_of("ftp")), (Some(80), None));
        assert_eq!((names.name_of(80_u16), names.name_of(81_u8)), (Some("http"), None));
    }
}
