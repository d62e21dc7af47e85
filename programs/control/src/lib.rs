//! The client's side of ControlSocket 1.3: handlers of a running router are read and written over a stream.
//! The caller chooses the stream, and reports errors to people.
#![forbid(unsafe_code)]

use std::io::{self, BufRead, BufReader, Read, Write};

/// What a control socket says first, up to the part of its version that may differ.
const GREETING: &str = "Click::ControlSocket/1";
/// Most bytes of a value.
const MAX_VALUE: usize = 1 << 30;
/// Most bytes of a line.
const MAX_LINE: u64 = 1 << 20;
/// Bytes after which no further line of a reply is read, and most lines of it.
const MAX_REPLY: usize = 16 << 20;
const MAX_LINES: usize = 1 << 16;

/// Why a conversation can't go on.
#[derive(Debug, thiserror::Error)]
pub enum ControlError {
    /// What answers is something else.
    #[error("this is not a control socket: it says {0:?}")]
    Greeting(String),
    /// The router has ended, or closed the connection.
    #[error("the router is gone: it has ended, or closed the connection")]
    Gone,
    /// A reply is not one of this protocol.
    #[error("the router's reply is not of ControlSocket 1: {0:?}")]
    Reply(String),
    /// A value was promised, and none came.
    #[error("the router's reply has no data")]
    NoData,
    /// The stream failed in another way.
    #[error(transparent)]
    Stream(io::Error),
}

impl From<io::Error> for ControlError {
    fn from(error: io::Error) -> ControlError {
        match error.kind() {
            io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset => ControlError::Gone,
            _ => ControlError::Stream(error),
        }
    }
}

/// The router's reply to a request that it refused; the connection can be used further.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// What is wrong, as ControlSocket numbers it.
    pub code: u16,
    /// The lines of the reply.
    pub text: String,
}

/// A reply: what was asked for, or the refusal.
pub type Answered<T> = Result<Result<T, Refusal>, ControlError>;

/// A connection to a control socket.
pub struct ControlClient<S> {
    stream: BufReader<S>,
}

impl<S: Read + Write> ControlClient<S> {
    /// Begins a conversation over a stream that was just connected.
    pub fn new(stream: S) -> Result<ControlClient<S>, ControlError> {
        let mut client = ControlClient { stream: BufReader::new(stream) };
        let greeting = client.read_line()?;
        if greeting.starts_with(GREETING) { Ok(client) } else { Err(ControlError::Greeting(greeting)) }
    }

    /// The value of a handler; parameters follow its name.
    pub fn read(&mut self, handler: &str) -> Answered<Vec<u8>> {
        self.begin_read(handler)?;
        self.finish_read()
    }

    /// Sends a read request; [`finish_read`](Self::finish_read) reads the reply. Meanwhile the caller can
    /// wait for it on the stream.
    pub fn begin_read(&mut self, handler: &str) -> Result<(), ControlError> {
        self.send(format!("READ {handler}\r\n").as_bytes())
    }

    /// Reads the value that the first read request without a reply asked for.
    pub fn finish_read(&mut self) -> Answered<Vec<u8>> {
        let (code, lines) = self.read_reply()?;
        if code != 200 {
            return Ok(Err(Refusal { code, text: lines.join("\n") }));
        }
        let line = self.read_line()?;
        let length = line.strip_prefix("DATA ").and_then(|length| length.parse::<usize>().ok());
        let length = length.filter(|length| *length <= MAX_VALUE).ok_or(ControlError::NoData)?;
        let mut value = Vec::new();
        (&mut self.stream).take(length as u64).read_to_end(&mut value)?;
        if value.len() < length {
            return Err(ControlError::Gone);
        }
        Ok(Ok(value))
    }

    /// Writes a handler; the reply's lines are its warnings, under a heading.
    pub fn write(&mut self, handler: &str, value: &str) -> Answered<String> {
        self.begin_write(handler, value)?;
        self.finish_write()
    }

    /// Sends a write request; [`finish_write`](Self::finish_write) reads the reply. A few replies can be
    /// pending, no more than fit in a socket's buffer.
    pub fn begin_write(&mut self, handler: &str, value: &str) -> Result<(), ControlError> {
        self.send(format!("WRITEDATA {handler} {}\r\n{value}", value.len()).as_bytes())
    }

    /// Reads the reply to the first write request that has none yet.
    pub fn finish_write(&mut self) -> Answered<String> {
        let (code, lines) = self.read_reply()?;
        Ok(match code {
            200 => Ok(String::new()),
            220 => Ok(lines.join("\n") + "\n"),
            _ => Err(Refusal { code, text: lines.join("\n") }),
        })
    }

    /// Proves the right to write by a token.
    pub fn authenticate(&mut self, token: &str) -> Answered<()> {
        self.send(format!("AUTH {token}\r\n").as_bytes())?;
        self.finish_write().map(|reply| reply.map(drop))
    }

    fn send(&mut self, request: &[u8]) -> Result<(), ControlError> {
        Ok(self.stream.get_mut().write_all(request)?)
    }

    fn read_line(&mut self) -> Result<String, ControlError> {
        let mut line = Vec::new();
        (&mut self.stream).take(MAX_LINE).read_until(b'\n', &mut line)?;
        if !line.ends_with(b"\n") {
            // A part of a line is not a reply.
            let is_long = line.len() as u64 == MAX_LINE;
            line.truncate(100);
            let begin = String::from_utf8_lossy(&line).into_owned();
            return Err(if is_long { ControlError::Reply(begin) } else { ControlError::Gone });
        }
        Ok(String::from_utf8_lossy(&line).trim_end().to_string())
    }

    /// The code and the lines of a reply, which goes on while its code is followed by a hyphen.
    fn read_reply(&mut self) -> Result<(u16, Vec<String>), ControlError> {
        let (mut lines, mut bytes) = (Vec::new(), 0);
        while lines.len() < MAX_LINES && bytes <= MAX_REPLY {
            let line = self.read_line()?;
            bytes += line.len();
            let code = line.get(..3).and_then(|code| code.parse().ok());
            let (Some(code), Some(separator)) = (code, line.as_bytes().get(3)) else {
                return Err(ControlError::Reply(line));
            };
            lines.push(line.get(4..).unwrap_or_default().to_string());
            if *separator != b'-' {
                return Ok((code, lines));
            }
        }
        Err(ControlError::Reply("a reply without end".to_string()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the router says, and what it was asked.
    struct Script(io::Cursor<Vec<u8>>, Vec<u8>);

    impl Read for Script {
        fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
            self.0.read(into)
        }
    }

    impl Write for Script {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.1.write(bytes)
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn client(says: &[u8]) -> ControlClient<Script> {
        let says = [b"Click::ControlSocket/1.3\r\n", says].concat();
        ControlClient::new(Script(io::Cursor::new(says), Vec::new())).unwrap()
    }

    #[test]
    fn a_value_is_read_and_a_refusal_leaves_the_connection_usable() {
        let mut client = client(b"511 No handler\r\n200 ok\r\nDATA 3\r\na\nb200 ok\r\n");
        let refusal = Refusal { code: 511, text: "No handler".to_string() };
        assert_eq!(client.read("b.x").unwrap(), Err(refusal));
        assert_eq!(client.read("b.y 1").unwrap(), Ok(b"a\nb".to_vec()));
        assert_eq!(client.write("b.z", "v").unwrap(), Ok(String::new()));
        assert_eq!(client.stream.get_ref().1, b"READ b.x\r\nREAD b.y 1\r\nWRITEDATA b.z 1\r\nv");
    }

    #[test]
    fn a_reply_goes_on_while_its_code_is_followed_by_a_hyphen() {
        let mut client = client("520-a:\r\n520 b\r\n220-w\r\n220 x\r\né\r\n".as_bytes());
        let refusal = Refusal { code: 520, text: "a:\nb".to_string() };
        assert_eq!(client.finish_write().unwrap(), Err(refusal));
        assert_eq!(client.finish_write().unwrap(), Ok("w\nx\n".to_string()));
        assert!(matches!(client.finish_write(), Err(ControlError::Reply(_))));
    }

    #[test]
    fn a_part_of_a_line_and_a_line_without_end_are_no_replies() {
        for length in 1.."200 ok\r\n".len() {
            let answer = client(&b"200 ok\r\n"[..length]).write("b.z", "v");
            assert!(matches!(answer, Err(ControlError::Gone)), "{length}");
        }
        let long = [&b"200 "[..], &vec![b'x'; MAX_LINE as usize]].concat();
        assert!(matches!(client(&long).write("b.z", "v"), Err(ControlError::Reply(_))));
    }

    #[test]
    fn a_conversation_that_is_cut_anywhere_is_an_error() {
        let whole = b"200-a\r\n200 ok\r\nDATA 3\r\nabc";
        assert!(client(whole).read("b.y").is_ok());
        for length in 0..whole.len() {
            assert!(client(&whole[..length]).read("b.y").is_err(), "{length}");
        }
        let other = Script(io::Cursor::new(b"SSH-2.0\r\n".to_vec()), Vec::new());
        assert!(matches!(ControlClient::new(other), Err(ControlError::Greeting(_))));
    }
}
