//! `set` lines. Some are never echoed, as in pfctl.
use super::quote_if_needed;
use crate::options::{Optimization, SetOption, Syncookies};

/// The line of an option, without its end; None for those that are not echoed.
pub fn option(option: &SetOption) -> Option<String> {
    let said = match option {
        SetOption::Skip(interfaces) if interfaces.is_empty() => "skip on none".to_string(),
        SetOption::Skip(interfaces) => {
            let names: String =
                interfaces.iter().map(|name| format!(" {}", quote_if_needed(&name.0))).collect();
            format!("skip on {{{names} }}")
        }
        SetOption::Timeout(timeout, seconds) => format!("timeout {} {seconds}", timeout.name()),
        SetOption::Limit(limit, n) => format!("limit {} {n}", limit.name()),
        SetOption::StatePolicy(is_bound) => {
            format!("state-policy {}", if *is_bound { "if-bound" } else { "floating" })
        }
        SetOption::BlockPolicy(is_return) => {
            format!("block-policy {}", if *is_return { "return" } else { "drop" })
        }
        SetOption::Optimization(optimization) => format!("optimization {}", optimization_name(*optimization)),
        SetOption::LogInterface(None) => "loginterface none".into(),
        SetOption::LogInterface(Some(name)) => {
            // `all` is a reserved word, but here it is a name.
            let name = if name.0 == "all" { name.0.clone() } else { quote_if_needed(&name.0) };
            format!("loginterface {name}")
        }
        SetOption::Reassemble(is_on, takes_df) => {
            let (on, df) = (if *is_on { "yes" } else { "no" }, if *takes_df { "no-df" } else { "" });
            format!("reassemble {on} {df}")
        }
        SetOption::HostId(id) => format!("hostid 0x{id:08x}"),
        SetOption::Debug(level) => format!("debug {level}"),
        SetOption::Fingerprints(file) => format!("fingerprints \"{file}\""),
        SetOption::Syncookies(Syncookies::Never) => "syncookies never".into(),
        SetOption::Syncookies(Syncookies::Always) => "syncookies always".into(),
        SetOption::Syncookies(Syncookies::Adaptive(start, end)) => {
            format!("syncookies adaptive (start {start}%, end {end}%)")
        }
        SetOption::StateDefaults(_) | SetOption::RulesetOptimization(_) => return None,
    };
    Some(format!("set {said}"))
}

fn optimization_name(optimization: Optimization) -> &'static str {
    match optimization {
        Optimization::Normal => "normal",
        Optimization::HighLatency => "high-latency",
        Optimization::Aggressive => "aggressive",
        Optimization::Conservative => "conservative",
    }
}
