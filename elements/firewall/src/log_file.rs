//! The file of packets that rules log. A thread writes it, so that no worker waits for a disk
//! or for another worker.
//!
//! The number of pending records of each worker is limited; further ones are lost and counted. So neither a
//! slow disk nor a flood that one worker logs affects the other workers.
use super::file_size::FileSize;
use super::log_complaints::WriteFaults;
use artery_device::files;
use artery_engine::Sink;
use artery_filter::log::{LogRecord, file_header};
use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};
use std::time::{Duration, Instant};

/// Records of a worker that may wait to be written.
const MOST_WAITING: usize = 1024;
/// Records that are written at once.
const MOST_AT_ONCE: usize = 64;
/// Timeout for opening a file again.
const REOPEN_TIMEOUT: Duration = Duration::from_secs(10);
/// Interval of messages about a file that can't be written.
const COMPLAINT_INTERVAL: Duration = Duration::from_secs(60);
/// How long the end of a filter waits until all is written.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(2);

/// A file that workers log to.
pub(crate) struct LogFile {
    path: PathBuf,
    counts: Arc<LogCounts>,
    /// Dropped at the end, which ends the thread.
    requests: Option<Arc<SyncSender<LogRequest>>>,
    ended: Mutex<Receiver<()>>,
}

/// What the thread of a file is to do.
enum LogRequest {
    Write(PendingRecord),
    /// Opens the file of that name again, and answers.
    Reopen(SyncSender<io::Result<()>>),
}

/// A record in the queue of the thread.
struct PendingRecord {
    worker: usize,
    time: Duration,
    record: LogRecord,
}

struct LogCounts {
    pending: Box<[WorkerQueue]>,
    written: AtomicU64,
    lost: AtomicU64,
}

/// Records of a worker that wait, in a line of the cache of their own.
#[derive(Default)]
#[repr(align(64))]
struct WorkerQueue(AtomicUsize);

/// All log files of a router, to be opened again when they have been renamed.
#[derive(Default)]
pub struct LogFiles {
    open: Mutex<Vec<(PathBuf, Weak<SyncSender<LogRequest>>)>>,
    /// Where messages about write errors go.
    complaints: Arc<OnceLock<Sink>>,
}

impl LogFiles {
    /// Has complaints go there; otherwise they go to standard error.
    pub fn report_faults_to(&self, sink: Sink) {
        // A router has one.
        let _ = self.complaints.set(sink);
    }

    /// Opens all files again by their names, to which later records go. A file that can't be opened keeps its
    /// open file. Returns a sentence for each of these.
    pub fn reopen_all(&self) -> Vec<String> {
        let mut files = self.lock_files();
        files.retain(|(_, requests)| requests.strong_count() > 0);
        let open: Vec<_> = files.clone();
        drop(files);
        let failed = |(path, requests): (PathBuf, Weak<SyncSender<LogRequest>>)| {
            let error = request_reopen(&*requests.upgrade()?).err()?;
            let path = path.display();
            Some(format!("can't open {path} again: {error}; packets are logged to the file that was open"))
        };
        open.into_iter().filter_map(failed).collect()
    }

    fn lock_files(&self) -> std::sync::MutexGuard<'_, Vec<(PathBuf, Weak<SyncSender<LogRequest>>)>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Has the thread of a file open it again.
fn request_reopen(requests: &SyncSender<LogRequest>) -> io::Result<()> {
    let (answer, answered) = sync_channel(1);
    let late = |why: &str| io::Error::new(io::ErrorKind::TimedOut, why.to_string());
    requests.try_send(LogRequest::Reopen(answer)).map_err(|_| late("too much waits to be written"))?;
    answered.recv_timeout(REOPEN_TIMEOUT).unwrap_or_else(|_| Err(late("the disk takes too long")))
}

impl LogFile {
    /// Opens a file for so many workers, and adds it to `all`. An existing log is appended to. Before the
    /// file exceeds `most` bytes it is renamed to `PATH.old`, and a new one is created.
    pub(crate) fn open(path: &str, most: FileSize, workers: usize, all: &LogFiles) -> io::Result<LogFile> {
        let file = append_to(Path::new(path))?;
        let waiting = (0..workers).map(|_| WorkerQueue::default()).collect();
        let counts =
            Arc::new(LogCounts { pending: waiting, written: AtomicU64::new(0), lost: AtomicU64::new(0) });
        // There is room for a request to open the file again besides all records.
        let (requests, taken) = sync_channel(workers * MOST_WAITING + 1);
        let (end, ended) = sync_channel(1);
        let complaints = WriteFaults::new(path, all.complaints.clone());
        let mut log = LogWriter { file, path: path.into(), most: most.0, counts: counts.clone(), complaints };
        std::thread::Builder::new().name("pflog".to_string()).spawn(move || {
            log.write_requests(&taken);
            // The receiver may be gone already.
            let _ = end.send(());
        })?;
        let requests = Arc::new(requests);
        all.lock_files().push((path.into(), Arc::downgrade(&requests)));
        Ok(LogFile { path: path.into(), counts, requests: Some(requests), ended: Mutex::new(ended) })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// How many records were written, and how many were lost.
    pub(crate) fn counts(&self) -> [u64; 2] {
        [self.counts.written.load(Relaxed), self.counts.lost.load(Relaxed)]
    }

    /// Queues a record of a worker. If the queue is full the record is lost: packets don't wait for a disk.
    pub(crate) fn enqueue_record(&self, worker: usize, record: LogRecord, time: Duration) {
        let Some(of_worker) = self.counts.pending.get(worker) else { return };
        let has_room = of_worker.0.load(Relaxed) < MOST_WAITING;
        if has_room {
            of_worker.0.fetch_add(1, Relaxed);
        }
        let request = LogRequest::Write(PendingRecord { worker, time, record });
        let is_on_its_way = has_room && self.requests.as_ref().is_some_and(|to| to.try_send(request).is_ok());
        if !is_on_its_way {
            self.counts.lost.fetch_add(1, Relaxed);
        }
    }
}

impl Drop for LogFile {
    /// Ends the thread, and waits a little until it has written all.
    fn drop(&mut self) {
        drop(self.requests.take());
        // A disk that does not respond must not keep the router from stopping.
        let ended = self.ended.get_mut().unwrap_or_else(PoisonError::into_inner);
        let _ = ended.recv_timeout(SHUTDOWN_TIMEOUT);
    }
}

/// Opens a file behind its end; one that is new gets its head.
fn append_to(path: &Path) -> io::Result<File> {
    let mut file = files::append_private(path)?;
    let kind = file.metadata()?;
    let head = file_header();
    if !kind.is_file() || kind.len() == 0 {
        file.write_all(&head)?;
        return Ok(file);
    }
    let mut found = Vec::new();
    files::open(path)?.take(head.len() as u64).read_to_end(&mut found)?;
    match found == head {
        true => Ok(file),
        false => {
            let why = "there is something else than a log of packets; remove it, or name another file";
            Err(io::Error::new(io::ErrorKind::InvalidData, why))
        }
    }
}

/// What the thread of a file has.
struct LogWriter {
    file: File,
    path: PathBuf,
    /// Most bytes of the file; 0 for no limit.
    most: u64,
    counts: Arc<LogCounts>,
    complaints: WriteFaults,
}

impl LogWriter {
    /// Handles requests until all senders are gone.
    fn write_requests(&mut self, taken: &Receiver<LogRequest>) {
        let mut bytes = Vec::new();
        loop {
            let first = match taken.recv_timeout(COMPLAINT_INTERVAL) {
                Ok(first) => first,
                Err(RecvTimeoutError::Timeout) => {
                    self.report_failure(None);
                    continue;
                }
                Err(RecvTimeoutError::Disconnected) => return self.report_failure(None),
            };
            bytes.clear();
            let (mut records, mut reopen) = (0, None);
            for request in std::iter::once(first).chain(taken.try_iter()).take(MOST_AT_ONCE) {
                match request {
                    LogRequest::Write(waiting) => {
                        waiting.record.write_record(waiting.time, &mut bytes);
                        self.counts.pending[waiting.worker].0.fetch_sub(1, Relaxed);
                        records += 1;
                    }
                    LogRequest::Reopen(answer) => {
                        reopen = Some(answer);
                        break;
                    }
                }
            }
            self.write_records(&bytes, records);
            if let Some(answer) = reopen {
                // The requester may have stopped waiting.
                let _ = answer.send(append_to(&self.path).map(|again| self.file = again));
            }
        }
    }

    fn write_records(&mut self, bytes: &[u8], records: u64) {
        let written = self.make_room(bytes.len()).and_then(|()| write_whole(&mut self.file, bytes));
        let count = if written.is_ok() { &self.counts.written } else { &self.counts.lost };
        count.fetch_add(records, Relaxed);
        self.report_failure(Some(written));
    }

    /// Reports write errors when a message is due.
    fn report_failure(&mut self, latest: Option<io::Result<()>>) {
        self.complaints.report_attempt(latest, self.counts.lost.load(Relaxed), Instant::now());
    }

    /// Starts another file if this one would exceed its limit; the old one is kept.
    fn make_room(&mut self, bytes: usize) -> io::Result<()> {
        let now = self.file.metadata()?;
        let is_room = self.most == 0 || now.len() + bytes as u64 <= self.most;
        if is_room || !now.is_file() || now.len() <= file_header().len() as u64 {
            return Ok(());
        }
        files::rename_to_old(&self.path)?;
        self.file = append_to(&self.path)?;
        Ok(())
    }
}

/// Writes all records or none, since readers can't skip a truncated one. A file that was emptied
/// gets a new header.
fn write_whole(file: &mut File, bytes: &[u8]) -> io::Result<()> {
    let before = file.metadata()?;
    let is_empty = before.is_file() && before.len() == 0;
    let written = match is_empty && !bytes.is_empty() {
        true => file.write_all(&[&file_header(), bytes].concat()),
        false => file.write_all(bytes),
    };
    written.inspect_err(|_| {
        if before.is_file() {
            // If even this fails, nothing else can be done.
            let _ = file.set_len(before.len());
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use artery_filter::dissect::FilterDropReason;
    use artery_filter::facts::{Direction, Family};
    use artery_filter::log::LogAction;
    use std::os::unix::fs::PermissionsExt as _;

    fn record() -> LogRecord {
        LogRecord {
            log: 0,
            action: LogAction::Block,
            reason: FilterDropReason::Match,
            interface: "em0".into(),
            anchor: String::new(),
            rule: Some(1),
            rule_in_anchor: None,
            family: Family::Inet,
            direction: Direction::In,
            length: 28,
            packet: vec![0x45; 28],
        }
    }

    /// The length of a record in a file.
    const RECORD: u64 = 16 + 64 + 28;

    #[test]
    fn what_is_logged_is_in_the_file_at_the_end_and_the_next_log_goes_on_there() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("pflog");
        for times in 1..=2 {
            let log = LogFile::open(path.to_str().unwrap(), FileSize(0), 2, &LogFiles::default()).unwrap();
            (0..100).for_each(|n| log.enqueue_record(n % 2, record(), Duration::from_secs(7)));
            drop(log);
            assert_eq!(std::fs::metadata(&path).unwrap().len(), 24 + times * 100 * RECORD);
        }
    }

    #[test]
    fn a_file_that_was_renamed_is_opened_again_by_its_name_and_loses_no_record() {
        let folder = tempfile::tempdir().unwrap();
        let (path, renamed) = (folder.path().join("pflog"), folder.path().join("pflog.0"));
        let all = LogFiles::default();
        let log = LogFile::open(path.to_str().unwrap(), FileSize(0), 1, &all).unwrap();
        (0..70).for_each(|_| log.enqueue_record(0, record(), Duration::ZERO));
        std::fs::rename(&path, &renamed).unwrap();
        assert_eq!(all.reopen_all(), Vec::<String>::new());
        (0..30).for_each(|_| log.enqueue_record(0, record(), Duration::ZERO));
        // If the name is taken by something else, the log continues in the open file.
        std::fs::rename(&path, folder.path().join("pflog.1")).unwrap();
        std::fs::write(&path, "dear reader").unwrap();
        let [failure] = &all.reopen_all()[..] else { panic!() };
        assert!(failure.contains("pflog again: there is something else than a log of packets"), "{failure}");
        (0..5).for_each(|_| log.enqueue_record(0, record(), Duration::ZERO));
        drop(log);
        assert_eq!(all.reopen_all(), Vec::<String>::new(), "nothing is open any more");
        let length = |name: &str| std::fs::metadata(folder.path().join(name)).unwrap().len();
        assert_eq!(length("pflog.0"), 24 + 70 * RECORD);
        assert_eq!(length("pflog.1"), 24 + 35 * RECORD);
        assert_eq!(length("pflog"), 11);
    }

    #[test]
    fn a_file_that_is_emptied_begins_with_its_head_again() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("pflog");
        let log = LogFile::open(path.to_str().unwrap(), FileSize(0), 1, &LogFiles::default()).unwrap();
        log.enqueue_record(0, record(), Duration::ZERO);
        while log.counts() != [1, 0] {
            std::thread::yield_now();
        }
        File::options().write(true).open(&path).unwrap().set_len(0).unwrap();
        (0..3).for_each(|_| log.enqueue_record(0, record(), Duration::ZERO));
        drop(log);
        let found = std::fs::read(&path).unwrap();
        assert_eq!(found.len() as u64, 24 + 3 * RECORD);
        assert!(found.starts_with(&file_header()));
    }

    #[test]
    fn a_file_that_would_get_too_long_is_kept_as_old_and_another_begun() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("pflog");
        let most = 24 + 10 * RECORD;
        let log = LogFile::open(path.to_str().unwrap(), FileSize(most), 1, &LogFiles::default()).unwrap();
        for n in 1..=25 {
            log.enqueue_record(0, record(), Duration::ZERO);
            while log.counts() != [n, 0] {
                std::thread::yield_now();
            }
        }
        drop(log);
        let about = |name: &str| std::fs::metadata(folder.path().join(name)).unwrap();
        assert_eq!((about("pflog.old").len(), about("pflog").len()), (most, 24 + 5 * RECORD));
        assert_eq!(about("pflog").permissions().mode() & 0o777, 0o600);
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 2);
    }

    #[test]
    fn a_flood_of_one_worker_leaves_the_others_their_room() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("pflog");
        let log = LogFile::open(path.to_str().unwrap(), FileSize(0), 2, &LogFiles::default()).unwrap();
        (0..50 * MOST_WAITING).for_each(|_| log.enqueue_record(0, record(), Duration::ZERO));
        let [_, lost] = log.counts();
        log.enqueue_record(1, record(), Duration::ZERO);
        assert_eq!(log.counts()[1], lost, "the other's is on its way");
        drop(log);
        let written = (std::fs::metadata(&path).unwrap().len() - 24) / RECORD;
        assert_eq!(written + lost, 50 * MOST_WAITING as u64 + 1);
    }

    #[test]
    fn what_is_no_log_is_left_alone_with_the_remedy() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("letter");
        std::fs::write(&path, "dear reader").unwrap();
        let error = LogFile::open(path.to_str().unwrap(), FileSize(0), 1, &LogFiles::default())
            .err()
            .unwrap()
            .to_string();
        assert!(error.contains("name another file"), "{error}");
        assert_eq!(std::fs::read(&path).unwrap(), b"dear reader");
        let missing = folder.path().join("no/such");
        assert!(LogFile::open(missing.to_str().unwrap(), FileSize(0), 1, &LogFiles::default()).is_err());
    }

    #[test]
    fn what_a_disk_does_not_take_is_lost_and_counted() {
        let log = LogFile::open("/dev/full", FileSize(0), 1, &LogFiles::default());
        // Its head can't be written either.
        assert!(log.is_err());
    }
}
