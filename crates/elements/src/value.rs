//! What is written to handlers, read as an argument of the same type would be.
use artery_engine::names::Names;
use artery_engine::{ArgValue, HandlerError};

/// Reads a handler's value.
pub(crate) fn value<T: ArgValue>(text: &str) -> Result<T, HandlerError> {
    let refused = |wants| HandlerError::refused(format!("'{}' is not {wants}", text.trim()));
    T::parse(text.trim(), &Names::default()).map_err(refused)
}
