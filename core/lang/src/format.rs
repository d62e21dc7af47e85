//! Readable layout for configuration text.
//!
//! Line breaks between the elements of a chain stay where they are, and so do single empty lines;
//! compounds written on one line stay on one. Configuration strings are copied verbatim. A comment
//! goes to the next place between two elements or statements; `#` comments become `//` comments.

use crate::diagnostic::Diagnostic;
use crate::lexer::{Dialect, RawConfig, parse_line_mark};
use crate::parser::parse_text;
use crate::source::{FileId, Span};
use crate::tree::*;

const INDENT: &str = "    ";

/// Lays out a configuration; text that does not parse is left alone.
pub fn format(text: &str) -> Result<String, Vec<Diagnostic>> {
    let parsed = parse_text(text, FileId::default(), Dialect::Artery);
    if parsed.diagnostics.iter().any(Diagnostic::is_error) {
        return Err(parsed.diagnostics);
    }
    let configs = config_spans(&parsed.tree.statements);
    let outside = |comment: &Span| {
        let next = configs.partition_point(|config| config.end <= comment.start);
        configs.get(next).is_none_or(|config| comment.start < config.start)
    };
    let mut comments: Vec<Span> = parsed.comments.into_iter().filter(outside).collect();
    comments.reverse();
    let mut writer = Writer { text, comments, out: String::new(), depth: 0, after_line_comment: false };
    writer.write_block(&parsed.tree.statements, text.len());
    Ok(writer.into_text())
}

/// Where all configuration strings are, in order.
fn config_spans(statements: &[Statement]) -> Vec<Span> {
    fn of_element(element: &Element, spans: &mut Vec<Span>) {
        match &element.what {
            What::Compound(compound) => of_compound(compound, spans),
            What::Group(group) => of_statements(&group.statements, spans),
            What::Name(_) | What::Implied => {}
        }
        if let Some(DeclaredClass::Compound(compound)) = &element.class {
            of_compound(compound, spans);
        }
        spans.extend(element.config.as_ref().map(|config| config.span));
    }
    fn of_compound(compound: &Compound, spans: &mut Vec<Span>) {
        compound.alternatives.iter().for_each(|alternative| of_statements(&alternative.statements, spans));
    }
    fn of_statements(statements: &[Statement], spans: &mut Vec<Span>) {
        for statement in statements {
            match statement {
                Statement::Chain(chain) => {
                    let elements = chain.links.iter().flat_map(|link| &link.elements);
                    elements.for_each(|element| of_element(element, spans));
                }
                Statement::Class(ClassDefinition { body: ClassBody::Compound(compound), .. }) => {
                    of_compound(compound, spans);
                }
                Statement::Class(_) => {}
                Statement::Require(config) | Statement::Define(config) => spans.push(config.span),
            }
        }
    }
    let mut spans = Vec::new();
    of_statements(statements, &mut spans);
    spans
}

struct Writer<'a> {
    text: &'a str,
    /// Comments to be written, the next one last.
    comments: Vec<Span>,
    out: String,
    depth: usize,
    /// True if nothing may follow on the line.
    after_line_comment: bool,
}

impl Writer<'_> {
    fn into_text(mut self) -> String {
        self.out.truncate(self.out.trim_end().len());
        if !self.out.is_empty() {
            self.out.push('\n');
        }
        self.out
    }

    /// Statements on lines of their own, and the comments up to `end`.
    fn write_block(&mut self, statements: &[Statement], end: usize) {
        for statement in statements {
            let start = start_of(statement);
            self.comments_before(start);
            self.start_line(self.keyword_start(statement, start));
            self.write_statement(statement);
            if !matches!(statement, Statement::Class(ClassDefinition { body: ClassBody::Compound(_), .. })) {
                self.write(";");
            }
        }
        self.comments_before(end);
    }

    /// Offset of a statement's first byte, for the empty line before it.
    fn keyword_start(&self, statement: &Statement, start: usize) -> usize {
        let keyword = match statement {
            Statement::Chain(chain) => return chain_start(chain).unwrap_or(start),
            Statement::Class(_) => "elementclass",
            Statement::Require(_) => "require",
            Statement::Define(_) => "define",
        };
        self.text[..start].rfind(keyword).unwrap_or(start)
    }

    fn write_statement(&mut self, statement: &Statement) {
        match statement {
            Statement::Chain(chain) => self.write_chain(chain),
            Statement::Require(config) => self.write_call("require", config),
            Statement::Define(config) => self.write_call("define", config),
            Statement::Class(definition) => {
                self.write("elementclass ");
                self.write(&definition.name);
                match &definition.body {
                    ClassBody::Synonym(other, _) => self.write(&format!(" {other}")),
                    ClassBody::Compound(compound) => {
                        self.write(" ");
                        self.write_compound(compound);
                    }
                    ClassBody::Missing => {}
                }
            }
        }
    }

    fn write_call(&mut self, word: &str, config: &RawConfig) {
        self.write(word);
        self.write_config(config);
    }

    fn write_config(&mut self, config: &RawConfig) {
        let raw = self.slice(config.span).to_string();
        self.write(&format!("({raw})"));
    }

    fn write_chain(&mut self, chain: &Chain) {
        for link in &chain.links {
            for (index, element) in link.elements.iter().enumerate() {
                let start = element.span.start as usize;
                let separator = match (index, link.arrow) {
                    (0, None) => "",
                    (0, Some(Arrow { double: true, .. })) => "=>",
                    (0, Some(_)) => "->",
                    _ => ",",
                };
                self.write_separator(separator, link.arrow.filter(|_| index == 0), start);
                self.write_element(element);
            }
        }
        if chain.links.last().is_some_and(|link| link.elements.last().is_some_and(is_nothing)) {
            self.out.truncate(self.out.trim_end_matches(' ').len());
        }
    }

    /// What goes between two elements; a line break where there is one, or where a comment makes one.
    fn write_separator(&mut self, separator: &str, arrow: Option<Arrow>, element: usize) {
        if separator == "," {
            self.write(",");
        }
        self.depth += 1;
        self.comments_before(element);
        let breaks = arrow.is_some_and(|arrow| self.begins_line(arrow.span.start as usize));
        if self.after_line_comment || (breaks && !self.at_line_start()) {
            self.start_line(usize::MAX);
            self.write(" ");
            self.out.pop();
        }
        self.depth -= 1;
        let spaced = self.at_line_start() || self.out.ends_with(' ');
        match separator {
            "" => {}
            "," if spaced => {}
            "," => self.write(" "),
            arrow => self.write(&format!("{}{arrow} ", if spaced { "" } else { " " })),
        }
    }

    /// True if nothing but blanks stands before an offset on its line, and a line before that.
    fn begins_line(&self, at: usize) -> bool {
        let line_start = self.text[..at].rfind(['\n', '\r']).map_or(0, |end| end + 1);
        line_start > 0 && self.text[line_start..at].trim_ascii().is_empty()
    }

    fn write_element(&mut self, element: &Element) {
        let inputs = self.format_ports(&element.inputs);
        let outputs = self.format_ports(&element.outputs);
        self.write(&inputs);
        if element.what == What::Implied {
            return;
        }
        if !inputs.is_empty() {
            self.write(" ");
        }
        match &element.what {
            What::Name(name) => self.write(name),
            What::Compound(compound) => self.write_compound(compound),
            What::Group(group) => self.write_group(group, element.span),
            What::Implied => {}
        }
        match &element.class {
            Some(DeclaredClass::Name(class, _)) => self.write(&format!(" :: {class}")),
            Some(DeclaredClass::Compound(compound)) => {
                self.write(" :: ");
                self.write_compound(compound);
            }
            Some(DeclaredClass::Missing) | None => {}
        }
        if let Some(config) = &element.config {
            self.write_config(config);
        }
        if !outputs.is_empty() {
            self.write(&format!(" {outputs}"));
        }
    }

    /// Ports as written except for white space; spelled out if they contain a comment.
    fn format_ports(&self, ports: &Ports) -> String {
        let Some(span) = ports.span else { return String::new() };
        let raw: String = self.slice(span).chars().filter(|c| !c.is_ascii_whitespace()).collect();
        if !raw.contains(['/', '#']) {
            return raw.replace(',', ", ").replace(", ]", ",]");
        }
        let numbers: Vec<String> = ports.numbers.iter().map(usize::to_string).collect();
        format!("[{}{}]", numbers.join(", "), if ports.expandable { "," } else { "" })
    }

    fn write_group(&mut self, group: &Group, open: Span) {
        self.write("(");
        self.write_body(&group.statements, open, group.close);
        self.write(")");
    }

    fn write_compound(&mut self, compound: &Compound) {
        self.write("{");
        for (index, alternative) in compound.alternatives.iter().enumerate() {
            if index > 0 {
                self.write("||");
            }
            let formals: Vec<String> = alternative.formals.iter().map(format_formal).collect();
            if !formals.is_empty() {
                self.write(&format!(" {} |", formals.join(", ")));
            }
            let end = compound.alternatives.get(index + 1).map_or(compound.close, |next| next.open);
            let end = if index + 1 == compound.alternatives.len() {
                compound.extension.unwrap_or(end)
            } else {
                end
            };
            self.write_body(&alternative.statements, alternative.open, end);
        }
        if compound.extension.is_some() {
            self.write("|| ... ");
            self.comments_before(compound.close.start as usize);
            if self.after_line_comment {
                self.start_line(usize::MAX);
            }
        }
        self.write("}");
    }

    /// What is between brackets: on one line if it was, else on lines of its own.
    fn write_body(&mut self, statements: &[Statement], open: Span, close: Span) {
        let raw = &self.text[open.end as usize..(close.start as usize).max(open.end as usize)];
        let has_comments = self.comments.last().is_some_and(|comment| comment.start < close.start);
        if raw.contains(['\n', '\r']) || has_comments {
            self.depth += 1;
            self.write_block(statements, close.start as usize);
            self.depth -= 1;
            return self.start_line(usize::MAX);
        }
        self.write(" ");
        for (index, statement) in statements.iter().enumerate() {
            self.write_statement(statement);
            let compound =
                matches!(statement, Statement::Class(ClassDefinition { body: ClassBody::Compound(_), .. }));
            let separator = if index + 1 == statements.len() || compound { " " } else { "; " };
            self.write(separator);
        }
    }

    fn slice(&self, span: Span) -> &str {
        &self.text[span.start as usize..span.end as usize]
    }

    fn write(&mut self, text: &str) {
        if self.after_line_comment {
            self.start_line(usize::MAX);
        }
        if self.at_line_start() && !text.is_empty() {
            self.out.push_str(&INDENT.repeat(self.depth));
        }
        self.out.push_str(text);
    }

    fn at_line_start(&self) -> bool {
        self.out.is_empty() || self.out.ends_with('\n')
    }

    /// Goes to a fresh line; keeps an empty line that stands before offset `at` of the source.
    fn start_line(&mut self, at: usize) {
        self.after_line_comment = false;
        if !self.at_line_start() {
            self.out.truncate(self.out.trim_end_matches(' ').len());
            self.out.push('\n');
        }
        let before = self.text.get(..at).unwrap_or("");
        let blanks = &before[before.trim_ascii_end().len()..];
        let lines = blanks.replace("\r\n", "\n").matches(['\n', '\r']).count();
        let in_block = self.out.ends_with("{\n") || self.out.ends_with("(\n") || self.out.ends_with("|\n");
        if lines > 1 && !in_block && !self.out.is_empty() && !self.out.ends_with("\n\n") {
            self.out.push('\n');
        }
    }

    /// Writes the comments that stand before an offset of the source; false if there are none.
    fn comments_before(&mut self, offset: usize) -> bool {
        let mut any = false;
        while let Some(comment) = self.comments.pop_if(|comment| (comment.start as usize) < offset) {
            self.write_comment(comment);
            any = true;
        }
        any
    }

    fn write_comment(&mut self, span: Span) {
        let start = span.start as usize;
        let text = self.slice(span).trim_end().to_string();
        let line_start = self.text[..start].rfind(['\n', '\r']).map_or(0, |at| at + 1);
        let trailing = !self.text[line_start..start].trim_ascii().is_empty();
        let mark =
            text.starts_with('#') && start == line_start && parse_line_mark(&text, Dialect::Artery).is_some();
        if mark {
            self.start_line(start);
            self.out.push_str(&text);
        } else if trailing && !self.after_line_comment && !self.out.is_empty() {
            let at_end = self.out.trim_end_matches([' ', '\n']).len();
            self.out.truncate(at_end);
            self.out.push(' ');
            self.out.push_str(&in_slashes(text));
        } else {
            self.start_line(start);
            self.write(&in_slashes(text));
        }
        self.after_line_comment = true;
    }
}

/// A `#` comment as a `//` comment.
fn in_slashes(comment: String) -> String {
    match comment.strip_prefix('#') {
        Some(rest) => format!("//{rest}"),
        None => comment,
    }
}

fn format_formal(formal: &Formal) -> String {
    let space = if formal.keyword.is_empty() { "" } else { " " };
    format!("{}{space}${}", formal.keyword, formal.name)
}

fn is_nothing(element: &Element) -> bool {
    element.what == What::Implied && element.inputs.span.is_none()
}

fn chain_start(chain: &Chain) -> Option<usize> {
    let element = chain.links.first()?.elements.first()?;
    Some(element.inputs.span.unwrap_or(element.span).start as usize)
}

/// Where the first name of a statement stands.
fn start_of(statement: &Statement) -> usize {
    match statement {
        Statement::Chain(chain) => chain_start(chain).unwrap_or(0),
        Statement::Class(definition) => definition.span.start as usize,
        Statement::Require(config) | Statement::Define(config) => config.span.start as usize,
    }
}

#[cfg(test)]
mod tests;
