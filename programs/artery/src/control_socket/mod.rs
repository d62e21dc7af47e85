//! Handlers of a running router, from outside: ControlSocket 1.3 over TCP and Unix sockets.
mod access;
mod asked;
mod client;
mod codec;
mod connections;
mod conversation;
mod port;
mod server;
mod service;
mod shortage;

pub(crate) use access::{ControlSettings, Group, TcpWrites, default_token_file};
pub(crate) use asked::{Names, Question, Questions};
pub(crate) use client::{Client, HandlerOptions, call};
#[cfg(any(test, feature = "fuzz"))]
pub(crate) use codec::survive;
pub(crate) use connections::Connection;
pub(crate) use conversation::Control;
pub(crate) use port::PortRequest;
pub(crate) use server::{Listeners, Talker};
pub(crate) use service::{OwnHandlers, Service};
