//! Says what has changed since the last turn.
use super::{Path as Wanted, refusal};
use crate::output::Output;
use artery_adopt::{DeadPath, SessionNews, Shortage};

/// Says which ports have come back, and that all have left XDP.
pub(super) fn say_path(news: &SessionNews, verbose: bool, voice: Output) {
    for (name, adopted) in &news.returned {
        let said = match adopted {
            Ok(()) => format!("{name}: the interface has come back, and is adopted again"),
            Err(error) => {
                let why = refusal(error, verbose);
                format!("{name}: the interface has come back, and its traffic stays with the kernel: {why}")
            }
        };
        voice.log_event("returned", &said, &[("port", name)]);
    }
    if let Some((why, changed)) = &news.left_xdp {
        let (port, why) = match why {
            DeadPath::TakesNothing(name) => {
                (name.as_str(), format!("{name}: its driver takes no frame that XDP redirects to it"))
            }
            DeadPath::AllKept => ("", "nothing can be forwarded by XDP between these ports".to_owned()),
        };
        let said = match changed {
            Ok(()) => format!("{why}; so all ports go {}", Wanted::Tc.in_words()),
            Err(error) => {
                let refused = refusal(error, verbose);
                format!("{why}, nor can they go {}: {refused}", Wanted::Tc.in_words())
            }
        };
        voice.log_event("path", &said, &[("port", port)]);
    }
}

/// Says why rules keep established connections, too.
pub(super) fn say_unfollowed(why: &str, voice: Output) {
    voice.log_event("unfollowed", &format!("no connections are forwarded past rules: {why}"), &[]);
}

/// Says that changes of the kernel wait for more than a second until they are read, or no longer.
pub(super) fn say_lag(news: &SessionNews, voice: Output) {
    match news.lags {
        Some(true) => voice.log_event(
            "behind",
            "more than a second behind the kernel's changes: routes that are gone are followed until those \
             are read",
            &[],
        ),
        Some(false) => voice.log_event("caught-up", "caught up with the kernel's changes", &[]),
        None => {}
    }
}

/// Says that connections are left to the kernel since their ends are read too late, or no longer.
pub(super) fn say_connection_lag(news: &SessionNews, voice: Output) {
    match news.late_connections {
        Some(true) => voice.log_event(
            "connections-behind",
            "more than a second behind the ends of connections: all connections stay with the kernel until \
             those are read",
            &[],
        ),
        Some(false) => {
            voice.log_event("connections-caught-up", "caught up with the ends of connections", &[])
        }
        None => {}
    }
}

/// Says that memory or descriptors are lacking, or no longer.
pub(super) fn say_shortage(news: &SessionNews, voice: Output) {
    match &news.shortage {
        Some(Shortage::Of(error)) => {
            let then = "this is tried again; the kernel forwards what can't be forwarded past it meanwhile";
            voice.log_event("shortage", &format!("{error}; {then}"), &[]);
        }
        Some(Shortage::Over) => voice.log_event("shortage-over", "memory and descriptors suffice again", &[]),
        None => {}
    }
}
