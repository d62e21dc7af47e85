use artery_engine::{Arg, ArgError, Class, Context, Element, StartError};

pub static CLASS: Class = Class {
    name: "Message",
    group: "basic",
    summary: "prints a message when the router starts",
    manual: "
Prints MESSAGE on standard error when the router starts. With TYPE WARNING it is a warning of the
configuration, with its place; with TYPE ERROR it is an error, and the router does not start. A configuration
can tell its users something with it.",
    example: "Message(\"port 0 is the inside\");",
    ports: "0/0",
    args: &[
        Arg::required("MESSAGE", "text", "what to print"),
        Arg::optional("TYPE", "MESSAGE, WARNING or ERROR", "MESSAGE", "how serious it is"),
    ],
    build: |args| {
        let (message, kind): (String, String) = (args.read("MESSAGE")?, args.read("TYPE")?);
        match kind.as_str() {
            "MESSAGE" => Ok(Box::new(Message { line: Some(message) })),
            "WARNING" => {
                args.warn(message, None);
                Ok(Box::new(Message { line: None }))
            }
            "ERROR" => Err(ArgError::wrong(message)),
            _ => Err(ArgError::wrong("unrecognized message type")),
        }
    },
    ..Class::DEFAULT
};

struct Message {
    /// None if it was already reported, as a warning.
    line: Option<String>,
}

impl Element for Message {
    fn start(&mut self, cx: &mut Context<'_>) -> Result<(), StartError> {
        if let Some(line) = &self.line {
            cx.print_message(line);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use artery_engine::Bench;

    #[test]
    fn messages_and_warnings_are_printed_at_the_start() {
        assert_eq!(Bench::new(&CLASS, "\"hello, you\"").stderr_text(), "hello, you\n");
        let bench = Bench::new(&CLASS, "old, WARNING");
        assert_eq!((bench.warnings(), bench.stderr_text()), ("old\n".into(), String::new()));
    }

    #[test]
    fn an_error_keeps_the_router_from_starting() {
        assert_eq!(Bench::config_error(&CLASS, "\"do not use\", ERROR"), "do not use");
        assert!(Bench::config_error(&CLASS, "x, LOUD").starts_with("unrecognized message type"));
        assert_eq!(Bench::config_error(&CLASS, ""), "MESSAGE: required argument missing");
    }
}
