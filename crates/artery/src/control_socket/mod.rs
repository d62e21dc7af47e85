//! Handlers of a running router, from outside: ControlSocket 1.3 over TCP and Unix sockets.
mod asked;
mod client;
mod codec;
mod server;
mod service;

pub(crate) use asked::{Names, Question, Questions};
pub(crate) use client::{Client, call};
pub(crate) use server::{Control, Listeners, Talker, Traffic};
pub(crate) use service::Service;
