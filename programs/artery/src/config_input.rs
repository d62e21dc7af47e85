//! Where the text of a configuration comes from: a file, standard input or the command line.
use artery_device::{files, system_message};
use std::io::{ErrorKind, stdin};
use std::path::PathBuf;

/// Where a configuration comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ConfigInput {
    Stdin,
    File(PathBuf),
    Text(String),
}

impl ConfigInput {
    /// A file named on the command line.
    pub(crate) fn from_word(word: &str) -> ConfigInput {
        if word == "-" { ConfigInput::Stdin } else { ConfigInput::File(word.into()) }
    }

    /// The name that messages use.
    pub(crate) fn name(&self) -> String {
        match self {
            ConfigInput::Stdin => "<stdin>".to_string(),
            ConfigInput::File(path) => path.display().to_string(),
            ConfigInput::Text(_) => "config".to_string(),
        }
    }

    /// The text of the configuration. It needs to be UTF-8 only outside comments. The error is the system's,
    /// or says why the bytes are not a configuration.
    pub(crate) fn read(&self) -> Result<String, String> {
        self.bytes().map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
    }

    /// The same of a text that is to be written again, and so must not lose anything.
    pub(crate) fn read_exactly(&self) -> Result<String, String> {
        let wrong =
            |at: usize| format!("{}: byte {at} is not UTF-8, so that it can't be laid out", self.name());
        String::from_utf8(self.bytes()?).map_err(|error| wrong(error.utf8_error().valid_up_to()))
    }

    fn bytes(&self) -> Result<Vec<u8>, String> {
        let result = match self {
            ConfigInput::Text(text) => return Ok(text.clone().into_bytes()),
            ConfigInput::Stdin => files::read_whole(stdin().lock()),
            ConfigInput::File(path) => files::read(path),
        };
        let why = match result {
            Ok(bytes) => match not_text(&bytes) {
                None => return Ok(bytes),
                Some(why) => why,
            },
            Err(error) if error.kind() == ErrorKind::FileTooLarge => {
                "this is longer than any configuration".to_string()
            }
            Err(error) => system_message(&error),
        };
        Err(format!("{}: {why}", self.name()))
    }
}

/// Why these bytes are not a configuration, where that is seen at once.
fn not_text(bytes: &[u8]) -> Option<String> {
    if bytes.starts_with(&[0x1f, 0x8b]) {
        return Some("this is compressed; a configuration is text".to_string());
    }
    let zero = bytes.iter().position(|byte| *byte == 0)?;
    Some(format!("byte {zero} is zero; a configuration is text"))
}
