//! Handlers of a running router, from outside: ControlSocket 1.3 over TCP and Unix sockets.
mod client;
mod codec;
mod server;
mod service;

pub(crate) use client::{Client, call};
pub(crate) use server::Listeners;
pub(crate) use service::Service;
