//! `artery fmt`: configuration files in the standard layout.
use crate::cli::FmtOptions;
use crate::job::Input;
use crate::voice::{Voice, complain, print};
use anyhow::Context as _;
use artery_lang::{Diagnostic, Dialect, Sources, parse};

/// Lays out files; the status is 1 if one can't be, or with `--check` if one would change.
pub(crate) fn format(options: &FmtOptions) -> anyhow::Result<u8> {
    let mut status = 0;
    for file in &options.files {
        if !format_one(options, &Input::from_word(file))? {
            status = 1;
        }
    }
    Ok(status)
}

/// Whether all is well with this file.
fn format_one(options: &FmtOptions, input: &Input) -> anyhow::Result<bool> {
    let voice = Voice::artery();
    let text = match input.read_exactly() {
        Ok(text) => text,
        Err(error) => {
            voice.error(&error);
            return Ok(false);
        }
    };
    let Ok(formatted) = artery_lang::format(&text) else {
        complain(&syntax_errors(&input.name(), &text, voice));
        return Ok(false);
    };
    match input {
        _ if options.check => {
            if formatted != text {
                print(&format!("{}\n", input.name()))?;
            }
            return Ok(formatted == text);
        }
        Input::File(path) if options.in_place => {
            if formatted != text {
                std::fs::write(path, formatted).with_context(|| format!("can't write {}", path.display()))?;
            }
        }
        _ => print(&formatted)?,
    }
    Ok(true)
}

/// What keeps a text from being laid out.
fn syntax_errors(name: &str, text: &str, voice: Voice) -> String {
    let mut sources = Sources::default();
    let file = sources.add(name, text);
    let (_, diagnostics) = parse(&mut sources, file, Dialect::Artery);
    let colour = matches!(voice, Voice::Artery { colour: true });
    let errors = diagnostics.iter().filter(|diagnostic: &&Diagnostic| diagnostic.is_error());
    errors.map(|error| error.render_on(&sources, colour) + "\n\n").collect()
}
