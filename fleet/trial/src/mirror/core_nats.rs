//! Records by core NATS: a server passes them on and keeps none.

use std::time::Duration;

use anyhow::{Context, Result, bail};
use async_nats::{Client, ConnectOptions, Message};
use bytes::Bytes;
use futures::StreamExt;
use tokio::time::timeout;

use super::{FLEET, Inbox, MirrorOptions};
use crate::own::Own;

/// Two parts of a whole state come within this time.
const PART_LIMIT: Duration = Duration::from_secs(5);

pub(crate) struct CoreNats {
    client: Client,
    changes: String,
    inbox: Inbox,
}

impl CoreNats {
    pub(super) async fn start(options: &MirrorOptions, inbox: Inbox) -> Result<CoreNats> {
        let client = connect(options).await?;
        let machine = options.machine.to_string();
        let mut changes = client.subscribe(subject("changes", "*")).await?;
        let receiver = inbox.clone();
        tokio::spawn(async move {
            while let Some(message) = changes.next().await {
                receiver.receive(&message.payload);
            }
        });
        let mut requests = client.subscribe(subject("state", &machine)).await?;
        let (answering, own) = (client.clone(), inbox.own.clone());
        tokio::spawn(async move {
            while let Some(request) = requests.next().await {
                if let Err(error) = answer(&answering, &own, &request).await {
                    eprintln!("a request was not answered to its end: {error:#}");
                }
            }
        });
        Ok(CoreNats { client, changes: subject("changes", &machine), inbox })
    }

    pub(super) async fn publish(&self, batch: Bytes) -> Result<()> {
        Ok(self.client.publish(self.changes.clone(), batch).await?)
    }

    pub(super) async fn fetch(&self, machine: u32) -> Result<()> {
        let reply = self.client.new_inbox();
        let mut parts = self.client.subscribe(reply.clone()).await?;
        let from = subject("state", &machine.to_string());
        self.client.publish_with_reply(from, reply, Bytes::new()).await?;
        while let Some(part) = timeout(PART_LIMIT, parts.next()).await.context("no answer")? {
            if part.status.is_some() {
                bail!("machine {machine} is not connected to the server");
            }
            if self.inbox.replica.receive_copy(&part.payload)? {
                return Ok(());
            }
        }
        bail!("the state of machine {machine} ended early")
    }
}

/// Connects, or goes on trying; a server that is silent for two seconds counts as gone.
pub(super) async fn connect(options: &MirrorOptions) -> Result<Client> {
    let address = format!("{}:4222", options.server);
    let connecting = ConnectOptions::new()
        .name(format!("machine {}", options.machine))
        .ping_interval(Duration::from_millis(options.lease_ms))
        .connection_timeout(Duration::from_secs(1))
        .reconnect_delay_callback(|_| Duration::from_millis(200))
        .retry_on_initial_connect()
        .connect(&address);
    connecting.await.with_context(|| format!("cannot connect to NATS at {address}"))
}

async fn answer(client: &Client, own: &Own, request: &Message) -> Result<()> {
    let Some(reply) = &request.reply else { return Ok(()) };
    for part in own.copy() {
        client.publish(reply.clone(), part).await?;
    }
    Ok(())
}

pub(super) fn subject(what: &str, machine: &str) -> String {
    [FLEET[0], FLEET[1], what, machine].join(".")
}
