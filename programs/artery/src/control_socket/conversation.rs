//! The protocol of a control connection: requests are parsed from what was read, and answered in order.
use super::access::{Access, IDLE, Token};
use super::codec::{self, GREETING, Limits, Parsed, Request, Scanned, parse};
use super::connections::Connection;
use super::server::Talker;
use super::service::{Answer, Handlers, answer};
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long a client may take to send a request that it has begun.
const REQUEST: Duration = Duration::from_secs(30);
/// How long it may take to take in a reply.
const REPLY: Duration = Duration::from_secs(60);
/// Most requests in a row that no command is in.
const MOST_WRONG: usize = 100;

/// The control socket's protocol.
#[derive(Clone)]
pub(crate) struct Control<H> {
    handlers: H,
    token: Option<Arc<Token>>,
    idle: Duration,
}

impl<H> Control<H> {
    /// Answers with `handlers`. TCP connections can write once they gave the token, if there is one; a
    /// connection that is idle for `idle` ends.
    pub(crate) fn new(handlers: H, token: Option<Arc<Token>>, idle: Duration) -> Control<H> {
        Control { handlers, token, idle }
    }
}

impl<H: Handlers> Talker for Control<H> {
    fn too_many(&self) -> Vec<u8> {
        [GREETING.as_bytes(), &codec::reply(590, &["Too many connections"])].concat()
    }

    fn talk(&self, connection: &mut Connection) -> io::Result<()> {
        connection.write(GREETING.as_bytes(), Instant::now() + REPLY)?;
        let mut access = Access::new(connection.peer(), self.token.clone());
        let mut is_trusted = access.may_write();
        let (mut input, mut closed, mut wrong) = (Input::default(), false, 0);
        loop {
            while let Some(request) = input.next(closed, Limits::of(access.may_write())) {
                match request {
                    Request::Nothing => {}
                    Request::Wrong(501, _) => wrong += 1,
                    _ => wrong = 0,
                }
                let (mut bytes, mut goes_on) = match request {
                    Request::Nothing => continue,
                    request => match connection.answer(|| answer(&self.handlers, request, &mut access))? {
                        Answer::Reply(bytes) => (bytes, true),
                        Answer::Last(bytes) => (bytes, false),
                    },
                };
                if goes_on && wrong >= MOST_WRONG {
                    bytes.extend(codec::reply(590, &["Too many lines without a command"]));
                    goes_on = false;
                }
                if access.may_write() && !is_trusted {
                    is_trusted = connection.trust();
                }
                connection.write(&bytes, Instant::now() + REPLY)?;
                input.answered = Instant::now();
                if !goes_on {
                    return Ok(());
                }
            }
            if closed {
                return Ok(());
            }
            match input.fill(connection, self.idle)? {
                Filled::Some => {}
                Filled::Closed => closed = true,
                Filled::TooLate => return Ok(()),
            }
        }
    }
}

/// Bytes that were read and not answered yet.
struct Input {
    bytes: Vec<u8>,
    /// Where the next request begins.
    at: usize,
    /// The scan of a request that is not complete.
    scanned: Scanned,
    /// When the first bytes of it came.
    begun: Option<Instant>,
    /// When the last request was answered.
    answered: Instant,
    chunk: Vec<u8>,
}

enum Filled {
    Some,
    Closed,
    TooLate,
}

impl Default for Input {
    fn default() -> Input {
        Input {
            bytes: Vec::new(),
            at: 0,
            scanned: Scanned::default(),
            begun: None,
            answered: Instant::now(),
            chunk: vec![0; 65536],
        }
    }
}

impl Input {
    fn next(&mut self, closed: bool, limits: Limits) -> Option<Request> {
        // Empty lines have no reply.
        let is_end = |byte: &&u8| matches!(byte, b'\r' | b'\n');
        if self.scanned == Scanned::default() {
            self.at += self.bytes[self.at..].iter().take_while(is_end).count();
        }
        match parse(&self.bytes[self.at..], closed, limits, self.scanned) {
            Parsed::Request(request, used) => {
                self.at += used;
                (self.scanned, self.begun) = (Scanned::default(), None);
                Some(request)
            }
            Parsed::Incomplete(scanned) => {
                self.scanned = scanned;
                None
            }
        }
    }

    /// Reads what the client sends next.
    fn fill(&mut self, connection: &mut Connection, idle: Duration) -> io::Result<Filled> {
        self.bytes.drain(..std::mem::take(&mut self.at));
        if self.bytes.is_empty() {
            // What a long request took is given back.
            self.bytes = Vec::new();
        }
        let deadline = match self.bytes.is_empty() {
            true => self.answered.checked_add(idle).unwrap_or_else(|| Instant::now() + IDLE),
            false => *self.begun.get_or_insert_with(Instant::now) + REQUEST,
        };
        Ok(match connection.read(&mut self.chunk, deadline)? {
            None => Filled::TooLate,
            Some(0) => Filled::Closed,
            Some(count) => {
                self.bytes.extend_from_slice(&self.chunk[..count]);
                Filled::Some
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::access::Peer;
    use super::super::connections::{MAX_CONNECTIONS, Pool};
    use super::*;
    use std::io::{BufRead as _, BufReader, Write as _};
    use std::os::unix::net::UnixStream;

    #[derive(Clone)]
    struct NoHandlers;

    impl Handlers for NoHandlers {
        fn read(&self, _: &str, _: &str) -> Vec<u8> {
            codec::reply(511, &["No handler"])
        }
        fn write(&self, _: &str, _: &str) -> Vec<u8> {
            codec::reply(511, &["No handler"])
        }
        fn check(&self, _: &str, _: bool) -> Vec<u8> {
            codec::reply(511, &["No handler"])
        }
        fn llrpc(&self, _: &str) -> Vec<u8> {
            codec::reply(511, &["No handler"])
        }
    }

    #[test]
    fn a_client_that_gave_the_token_has_its_place_as_soon_as_there_is_one() {
        let folder = tempfile::tempdir().unwrap();
        let token = Arc::new(Token::named(&folder.path().join("token")).unwrap());
        let text = std::fs::read_to_string(token.file()).unwrap();
        let pool = Arc::<Pool>::default();
        let enter = || {
            let (theirs, ours) = UnixStream::pair().unwrap();
            theirs.set_read_timeout(Some(REQUEST)).unwrap();
            (theirs, pool.enter(Box::new(ours), Peer::Tcp).ok().expect("it is admitted"))
        };
        let mut others: Vec<_> = (0..MAX_CONNECTIONS).map(|_| enter()).collect();
        assert!(others.iter().all(|(_, connection)| connection.trust()));
        let (theirs, mut connection) = enter();
        let control = Control::new(NoHandlers, Some(token), IDLE);
        let conversation = std::thread::spawn(move || control.talk(&mut connection).is_ok());
        let mut lines = BufReader::new(theirs.try_clone().unwrap()).lines();
        let mut line = || lines.next().expect("its connection goes on").unwrap();
        assert_eq!(line(), GREETING.trim_end());
        let mut ask = |request: &str| {
            (&theirs).write_all(format!("{request}\n").as_bytes()).unwrap();
            line()
        };
        assert_eq!(ask(&format!("AUTH {}", text.trim_end())), "200 Authenticated");
        drop(others.pop());
        assert_eq!(ask("CHECKREAD x"), "511 No handler");
        let _untrusted: Vec<_> = (0..=MAX_CONNECTIONS).map(|_| enter()).collect();
        assert_eq!(ask("CHECKREAD x"), "511 No handler");
        assert_eq!(ask("QUIT"), "200 Goodbye!");
        assert!(conversation.join().unwrap());
    }
}
