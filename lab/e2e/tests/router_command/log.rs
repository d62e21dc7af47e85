//! `--log json`: each line on standard error is JSON, from the first mistake to the report.
use super::SOON;
use artery_rig::program::artery;
use artery_rig::{Host, Result, Rig};
use serde_json::Value;

/// The lines of a text, each a message with what all messages have.
fn messages(text: &str) -> Vec<Value> {
    let message = |line: &str| {
        let json: Value =
            serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}\n{text}"));
        for key in ["time", "level", "event", "message"] {
            assert!(json[key].is_string(), "no {key}: {line}");
        }
        json
    };
    text.lines().map(message).collect()
}

/// What a router says that does not start, whose status is given.
fn refused(host: &Host, status: i32, options: &[&str]) -> Result<Vec<Value>> {
    let output = host.command([artery()?]).args(["router", "--log", "json"]).args(options).output()?;
    assert_eq!(output.code(), Some(status), "{}", output.stderr);
    Ok(messages(&output.stderr))
}

#[test]
fn all_that_a_router_says_is_json_from_its_start_to_its_report() {
    artery_rig::test("router-log", |rig: &Rig| {
        let (a, r) = (rig.host("a")?, rig.host("r")?);
        rig.link(&a, "eth0", &r, "eth0")?;
        // That the host has the router's address is worth a warning.
        r.address("eth0", "10.0.1.1/24")?;
        let options = ["--port", "eth0=10.0.1.1/24", "--log", "json", "--stats=200ms"];
        let mut router = r.command([artery()?]).arg("router").args(options).spawn()?;
        router.wait_for("\"event\":\"counters\"", SOON)?;
        r.run(["kill", "-HUP", &router.id().to_string()])?;
        router.wait_for("\"event\":\"reloaded\"", SOON)?;
        let said = messages(&router.stop(SOON)?.stderr);
        let of = |event: &str| {
            said.iter().find(|line| line["event"] == event).unwrap_or_else(|| panic!("{event}: {said:#?}"))
        };
        assert!(said.iter().any(|line| line["level"] == "warning"), "{said:#?}");
        assert!(of("element")["message"].as_str().unwrap().starts_with("from_eth0: "), "{said:#?}");
        assert!(of("counters")["elements"].is_array() && of("report")["seconds"].is_number());
        assert_eq!(of("report")["version"], env!("CARGO_PKG_VERSION"));
        assert_eq!(of("stopping")["signal"], "SIGTERM");

        let one = refused(&r, 2, &["--port", "eth0=10.0.1.1/33"])?;
        assert!(one.iter().any(|line| line["level"] == "error"), "{one:#?}");
        assert!(one[0]["message"].as_str().unwrap().contains("from 0 to 32"), "{one:#?}");
        let two = refused(&r, 2, &["--port", "eth0=10.0.1.1/33", "--route", "nonsense"])?;
        assert_eq!(two.len(), 3, "{two:#?}");
        let missing = refused(&r, 1, &["--port", "eth0=10.0.1.1/24", "--port", "eth9=10.0.2.1/24"])?;
        assert!(missing[0]["message"].as_str().unwrap().contains("eth9: no such interface"), "{missing:#?}");
        assert!(missing[1]["message"].as_str().unwrap().contains("nothing was started"), "{missing:#?}");
        let usage = refused(&r, 2, &["--nonsense"])?;
        assert!(usage[0]["message"].as_str().unwrap().contains("--nonsense"), "{usage:#?}");
        Ok(())
    });
}
