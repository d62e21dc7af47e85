//! The files a configuration was read from, and positions in them.

/// Names one file of a [`Sources`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FileId(u32);

/// A range of bytes of one file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Span {
    /// The file that the span is in.
    pub file: FileId,
    /// Offset of the first byte.
    pub start: u32,
    /// Offset past the last byte.
    pub end: u32,
}

impl Span {
    /// The span from `start` up to but excluding `end`.
    pub fn new(file: FileId, start: usize, end: usize) -> Span {
        Span { file, start: start as u32, end: end as u32 }
    }

    /// The smallest span that covers both, taken to lie in the file of `self`.
    pub fn to(self, other: Span) -> Span {
        Span { file: self.file, start: self.start.min(other.start), end: self.end.max(other.end) }
    }
}

/// A preprocessor line such as `# 12 "f"`: from `offset` on, lines count from `line` in file `name`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LineMark {
    /// Offset of the first line after the mark.
    pub(crate) offset: u32,
    pub(crate) line: u32,
    /// `None` keeps the name in force; the empty name restores the file's own.
    pub(crate) name: Option<String>,
}

#[derive(Debug)]
struct File {
    name: String,
    text: String,
    line_starts: Vec<u32>,
    marks: Vec<LineMark>,
}

/// All files that were read, with their names.
#[derive(Debug, Default)]
pub struct Sources {
    files: Vec<File>,
}

impl Sources {
    /// Adds a file; bytes that are no UTF-8 should have been replaced by the reader.
    ///
    /// An empty name stands for `config`, the name of text that came from no file.
    pub fn add_file(&mut self, name: impl Into<String>, text: impl Into<String>) -> FileId {
        let (mut name, text) = (name.into(), text.into());
        if name.is_empty() {
            name = "config".to_string();
        }
        assert!(text.len() < u32::MAX as usize, "a configuration file is smaller than 4 GiB");
        let line_starts = line_starts(&text);
        self.files.push(File { name, text, line_starts, marks: Vec::new() });
        FileId(self.files.len() as u32 - 1)
    }

    /// The name the file was added under.
    pub fn name(&self, file: FileId) -> &str {
        &self.files[file.0 as usize].name
    }

    /// The whole text of the file.
    pub fn text(&self, file: FileId) -> &str {
        &self.files[file.0 as usize].text
    }

    /// The text a span covers, widened to whole characters.
    pub fn snippet(&self, span: Span) -> &str {
        let text = self.text(span.file);
        let start = floor_char(text, span.start as usize);
        &text[start..ceil_char(text, span.end as usize).max(start)]
    }

    /// File name and line number of an offset, as the preprocessor lines before it want them.
    pub fn line(&self, file: FileId, offset: u32) -> (&str, u32) {
        let source = &self.files[file.0 as usize];
        let physical = source.physical_line(offset);
        let before = source.marks.partition_point(|mark| mark.offset <= offset);
        let marks = &source.marks[..before];
        let line = match marks.last() {
            None => physical as u32 + 1,
            Some(mark) => mark.line.saturating_add((physical - source.physical_line(mark.offset)) as u32),
        };
        let name = marks.iter().rev().find_map(|mark| mark.name.as_deref());
        (name.filter(|name| !name.is_empty()).unwrap_or(&source.name), line)
    }

    /// `file:line` of the first byte of a span, as Click writes it.
    pub fn landmark(&self, span: Span) -> String {
        let (name, line) = self.line(span.file, span.start);
        let separator = if name.ends_with(|c: char| c == ':' || c.is_ascii_whitespace()) { "" } else { ":" };
        format!("{name}{separator}{line}")
    }

    /// The physical line that holds `offset`: its first offset and its text without the line end.
    pub(crate) fn physical_line(&self, file: FileId, offset: u32) -> (u32, &str) {
        let source = &self.files[file.0 as usize];
        let line = source.physical_line(offset);
        let start = source.line_starts[line];
        let end = source.line_starts.get(line + 1).map_or(source.text.len(), |&end| end as usize);
        (start, source.text[start as usize..end].trim_end_matches(['\n', '\r']))
    }

    pub(crate) fn set_marks(&mut self, file: FileId, marks: Vec<LineMark>) {
        self.files[file.0 as usize].marks = marks;
    }
}

impl File {
    fn physical_line(&self, offset: u32) -> usize {
        self.line_starts.partition_point(|&start| start <= offset) - 1
    }
}

/// Offsets at which lines start; LF, CR and CRLF each end one line.
fn line_starts(text: &str) -> Vec<u32> {
    let bytes = text.as_bytes();
    let ends_line = |i: usize| bytes[i] == b'\n' || (bytes[i] == b'\r' && bytes.get(i + 1) != Some(&b'\n'));
    std::iter::once(0).chain((0..bytes.len()).filter(|&i| ends_line(i)).map(|i| i as u32 + 1)).collect()
}

pub(crate) fn floor_char(text: &str, at: usize) -> usize {
    (0..=at.min(text.len())).rev().find(|&i| text.is_char_boundary(i)).unwrap_or(0)
}

pub(crate) fn ceil_char(text: &str, at: usize) -> usize {
    (at.min(text.len())..=text.len()).find(|&i| text.is_char_boundary(i)).unwrap_or(text.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_of_line_end_counts_as_one_line() {
        let mut sources = Sources::default();
        let file = sources.add_file("f", "a\nb\r\nc\rd");
        let lines: Vec<u32> = [0, 2, 5, 7].map(|at| sources.line(file, at).1).to_vec();
        assert_eq!(lines, [1, 2, 3, 4]);
    }

    #[test]
    fn a_line_mark_sets_line_and_file_and_the_empty_name_restores_it() {
        let mut sources = Sources::default();
        let file = sources.add_file("f", "a\nb\nc\nd\n");
        sources.set_marks(
            file,
            vec![
                LineMark { offset: 2, line: 12, name: Some("g".into()) },
                LineMark { offset: 6, line: 30, name: Some(String::new()) },
            ],
        );
        assert_eq!(sources.line(file, 0), ("f", 1));
        assert_eq!(sources.line(file, 4), ("g", 13));
        assert_eq!(sources.line(file, 6), ("f", 30));
    }

    #[test]
    fn text_without_a_file_is_called_config() {
        let mut sources = Sources::default();
        let file = sources.add_file("", "x");
        assert_eq!(sources.landmark(Span::new(file, 0, 1)), "config:1");
        let file = sources.add_file("line ", "x");
        assert_eq!(sources.landmark(Span::new(file, 0, 1)), "line 1");
    }

    #[test]
    fn a_snippet_of_half_a_character_is_the_whole_character() {
        let mut sources = Sources::default();
        let file = sources.add_file("f", "é");
        assert_eq!(sources.snippet(Span::new(file, 1, 2)), "é");
    }
}
