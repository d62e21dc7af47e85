//! `artery fmt`: configuration files in the standard layout.
use crate::config_input::ConfigInput;
use crate::output::{Output, print_stderr, print_stdout};
use anyhow::Context as _;
use artery_lang::{Diagnostic, Dialect, Sources, parse};
use clap::Args;

#[derive(Args)]
pub(crate) struct FmtOptions {
    /// Files to lay out; `-` for standard input
    #[arg(required = true)]
    pub(crate) files: Vec<String>,
    /// Change nothing; name the files that would change
    #[arg(long, conflicts_with = "in_place")]
    pub(crate) check: bool,
    /// Rewrite the files in place
    #[arg(short = 'i', long)]
    pub(crate) in_place: bool,
}

/// Lays out files; the status is 1 if one can't be, or with `--check` if one would change.
pub(crate) fn format(options: &FmtOptions) -> anyhow::Result<u8> {
    let mut status = 0;
    for file in &options.files {
        if !format_one(options, &ConfigInput::from_word(file))? {
            status = 1;
        }
    }
    Ok(status)
}

/// Whether all is well with this file.
fn format_one(options: &FmtOptions, input: &ConfigInput) -> anyhow::Result<bool> {
    let voice = Output::for_terminal();
    let text = match input.read_exactly() {
        Ok(text) => text,
        Err(error) => {
            voice.print_error(&error);
            return Ok(false);
        }
    };
    let Ok(formatted) = artery_lang::format(&text) else {
        print_stderr(&syntax_errors(&input.name(), &text, voice));
        return Ok(false);
    };
    match input {
        _ if options.check => {
            if formatted != text {
                print_stdout(&format!("{}\n", input.name()))?;
            }
            return Ok(formatted == text);
        }
        ConfigInput::File(path) if options.in_place => {
            if formatted != text {
                std::fs::write(path, formatted).with_context(|| format!("can't write {}", path.display()))?;
            }
        }
        _ => print_stdout(&formatted)?,
    }
    Ok(true)
}

/// What keeps a text from being laid out.
fn syntax_errors(name: &str, text: &str, voice: Output) -> String {
    let mut sources = Sources::default();
    let file = sources.add_file(name, text);
    let (_, diagnostics) = parse(&mut sources, file, Dialect::Artery);
    let colour = matches!(voice, Output::Artery { colour: true });
    let errors = diagnostics.iter().filter(|diagnostic: &&Diagnostic| diagnostic.is_error());
    errors.map(|error| error.render_on(&sources, colour) + "\n\n").collect()
}
