//! ControlSocket 1.3 as bytes: requests out of a stream, replies into one. No socket is known here.

/// What the server says first.
pub(super) const GREETING: &str = "Click::ControlSocket/1.3\r\n";

/// Most bytes of a line, and most bytes of data after it.
pub(super) const MAX_LINE: usize = 1 << 20;
pub(super) const MAX_DATA: usize = 16 << 20;

/// What a client asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Request {
    /// A line without words; it has no reply.
    Nothing,
    Read {
        handler: String,
        parameters: String,
    },
    Write {
        handler: String,
        value: String,
    },
    Check {
        handler: String,
        write: bool,
    },
    Llrpc {
        name: String,
    },
    Help,
    Quit {
        /// Whether there were words after the verb.
        superfluous: bool,
    },
    /// Something that can only be answered so.
    Wrong(u16, String),
    /// More than is accepted; what follows can't be understood.
    TooBig(String),
}

/// What a stream begins with.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Parsed {
    /// A request, and how many bytes it took.
    Request(Request, usize),
    /// The beginning of one.
    Incomplete,
}

/// Takes the first request out of `input`. With `closed` no more bytes will come.
pub(super) fn parse(input: &[u8], closed: bool) -> Parsed {
    let Some((line, rest)) = first_line(input, closed) else {
        return match input.len() > MAX_LINE {
            true => Parsed::Request(Request::TooBig("Line too long".to_string()), input.len()),
            false => Parsed::Incomplete,
        };
    };
    let line = String::from_utf8_lossy(line);
    let words: Vec<&str> = line.split_ascii_whitespace().collect();
    let Some(verb) = words.first().map(|verb| verb.to_ascii_uppercase()) else {
        return Parsed::Request(Request::Nothing, rest);
    };
    match verb.as_str() {
        "READDATA" | "WRITEDATA" | "SETDATA" => with_length(&verb, &words, input, rest, closed),
        "READUNTIL" | "WRITEUNTIL" => with_terminator(&verb, &line, input, rest, closed),
        "LLRPC" => llrpc(&words, input, rest, closed),
        _ => Parsed::Request(single_line(&verb, &line, &words), rest),
    }
}

/// The first line without its end, and where the next begins.
fn first_line(input: &[u8], closed: bool) -> Option<(&[u8], usize)> {
    match input.iter().position(|byte| matches!(byte, b'\r' | b'\n')) {
        // The second byte of CRLF may still be under way; it will then end an empty line, which means nothing.
        Some(end) => Some((&input[..end], end + line_end(&input[end..]))),
        None if closed && !input.is_empty() => Some((input, input.len())),
        None => None,
    }
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

/// READDATA and WRITEDATA: `VERB handler length`, a line end, and so many bytes.
fn with_length(verb: &str, words: &[&str], input: &[u8], start: usize, closed: bool) -> Parsed {
    let [_, handler, length] = words else { return Parsed::Request(wrong_count(), start) };
    let Some(length) = length.parse::<usize>().ok() else {
        return Parsed::Request(Request::Wrong(500, format!("Syntax error in '{verb}'")), start);
    };
    if length > MAX_DATA {
        return Parsed::Request(Request::TooBig(too_big(handler)), input.len());
    }
    match input[start..].get(..length) {
        Some(data) => Parsed::Request(carrying(verb, handler, data), start + length),
        None => starved(start, closed),
    }
}

/// READUNTIL and WRITEUNTIL: `VERB handler terminator`, and lines up to one that is the terminator.
fn with_terminator(verb: &str, line: &str, input: &[u8], start: usize, closed: bool) -> Parsed {
    let Some(handler) = line.split_ascii_whitespace().nth(1) else {
        return Parsed::Request(wrong_count(), start);
    };
    let terminator = after(line, 2);
    let mut at = start;
    while let Some(length) = input[at..].iter().position(|byte| matches!(byte, b'\r' | b'\n')) {
        let next = at + length + line_end(&input[at + length..]);
        if input[at..at + length].trim_ascii_end() == terminator.as_bytes() {
            return Parsed::Request(carrying(verb, handler, &input[start..at]), next);
        }
        at = next;
    }
    match input.len() - start > MAX_DATA {
        true => Parsed::Request(Request::TooBig(too_big(handler)), input.len()),
        false => starved(start, closed),
    }
}

fn llrpc(words: &[&str], input: &[u8], start: usize, closed: bool) -> Parsed {
    let length = match words {
        [_, _] => Some(0),
        [_, _, length] => length.parse::<usize>().ok(),
        _ => return Parsed::Request(wrong_count(), start),
    };
    let Some(length) = length else {
        return Parsed::Request(Request::Wrong(500, "Syntax error in 'llrpc'".to_string()), start);
    };
    if length > MAX_DATA {
        return Parsed::Request(Request::TooBig(too_big(words[1])), input.len());
    }
    match input.len() - start >= length {
        true => Parsed::Request(Request::Llrpc { name: words[1].to_string() }, start + length),
        false => starved(start, closed),
    }
}

fn too_big(handler: &str) -> String {
    format!("Data too large for write handler '{handler}'")
}

/// Fewer bytes than were announced.
fn starved(start: usize, closed: bool) -> Parsed {
    match closed {
        true => Parsed::Request(Request::Wrong(500, "Not enough data".to_string()), start),
        false => Parsed::Incomplete,
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
        match c.is_ascii_control() {
            true => text += &format!("\\{:03o}", c as u32),
            false => text.push(c),
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn requests(mut input: &[u8]) -> Vec<Request> {
        let mut all = Vec::new();
        while !input.is_empty() {
            match parse(input, true) {
                Parsed::Request(request, used) => {
                    assert!((1..=input.len()).contains(&used), "{request:?} took {used} of {}", input.len());
                    all.push(request);
                    input = &input[used..];
                }
                Parsed::Incomplete => panic!("incomplete although closed: {input:?}"),
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
        let line = format!("WRITEDATA h {}\n", MAX_DATA + 1);
        assert!(matches!(parse(line.as_bytes(), false), Parsed::Request(Request::TooBig(_), _)));
        let endless = vec![b'x'; MAX_LINE + 1];
        assert!(matches!(parse(&endless, false), Parsed::Request(Request::TooBig(_), _)));
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
        fn any_words_are_taken_completely(lines in proptest::collection::vec(
            "(READ|WRITE|READDATA|WRITEDATA|READUNTIL|WRITEUNTIL|LLRPC|CHECKREAD|quit)?( [a-z0-9.#]{0,4}){0,3}(\r|\n|\r\n)?",
            0..12,
        )) {
            requests(lines.concat().as_bytes());
        }
    }
}
