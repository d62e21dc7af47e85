//! Write access to handlers: by the token of a TCP port, or by the user at the other end of a Unix socket.
use super::codec::reply;
use super::port::PortRequest;
use artery_device::{files, system_message};
use std::fs::{File, OpenOptions};
use std::io::{Read as _, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// How long a control connection may be idle by default.
pub(super) const IDLE: Duration = Duration::from_secs(300);
/// Bytes of a token that is made, before it is written in hexadecimal.
const RANDOM_BYTES: usize = 32;
/// Shortest and longest token that is taken from a file, in bytes.
const TOKEN_LENGTHS: std::ops::RangeInclusive<usize> = 16..=128;

/// The control sockets of a router, and the access that each gives.
#[derive(Clone, Debug)]
pub(crate) struct ControlSettings {
    pub(crate) ports: Vec<PortRequest>,
    pub(crate) sockets: Vec<PathBuf>,
    pub(crate) tcp: TcpWrites,
    /// Whose members may connect to the Unix sockets, and read.
    pub(crate) read_group: Option<Group>,
    /// How long a connection may be idle.
    pub(crate) idle: Duration,
}

impl Default for ControlSettings {
    fn default() -> ControlSettings {
        let tcp = TcpWrites::Token(None);
        ControlSettings { ports: Vec::new(), sockets: Vec::new(), tcp, read_group: None, idle: IDLE }
    }
}

/// Write access by the TCP ports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum TcpWrites {
    /// Clients with the token of this file, or of one in the runtime directory.
    Token(Option<PathBuf>),
    /// Every client that connects.
    Open,
}

/// A group of users.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Group {
    pub(crate) name: String,
    pub(crate) id: u32,
}

impl std::str::FromStr for Group {
    type Err = String;
    fn from_str(text: &str) -> Result<Group, String> {
        let name = text.to_string();
        if let Ok(id) = text.parse() {
            return Ok(Group { name, id });
        }
        let groups = std::fs::read_to_string("/etc/group").map_err(|error| {
            format!("can't read /etc/group: {}; write the group's number", system_message(&error))
        })?;
        let id = group_id(&groups, text);
        id.map(|id| Group { name, id }).ok_or_else(|| "/etc/group has no such group".to_string())
    }
}

/// The number of a group in the lines of group(5): `name:password:number:members`.
fn group_id(groups: &str, name: &str) -> Option<u32> {
    let line = groups.lines().find(|line| line.split(':').next() == Some(name))?;
    line.split(':').nth(2)?.parse().ok()
}

/// The peer of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Peer {
    /// Any local user, or a program that one of them was made to run.
    Tcp,
    /// Root, or the user that the router runs as, on a Unix socket.
    Owner,
    /// Another user on a Unix socket.
    Reader,
}

/// Allows writing to every client that knows it.
pub(crate) struct Token {
    text: String,
    file: PathBuf,
    /// Whether the file goes with the router.
    is_temporary: bool,
}

impl Token {
    /// The token of a file that the user names, which is made if it does not exist.
    pub(super) fn named(file: &Path) -> anyhow::Result<Token> {
        let wrong = |why: String| anyhow::anyhow!("--token-file {}: {why}", file.display());
        let text = match std::fs::symlink_metadata(file) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                create(file).map_err(|error| wrong(system_message(&error)))?
            }
            _ => read_private(file).map_err(wrong)?,
        };
        Ok(Token { text, file: file.to_path_buf(), is_temporary: false })
    }

    /// A token for this run, in a file of the runtime directory.
    pub(super) fn made(port: u16) -> anyhow::Result<Token> {
        let help = "name a file by --token-file, or let everybody write by --insecure";
        let Some(file) = default_token_file(port) else {
            anyhow::bail!("-p {port}: there is no $XDG_RUNTIME_DIR for the token that allows writes; {help}");
        };
        // One that a killed router left: only this user and root can write to the folder.
        let _ = std::fs::remove_file(&file);
        let made = create(&file).map_err(|error| {
            let why = system_message(&error);
            anyhow::anyhow!("-p {port}: can't write the token to {}: {why}; {help}", file.display())
        });
        Ok(Token { text: made?, file, is_temporary: true })
    }

    pub(super) fn file(&self) -> &Path {
        &self.file
    }

    /// Compares all bytes in any case, so that the time does not depend on the first ones.
    fn is(&self, other: &str) -> bool {
        let (own, other) = (self.text.as_bytes(), other.as_bytes());
        let differs = own.iter().zip(other).fold(0, |differs, (a, b)| differs | (a ^ b));
        own.len() == other.len() && std::hint::black_box(differs) == 0
    }
}

impl Token {
    /// Removes the file, if it was for this run.
    pub(super) fn remove(&self) {
        // A router in another network namespace may have put its own there.
        let is_own = || files::read_to_string(&self.file).is_ok_and(|text| text.trim_end() == self.text);
        if self.is_temporary && is_own() {
            let _ = files::remove(&self.file);
        }
    }
}

/// The default path of a TCP port's token; None where no folder is the user's alone.
pub(crate) fn default_token_file(port: u16) -> Option<PathBuf> {
    let of_user = || std::env::var_os("XDG_RUNTIME_DIR").filter(|folder| !folder.is_empty());
    let folder = if rustix::process::geteuid().is_root() { PathBuf::from("/run") } else { of_user()?.into() };
    Some(folder.join(format!("artery-{port}.token")))
}

/// Creates a file of mode 0600 with a new token. An existing file is an error.
fn create(file: &Path) -> std::io::Result<String> {
    let mut random = [0; RANDOM_BYTES];
    File::open("/dev/urandom")?.read_exact(&mut random)?;
    let text: String = random.iter().map(|byte| format!("{byte:02x}")).collect();
    let mut made = OpenOptions::new().write(true).create_new(true).mode(0o600).open(file)?;
    made.write_all(format!("{text}\n").as_bytes())?;
    Ok(text)
}

/// The token in a file that only its owner can read; the owner must be this user or root.
fn read_private(file: &Path) -> Result<String, String> {
    let no_follow = rustix::fs::OFlags::NOFOLLOW.bits() as i32;
    let non_block = rustix::fs::OFlags::NONBLOCK.bits() as i32;
    let opened = OpenOptions::new().read(true).custom_flags(no_follow | non_block).open(file);
    let opened = opened.map_err(|error| match rustix::io::Errno::from_io_error(&error) {
        Some(rustix::io::Errno::LOOP) => "this is a symbolic link; name the file itself".to_string(),
        _ => system_message(&error),
    })?;
    let about = opened.metadata().map_err(|error| system_message(&error))?;
    if !about.is_file() {
        return Err("it is not a regular file".to_string());
    }
    if about.uid() != 0 && about.uid() != rustix::process::geteuid().as_raw() {
        return Err(format!("it belongs to user {}, who could change it; name another file", about.uid()));
    }
    if about.mode() & 0o077 != 0 {
        let mode = about.mode() & 0o7777;
        return Err(format!("its mode {mode:04o} is for others too; run 'chmod 600 {}'", file.display()));
    }
    token_in(opened)
}

/// The token that a file consists of.
pub(super) fn token_in(file: impl std::io::Read) -> Result<String, String> {
    let mut bytes = Vec::new();
    let most = *TOKEN_LENGTHS.end() as u64 + 2;
    file.take(most).read_to_end(&mut bytes).map_err(|error| system_message(&error))?;
    let text = bytes.trim_ascii();
    match TOKEN_LENGTHS.contains(&text.len()) && text.iter().all(u8::is_ascii_graphic) {
        true => Ok(String::from_utf8_lossy(text).into_owned()),
        false => Err(format!(
            "a token has {} to {} letters, digits and signs, and no blanks",
            TOKEN_LENGTHS.start(),
            TOKEN_LENGTHS.end()
        )),
    }
}

/// What one connection may do.
pub(super) struct Access {
    peer: Peer,
    /// What allows a TCP connection to write; none where all may.
    token: Option<Arc<Token>>,
    may_write: bool,
}

impl Access {
    pub(super) fn new(peer: Peer, token: Option<Arc<Token>>) -> Access {
        let may_write = match peer {
            Peer::Owner => true,
            Peer::Reader => false,
            Peer::Tcp => token.is_none(),
        };
        Access { peer, token, may_write }
    }

    pub(super) fn may_write(&self) -> bool {
        self.may_write
    }

    /// Checks a token; gives the reply, and whether the connection goes on.
    pub(super) fn authenticate(&mut self, given: &str) -> (Vec<u8>, bool) {
        match &self.token {
            _ if self.may_write => (reply(200, &["No token is needed"]), true),
            Some(token) if self.peer == Peer::Tcp && token.is(given) => {
                self.may_write = true;
                (reply(200, &["Authenticated"]), true)
            }
            Some(_) if self.peer == Peer::Tcp => (reply(530, &["Wrong token"]), false),
            _ => (reply(530, &[self.why_not()]), true),
        }
    }

    /// The reply to a write that is not allowed.
    pub(super) fn refusal(&self, handler: &str) -> Vec<u8> {
        reply(530, &[format!("Permission denied for '{handler}': {}", self.why_not())])
    }

    /// Why it may not write.
    pub(super) fn why_not(&self) -> String {
        match &self.token {
            Some(token) if self.peer == Peer::Tcp => {
                format!("a write needs 'AUTH TOKEN' first; the token is in {}", token.file().display())
            }
            _ => "only root and the user that the router runs as may write".to_string(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    fn named(file: &Path) -> Result<Token, String> {
        Token::named(file).map_err(|error| error.to_string())
    }

    #[test]
    fn a_token_is_made_once_for_its_owner_alone() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("token");
        let (first, again) = (named(&file).unwrap(), named(&file).unwrap());
        assert_eq!(first.text.len(), 2 * RANDOM_BYTES);
        assert_eq!(std::fs::metadata(&file).unwrap().mode() & 0o777, 0o600);
        assert!(again.is(&first.text) && !again.is(&first.text[1..]) && !again.is(""));
        assert!(!named(&folder.path().join("other")).unwrap().is(&first.text));
        drop(first);
        assert!(file.exists());
    }

    #[test]
    fn files_that_others_can_read_or_put_there_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("token");
        drop(named(&file).unwrap());
        symlink(&file, folder.path().join("link")).unwrap();
        let why = named(&folder.path().join("link")).err().unwrap();
        assert!(why.contains("symbolic link"), "{why}");
        assert!(named(folder.path()).err().unwrap().contains("not a regular file"));
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o640)).unwrap();
        assert!(named(&file).err().unwrap().contains("chmod 600"));
        for text in ["short", "with blanks in the middle of it", &"x".repeat(129)] {
            assert!(token_in(text.as_bytes()).is_err(), "{text}");
        }
        assert_eq!(token_in(&b"0123456789abcdef\n"[..]).unwrap(), "0123456789abcdef");
    }

    #[test]
    fn a_wrong_token_ends_the_connection_and_readers_have_none() {
        let folder = tempfile::tempdir().unwrap();
        let token = Arc::new(named(&folder.path().join("token")).unwrap());
        let mut tcp = Access::new(Peer::Tcp, Some(token.clone()));
        assert!(!tcp.may_write() && !tcp.authenticate("0").1 && !tcp.may_write());
        assert!(tcp.authenticate(&token.text).1 && tcp.may_write());
        let mut reader = Access::new(Peer::Reader, Some(token.clone()));
        assert!(reader.authenticate(&token.text).1 && !reader.may_write());
        assert!(Access::new(Peer::Owner, Some(token)).may_write());
        assert!(Access::new(Peer::Tcp, None).may_write());
    }

    #[test]
    fn groups_have_names_and_numbers() {
        let groups = "root:x:0:\nstaff:x:50:a,b\nbad\n";
        assert_eq!(group_id(groups, "staff"), Some(50));
        assert_eq!(group_id(groups, "bad"), None);
        assert_eq!(group_id(groups, ""), None);
        assert_eq!("7".parse::<Group>().unwrap().id, 7);
        assert!("no-such-group".parse::<Group>().is_err());
    }
}
