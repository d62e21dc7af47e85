//! Which configuration a command reads, and which devices of the machine it means.
use super::usage_error;
use crate::config_input::ConfigInput;
use crate::load::Reading;
use artery_engine::RouterSettings;
use artery_lang::Dialect;
use clap::Args;

/// Which configuration is meant.
#[derive(Args, Clone)]
pub(crate) struct ReadingOptions {
    /// The configuration (`-` for standard input), and values for its variables
    #[arg(value_name = "FILE|VAR=VALUE")]
    words: Vec<String>,
    /// Take the configuration from this text
    #[arg(short = 'e', long, value_name = "TEXT", allow_hyphen_values = true)]
    expression: Option<String>,
    /// Where libraries are looked for, besides the configuration's folder; otherwise $CLICKPATH
    #[arg(short = 'C', long, value_name = "PATH")]
    clickpath: Option<String>,
}

impl ReadingOptions {
    /// The configuration and the values for its variables, as they were written.
    pub(crate) fn words(&self) -> &[String] {
        &self.words
    }

    /// What to read, and how.
    pub(crate) fn reading(&self) -> anyhow::Result<(ConfigInput, Reading)> {
        let mut variables: Vec<(String, String)> = Vec::new();
        let mut input = self.expression.clone().map(ConfigInput::Text);
        for word in &self.words {
            if let Some((name, value)) = variable(word) {
                if variables.iter().any(|(known, _)| known == name) {
                    usage_error(&format!("parameter '{name}' multiply defined"));
                }
                variables.push((name.to_string(), value.to_string()));
            } else if let Some(other) = input.replace(ConfigInput::from_word(word)) {
                let other = if let ConfigInput::Text(_) = other { "-e".to_string() } else { other.name() };
                usage_error(&format!(
                    "router configuration specified twice: {other} and {word}; a variable is written \
                     VAR=VALUE"
                ));
            }
        }
        let input = input
            .unwrap_or_else(|| usage_error("name a configuration: FILE, '-' for standard input, or -e TEXT"));
        Ok((
            input,
            Reading {
                dialect: Dialect::Artery,
                variables,
                clickpath: self.clickpath.clone().or_else(|| std::env::var("CLICKPATH").ok()),
            },
        ))
    }
}

/// `VAR=value` as its parts.
pub(crate) fn variable(word: &str) -> Option<(&str, &str)> {
    let (name, value) = word.split_once('=')?;
    let is_name = !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    is_name.then_some((name, value))
}

/// Sets which devices of this machine the configuration's names mean.
pub(crate) fn map_devices(devices: &[(String, String)], settings: &mut RouterSettings) {
    for (n, (config, machine)) in devices.iter().enumerate() {
        if let Some((_, other)) =
            devices[..n].iter().find(|(known, other)| known == config && other != machine)
        {
            usage_error(&format!("device '{config}' is given two names: {other} and {machine}"));
        }
        settings.names.map_device(config, machine);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_have_names_and_files_with_equals_signs_are_files() {
        assert_eq!(variable("A=b=c"), Some(("A", "b=c")));
        assert_eq!(variable("dir/a=b"), None);
        assert_eq!(variable("=b"), None);
    }
}
