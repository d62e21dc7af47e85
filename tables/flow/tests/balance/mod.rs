//! Members that come and go, through what workers see of them.
mod choice;
mod health;
mod local;
mod model;
mod moved;
mod readers;
mod resilient;
mod rig;
mod text;
