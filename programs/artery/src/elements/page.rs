//! One element's manual page, made of its class.
use artery_engine::class::Position;
use artery_engine::{Arg, Class, Handler};
use serde_json::json;

/// The handler of every element whose value is its arguments.
const CONFIG: &str = "config";

/// Columns of a page as text.
const WIDTH: usize = 88;

/// The page for a terminal.
pub(super) fn text(class: &Class) -> String {
    let mut page = format!("{} - {}\n\n  {}\n\n", class.name, class.summary, synopsis(class));
    page += &format!("Ports       {}\n", ports(class));
    page += &format!("Processing  {}\n", processing(class));
    page += &format!("Workers     {}\n", workers(class));
    if !class.aliases.is_empty() {
        page += &format!("Also called {}\n", class.aliases.join(", "));
    }
    page += &format!("\n{}", wrapped(class.manual, ""));
    if !class.args.is_empty() {
        page += "\nArguments\n";
    }
    for arg in class.args {
        page += &format!("  {}\n{}", argument_heading(arg), wrapped(arg.doc, "      "));
    }
    let handlers = handlers(class);
    if !handlers.is_empty() {
        page += "\nHandlers\n";
    }
    for Row { name, access, doc, .. } in &handlers {
        page += &format!("  {name} ({access})\n{}", wrapped(doc, "      "));
    }
    let example: String = class.example.trim().lines().map(|line| format!("  {line}\n")).collect();
    page + &format!("\nExample\n{example}")
}

/// The page for `docs/elements`.
pub(super) fn markdown(class: &Class) -> String {
    let mut page = format!("# {}\n\n{}.\n\n", class.name, sentence(class.summary));
    page += &format!("    {}\n\n", synopsis(class));
    page += &format!(
        "- Group: {}\n- Ports: {}\n- Processing: {}\n",
        class.group,
        ports(class),
        processing(class)
    );
    page += &format!("- Workers: {}\n", workers(class));
    if !class.aliases.is_empty() {
        page += &format!("- Also called: {}\n", class.aliases.join(", "));
    }
    page += &format!("\n{}\n", class.manual.trim());
    if !class.args.is_empty() {
        page += "\n## Arguments\n\n| argument | value | default | meaning |\n|---|---|---|---|\n";
        for arg in class.args {
            let cells = [&format!("`{}`", arg.name), arg.kind, &default(arg), arg.doc].map(cell);
            page += &format!("| {} |\n", cells.join(" | "));
        }
    }
    let handlers = handlers(class);
    if !handlers.is_empty() {
        page += "\n## Handlers\n\n| handler | access | meaning |\n|---|---|---|\n";
    }
    for Row { name, access, doc, .. } in &handlers {
        let cells = [&format!("`{name}`"), access.as_str(), doc].map(cell);
        page += &format!("| {} |\n", cells.join(" | "));
    }
    page + &format!("\n## Example\n\n```click\n{}\n```\n", class.example.trim())
}

/// The page for programs.
pub(super) fn json(class: &Class) -> serde_json::Value {
    let arg = |arg: &Arg| {
        json!({ "name": arg.name, "kind": arg.kind, "default": arg.default,
            "given": given(arg), "doc": arg.doc })
    };
    let handler = |row: &Row| json!({ "name": row.name, "flags": row.flags, "doc": row.doc });
    json!({
        "name": class.name,
        "aliases": class.aliases,
        "group": class.group,
        "summary": class.summary,
        "ports": class.ports,
        "processing": class.processing,
        "flow": class.flow,
        "per_worker": class.per_worker,
        "manual": class.manual,
        "arguments": class.args.iter().map(arg).collect::<Vec<_>>(),
        "handlers": handlers(class).iter().map(handler).collect::<Vec<_>>(),
        "example": class.example,
    })
}

/// How the class is written in a configuration.
fn synopsis(class: &Class) -> String {
    let spell = |arg: &Arg| match (arg.position, arg.default) {
        (Position::Positional, None) => arg.name.to_string(),
        (Position::Positional, Some(_)) => format!("[{}]", arg.name),
        (Position::Keyword, None) => format!("{} value", arg.name),
        (Position::Keyword, Some(_)) => format!("[{} value]", arg.name),
        (Position::Rest, _) => format!("{}, ...", arg.name),
    };
    format!("{}({})", class.name, class.args.iter().map(spell).collect::<Vec<_>>().join(", "))
}

/// The port counts in words.
fn ports(class: &Class) -> String {
    let (inputs, outputs) = class.ports.split_once('/').unwrap_or((class.ports, class.ports));
    format!("{} in, {} out", port_count(inputs), port_count(outputs))
}

fn port_count(code: &str) -> String {
    match (code, code.split_once('-')) {
        ("-", _) => "any number".to_string(),
        ("=", _) => "as many".to_string(),
        ("=+", _) => "one more".to_string(),
        (_, Some((least, ""))) => format!("{least} or more"),
        (_, Some(("", most))) => format!("at most {most}"),
        (_, Some((least, most))) => format!("{least} to {most}"),
        (number, None) => number.to_string(),
    }
}

/// The processing code in words.
fn processing(class: &Class) -> String {
    let (inputs, outputs) = class.processing.split_once('/').unwrap_or((class.processing, class.processing));
    if inputs == outputs && inputs.len() == 1 {
        return letter(inputs.chars().next().unwrap_or('a')).to_string();
    }
    let side = |code: &str| code.chars().map(letter).collect::<Vec<_>>().join(", then ");
    match (class.ports.starts_with("0/"), class.ports.ends_with("/0")) {
        (true, _) => format!("outputs {}", side(outputs)),
        (_, true) => format!("inputs {}", side(inputs)),
        _ => format!("inputs {}; outputs {}", side(inputs), side(outputs)),
    }
}

fn letter(code: char) -> &'static str {
    match code.to_ascii_lowercase() {
        'h' => "push",
        'l' => "pull",
        _ => "agnostic",
    }
}

fn workers(class: &Class) -> &'static str {
    if class.per_worker { "can be copied to every worker" } else { "one instance" }
}

fn argument_heading(arg: &Arg) -> String {
    let default = match arg.default {
        Some("") if arg.position != Position::Rest => ", optional".to_string(),
        Some("") => String::new(),
        Some(default) => format!(", default {default}"),
        None => ", required".to_string(),
    };
    format!("{} ({}{}{})", arg.name, arg.kind, given(arg), default)
}

fn given(arg: &Arg) -> &'static str {
    match arg.position {
        Position::Positional => "",
        Position::Keyword => ", by keyword",
        Position::Rest => ", any number",
    }
}

fn default(arg: &Arg) -> String {
    match arg.default {
        Some("") => String::new(),
        Some(default) => format!("`{default}`"),
        None => "required".to_string(),
    }
}

/// A handler's row on a page.
struct Row {
    name: &'static str,
    access: String,
    flags: String,
    doc: &'static str,
}

/// The handlers of the class, and `config` where it does what it does for no other: change the arguments.
fn handlers(class: &Class) -> Vec<Row> {
    let is_live = |h: &Handler| class.live && h.name == CONFIG;
    let config = |doc| Row { name: CONFIG, access: "read; write".into(), flags: "rw".into(), doc };
    let plain = |h: &Handler| Row { name: h.name, access: access(h), flags: h.flag_letters(), doc: h.doc };
    let row = |h: &Handler| if is_live(h) { config(h.doc) } else { plain(h) };
    let mut rows: Vec<Row> = class.handlers.iter().map(row).collect();
    if class.live && class.handler(CONFIG).is_none() {
        rows.push(config("the arguments; others take their place"));
    }
    rows
}

fn access(handler: &Handler) -> String {
    let read = handler.read.map(|_| if handler.takes_parameters { "read, with parameters" } else { "read" });
    let write = handler.write.map(|_| if handler.button { "write, no value" } else { "write" });
    [read, write].into_iter().flatten().collect::<Vec<_>>().join("; ")
}

/// With a capital letter.
fn sentence(text: &str) -> String {
    let mut letters = text.trim_end_matches('.').chars();
    letters.next().map(|first| first.to_uppercase().chain(letters).collect()).unwrap_or_default()
}

fn cell(text: &str) -> String {
    text.replace('|', "\\|").replace('\n', " ")
}

/// Paragraphs broken into lines; lists, tables and code stay as they are.
fn wrapped(markdown: &str, indent: &str) -> String {
    let mut text = String::new();
    let mut line = String::new();
    let mut in_code = false;
    for source in markdown.trim().lines() {
        in_code ^= source.trim_start().starts_with("```");
        let as_is = in_code || source.trim().is_empty() || source.starts_with(['|', '-', '*', ' ', '#', '`']);
        if as_is {
            flush(&mut text, &mut line, indent);
            text += format!("{indent}{source}").trim_end();
            text.push('\n');
            continue;
        }
        for word in source.split_whitespace() {
            if !line.is_empty() && indent.len() + line.chars().count() + 1 + word.chars().count() > WIDTH {
                flush(&mut text, &mut line, indent);
            }
            line += if line.is_empty() { "" } else { " " };
            line += word;
        }
    }
    flush(&mut text, &mut line, indent);
    text
}

fn flush(text: &mut String, line: &mut String, indent: &str) {
    if !line.is_empty() {
        *text += &format!("{indent}{line}\n");
        line.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn port_codes_are_said_in_words() {
        let class = |ports| Class { ports, ..Class::DEFAULT };
        assert_eq!(ports(&class("1/1-2")), "1 in, 1 to 2 out");
        assert_eq!(ports(&class("-/=")), "any number in, as many out");
        assert_eq!(ports(&class("1-/0")), "1 or more in, 0 out");
    }

    #[test]
    fn config_is_written_where_arguments_can_change() {
        for (class, doc, access, flags) in [
            ("Switch", "OUTPUT", "read; write", "rw"),
            ("Classifier", "the arguments; others take their place", "read; write", "rw"),
            ("Shaper", "RATE", "read", "r"),
        ] {
            let class = artery_elements::CLASSES.find_class(class).unwrap();
            assert!(text(class).contains(&format!("  config ({access})\n      {doc}\n")));
            assert!(markdown(class).contains(&format!("| `config` | {access} | {doc} |\n")));
            let config = json!({ "name": "config", "flags": flags, "doc": doc });
            assert!(json(class)["handlers"].as_array().unwrap().contains(&config));
        }
        let counter = artery_elements::CLASSES.find_class("Counter").unwrap();
        assert!(!text(counter).contains("config (") && !markdown(counter).contains("`config`"));
    }

    #[test]
    fn paragraphs_are_broken_and_lists_and_code_are_not() {
        let long = "word ".repeat(30);
        let text = wrapped(&format!("{long}\n\n- item\n\n```\n{long}\n```"), "  ");
        assert!(text.lines().take(2).all(|line| line.len() <= WIDTH && line.starts_with("  word")), "{text}");
        assert!(text.contains("\n\n  - item\n\n  ```\n") && text.contains(long.trim_end()), "{text}");
    }
}
