//! What SIGHUP does to a running router: log files are opened again, what its configuration was made of is
//! read again, and what came of that replaces the running configuration. With mistakes the running one stays.
use crate::config_input::ConfigInput;
use crate::control_socket::OwnHandlers;
use crate::notify::Notifier;
use crate::output::Output;
use crate::replace::Replacer;
use artery_engine::Handle;
use artery_firewall::LogFiles;
use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

/// What a configuration is made of, which can be read again.
pub(crate) trait ConfigurationSource: Send + Sync {
    /// Reads it again. The errors are all mistakes that were found, a sentence each.
    fn reread(&self) -> Result<Reread, Vec<String>>;

    /// Handlers that read and change the source while the router runs, if there are any.
    fn handlers(&self, _: &Replacer) -> Option<Arc<dyn OwnHandlers>> {
        None
    }
}

/// A configuration that was read again.
pub(crate) struct Reread {
    /// Where the text is from, for messages.
    pub(crate) name: String,
    pub(crate) text: String,
    /// What users should know of it, such as what stays as it was although files say
    /// otherwise: a sentence each.
    pub(crate) warnings: Vec<String>,
    /// Called once the text has replaced the running configuration; dropped if it has not.
    pub(crate) accepted: Box<dyn FnOnce() + Send>,
}

impl Reread {
    pub(crate) fn new(name: String, text: String) -> Reread {
        Reread { name, text, warnings: Vec::new(), accepted: Box::new(|| ()) }
    }
}

impl ConfigurationSource for ConfigInput {
    /// A text of the command line is the same again, but files that it names may say something else.
    fn reread(&self) -> Result<Reread, Vec<String>> {
        match self {
            ConfigInput::Stdin => {
                let why = "the configuration came from standard input, which can't be read again";
                Err(vec![format!("{why}; start with the name of a file")])
            }
            input => Ok(Reread::new(input.name(), input.read().map_err(|error| vec![error])?)),
        }
    }
}

/// Reloads a router on a thread of its own: other signals are not delayed by it.
pub(crate) struct Reloader {
    pub(crate) handle: Handle,
    pub(crate) replacer: Replacer,
    pub(crate) source: Arc<dyn ConfigurationSource>,
    pub(crate) manager: Arc<Notifier>,
    pub(crate) voice: Output,
}

/// Requests reloads of a [`Reloader`].
pub(crate) struct ReloadRequests(SyncSender<()>);

impl ReloadRequests {
    /// Requests one. One that was requested and has not begun does for both.
    pub(crate) fn request(&self) {
        let _ = self.0.try_send(());
    }
}

impl Reloader {
    /// Serves requests for as long as there can be some.
    pub(crate) fn start(self) -> io::Result<ReloadRequests> {
        let (requests, requested): (_, Receiver<()>) = sync_channel(1);
        let body = move || requested.iter().for_each(|()| self.reload());
        std::thread::Builder::new().name("reload".to_string()).spawn(body)?;
        Ok(ReloadRequests(requests))
    }

    fn reload(&self) {
        self.manager.reloading();
        self.reopen_logs();
        let outcome = self.source.reread().map_err(|mistakes| self.voice.format_mistakes(&mistakes));
        let outcome = outcome.and_then(|reread| self.replace(reread));
        // A replacement that fails because the router ends is not the configuration's mistake.
        if self.handle.has_ended() {
            return;
        }
        match outcome {
            Ok(()) => {
                self.voice.log_event("reloaded", "the configuration was replaced", &[]);
                self.manager.ready("forwarding");
            }
            Err(faults) => {
                self.voice.complain_of(&faults);
                self.voice.print_error("the configuration was not replaced; the running one stays");
                self.manager
                    .ready("forwarding by the configuration before: the one that was read again is refused");
            }
        }
    }

    /// Replaces the running configuration by a text; the error has its mistakes.
    fn replace(&self, reread: Reread) -> Result<(), String> {
        let warnings = self.replacer.replace(&reread.name, &reread.text)?;
        self.voice.complain_of(&warnings);
        reread.warnings.iter().for_each(|what| self.voice.print_warning(what));
        (reread.accepted)();
        Ok(())
    }

    /// Log files may have been renamed. That is done before anything can be refused.
    fn reopen_logs(&self) {
        let failures = self.handle.resources().get::<LogFiles>().reopen_all();
        failures.iter().for_each(|why| self.voice.print_warning(why));
    }
}
