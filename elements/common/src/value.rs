//! Parses texts written to handlers like arguments of the same type.
use artery_engine::names::Names;
use artery_engine::{ArgValue, HandlerError};

/// Reads a handler's value.
pub fn parse_value<T: ArgValue>(text: &str) -> Result<T, HandlerError> {
    let refused = |wants| HandlerError::refused(format!("'{}' is not {wants}", text.trim()));
    T::parse(text.trim(), &Names::default()).map_err(refused)
}
