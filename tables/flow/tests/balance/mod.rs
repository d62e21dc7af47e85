//! Members that come and go, through what workers see of them.
mod choice;
mod health;
mod local;
mod model;
mod moved;
mod other_tables;
mod readers;
mod resilient;
mod rig;
mod text;
