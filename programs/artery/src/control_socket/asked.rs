//! Handlers of a program whose one thread does everything: questions are handed to it, and it is woken.
use super::codec::{data_reply, reply};
use super::service::{Handlers, canonical, read_refusal, write_ok, write_refusal};
use artery_engine::HandlerError;
use std::io::{self, Read as _, Write as _};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};

/// Handlers by name, each with whether it is read, written, or both: `r`, `w` or `rw`; `r+` if it is read
/// with parameters.
pub(crate) type Names = &'static [(&'static str, &'static str)];

/// A client's request to the thread.
pub(crate) struct Question {
    /// Name of the program's own handler.
    pub(crate) handler: String,
    /// The value of a write, or the parameters of a read.
    pub(crate) value: Option<String>,
    reply: Sender<Result<String, String>>,
}

impl Question {
    /// Sends the answer; the client may be gone.
    pub(crate) fn answer(self, answer: Result<String, String>) {
        let _ = self.reply.send(answer);
    }
}

/// The sending side of requests.
#[derive(Clone)]
pub(crate) struct Asked {
    names: Names,
    questions: Sender<Question>,
    bell: Arc<UnixStream>,
}

/// The side of the thread.
pub(crate) struct Questions {
    questions: Receiver<Question>,
    bell: UnixStream,
    ringer: Arc<UnixStream>,
}

impl Questions {
    /// Questions for handlers of these names.
    pub(crate) fn new(names: Names) -> io::Result<(Asked, Questions)> {
        let (bell, ringer) = UnixStream::pair()?;
        bell.set_nonblocking(true)?;
        // A full socket wakes the thread already, so the writer need not wait.
        ringer.set_nonblocking(true)?;
        let ringer = Arc::new(ringer);
        let (sender, questions) = channel();
        let asked = Asked { names, questions: sender, bell: ringer.clone() };
        Ok((asked, Questions { questions, bell, ringer }))
    }

    /// The end on which a byte wakes the thread, for signals.
    pub(crate) fn ringer(&self) -> io::Result<UnixStream> {
        self.ringer.try_clone()
    }

    /// All requests since the last call; clears the wakeup.
    pub(crate) fn drain(&mut self) -> Vec<Question> {
        let mut rung = [0; 64];
        while self.bell.read(&mut rung).is_ok_and(|count| count > 0) {}
        self.questions.try_iter().collect()
    }
}

/// Readable when there are requests.
impl AsFd for Questions {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.bell.as_fd()
    }
}

impl Asked {
    /// What the thread answers.
    pub(crate) fn send_request(&self, handler: &str, value: Option<&str>) -> Result<String, HandlerError> {
        let failed = |text: String| HandlerError::Refused(text);
        let (reply, answer) = channel();
        let question = Question { handler: handler.to_string(), value: value.map(str::to_string), reply };
        let gone = |_| failed("the program is about to end".to_string());
        self.questions.send(question).map_err(|_| failed("the program is about to end".to_string()))?;
        // A full socket wakes the thread already.
        let _ = (&*self.bell).write(&[1]);
        answer.recv().map_err(gone)?.map_err(failed)
    }

    /// Whether a handler can be read, or written.
    fn flags(&self, handler: &str) -> Result<&'static str, HandlerError> {
        let found = self.names.iter().find(|(name, _)| *name == canonical(handler));
        found.map(|(_, flags)| *flags).ok_or_else(|| match handler.rsplit_once('.') {
            Some((element, _)) if !element.is_empty() && element != "0" => {
                HandlerError::NoElement(element.to_string())
            }
            _ => HandlerError::NoHandler(handler.to_string()),
        })
    }

    fn call_read(&self, handler: &str, parameters: &str) -> Result<String, HandlerError> {
        match self.flags(handler)? {
            flags if flags.contains('+') => self.send_request(canonical(handler), Some(parameters)),
            flags if flags.contains('r') => self.send_request(canonical(handler), None),
            _ => Err(HandlerError::NotReadable(handler.to_string())),
        }
    }

    fn call_write(&self, handler: &str, value: &str) -> Result<String, HandlerError> {
        match self.flags(handler)?.contains('w') {
            true => self.send_request(canonical(handler), Some(value)),
            false => Err(HandlerError::NotWritable(handler.to_string())),
        }
    }
}

impl Handlers for Asked {
    fn read(&self, handler: &str, parameters: &str) -> Vec<u8> {
        match canonical(handler) {
            "handlers" => {
                let lines = self.names.iter().map(|(name, flags)| format!("{name}\t{flags}\n"));
                return data_reply(handler, &lines.collect::<String>());
            }
            // There are no elements.
            "list" => return data_reply(handler, "0\n"),
            _ => {}
        }
        match self.call_read(handler, parameters) {
            Ok(value) => data_reply(handler, &value),
            Err(error) => read_refusal(handler, error),
        }
    }

    fn write(&self, handler: &str, value: &str) -> Vec<u8> {
        match self.call_write(handler, value) {
            Ok(_) => write_ok(handler),
            Err(error) => write_refusal(handler, error),
        }
    }

    fn check(&self, handler: &str, write: bool) -> Vec<u8> {
        let (verb, able, flag) = if write { ("Write", "writable", 'w') } else { ("Read", "readable", 'r') };
        match self.flags(handler) {
            Ok(flags) if flags.contains(flag) => reply(200, &[format!("{verb} handler '{handler}' OK")]),
            Ok(_) => reply(511, &[format!("Handler '{handler}' not {able}")]),
            Err(error) => read_refusal(handler, error),
        }
    }

    fn llrpc(&self, name: &str) -> Vec<u8> {
        reply(510, &[format!("No element named '{}'", name.split('#').next().unwrap_or(name))])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn questions_reach_the_thread_and_answers_come_back() {
        let (asked, mut questions) =
            Questions::new(&[("state", "r"), ("mode", "w"), ("explain", "r+")]).unwrap();
        let thread = std::thread::spawn(move || {
            let text = |handler: &str| String::from_utf8(asked.read(handler, "x")).unwrap();
            let replies = [text("state"), text("mode"), text("none"), text("a.b"), text("handlers")];
            let _ = text("explain");
            (replies, String::from_utf8(asked.write("mode", "7")).unwrap())
        });
        let mut met = Vec::new();
        while met.len() < 3 {
            for question in questions.drain() {
                met.push((question.handler.clone(), question.value.clone()));
                question.answer(Ok("fine".to_string()));
            }
            std::thread::yield_now();
        }
        let (replies, written) = thread.join().unwrap();
        assert!(replies[0].ends_with("fine"), "{replies:?}");
        assert!(replies[1].starts_with("530") && replies[2].starts_with("511"), "{replies:?}");
        assert!(replies[3].starts_with("510") && replies[4].contains("state\tr"), "{replies:?}");
        assert!(written.starts_with("200"), "{written}");
        assert_eq!(met[0], ("state".into(), None));
        assert_eq!(met[1], ("explain".into(), Some("x".into())));
        assert_eq!(met[2], ("mode".into(), Some("7".into())));
    }

    #[test]
    fn who_asks_a_thread_that_has_ended_is_told() {
        let (asked, questions) = Questions::new(&[("state", "r")]).unwrap();
        drop(questions);
        let reply = String::from_utf8(asked.read("state", "")).unwrap();
        assert!(reply.contains("about to end"), "{reply}");
    }
}
