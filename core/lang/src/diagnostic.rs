//! What is wrong with a configuration, where, and what to do about it.

use annotate_snippets::{AnnotationKind, Group, Level, Renderer, Snippet};

use crate::printable::{printable, without_c1};
use crate::source::{Sources, Span, ceil_char, floor_char};

/// How bad a [`Diagnostic`] is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Severity {
    /// The configuration cannot be used.
    #[default]
    Error,
    /// The configuration can be used but may not mean what its author thinks.
    Warning,
}

/// One message about a configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Diagnostic {
    /// Whether this is an error or a warning.
    pub severity: Severity,
    /// The message, in Click's words where Click has words for it.
    pub message: String,
    /// The text that is wrong.
    pub span: Span,
    /// A word or two printed beside the caret.
    pub label: Option<String>,
    /// What to do about it, printed below the message.
    pub help: Option<String>,
    /// Other places that matter, each with its own message.
    pub related: Vec<(Span, String)>,
    /// A line between the message and the related places, in [`Diagnostic::click_style`] only.
    pub introduction: Option<String>,
    /// Where Click would place the message, if elsewhere.
    pub landmark: Option<Span>,
    /// True if Click names no place at all.
    pub unplaced: bool,
}

impl Diagnostic {
    /// An error at `span`.
    pub fn error(message: impl Into<String>, span: Span) -> Diagnostic {
        Diagnostic { message: message.into(), span, ..Diagnostic::default() }
    }

    /// A warning at `span`.
    pub fn warning(message: impl Into<String>, span: Span) -> Diagnostic {
        Diagnostic { severity: Severity::Warning, ..Diagnostic::error(message, span) }
    }

    /// Adds the words beside the caret.
    pub fn label(mut self, label: impl Into<String>) -> Diagnostic {
        self.label = Some(label.into());
        self
    }

    /// Adds a remedy, printed below the message.
    pub fn help(mut self, help: impl Into<String>) -> Diagnostic {
        self.help = Some(help.into());
        self
    }

    /// Adds another place that matters.
    pub fn related(mut self, span: Span, message: impl Into<String>) -> Diagnostic {
        self.related.push((span, message.into()));
        self
    }

    /// Says where Click would place the message.
    pub fn landmark(mut self, span: Span) -> Diagnostic {
        self.landmark = Some(span);
        self
    }

    /// Says that Click names no place.
    pub fn unplaced(mut self) -> Diagnostic {
        self.unplaced = true;
        self
    }

    /// True for errors, false for warnings.
    pub fn is_error(&self) -> bool {
        self.severity == Severity::Error
    }

    /// The message with its source line, a caret and the remedy, without colour.
    pub fn render(&self, sources: &Sources) -> String {
        self.render_on(sources, false)
    }

    /// Like [`Diagnostic::render`], coloured when `terminal`.
    pub fn render_on(&self, sources: &Sources, terminal: bool) -> String {
        self.printable().render_printable(sources, terminal)
    }

    /// The same without control characters in what is said; those of source lines are
    /// replaced by the renderer.
    fn printable(&self) -> Diagnostic {
        let shown = |text: &String| printable(text).into_owned();
        Diagnostic {
            message: shown(&self.message),
            label: self.label.as_ref().map(shown),
            help: self.help.as_ref().map(shown),
            related: self.related.iter().map(|(span, text)| (*span, shown(text))).collect(),
            ..self.clone()
        }
    }

    fn render_printable(&self, sources: &Sources, terminal: bool) -> String {
        let level = match self.severity {
            Severity::Error => Level::ERROR,
            Severity::Warning => Level::WARNING,
        };
        let mut first =
            level.primary_title(&self.message).element(snippet(sources, self.span, self.label.as_deref()));
        if let Some(help) = &self.help {
            first = first.element(Level::HELP.message(help));
        }
        let mut report = vec![first];
        report.extend(self.related.iter().map(|(span, message)| secondary_note(sources, *span, message)));
        let renderer = if terminal { Renderer::styled() } else { Renderer::plain() };
        // It leaves the second set of control characters in source lines as they are, and uses none itself.
        without_c1(renderer.render(&report))
    }

    /// `file:line: message`, related places on lines of their own: what Click prints.
    pub fn click_style(&self, sources: &Sources) -> String {
        let warning = if self.is_error() { "" } else { "warning: " };
        let landmark = match self.unplaced {
            true => String::new(),
            false => sources.landmark(self.landmark.unwrap_or(self.span)) + ": ",
        };
        let mut text = format!("{landmark}{warning}{}", self.message.replace('\n', &format!("\n{landmark}")));
        let indent = if self.introduction.is_some() { "  " } else { "" };
        if let Some(introduction) = &self.introduction {
            text.push('\n');
            if let Some((span, _)) = self.related.first() {
                text.push_str(&format!("{}: ", sources.landmark(*span)));
            }
            text.push_str(introduction);
        }
        for (span, message) in &self.related {
            text.push_str(&format!("\n{}: {indent}{message}", sources.landmark(*span)));
        }
        text
    }
}

fn secondary_note<'a>(sources: &'a Sources, span: Span, message: &'a str) -> Group<'a> {
    Level::NOTE.secondary_title(message).element(snippet(sources, span, None))
}

type Annotated<'a> = Snippet<'a, annotate_snippets::Annotation<'a>>;

/// The first line of `span` with a caret under what lies in it.
fn snippet<'a>(sources: &'a Sources, span: Span, label: Option<&'a str>) -> Annotated<'a> {
    let (line_start, text) = sources.physical_line(span.file, span.start);
    let start = floor_char(text, (span.start - line_start) as usize);
    let end = ceil_char(text, span.end.saturating_sub(line_start) as usize).max(start);
    let (name, line) = sources.line(span.file, span.start);
    let annotation = AnnotationKind::Primary.span(start..end).label(label);
    Snippet::source(text).line_start(line as usize).path(printable(name)).annotation(annotation)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sources(text: &str) -> (Sources, crate::FileId) {
        let mut sources = Sources::default();
        let file = sources.add_file("r.click", text);
        (sources, file)
    }

    #[test]
    fn a_rendered_error_shows_line_caret_and_remedy() {
        let (sources, file) = sources("a :: Idle;\nb -> c;\n");
        let error = Diagnostic::error("undeclared element 'b'", Span::new(file, 11, 12))
            .help("declare it")
            .related(Span::new(file, 0, 1), "like this");
        let text = error.render(&sources);
        assert!(text.contains("error: undeclared element 'b'"), "{text}");
        assert!(text.contains("r.click:2:1"), "{text}");
        assert!(text.contains("2 | b -> c;"), "{text}");
        assert!(text.contains("| ^"), "{text}");
        assert!(text.contains("help: declare it"), "{text}");
        assert!(text.contains("note: like this"), "{text}");
        assert!(!text.contains('\x1b'), "{text}");
        assert!(error.render_on(&sources, true).contains('\x1b'));
    }

    #[test]
    fn what_a_terminal_would_take_for_a_command_is_shown_and_not_sent() {
        let mut sources = Sources::default();
        let file = sources.add_file("r\x1b[2J.click", "a\x1b[31m\u{9b}1m -> b;\n");
        let error = Diagnostic::error("undeclared 'a\x1b[31m'", Span::new(file, 0, 1))
            .help("no \u{9b}1m")
            .label("\x07");
        let plain = error.render(&sources);
        assert!(!plain.contains(|c: char| c.is_control() && c != '\n'), "{plain:?}");
        assert!(plain.contains(r"error: undeclared 'a\x1b[31m'"), "{plain}");
        assert!(plain.contains(r"r\x1b[2J.click:1"), "{plain}");
        let coloured = error.render_on(&sources, true);
        for command in ["\x1b[2J", "\x1b[31m\u{9b}", "\u{9b}", "\x07"] {
            assert!(!coloured.contains(command), "{coloured:?}");
        }
    }

    #[test]
    fn click_style_puts_landmark_first_and_marks_warnings() {
        let (sources, file) = sources("a\nb\n");
        let span = Span::new(file, 2, 3);
        assert_eq!(Diagnostic::error("bad", span).click_style(&sources), "r.click:2: bad");
        assert_eq!(Diagnostic::warning("unusual", span).click_style(&sources), "r.click:2: warning: unusual");
        let two = Diagnostic::error("bad", span).related(Span::new(file, 0, 1), "here");
        assert_eq!(two.click_style(&sources), "r.click:2: bad\nr.click:1: here");
        assert_eq!(Diagnostic::error("a\nb", span).click_style(&sources), "r.click:2: a\nr.click:2: b");
    }

    #[test]
    fn rendering_works_at_the_end_of_the_text_and_inside_characters() {
        let (sources, file) = sources("é\r\n");
        for (start, end) in [(0, 4), (1, 2), (4, 4), (3, 3), (2, 4)] {
            assert!(
                Diagnostic::error("m", Span::new(file, start, end)).render(&sources).contains("error: m")
            );
        }
    }
}
