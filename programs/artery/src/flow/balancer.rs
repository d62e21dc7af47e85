//! The FlowBalancer of a running router, as commands read and write it.
use super::FlowReach;
use crate::control_socket::Client;
use crate::ip_router::{choose_element, elements};
use anyhow::Context as _;
use serde_json::Value;

const CLASS: &str = "FlowBalancer";
/// Writes of a handler that may be pending at a time: enough that neither side waits for the other, and few
/// enough that their replies fit in a socket's buffer.
const AHEAD: usize = 8;

/// A FlowBalancer that runs.
pub(super) struct Balancer {
    client: Client,
    name: String,
}

impl Balancer {
    /// Connects to the router and finds the element.
    pub(super) fn find(reach: &FlowReach) -> anyhow::Result<Balancer> {
        let mut client = Client::connect(&reach.reach)?;
        let elements = elements(&mut client)?;
        let name = choose_element(&elements, CLASS, reach.balancer.as_deref(), "--balancer")?;
        Ok(Balancer { client, name })
    }

    /// What a handler says.
    pub(super) fn query(&mut self, handler: &str, parameters: &str) -> anyhow::Result<String> {
        self.client.query(&format!("{}.{handler}", self.name), parameters)
    }

    /// What a handler says with a line of JSON for each worker.
    pub(super) fn query_workers(&mut self, handler: &str, parameters: &str) -> anyhow::Result<Vec<Value>> {
        let text = self.query(handler, parameters)?;
        let lines: Result<_, _> = text.lines().map(serde_json::from_str).collect();
        lines.with_context(|| format!("what the router says by {handler} makes no sense"))
    }

    /// Has a handler change something.
    pub(super) fn write(&mut self, handler: &str, text: &str) -> anyhow::Result<()> {
        self.client.write_plain(&format!("{}.{handler}", self.name), text)
    }

    /// Has a handler take one text after the other. The next are under way while one is taken; the
    /// first refusal ends it.
    pub(super) fn write_all(
        &mut self,
        handler: &str,
        texts: impl Iterator<Item = String>,
    ) -> anyhow::Result<()> {
        let (handler, mut under_way) = (format!("{}.{handler}", self.name), 0);
        for text in texts {
            if under_way == AHEAD {
                self.client.finish_write(&handler)?;
                under_way -= 1;
            }
            self.client.begin_write(&handler, &text)?;
            under_way += 1;
        }
        (0..under_way).try_for_each(|_| self.client.finish_write(&handler))
    }
}

/// A sum over all workers.
pub(super) fn sum(workers: &[Value], key: &str) -> u64 {
    workers.iter().map(|worker| worker[key].as_u64().unwrap_or(0)).sum()
}
