//! Records by NATS JetStream: the server keeps them, in files, for machines that join or were away.

use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, bail};
use artery_fleet_record::Batch;
use async_nats::Client;
use async_nats::jetstream::Context;
use async_nats::jetstream::consumer::DeliverPolicy;
use async_nats::jetstream::consumer::push::{Ordered, OrderedConfig};
use async_nats::jetstream::context::ContextBuilder;
use async_nats::jetstream::stream::{self, StorageType};
use bytes::Bytes;
use futures::StreamExt;
use tokio::time::timeout;

use super::core_nats::{connect, subject};
use super::{Inbox, MirrorOptions};
use crate::own::Own;

const NAME: &str = "trial";

/// Messages that the server has not acknowledged yet.
const WINDOW: usize = 2000;

/// How long the server may take for a message, and for its start.
const LIMIT: Duration = Duration::from_secs(10);

pub(crate) struct StreamMirror {
    client: Client,
    context: Context,
    stream: stream::Stream,
    machine: u32,
    inbox: Inbox,
}

impl StreamMirror {
    pub(super) async fn start(options: &MirrorOptions, inbox: Inbox) -> Result<StreamMirror> {
        let client = connect(options).await?;
        let context = ContextBuilder::new()
            .timeout(LIMIT)
            .max_ack_inflight(WINDOW)
            .backpressure_on_inflight(true)
            .build(client.clone());
        let opened = timeout(LIMIT, open(&context)).await;
        let stream = opened.context("the server does not answer")?.context("cannot open the stream")?;
        let mirror = StreamMirror { client, context, stream, machine: options.machine, inbox };
        let mut changes = mirror.consume(subject("changes", "*"), DeliverPolicy::New).await?;
        let receiver = mirror.inbox.clone();
        tokio::spawn(async move {
            while let Some(message) = changes.next().await {
                match message {
                    Ok(message) => receiver.receive(&message.payload),
                    Err(error) => eprintln!("the stream was interrupted: {error}"),
                }
            }
        });
        Ok(mirror)
    }

    pub(super) async fn publish(&self, batch: Bytes) -> Result<()> {
        self.send(subject("changes", &self.machine.to_string()), batch).await
    }

    pub(super) async fn store(&self, own: &Own) -> Result<()> {
        for part in own.copy() {
            self.publish(part).await?;
        }
        self.context.wait_for_acks().await;
        Ok(())
    }

    pub(super) async fn fetch(&self, machine: u32) -> Result<()> {
        let mut messages = self.consume(subject("changes", &machine.to_string()), DeliverPolicy::All).await?;
        while let Some(message) = timeout(LIMIT, messages.next()).await.context("the server is silent")? {
            let message = message?;
            self.inbox.replica.receive_copy(&message.payload)?;
            let pending = message.info().map_err(|error| anyhow!(error))?.pending;
            if pending == 0 {
                let last = Batch::parse(&message.payload)?.header().sequence;
                self.inbox.replica.end_copy(machine, last);
                return Ok(());
            }
        }
        bail!("the state of machine {machine} ended early")
    }

    /// Sends a message; its acknowledgement is awaited by the context, which lets no more
    /// than a window go ahead.
    async fn send(&self, subject: String, payload: Bytes) -> Result<()> {
        drop(self.context.publish(subject, payload).await?);
        Ok(())
    }

    async fn consume(&self, filter_subject: String, deliver_policy: DeliverPolicy) -> Result<Ordered> {
        let deliver_subject = self.client.new_inbox();
        let config =
            OrderedConfig { deliver_subject, filter_subject, deliver_policy, ..OrderedConfig::default() };
        let consumer = self.stream.create_consumer(config).await.context("cannot create a consumer")?;
        consumer.messages().await.context("cannot read the stream")
    }
}

async fn open(context: &Context) -> Result<stream::Stream> {
    let config = stream::Config {
        name: NAME.into(),
        subjects: vec![subject("changes", "*")],
        storage: StorageType::File,
        num_replicas: 1,
        ..stream::Config::default()
    };
    Ok(context.get_or_create_stream(config).await?)
}
