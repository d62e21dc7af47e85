//! What a router's processes may do, as a table.
use super::table::Table;
use crate::ip_router::{list, text};
use serde_json::Value;

/// The document of `artery show security`.
pub(super) fn lines(document: &Value) -> String {
    let sandbox = match (&document["sandbox"], list(document, "processes").len()) {
        (Value::Bool(true), 1) => "on, without a helper process",
        (Value::Bool(true), _) => "on",
        _ => "off: the router keeps all rights",
    };
    let mut all = format!("sandbox   {sandbox}\nlandlock  {}\n", text(document, "landlock"));
    let folders: Vec<String> =
        list(document, "allow_path").iter().filter_map(|path| path.as_str().map(str::to_owned)).collect();
    if !folders.is_empty() {
        all += &format!("files of later configurations  {}\n", folders.join(", "));
    }
    all + "\n" + &processes(document)
}

/// A line for each kind of threads of each process. Capabilities are as `/proc/PID/status` has them.
fn processes(document: &Value) -> String {
    let mut table =
        Table::headed("PROCESS | PID: | THREADS: | CAPEFF | CAPPRM | CAPBND | CAPAMB | NONEWPRIVS | SECCOMP");
    for process in list(document, "processes") {
        for kind in list(process, "threads") {
            table.row([
                text(process, "role"),
                text(process, "pid"),
                text(kind, "threads"),
                text(kind, "capabilities_effective"),
                text(kind, "capabilities_permitted"),
                text(kind, "capabilities_bounding"),
                text(kind, "capabilities_ambient"),
                text(kind, "no_new_privileges"),
                text(kind, "seccomp"),
            ]);
        }
    }
    table.drain_text()
}
