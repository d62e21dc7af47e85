//! ControlSocket 1.3 as bytes: requests out of a stream, replies into one. No socket is known here.

/// What the server says first.
pub(super) const GREETING: &str = "Click::ControlSocket/1.3\r\n";

/// How long requests may be.
#[derive(Clone, Copy)]
pub(super) struct Limits {
    /// Most bytes of a line.
    line: usize,
    /// Most bytes of data after it.
    data: usize,
}

impl Limits {
    /// Clients without write access get little memory.
    pub(super) fn of(may_write: bool) -> Limits {
        match may_write {
            true => Limits { line: 1 << 20, data: 16 << 20 },
            false => Limits { line: 1 << 16, data: 1 << 16 },
        }
    }
}

/// How far a request that is not complete was searched for its end, so that bytes which come one by one are
/// not searched again and again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Scanned {
    /// Bytes before the end of the first line, as far as it is known.
    line: usize,
    /// Where the line of data begins that may be the terminator.
    data: usize,
}

/// A client's request, parsed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Request {
    /// A line without words; it has no reply.
    Nothing,
    /// READ, GET, READDATA and READUNTIL.
    Read { handler: String, parameters: String },
    /// WRITE, SET, WRITEDATA, SETDATA and WRITEUNTIL.
    Write { handler: String, value: String },
    /// Whether there is such a handler: CHECKREAD and CHECKWRITE.
    Check { handler: String, write: bool },
    /// A call below handlers, as Click's programs make them.
    Llrpc { name: String },
    /// Proves the right to write.
    Auth { token: String },
    /// Which requests there are.
    Help,
    /// A line of HTTP, which a web page can have a browser send.
    Http,
    /// The end of the connection, perhaps with words after the verb, which mean nothing.
    Quit { superfluous: bool },
    /// Something that can only be answered so.
    Wrong(u16, String),
    /// More than is accepted; what follows can't be understood.
    LineTooLong,
    /// The same, of data behind a line.
    DataTooLong { handler: String, write: bool },
}

/// What a stream begins with.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Parsed {
    /// A request, and how many bytes it took.
    Request(Request, usize),
    /// The beginning of one.
    Incomplete(Scanned),
}

/// Parses the first request in `input`. With `closed` no more bytes will come. `scanned` is the last call's
/// result for the same request.
pub(super) fn parse(input: &[u8], closed: bool, limits: Limits, scanned: Scanned) -> Parsed {
    let Some((end, rest)) = first_line(input, closed, scanned.line) else {
        return match input.len() > limits.line {
            true => Parsed::Request(Request::LineTooLong, input.len()),
            false => Parsed::Incomplete(Scanned { line: input.len(), data: 0 }),
        };
    };
    let line = String::from_utf8_lossy(&input[..end]);
    let words: Vec<&str> = line.split_ascii_whitespace().collect();
    let Some(verb) = words.first().map(|verb| verb.to_ascii_uppercase()) else {
        return Parsed::Request(Request::Nothing, rest);
    };
    if is_http(&verb, &words) {
        return Parsed::Request(Request::Http, rest);
    }
    let carried = Carried { input, line_end: end, start: rest, closed, most: limits.data };
    match verb.as_str() {
        "READDATA" | "WRITEDATA" | "SETDATA" => carried.with_length(&verb, &words),
        "READUNTIL" | "WRITEUNTIL" => carried.with_terminator(&verb, &line, scanned.data),
        "LLRPC" => carried.llrpc(&words),
        _ => Parsed::Request(single_line(&verb, &line, &words), rest),
    }
}

/// Where the first line ends, and where the next begins. The first `scanned` bytes hold no line end.
fn first_line(input: &[u8], closed: bool, scanned: usize) -> Option<(usize, usize)> {
    match input[scanned..].iter().position(|byte| matches!(byte, b'\r' | b'\n')) {
        // The second byte of CRLF may still be under way; it will then end an empty line, which means
        // nothing.
        Some(end) => Some((scanned + end, scanned + end + line_end(&input[scanned + end..]))),
        None if closed && !input.is_empty() => Some((input.len(), input.len())),
        None => None,
    }
}

/// Whether a line is the first of a request of HTTP, or one of its headers. No command has a colon in it.
fn is_http(verb: &str, words: &[&str]) -> bool {
    let methods = ["POST", "PUT", "HEAD", "DELETE", "OPTIONS", "PATCH", "TRACE", "CONNECT", "PRI"];
    let is_request = words.len() == 3 && words[2].to_ascii_uppercase().starts_with("HTTP/");
    methods.contains(&verb) || verb.contains(':') || is_request
}

/// Length of the line end that `bytes` begin with.
fn line_end(bytes: &[u8]) -> usize {
    if bytes.starts_with(b"\r\n") { 2 } else { 1 }
}

fn single_line(verb: &str, line: &str, words: &[&str]) -> Request {
    match (verb, words.len()) {
        ("READ" | "GET" | "WRITE" | "SET", 1) => wrong_count(),
        ("READ" | "GET", _) => Request::Read { handler: words[1].to_string(), parameters: after(line, 2) },
        ("WRITE" | "SET", _) => Request::Write { handler: words[1].to_string(), value: after(line, 2) },
        ("CHECKREAD" | "CHECKWRITE", 2) => {
            Request::Check { handler: words[1].to_string(), write: verb == "CHECKWRITE" }
        }
        ("CHECKREAD" | "CHECKWRITE", _) => wrong_count(),
        ("AUTH", 2) => Request::Auth { token: words[1].to_string() },
        ("AUTH", _) => wrong_count(),
        ("HELP", _) => Request::Help,
        ("QUIT" | "CLOSE", count) => Request::Quit { superfluous: count > 1 },
        _ => Request::Wrong(501, format!("Command '{verb}' unimplemented")),
    }
}

fn wrong_count() -> Request {
    Request::Wrong(500, "Wrong number of arguments".to_string())
}

/// What follows the first `count` words of a line, without the blanks around it.
fn after(line: &str, count: usize) -> String {
    let is_blank = |c: char| c.is_ascii_whitespace();
    let mut rest = line.trim_start_matches(is_blank);
    for _ in 0..count {
        rest = rest.find(is_blank).map_or("", |end| rest[end..].trim_start_matches(is_blank));
    }
    rest.trim_end_matches(is_blank).to_string()
}

/// A request that has data after its line.
struct Carried<'a> {
    input: &'a [u8],
    /// Where its line ends, and where its data begin.
    line_end: usize,
    start: usize,
    closed: bool,
    /// Most bytes of data.
    most: usize,
}

impl Carried<'_> {
    /// READDATA and WRITEDATA: `VERB handler length`, a line end, and `length` bytes.
    fn with_length(&self, verb: &str, words: &[&str]) -> Parsed {
        let [_, handler, length] = words else { return Parsed::Request(wrong_count(), self.start) };
        let Some(length) = length.parse::<usize>().ok() else {
            return Parsed::Request(Request::Wrong(500, format!("Syntax error in '{verb}'")), self.start);
        };
        if length > self.most {
            return self.too_long(verb, handler);
        }
        match self.input[self.start..].get(..length) {
            Some(data) => Parsed::Request(carrying(verb, handler, data), self.start + length),
            None => self.starved(self.start),
        }
    }

    /// READUNTIL and WRITEUNTIL: `VERB handler terminator`, and lines up to one that is the terminator.
    fn with_terminator(&self, verb: &str, line: &str, scanned: usize) -> Parsed {
        let Some(handler) = line.split_ascii_whitespace().nth(1) else {
            return Parsed::Request(wrong_count(), self.start);
        };
        let (input, terminator) = (self.input, after(line, 2));
        // Where the last line begins whose end is sure: the second byte of a CRLF may still be under way.
        let mut sure = scanned.max(self.start);
        let mut at = sure;
        while let Some(length) = input[at..].iter().position(|byte| matches!(byte, b'\r' | b'\n')) {
            let next = at + length + line_end(&input[at + length..]);
            let is_last = input[at..at + length].trim_ascii_end() == terminator.as_bytes();
            if self.is_beyond(at, length, is_last) {
                return self.too_long(verb, handler);
            }
            if is_last {
                return Parsed::Request(carrying(verb, handler, &input[self.start..at]), next);
            }
            at = next;
            if next < input.len() {
                sure = next;
            }
        }
        let begun = &input[at..];
        let rest = begun.strip_prefix(terminator.as_bytes());
        let may_be_last =
            rest.map_or(terminator.as_bytes().starts_with(begun), |rest| rest.trim_ascii().is_empty());
        match self.is_beyond(at, begun.len(), may_be_last) {
            true => self.too_long(verb, handler),
            false => self.starved(sure),
        }
    }

    /// Whether a line, of data or a terminator with its blanks, is too long, however the input is cut.
    fn is_beyond(&self, at: usize, length: usize, is_terminator: bool) -> bool {
        let before = if is_terminator { 0 } else { at - self.start };
        before + length > self.most
    }

    fn llrpc(&self, words: &[&str]) -> Parsed {
        let length = match words {
            [_, _] => Some(0),
            [_, _, length] => length.parse::<usize>().ok(),
            _ => return Parsed::Request(wrong_count(), self.start),
        };
        let Some(length) = length else {
            return Parsed::Request(Request::Wrong(500, "Syntax error in 'llrpc'".to_string()), self.start);
        };
        if length > self.most {
            return self.too_long("LLRPC", words[1]);
        }
        match self.input.len() - self.start >= length {
            true => Parsed::Request(Request::Llrpc { name: words[1].to_string() }, self.start + length),
            false => self.starved(self.start),
        }
    }

    fn too_long(&self, verb: &str, handler: &str) -> Parsed {
        let write = !verb.starts_with('R');
        Parsed::Request(Request::DataTooLong { handler: handler.to_string(), write }, self.input.len())
    }

    /// Fewer bytes than were announced.
    fn starved(&self, data: usize) -> Parsed {
        match self.closed {
            true => Parsed::Request(Request::Wrong(500, "Not enough data".to_string()), self.start),
            false => Parsed::Incomplete(Scanned { line: self.line_end, data }),
        }
    }
}

fn carrying(verb: &str, handler: &str, data: &[u8]) -> Request {
    let (handler, text) = (handler.to_string(), String::from_utf8_lossy(data).into_owned());
    match verb.starts_with('R') {
        true => Request::Read { handler, parameters: text },
        false => Request::Write { handler, value: text },
    }
}

/// A reply of several lines; control characters show as octal.
pub(super) fn reply<S: AsRef<str>>(code: u16, lines: &[S]) -> Vec<u8> {
    let mut text = String::new();
    for (n, line) in lines.iter().enumerate() {
        let separator = if n + 1 < lines.len() { '-' } else { ' ' };
        text += &format!("{code}{separator}{}\r\n", printable(line.as_ref()));
    }
    text.into_bytes()
}

/// The reply to a read: a line, and the value.
pub(super) fn data_reply(handler: &str, value: &str) -> Vec<u8> {
    let mut bytes = reply(200, &[format!("Read handler '{handler}' OK")]);
    bytes.extend(format!("DATA {}\r\n", value.len()).bytes());
    bytes.extend(value.bytes());
    bytes
}

fn printable(line: &str) -> String {
    let mut text = String::new();
    for c in line.chars() {
        if c.is_ascii_control() { text += &format!("\\{:03o}", c as u32) } else { text.push(c) }
    }
    text
}

/// Takes bytes for a stream, and panics if it matters how they are cut.
#[cfg(any(test, feature = "fuzz"))]
pub(crate) fn survive(bytes: &[u8]) {
    let Some((step, stream)) = bytes.split_first() else { return };
    // A line that is too long is found out as it comes.
    let limits = Limits { line: bytes.len(), data: 256 };
    assert_eq!(in_steps(stream, limits, stream.len()), in_steps(stream, limits, usize::from(*step)));
}

/// The requests of a stream that arrives in pieces of `step` bytes, up to the first one with too much data.
#[cfg(any(test, feature = "fuzz"))]
fn in_steps(stream: &[u8], limits: Limits, step: usize) -> Vec<Request> {
    let (mut requests, mut begin, mut end, mut scanned) = (Vec::new(), 0, 0, Scanned::default());
    loop {
        match parse(&stream[begin..end], end == stream.len(), limits, scanned) {
            Parsed::Request(Request::DataTooLong { .. }, _) => return requests,
            Parsed::Request(request, used) => {
                assert!(used <= end - begin, "{request:?} took {used} of {}", end - begin);
                (begin, scanned) = (begin + used, Scanned::default());
                requests.extend(Some(request).filter(|request| *request != Request::Nothing));
            }
            Parsed::Incomplete(_) if end == stream.len() => return requests,
            Parsed::Incomplete(now) => {
                scanned = now;
                end = (end + step.max(1)).min(stream.len());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn parse(input: &[u8], closed: bool) -> Parsed {
        super::parse(input, closed, Limits::of(true), Scanned::default())
    }

    fn requests(mut input: &[u8]) -> Vec<Request> {
        let mut all = Vec::new();
        while !input.is_empty() {
            match parse(input, true) {
                Parsed::Request(request, used) => {
                    assert!((1..=input.len()).contains(&used), "{request:?} took {used} of {}", input.len());
                    all.push(request);
                    input = &input[used..];
                }
                Parsed::Incomplete(_) => panic!("incomplete although closed: {input:?}"),
            }
        }
        all
    }

    fn read(handler: &str, parameters: &str) -> Request {
        Request::Read { handler: handler.into(), parameters: parameters.into() }
    }

    fn write(handler: &str, value: &str) -> Request {
        Request::Write { handler: handler.into(), value: value.into() }
    }

    const STREAM: &[u8] = b"read c.count\r\nGET a  b c \nWRITEDATA q.x 5\r\nab\ncd\
        writeuntil h END\r\none\r\ntwo\nEND \r\nREADDATA r 0\nCHECKWRITE q.x\rLLRPC e#1 2\nxyQUIT\r\n";

    #[test]
    fn requests_are_read_whatever_ends_their_lines() {
        let expected = [
            read("c.count", ""),
            read("a", "b c"),
            write("q.x", "ab\ncd"),
            write("h", "one\r\ntwo\n"),
            read("r", ""),
            Request::Check { handler: "q.x".into(), write: true },
            Request::Llrpc { name: "e#1".into() },
            Request::Quit { superfluous: false },
        ];
        assert_eq!(requests(STREAM), expected);
    }

    #[test]
    fn a_stream_cut_anywhere_gives_the_same_requests_first() {
        let whole: Vec<Request> = requests(STREAM);
        for cut in 0..STREAM.len() {
            let (mut input, mut found) = (&STREAM[..cut], Vec::new());
            while let Parsed::Request(request, used) = parse(input, false) {
                found.push(request);
                input = &input[used..];
            }
            found.retain(|request| *request != Request::Nothing);
            assert_eq!(found, whole[..found.len()], "cut at {cut}");
            requests(&STREAM[..cut]);
        }
    }

    /// Takes requests as they are completed by bytes that come one by one.
    fn one_by_one(stream: &[u8]) -> Vec<Request> {
        let (mut at, mut scanned, mut found) = (0, Scanned::default(), Vec::new());
        for end in 1..=stream.len() {
            let closed = end == stream.len();
            while at < end {
                match super::parse(&stream[at..end], closed, Limits::of(true), scanned) {
                    Parsed::Request(request, used) => {
                        (at, scanned) = (at + used, Scanned::default());
                        found.push(request);
                    }
                    Parsed::Incomplete(more) => {
                        scanned = more;
                        break;
                    }
                }
            }
        }
        found.retain(|request| *request != Request::Nothing);
        found
    }

    #[test]
    fn bytes_that_come_one_by_one_are_the_same_requests() {
        let mut whole = requests(STREAM);
        whole.retain(|request| *request != Request::Nothing);
        assert_eq!(one_by_one(STREAM), whole);
    }

    #[test]
    fn lines_of_http_are_told_from_commands() {
        for line in [
            "POST / HTTP/1.1",
            "GET / HTTP/1.1",
            "get /x http/1.0",
            "WRITE / HTTP/1.1",
            "Host: localhost:7777",
            "Content-Type:text/plain",
            "PRI * HTTP/2.0",
            "options *",
        ] {
            assert_eq!(requests(format!("{line}\r\n").as_bytes()), [Request::Http], "{line}");
        }
        assert_eq!(requests(b"GET c.count\n"), [read("c.count", "")]);
        assert_eq!(requests(b"WRITE s.data a: b HTTP/1.1\n"), [write("s.data", "a: b HTTP/1.1")]);
        assert_eq!(requests(b"auth abc\n"), [Request::Auth { token: "abc".into() }]);
    }

    #[test]
    fn wrong_requests_say_what_is_wrong() {
        let wrong = |line: &str| match requests(line.as_bytes()).remove(0) {
            Request::Wrong(code, text) => format!("{code} {text}"),
            other => panic!("{other:?}"),
        };
        assert_eq!(wrong("read"), "500 Wrong number of arguments");
        assert_eq!(wrong("frob x"), "501 Command 'FROB' unimplemented");
        assert_eq!(wrong("writedata h -1"), "500 Syntax error in 'WRITEDATA'");
        assert_eq!(wrong("writedata h 3\nab"), "500 Not enough data");
        assert_eq!(wrong("checkread"), "500 Wrong number of arguments");
        assert_eq!(wrong("readuntil"), "500 Wrong number of arguments");
    }

    #[test]
    fn what_is_too_big_is_refused_before_it_comes() {
        for may_write in [true, false] {
            let limits = Limits::of(may_write);
            let first = |input: &[u8]| match super::parse(input, false, limits, Scanned::default()) {
                Parsed::Request(request, _) => request,
                Parsed::Incomplete(_) => Request::Nothing,
            };
            let line = format!("WRITEDATA h {}\n", limits.data + 1);
            let too_long = Request::DataTooLong { handler: "h".to_string(), write: true };
            assert_eq!(first(line.as_bytes()), too_long);
            // Also if all of it is there.
            let long = |data: usize, blanks: usize| {
                let line = format!("WRITEUNTIL h end\n{}\nend{}\n", "x".repeat(data), " ".repeat(blanks));
                first(line.as_bytes())
            };
            assert!(matches!(long(limits.data, 9), Request::Write { .. }));
            assert_eq!((long(limits.data + 1, 0), long(1, limits.data)), (too_long.clone(), too_long));
            let endless = vec![b'x'; limits.line + 1];
            assert_eq!((first(&endless), first(&endless[1..])), (Request::LineTooLong, Request::Nothing));
        }
    }

    #[test]
    fn data_that_is_too_long_is_so_however_it_is_cut() {
        let [limit, more] = [256, 257].map(|length| "x".repeat(length));
        for data in
            [&limit, &more, &format!("\n{limit}"), &format!("{limit}\n"), &format!("e\r\n{more}\r\ne")]
        {
            for end in ["end", "end  ", "en", "endx", "end\r", &format!("end{}", " ".repeat(300))] {
                for step in 1..9 {
                    survive(
                        format!("{}READUNTIL h end\n{data}\n{end}\nREAD a\n", step as u8 as char).as_bytes(),
                    );
                }
            }
        }
    }

    #[test]
    fn replies_have_a_code_on_every_line_and_hide_control_characters() {
        assert_eq!(reply(520, &["a:", "b\tc"]), b"520-a:\r\n520 b\\011c\r\n");
        assert_eq!(data_reply("x.y", "12"), b"200 Read handler 'x.y' OK\r\nDATA 2\r\n12");
    }

    proptest! {
        #[test]
        fn any_bytes_are_taken_completely(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            requests(&bytes);
        }

        #[test]
        fn any_words_are_the_same_one_by_one(lines in proptest::collection::vec(
            "(READ|WRITEDATA|WRITEUNTIL|LLRPC|AUTH)( [a-z0-3#]{0,2}){0,2}(\r|\n|\r\n)",
            0..8,
        )) {
            let stream = lines.concat();
            let mut whole = requests(stream.as_bytes());
            whole.retain(|request| *request != Request::Nothing);
            prop_assert_eq!(one_by_one(stream.as_bytes()), whole);
        }

        #[test]
        fn any_words_are_taken_completely(lines in proptest::collection::vec(
            "(READ|WRITE|READDATA|WRITEDATA|READUNTIL|WRITEUNTIL|LLRPC|CHECKREAD|quit)?( \
             [a-z0-9.#]{0,4}){0,3}(\r|\n|\r\n)?",
            0..12,
        )) {
            requests(lines.concat().as_bytes());
        }
    }
}
