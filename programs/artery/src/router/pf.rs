//! The packet filter around a router: its options, the judgement of its rules, and its element.
use super::options::RouterOptions;
use super::{Plan, check_plan as tables};
use crate::bsd::rules::{self, PFLOG, Surroundings, USUAL_LOG_MAX, interface_record, rules_environment};
use crate::bsd::verdict::Judged;
use artery_device::system_message;
use artery_filter::names::InterfaceRecord;
use artery_filter::syntax::FilterSite;
use artery_lang::args::quote;

/// The name of the element.
const NAME: &str = "pf";
/// Loads a text of rules behind a line with their anchor.
pub(super) const LOAD: &str = "pf.pf_load";
/// What `pfctl` asks, such as the checksum of the rules in use.
pub(super) const ASK: &str = "pf.pf";
/// The group of the ports by which default routes leave.
const EGRESS: &str = "egress";

/// The files of a filter.
#[derive(Clone, Debug)]
pub(crate) struct Filter {
    pub(crate) rules: String,
    /// The folder that its rules mean by /etc, if that is another.
    pub(crate) etc: Option<String>,
    /// Where packets of rules with `log` are written, if there are any.
    pub(crate) log: Option<String>,
    /// Most bytes of that file, as it was written.
    pub(crate) log_max: String,
}

/// The filter that options request; mistakes in them are added to `mistakes`.
pub(super) fn read_filter(options: &RouterOptions, mistakes: &mut Vec<String>) -> Option<Filter> {
    let rules = options.pf.as_ref()?.display().to_string();
    mistakes.extend(too_many_workers(options.running.workers).map(|why| format!("--pf {rules}: {why}")));
    let log = options.pflog.as_ref().map(|log| log.display().to_string());
    Some(Filter { rules, etc: None, log, log_max: options.pflog_max.clone() })
}

/// Why a filter around a router can't have as many workers.
pub(crate) fn too_many_workers(workers: u16) -> Option<String> {
    (workers > 1).then(|| {
        format!(
            "each worker has states of its own, and translated answers may come to another; leave out \
             --workers {workers}"
        )
    })
}

/// Checks the rules for this router, as `artery up` checks those of a folder. Rules that are refused are
/// added to `mistakes`. The filter itself warns of the others when it loads them.
pub(super) fn judge_rules(options: &RouterOptions, plan: &mut Plan, mistakes: &mut Vec<String>) {
    let Some(filter) = &plan.filter else { return };
    let text = match artery_device::files::read(&filter.rules) {
        Ok(text) => String::from_utf8_lossy(&text).into_owned(),
        Err(error) => return mistakes.push(format!("--pf {}: {}", filter.rules, system_message(&error))),
    };
    let surroundings = Surroundings {
        environment: rules_environment(rule_interfaces(plan), |name| artery_device::files::read(name)),
        site: FilterSite::Router { knows_routes: true },
        is_lenient: options.lenient,
    };
    let judged = rules::judge_rules(&filter.rules, &text, &surroundings);
    mistakes.extend(judged.statements.iter().filter_map(Judged::refusal));
    if let Some(filter) = plan.filter.as_mut().filter(|_| judged.has_log) {
        filter.log.get_or_insert_with(|| PFLOG.to_string());
    }
    plan.rules = Some(text);
}

/// The interfaces that rules can name: the ports.
pub(super) fn rule_interfaces(plan: &Plan) -> Vec<InterfaceRecord> {
    let outward = tables::default_route_ports(plan);
    let record = |port: &super::Port| {
        let mut record = interface_record(&port.name, &port.addresses);
        // What files of routes and routing daemons say is known once the router runs.
        let is_outward = !plan.tables.is_empty() || plan.fpm.is_some() || outward.contains(&port.name);
        record.groups.extend(is_outward.then(|| EGRESS.to_string()));
        record
    };
    plan.ports.iter().map(record).collect()
}

/// The element; empty without a filter.
pub(super) fn filter_text(plan: &Plan) -> String {
    let Some(filter) = &plan.filter else { return String::new() };
    let port = |port: &super::Port| {
        let addresses = port.addresses.iter().map(|(address, len)| format!(" {address}/{len}"));
        format!("PORT {}{}", port.name, addresses.collect::<String>())
    };
    let mut arguments: Vec<String> = plan.ports.iter().map(port).collect();
    arguments.push("ROUTER ip".to_string());
    arguments.push(format!("FILE {}", quote(&filter.rules)));
    arguments.extend(filter.etc.iter().map(|etc| format!("ETC {}", quote(etc))));
    arguments.extend(filter.log.iter().map(|log| format!("LOG {}", quote(log))));
    let is_unusual = filter.log.is_some() && filter.log_max != USUAL_LOG_MAX;
    arguments.extend(is_unusual.then(|| format!("LOG_MAX {}", filter.log_max)));
    format!(
        "\n// The packet filter. Input and output I are for packets that arrive at port I, those {} further \
         on\n\
         // for packets that leave by it.\n\
         {NAME} :: PacketFilter(\n    {});\n",
        plan.ports.len(),
        arguments.join(",\n    ")
    )
}

/// What frames of port `n` go through before they are forwarded.
pub(super) fn inbound_path(plan: &Plan, n: usize) -> String {
    plan.filter.as_ref().map_or(String::new(), |_| format!("[{n}] {NAME} [{n}] -> "))
}

/// What frames go through before they leave by port `n`.
pub(super) fn outbound_path(plan: &Plan, n: usize) -> String {
    let at = plan.ports.len() + n;
    plan.filter.as_ref().map_or(String::new(), |_| format!("[{at}] {NAME} [{at}] -> "))
}
