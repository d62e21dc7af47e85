//! Records by NATS JetStream: the server keeps them, in files, for machines that join or were away.

use std::fmt::Write as _;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, bail};
use artery_fleet_record::{Batch, BatchWriter, ExceptionRecord};
use async_nats::Client;
use async_nats::jetstream::Context;
use async_nats::jetstream::consumer::DeliverPolicy;
use async_nats::jetstream::consumer::push::{Ordered, OrderedConfig};
use async_nats::jetstream::context::ContextBuilder;
use async_nats::jetstream::stream::{self, DiscardPolicy, StorageType};
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

/// What the server keeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Layout {
    /// Batches in the order in which they came, for ever.
    Batches,
    /// The last record of each flow, in a bucket of the key-value store.
    Keys,
}

pub(crate) struct StreamMirror {
    client: Client,
    context: Context,
    stream: stream::Stream,
    layout: Layout,
    machine: u32,
    inbox: Inbox,
}

impl StreamMirror {
    pub(super) async fn start(options: &MirrorOptions, inbox: Inbox, layout: Layout) -> Result<StreamMirror> {
        let client = connect(options).await?;
        let context = ContextBuilder::new()
            .timeout(LIMIT)
            .max_ack_inflight(WINDOW)
            .backpressure_on_inflight(true)
            .build(client.clone());
        let opened = timeout(LIMIT, open(&context, layout)).await;
        let stream = opened.context("the server does not answer")?.context("cannot open the stream")?;
        let mirror = StreamMirror { client, context, stream, layout, machine: options.machine, inbox };
        let mut changes = mirror.consume(mirror.subjects("*"), DeliverPolicy::New).await?;
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
        match self.layout {
            Layout::Batches => self.send(subject("changes", &self.machine.to_string()), batch).await,
            Layout::Keys => self.put_records(&batch).await,
        }
    }

    pub(super) async fn store(&self, own: &Own) -> Result<()> {
        for part in own.copy() {
            self.publish(part).await?;
        }
        self.context.wait_for_acks().await;
        Ok(())
    }

    pub(super) async fn fetch(&self, machine: u32) -> Result<()> {
        let mut messages = self.consume(self.subjects(&machine.to_string()), DeliverPolicy::All).await?;
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

    /// Puts each record of a batch by itself, as a batch of one.
    async fn put_records(&self, bytes: &[u8]) -> Result<()> {
        let batch = Batch::parse(bytes)?;
        for record in batch.records() {
            let record = record?;
            let mut single = BatchWriter::new(batch.header(), 1);
            single.push(&record);
            let key = format!("$KV.{NAME}.{}.{}", self.machine, key(&record));
            self.send(key, single.finish().into()).await?;
        }
        Ok(())
    }

    async fn consume(&self, filter_subject: String, deliver_policy: DeliverPolicy) -> Result<Ordered> {
        let deliver_subject = self.client.new_inbox();
        let config =
            OrderedConfig { deliver_subject, filter_subject, deliver_policy, ..OrderedConfig::default() };
        let consumer = self.stream.create_consumer(config).await.context("cannot create a consumer")?;
        consumer.messages().await.context("cannot read the stream")
    }

    /// Which messages come from a machine, or from any (`*`).
    fn subjects(&self, machine: &str) -> String {
        match self.layout {
            Layout::Batches => subject("changes", machine),
            Layout::Keys => format!("$KV.{NAME}.{machine}.>"),
        }
    }
}

async fn open(context: &Context, layout: Layout) -> Result<stream::Stream> {
    let config = stream::Config { storage: StorageType::File, num_replicas: 1, ..stream::Config::default() };
    let config = match layout {
        Layout::Batches => {
            stream::Config { name: NAME.into(), subjects: vec![subject("changes", "*")], ..config }
        }
        // What a bucket is on the server. `create_key_value` does not understand what nats-server 2.9 answers
        // when it is asked about the account.
        Layout::Keys => stream::Config {
            name: format!("KV_{NAME}"),
            subjects: vec![format!("$KV.{NAME}.>")],
            max_messages_per_subject: 1,
            discard: DiscardPolicy::New,
            allow_rollup: true,
            allow_direct: true,
            deny_delete: true,
            ..config
        },
    };
    Ok(context.get_or_create_stream(config).await?)
}

/// The bytes of the flow's key, as a word that keys of the store may have.
fn key(record: &ExceptionRecord) -> String {
    let bytes = record.encode();
    bytes[1..8].iter().chain(&bytes[32..]).fold(String::with_capacity(78), |mut word, byte| {
        // Writing to a string does not fail.
        let _ = write!(word, "{byte:02x}");
        word
    })
}
