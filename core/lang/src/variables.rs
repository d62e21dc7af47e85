//! Variables in configuration strings: `$v`, `${v}`, `${v-default}`, `${v[n]}` and `$(…)`.
//!
//! Nothing is expanded in `'…'`; in `"…"` a value is escaped so that it stays one string. What is
//! unknown stays as it is written.

use std::rc::Rc;

use crate::args;
use crate::lexer::is_variable;

/// Values are expanded in turn, but no deeper than this.
const MAX_DEPTH: usize = 10;

/// Expansion of one string stops growing at this many bytes: few lines can ask for terabytes.
pub(crate) const MAX_LENGTH: usize = 1 << 22;

/// A function that turns a name into its value.
pub type Lookup<'a> = dyn FnMut(&str) -> Option<String> + 'a;

/// Expands the variables that `variable` knows, and with `call` the handler calls in `$(…)`.
///
/// Values are taken as they are.
pub fn expand(text: &str, variable: &mut Lookup<'_>, call: Option<&mut Lookup<'_>>) -> String {
    expand_at_depth(text, &mut Callbacks { variable, call, quotes: false }, 0)
}

/// Like [`expand`], but puts quotes around values that stand outside quotes, so that unquoting the result
/// gives them back as they are.
pub fn expand_quoting(text: &str, variable: &mut Lookup<'_>, call: Option<&mut Lookup<'_>>) -> String {
    expand_at_depth(text, &mut Callbacks { variable, call, quotes: true }, 0)
}

/// The variables of one scope and, through its parent, of the scopes around it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Environment {
    pub(crate) depth: usize,
    pub(crate) parent: Option<Rc<Environment>>,
    pub(crate) variables: Vec<(String, String)>,
}

impl Environment {
    /// The innermost environment around a scope of nesting `depth`.
    pub(crate) fn parent_of(this: &Rc<Environment>, depth: usize) -> Option<Rc<Environment>> {
        let mut environment = Some(this.clone());
        while let Some(inner) = environment.as_ref().filter(|inner| inner.depth >= depth) {
            environment = inner.parent.clone();
        }
        environment
    }

    /// Adds a variable, or replaces its value.
    pub(crate) fn set_variable(&mut self, name: &str, value: String) {
        match self.variables.iter_mut().find(|(known, _)| known == name) {
            Some((_, old)) => *old = value,
            None => self.variables.push((name.to_string(), value)),
        }
    }

    pub(crate) fn expand_text(&self, text: &str) -> String {
        expand_at_depth(text, &mut &*self, 0)
    }

    fn find_value(&self, name: &str) -> Option<&str> {
        let mut environment = Some(self);
        while let Some(scope) = environment {
            if let Some((_, value)) = scope.variables.iter().find(|(known, _)| known == name) {
                return Some(value);
            }
            environment = scope.parent.as_deref();
        }
        None
    }
}

/// Where values come from.
trait Values {
    fn variable_value(&mut self, name: &str, depth: usize) -> Option<String>;
    fn call_handler(&mut self, text: &str, depth: usize) -> Option<String>;
    /// Whether values outside quotes get some.
    fn adds_quotes(&self) -> bool {
        false
    }
}

impl Values for &Environment {
    fn variable_value(&mut self, name: &str, depth: usize) -> Option<String> {
        let value = self.find_value(name)?;
        Some(expand_at_depth(value, self, depth + 1))
    }

    /// No handler can be called yet, but `$(v)` is `$v`, as for Click.
    fn call_handler(&mut self, text: &str, depth: usize) -> Option<String> {
        self.variable_value(text, depth)
    }
}

struct Callbacks<'a, 'b, 'c> {
    variable: &'a mut Lookup<'b>,
    call: Option<&'a mut Lookup<'c>>,
    quotes: bool,
}

impl Values for Callbacks<'_, '_, '_> {
    fn variable_value(&mut self, name: &str, _depth: usize) -> Option<String> {
        (self.variable)(name)
    }

    fn call_handler(&mut self, text: &str, _depth: usize) -> Option<String> {
        self.call.as_mut()?(text)
    }

    fn adds_quotes(&self) -> bool {
        self.quotes
    }
}

fn expand_at_depth(text: &str, values: &mut dyn Values, depth: usize) -> String {
    let bytes = text.as_bytes();
    if depth > MAX_DEPTH || !bytes.contains(&b'$') {
        return text.to_string();
    }
    let mut out = String::new();
    let (mut at, mut copied) = (0, 0);
    let mut quote = None;
    while at < bytes.len() {
        let byte = bytes[at];
        match byte {
            b'\\' if quote == Some(b'"') => at += 1,
            b'\'' | b'"' if quote.is_none() => quote = Some(byte),
            b'\'' | b'"' if quote == Some(byte) => quote = None,
            b'/' if quote.is_none() && args::starts_comment(bytes, at) => {
                at = args::skip_space(bytes, at);
                continue;
            }
            b'$' if quote != Some(b'\'') && out.len() < MAX_LENGTH => match Reference::parse(text, at) {
                Parsed::No => {}
                Parsed::Unterminated => break,
                Parsed::Yes(reference) => {
                    let quotes = depth == 0 && quote.is_none() && values.adds_quotes();
                    if let Some(value) = reference.expand_reference(values, depth, quote == Some(b'"')) {
                        out.push_str(&text[copied..at]);
                        out.push_str(&if quotes { args::quote(&value) } else { value });
                        copied = reference.end;
                    }
                    at = reference.end;
                    continue;
                }
            },
            _ => {}
        }
        at += 1;
    }
    out.push_str(&text[copied..]);
    out
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Form {
    Plain,
    Braces,
    Call,
}

/// One `$…` in a text.
struct Reference<'a> {
    form: Form,
    /// What stands between the brackets, or the name.
    inner: &'a str,
    end: usize,
}

enum Parsed<'a> {
    No,
    Unterminated,
    Yes(Reference<'a>),
}

impl<'a> Reference<'a> {
    fn parse(text: &'a str, dollar: usize) -> Parsed<'a> {
        let bytes = text.as_bytes();
        let start = dollar + 2;
        let (form, inner, end) = match bytes.get(dollar + 1) {
            Some(b'{') => match text[start..].find('}') {
                Some(length) => (Form::Braces, &text[start..start + length], start + length + 1),
                None => return Parsed::Unterminated,
            },
            Some(b'(') => match call_end(bytes, start) {
                Some(end) => (Form::Call, &text[start..end - 1], end),
                None => return Parsed::Unterminated,
            },
            Some(b'?' | b'#' | b'$') => (Form::Plain, &text[dollar + 1..start], start),
            Some(&byte) if is_variable(byte) => {
                let length = bytes[dollar + 1..].iter().take_while(|&&byte| is_variable(byte)).count();
                (Form::Plain, &text[dollar + 1..dollar + 1 + length], dollar + 1 + length)
            }
            _ => return Parsed::No,
        };
        Parsed::Yes(Reference { form, inner, end })
    }

    /// The text to put in its place; `None` leaves it alone.
    fn expand_reference(&self, values: &mut dyn Values, depth: usize, quoted: bool) -> Option<String> {
        let nested = self.form != Form::Plain && self.inner.contains('$');
        let inner =
            if nested { expand_at_depth(self.inner, values, depth + 1) } else { self.inner.to_string() };
        let value = match self.form {
            Form::Plain => values.variable_value(&inner, depth),
            Form::Braces => expand_braces(&inner, values, depth),
            Form::Call => values.call_handler(&inner, depth),
        };
        match value {
            Some(value) if quoted => {
                let escaped = args::quote(&value);
                Some(escaped[1..escaped.len() - 1].to_string())
            }
            None if nested && self.form == Form::Braces => Some(format!("${{{inner}}}")),
            None if nested => Some(format!("$({inner})")),
            value => value,
        }
    }
}

/// Past the parenthesis that ends a `$(`; nested ones and quotes are respected.
fn call_end(bytes: &[u8], start: usize) -> Option<usize> {
    let mut level = 1;
    let mut quote = None;
    let mut at = start;
    while at < bytes.len() {
        let byte = bytes[at];
        match byte {
            b'(' if quote.is_none() => level += 1,
            b')' if quote.is_none() => level -= 1,
            b'"' | b'\'' if quote.is_none() => quote = Some(byte),
            b'"' | b'\'' if quote == Some(byte) => quote = None,
            b'\\' if quote != Some(b'\'') => at += 1,
            _ => {}
        }
        at += 1;
        if level == 0 {
            return Some(at);
        }
    }
    None
}

/// `v`, `v-default`, `v[n]`, `v[n]-default`, blanks allowed between the parts.
fn expand_braces(inner: &str, values: &mut dyn Values, depth: usize) -> Option<String> {
    let trimmed = inner.trim_ascii_start();
    let length = trimmed.bytes().take_while(|&byte| is_variable(byte)).count();
    let (name, rest) = trimmed.split_at(length);
    let (index, rest) = word_index(rest.trim_ascii_start());
    match (values.variable_value(name, depth), rest.strip_prefix('-')) {
        (Some(value), _) => Some(match index {
            Some(index) => args::split_words(&value).into_iter().nth(index).unwrap_or_default(),
            None => value,
        }),
        (None, Some(default)) => Some(expand_at_depth(default, values, depth + 1)),
        (None, None) => None,
    }
}

fn word_index(text: &str) -> (Option<usize>, &str) {
    let parsed = text.strip_prefix('[').and_then(|inner| {
        let (index, rest) = inner.split_once(']')?;
        Some((args::parse_unsigned(index.trim_ascii_start()).ok()? as usize, rest))
    });
    match parsed {
        Some((index, rest)) => (Some(index), rest.trim_ascii_start()),
        None => (None, text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn environment(variables: &[(&str, &str)]) -> Environment {
        let variables = variables.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect();
        Environment { variables, ..Default::default() }
    }

    #[test]
    fn names_stand_bare_or_in_braces() {
        let environment = environment(&[("v", "1"), ("v2", "2"), ("_", "u")]);
        assert_eq!(environment.expand_text("$v ${v}x $v2 $_ ${ v }"), "1 1x 2 u 1");
    }

    #[test]
    fn unknown_variables_stay_as_written() {
        let environment = environment(&[("v", "1")]);
        let found = environment.expand_text("$nope ${nope} $ $? $# $$ $(x $v) $");
        assert_eq!(found, "$nope ${nope} $ $? $# $$ $(x 1) $");
        assert_eq!(environment.expand_text("${no$v}"), "${no1}");
    }

    #[test]
    fn parentheses_name_a_variable_where_no_handler_can_be_called() {
        let environment = environment(&[("v", "1"), ("n", "v")]);
        assert_eq!(environment.expand_text("$(v)x $($n) $(nope) $(v v)"), "1x 1 $(nope) $(v v)");
    }

    #[test]
    fn a_default_replaces_a_missing_value_only() {
        let environment = environment(&[("v", "1"), ("empty", "")]);
        assert_eq!(environment.expand_text("${v-2} ${w-2} ${w-$v} ${empty-3} ${w-}"), "1 2 1  ");
    }

    #[test]
    fn an_index_picks_a_word_and_is_empty_out_of_range() {
        let environment = environment(&[("v", "a 'b c' d"), ("i", "1")]);
        assert_eq!(environment.expand_text("${v[0]} ${v[$i]} ${v[2]} <${v[3]}>"), "a 'b c' d <>");
        assert_eq!(environment.expand_text("${w[0]-x}"), "x");
    }

    #[test]
    fn nothing_is_expanded_in_single_quotes_and_comments() {
        let environment = environment(&[("v", "1")]);
        assert_eq!(environment.expand_text("'$v' $v // $v\n$v /* $v */ $v"), "'$v' 1 // $v\n1 /* $v */ 1");
        assert_eq!(environment.expand_text(r#""'$v'" "\$v""#), r#""'1'" "\$v""#);
    }

    #[test]
    fn a_value_in_double_quotes_is_escaped() {
        let environment = environment(&[("v", "a\"b\\$c")]);
        assert_eq!(environment.expand_text("\"<$v>\""), r#""<a\"b\\\$c>""#);
    }

    #[test]
    fn values_are_expanded_to_depth_10() {
        let environment = environment(&[("a", "$b-"), ("b", "$c"), ("c", "x"), ("loop", "$loop.")]);
        assert_eq!(environment.expand_text("$a"), "x-");
        assert_eq!(environment.expand_text("$loop").matches('.').count(), 11);
    }

    #[test]
    fn growth_is_bounded() {
        let big = "$b".repeat(1000);
        let environment = environment(&[("a", &big), ("b", &"$c".repeat(1000)), ("c", &"$d".repeat(1000))]);
        assert!(environment.expand_text("$a").len() < 4 * MAX_LENGTH);
    }

    #[test]
    fn inner_scopes_shadow_outer_ones() {
        let outer = Rc::new(environment(&[("v", "outer"), ("w", "w")]));
        let inner =
            Rc::new(Environment { depth: 1, parent: Some(outer.clone()), ..environment(&[("v", "inner")]) });
        assert_eq!(inner.expand_text("$v $w"), "inner w");
        assert!(Rc::ptr_eq(&Environment::parent_of(&inner, 1).unwrap(), &outer));
        assert!(Environment::parent_of(&inner, 0).is_none());
    }

    #[test]
    fn handler_calls_nest_and_are_expanded_where_there_is_an_expander() {
        let mut variable = |name: &str| (name == "x").then(|| "7".to_string());
        let mut call = |text: &str| Some(format!("<{text}>"));
        assert_eq!(expand("$(add $x $(c.count)) $?", &mut variable, Some(&mut call)), "<add 7 <c.count>> $?");
        assert_eq!(expand("$(add ')' 1)", &mut variable, Some(&mut call)), "<add ')' 1>");
        assert_eq!(expand("$(c.count)", &mut variable, None), "$(c.count)");
    }

    #[test]
    fn quoting_expansion_survives_unquoting() {
        let mut variable = |name: &str| (name == "x").then(|| "a \"b\"".to_string());
        let expanded = expand_quoting("<$x> '$x' \"$x\" $nope", &mut variable, None);
        assert_eq!(args::unquote(&expanded), "<a \"b\"> $x a \"b\" $nope");
    }

    #[test]
    fn unterminated_references_stay_as_written() {
        let environment = environment(&[("v", "1")]);
        assert_eq!(environment.expand_text("$v ${v $v"), "1 ${v $v");
        assert_eq!(environment.expand_text("$v $(v $v"), "1 $(v $v");
    }

    proptest::proptest! {
        #[test]
        fn no_text_makes_expansion_panic(text in "[$v{}()\\[\\]'\"\\\\/*\n0-é ]{0,40}") {
            environment(&[("v", "${v}$w"), ("w", "'")]).expand_text(&text);
        }
    }
}
