//! As much of HTTP/1.1 as metrics need: a GET on a connection, which is closed then.
use super::exposition::to_open_metrics;
use crate::control_socket::{Connection, Talker};
use std::io;
use std::time::{Duration, Instant};

/// Most bytes of a request, which are read whole before it is answered.
const MOST_REQUEST: usize = 8192;
/// How long a client may take for a request.
const REQUEST: Duration = Duration::from_secs(5);
/// How long it may take to take in the response.
const RESPONSE: Duration = Duration::from_secs(10);

/// Content types: the text format of Prometheus, which messages have, too, and OpenMetrics.
const PLAIN: &str = "text/plain; version=0.0.4";
const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0";

/// Answers with metrics, which `metrics` makes; its error is what went wrong.
#[derive(Clone)]
pub(crate) struct Http<M>(pub(crate) M);

impl<M: Fn() -> Result<String, String> + Clone + Send + 'static> Talker for Http<M> {
    fn too_many(&self) -> Vec<u8> {
        response("503 Service Unavailable", PLAIN, "Too many connections.\n", true)
    }

    fn talk(&self, connection: &mut Connection) -> io::Result<()> {
        let deadline = Instant::now() + REQUEST;
        let Some(request) = request(|chunk| connection.read(chunk, deadline))? else { return Ok(()) };
        let response = connection.answer(|| self.answer(&request))?;
        connection.write(&response, Instant::now() + RESPONSE)
    }
}

impl<M: Fn() -> Result<String, String>> Http<M> {
    fn answer(&self, request: &[u8]) -> Vec<u8> {
        let line = request.split(|byte| *byte == b'\n').next().unwrap_or_default();
        let line = String::from_utf8_lossy(line);
        let mut words = line.split_ascii_whitespace();
        let (method, target, version) = (words.next(), words.next(), words.next());
        if !version.is_some_and(|version| version.starts_with("HTTP/1.")) {
            return response("400 Bad Request", PLAIN, "This speaks HTTP/1.1.\n", true);
        }
        let with_body = match method {
            Some("GET") => true,
            Some("HEAD") => false,
            _ => return response("405 Method Not Allowed", PLAIN, "Metrics are asked for by GET.\n", true),
        };
        let path = target.unwrap_or_default().split('?').next().unwrap_or_default();
        match path {
            "/metrics" => match (self.0)() {
                Ok(metrics) if accepts_open_metrics(request) => {
                    response("200 OK", OPEN_METRICS, &to_open_metrics(&metrics), with_body)
                }
                Ok(metrics) => response("200 OK", PLAIN, &metrics, with_body),
                Err(why) => response("503 Service Unavailable", PLAIN, &format!("{why}\n"), with_body),
            },
            _ => response("404 Not Found", PLAIN, "Metrics are at /metrics.\n", with_body),
        }
    }
}

/// Reads to the empty line at the end of a request; `None` if the client leaves, or takes too long or
/// too much for it.
fn request(mut read: impl FnMut(&mut [u8]) -> io::Result<Option<usize>>) -> io::Result<Option<Vec<u8>>> {
    let mut request = Vec::new();
    let mut chunk = [0; 1024];
    while request.len() < MOST_REQUEST {
        match read(&mut chunk)? {
            Some(0) | None => return Ok(None),
            Some(count) => request.extend_from_slice(&chunk[..count]),
        }
        let ends = |end: &[u8]| request.windows(end.len()).any(|bytes| bytes == end);
        if ends(b"\r\n\r\n") || ends(b"\n\n") {
            return Ok(Some(request));
        }
    }
    Ok(None)
}

/// Whether a client takes OpenMetrics, as Prometheus does from 2.5 on.
fn accepts_open_metrics(request: &[u8]) -> bool {
    let request = String::from_utf8_lossy(request).to_ascii_lowercase();
    let mut accepted = request.lines().filter_map(|line| line.strip_prefix("accept:"));
    accepted.any(|types| types.contains("application/openmetrics-text"))
}

fn response(status: &str, content_type: &str, body: &str, with_body: bool) -> Vec<u8> {
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {content_type}; charset=utf-8\r\nContent-Length: {}\r\n\
         Connection: close\r\n\r\n",
        body.len()
    );
    (head + if with_body { body } else { "" }).into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(request: &str) -> String {
        let http = Http(|| Ok("a 1\n".to_string()));
        String::from_utf8(http.answer(request.as_bytes())).unwrap()
    }

    #[test]
    fn a_get_gets_metrics_and_all_else_is_refused() {
        let text = answer("GET /metrics?x=1 HTTP/1.1\r\nHost: a\r\n\r\n");
        assert!(text.starts_with("HTTP/1.1 200 OK\r\n") && text.ends_with("\r\n\r\na 1\n"), "{text}");
        assert!(text.contains("Content-Length: 4\r\n"), "{text}");
        let head = answer("HEAD /metrics HTTP/1.0\r\n\r\n");
        assert!(head.contains("200 OK") && head.ends_with("\r\n\r\n"), "{head}");
        for (request, status) in [
            ("GET / HTTP/1.1\r\n\r\n", "404"),
            ("POST /metrics HTTP/1.1\r\n\r\n", "405"),
            ("GET /metrics\r\n\r\n", "400"),
            ("\u{0}\u{0}\n\n", "400"),
            ("", "400"),
        ] {
            assert!(answer(request).starts_with(&format!("HTTP/1.1 {status} ")), "{request:?}");
        }
        let accept = "Accept: application/openmetrics-text;version=1.0.0";
        let open = answer(&format!("GET /metrics HTTP/1.1\r\n{accept}\r\n\r\n"));
        assert!(open.contains("Content-Type: application/openmetrics-text; version=1.0.0; "), "{open}");
        assert!(open.ends_with("a 1\n# EOF\n"), "{open}");
        let refused = Http(|| Err("no".to_string())).answer(b"GET /metrics HTTP/1.1\r\n\r\n");
        assert!(refused.starts_with(b"HTTP/1.1 503"));
    }

    #[test]
    fn a_request_ends_with_an_empty_line_and_has_a_bound() {
        let read = |mut from: &[u8]| request(|chunk| io::Read::read(&mut from, chunk).map(Some)).unwrap();
        assert_eq!(read(b"GET / HTTP/1.1\r\n"), None);
        assert!(read(b"GET / HTTP/1.1\r\na: b\r\n\r\n").is_some());
        assert_eq!(read(&vec![b'a'; 2 * MOST_REQUEST]), None);
        assert_eq!(request(|_| Ok(None)).unwrap(), None);
    }
}
