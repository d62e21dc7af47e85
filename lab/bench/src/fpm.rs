//! Routes by FPM, as FRR's zebra sends them: a stream is recorded once, and played to a router, which answers
//! each route once it forwards by it.
use anyhow::{Context as _, ensure};
use artery_lpm::{Prefix, synthetic};
use artery_netlink::build::{NEW_ROUTE, gateway, route};
use clap::Args;
use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// RTM_F_OFFLOAD, and where rtm_flags are in an answer.
const OFFLOAD: u32 = 0x4000;
const FLAGS: std::ops::Range<usize> = 28..32;
const BGP: u8 = 186;
/// Bytes read at once, and how long an answer may take.
const READ: usize = 256 << 10;
const PATIENCE: Duration = Duration::from_secs(120);

/// What to do, and with what.
#[derive(Args)]
pub struct Options {
    /// The stream: FPM messages, one after the other
    stream: PathBuf,
    /// Write it, of so many routes, instead of playing it
    #[arg(long, value_name = "ROUTES", num_args = 0..=1, default_missing_value = "1000000")]
    record: Option<usize>,
    /// Take its prefixes from a file: text, an MRT dump, gzipped or not; otherwise they are made up
    #[arg(long, value_name = "FILE", requires = "record")]
    table: Option<PathBuf>,
    /// The gateways that its routes share
    #[arg(long, value_name = "ADDRESS,...", value_delimiter = ',', default_value = "10.0.2.2")]
    via: Vec<IpAddr>,
    /// The router to play it to
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:2620")]
    to: SocketAddr,
    /// Stay connected after the last answer until standard input ends
    #[arg(long)]
    stay: bool,
}

/// Records a stream, or plays it and says how long it took until the last route was answered.
pub fn run(options: &Options) -> anyhow::Result<()> {
    match options.record {
        Some(count) => record(options, count),
        None => play(options),
    }
}

fn record(options: &Options, count: usize) -> anyhow::Result<()> {
    let prefixes = match &options.table {
        Some(file) => read(file)?,
        None => synthetic::generate_prefixes::<u32>(count, 1),
    };
    let mut stream = Vec::new();
    for (number, prefix) in prefixes.iter().take(count).enumerate() {
        let to = (IpAddr::from(Ipv4Addr::from_bits(prefix.first())), prefix.len());
        let by = options.via[number % options.via.len()];
        let message = route(NEW_ROUTE, to, BGP, &[gateway(by)]);
        stream.extend([1, 1]);
        stream.extend(((message.len() + 4) as u16).to_be_bytes());
        stream.extend(message);
    }
    std::fs::write(&options.stream, &stream).with_context(|| options.stream.display().to_string())?;
    println!("{}: {} routes, {} bytes", options.stream.display(), prefixes.len().min(count), stream.len());
    Ok(())
}

fn read(file: &Path) -> anyhow::Result<Vec<Prefix<u32>>> {
    let routes = artery_feed::read(file)?;
    ensure!(!routes.v4.is_empty(), "{} has no routes of IPv4", file.display());
    Ok(routes.v4.iter().map(|(prefix, _)| *prefix).collect())
}

fn play(options: &Options) -> anyhow::Result<()> {
    let stream = std::fs::read(&options.stream).with_context(|| options.stream.display().to_string())?;
    let count = frames(&stream);
    let mut connection = TcpStream::connect(options.to).with_context(|| options.to.to_string())?;
    connection.set_read_timeout(Some(PATIENCE))?;
    let mut sender = connection.try_clone()?;
    let begin = Instant::now();
    let (answers, sent) = std::thread::scope(|scope| {
        let sending = scope.spawn(move || sender.write_all(&stream).map(|()| begin.elapsed()));
        let answers = answers(&mut connection, count);
        (answers, sending.join().expect("writing does not panic"))
    });
    let (answers, sent) = (answers?, sent?);
    let took = begin.elapsed().as_secs_f64();
    println!(
        "{count} routes: written in {:.2} s, answered in {took:.2} s ({:.0} a second), {} installed, {} \
         refused",
        sent.as_secs_f64(),
        count as f64 / took,
        answers.installed,
        count - answers.installed
    );
    if options.stay {
        std::io::copy(&mut std::io::stdin(), &mut std::io::sink())?;
    }
    Ok(())
}

struct Answers {
    installed: usize,
}

/// Reads so many answers.
fn answers(connection: &mut TcpStream, count: usize) -> anyhow::Result<Answers> {
    let (mut bytes, mut end) = (vec![0; READ + 65536], 0);
    let (mut seen, mut installed) = (0, 0);
    while seen < count {
        let read = connection.read(&mut bytes[end..end + READ]).context("waiting for answers")?;
        ensure!(read > 0, "the router closed the connection after {seen} answers");
        end += read;
        let mut at = 0;
        while let Some(len) = frame_len(&bytes[at..end]).filter(|len| *len <= end - at) {
            ensure!(len >= FLAGS.end, "an answer of {len} bytes");
            let flags = bytes[at + FLAGS.start..].first_chunk().map_or(0, |flags| u32::from_ne_bytes(*flags));
            installed += usize::from(flags & OFFLOAD != 0);
            (seen, at) = (seen + 1, at + len);
        }
        bytes.copy_within(at..end, 0);
        end -= at;
    }
    Ok(Answers { installed })
}

fn frames(mut stream: &[u8]) -> usize {
    let mut count = 0;
    while let Some(rest) = frame_len(stream).and_then(|len| stream.get(len..)) {
        (stream, count) = (rest, count + 1);
    }
    count
}

/// The length of the message that bytes begin with, once its header is there.
fn frame_len(bytes: &[u8]) -> Option<usize> {
    let [_, _, high, low] = *bytes.first_chunk()?;
    Some(usize::from(u16::from_be_bytes([high, low])).max(4))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_of_a_stream_are_counted() {
        assert_eq!(frames(&[1, 1, 0, 5, 9, 1, 1, 0, 4]), 2);
        assert_eq!(frames(&[1, 1, 0, 5]), 0);
    }
}
