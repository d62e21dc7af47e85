//! A request of HTTP/1.1 (RFC 9112), and as much of its answer as shows the status.
use super::tcp::{TcpProbe, hang_up};
use super::{NoProbe, ProbeFailure, Progress};
use rustix::event::epoll::EventFlags;
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send};
use std::net::SocketAddr;

/// Bytes of an answer in which the status must be.
const LIMIT: usize = 1024;

/// A request, and what was received of the answer.
#[derive(Debug)]
pub(super) struct HttpProbe {
    tcp: TcpProbe,
    is_connected: bool,
    request: Vec<u8>,
    sent: usize,
    answer: Vec<u8>,
    good: (u16, u16),
}

impl HttpProbe {
    pub(super) fn to(
        to: SocketAddr,
        path: &str,
        host: Option<&str>,
        good: (u16, u16),
    ) -> Result<HttpProbe, NoProbe> {
        let request = request(to, path, host).ok_or(NoProbe::BadRequest)?;
        Ok(HttpProbe {
            tcp: TcpProbe::to(to),
            is_connected: false,
            request,
            sent: 0,
            answer: Vec::new(),
            good,
        })
    }

    /// Passes when the answer has a good status.
    pub(super) fn advance(&mut self, socket: &OwnedFd) -> Result<Progress, ProbeFailure> {
        if !self.is_connected {
            let progress = self.tcp.connect(socket)?;
            if progress != Progress::Passed {
                return Ok(progress);
            }
            self.is_connected = true;
        }
        match self.send(socket)? {
            Progress::Passed => self.receive(socket),
            waiting => Ok(waiting),
        }
    }

    /// Passes when all of the request is sent.
    fn send(&mut self, socket: &OwnedFd) -> Result<Progress, ProbeFailure> {
        while let Some(rest) = self.request.get(self.sent..).filter(|rest| !rest.is_empty()) {
            match send(socket, rest, SendFlags::NOSIGNAL) {
                Ok(sent) => self.sent += sent,
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return Ok(Progress::Awaits(EventFlags::OUT)),
                Err(error) => return Err(error.into()),
            }
        }
        Ok(Progress::Passed)
    }

    fn receive(&mut self, socket: &OwnedFd) -> Result<Progress, ProbeFailure> {
        while self.answer.len() < LIMIT {
            let mut some = [0; LIMIT];
            let room = LIMIT - self.answer.len();
            match recv(socket, &mut some[..room], RecvFlags::empty()) {
                Ok((0, _)) => return Err(ProbeFailure::Closed),
                Ok((count, _)) => self.answer.extend_from_slice(&some[..count.min(room)]),
                Err(Errno::INTR) => continue,
                Err(Errno::AGAIN) => return Ok(Progress::Awaits(EventFlags::IN)),
                Err(error) => return Err(error.into()),
            }
            match status(&self.answer) {
                AnswerStatus::Part => {}
                AnswerStatus::Garbage => return Err(ProbeFailure::NotHttp),
                AnswerStatus::Status(status) => {
                    hang_up(socket);
                    return self.judge(status);
                }
            }
        }
        Err(ProbeFailure::NotHttp)
    }

    fn judge(&self, status: u16) -> Result<Progress, ProbeFailure> {
        match (self.good.0..=self.good.1).contains(&status) {
            true => Ok(Progress::Passed),
            false => Err(ProbeFailure::Status(status)),
        }
    }
}

/// The request; none where path or host would break its lines.
fn request(to: SocketAddr, path: &str, host: Option<&str>) -> Option<Vec<u8>> {
    let host = match host {
        Some(host) => host.to_owned(),
        // A zone means something on this machine alone (RFC 6874 section 1).
        None => SocketAddr::new(to.ip(), to.port()).to_string(),
    };
    let is_plain = |text: &str| text.bytes().all(|byte| byte.is_ascii_graphic());
    if !path.starts_with('/') || !is_plain(path) || !is_plain(&host) || host.is_empty() {
        return None;
    }
    let head = format!(
        "GET {path} HTTP/1.1\r\nHost: {host}\r\nUser-Agent: artery\r\nAccept: */*\r\nConnection: close\r\n\
         \r\n"
    );
    Some(head.into_bytes())
}

/// What the first bytes of an answer show.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AnswerStatus {
    /// The status line is incomplete.
    Part,
    /// The server's status code.
    Status(u16),
    /// That it is not HTTP.
    Garbage,
}

/// The final status of an answer: interim ones may come before it (RFC 9110 section 15.2), but 101 is final.
fn status(mut answer: &[u8]) -> AnswerStatus {
    loop {
        match status_line(answer) {
            AnswerStatus::Status(100 | 102..=199) => {}
            heard => return heard,
        }
        let Some(end) = answer.windows(4).position(|four| four == b"\r\n\r\n") else {
            return AnswerStatus::Part;
        };
        answer = &answer[end + 4..];
    }
}

/// The status in a status line (RFC 9112 section 4), as soon as its end is seen.
fn status_line(line: &[u8]) -> AnswerStatus {
    /// The start of each, with `d` for a digit.
    const START: &[u8] = b"HTTP/d.d ddd";
    let fits = |(byte, wanted): (&u8, &u8)| byte == wanted || *wanted == b'd' && byte.is_ascii_digit();
    if !line.iter().zip(START).all(fits) {
        return AnswerStatus::Garbage;
    }
    match line.get(START.len()) {
        None => AnswerStatus::Part,
        Some(b' ' | b'\r' | b'\n') => AnswerStatus::Status(
            line[9..12].iter().fold(0, |number, digit| number * 10 + u16::from(digit - b'0')),
        ),
        Some(_) => AnswerStatus::Garbage,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn request_of(to: &str, path: &str, host: Option<&str>) -> Option<String> {
        request(to.parse().unwrap(), path, host).map(|bytes| String::from_utf8(bytes).unwrap())
    }

    #[test]
    fn a_request_names_path_and_host_and_asks_to_close() {
        assert_eq!(
            request_of("10.0.0.1:8080", "/up?x=1", None).unwrap(),
            "GET /up?x=1 HTTP/1.1\r\nHost: 10.0.0.1:8080\r\nUser-Agent: artery\r\nAccept: */*\r\n\
             Connection: close\r\n\r\n"
        );
        let expected = "\r\nHost: [fe80::1]:80\r\n";
        assert!(request_of("[fe80::1%3]:80", "/", None).unwrap().contains(expected), "no zone");
        assert!(
            request_of("10.0.0.1:80", "/", Some("example.org"))
                .unwrap()
                .contains("\r\nHost: example.org\r\n")
        );
    }

    #[test]
    fn no_path_or_host_can_add_lines_to_a_request() {
        for path in ["", "up", "/a b", "/a\r\nX: y", "/\n", "/\u{e9}", "/\0"] {
            assert_eq!(request_of("10.0.0.1:80", path, None), None, "{path:?}");
        }
        for host in ["", "a b", "a\r\nX: y", "\u{e9}"] {
            assert_eq!(request_of("10.0.0.1:80", "/", Some(host)), None, "{host:?}");
        }
    }

    #[test]
    fn a_status_is_told_as_soon_as_it_can_be_no_other() {
        for answer in ["HTTP/1.1 200 OK\r\n\r\n", "HTTP/1.0 200\r\nA: b", "HTTP/1.1 200\n"] {
            for end in 0..answer.len() {
                let expected = if end > 12 { AnswerStatus::Status(200) } else { AnswerStatus::Part };
                assert_eq!(status(&answer.as_bytes()[..end]), expected, "{answer:?} up to {end}");
            }
        }
    }

    #[test]
    fn interim_answers_are_read_over_but_the_one_that_changes_the_protocol_is_final() {
        let interim = "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n";
        assert_eq!(status(interim.as_bytes()), AnswerStatus::Part);
        let found = status(format!("{interim}HTTP/1.1 204 No Content\r\n").as_bytes());
        assert_eq!(found, AnswerStatus::Status(204));
        assert_eq!(status(format!("{interim}220 ready\r\n").as_bytes()), AnswerStatus::Garbage);
        assert_eq!(status(b"HTTP/1.1 101 Switching Protocols\r\n"), AnswerStatus::Status(101));
    }

    #[test]
    fn what_is_no_status_line_is_garbage_at_its_first_wrong_byte() {
        for answer in ["S", "h", "HTTP/x", "HTTP/1.1  ", "HTTP/1.1 2x", "HTTP/1.1 2000", "HTTP/1.1 -", "\n"] {
            assert_eq!(status(answer.as_bytes()), AnswerStatus::Garbage, "{answer:?}");
            assert_ne!(
                status(&answer.as_bytes()[..answer.len() - 1]),
                AnswerStatus::Garbage,
                "{answer:?} cut"
            );
        }
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic_and_more_of_them_change_no_verdict(
            start in prop_oneof![Just(""), Just("HTTP/1.1 "), Just("HTTP/1.1 100 \r\n\r\n"), Just("HTTP/1.1 \
                503 ")],
            bytes in prop::collection::vec(any::<u8>(), 0..40),
            more in prop::collection::vec(any::<u8>(), 0..40),
        ) {
            let mut answer = start.as_bytes().to_vec();
            answer.extend(bytes);
            let heard = status(&answer);
            answer.extend(more);
            prop_assert!(heard == AnswerStatus::Part || heard == status(&answer));
        }
    }
}
