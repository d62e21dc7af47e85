//! What the arguments of FlowBalancer ask for: checked, and made.
use super::nat_flows::NatFlows;
use artery_engine::{ArgError, Args};
use artery_flow::{FlowKey, FlowLimits, FlowSettings, FlowTable, IdleTimes, Seed};
use artery_forward::shortcut::Shortcut;
use artery_storage::{HugePages, Pages, Storage};

/// Whether packets are translated on their way to members.
pub(super) fn is_nat(args: &Args<'_>) -> Result<bool, ArgError> {
    match args.read::<String>("FORWARD")?.as_str() {
        "direct" => Ok(false),
        "nat" => Ok(true),
        other => Err(ArgError::wrong_at(other, format!("FORWARD is 'direct' or 'nat', not '{other}'"))),
    }
}

/// The shortcut past the forwarders of ROUTER, if that is given.
pub(super) fn build_shortcut(
    args: &Args<'_>,
    takes_frames: bool,
    is_nat: bool,
) -> Result<Option<Shortcut>, ArgError> {
    match (args.is_given("ROUTER"), takes_frames, is_nat) {
        (false, ..) => Ok(None),
        (true, true, false) => Shortcut::new(args).map(Some),
        (true, false, _) => Err(ArgError::wrong("ROUTER is for whole frames; write FRAMES true, too")),
        (true, true, true) => {
            Err(ArgError::wrong("frames that are translated go by the forwarders alone; leave ROUTER out"))
        }
    }
}

/// Refuses connected inputs and outputs that are never used.
pub(super) fn check_ports(
    args: &Args<'_>,
    takes_frames: bool,
    shortcut: Option<&Shortcut>,
) -> Result<(), ArgError> {
    let (inputs, outputs) = (args.inputs(), args.outputs());
    let wanted = match shortcut.map(Shortcut::port_count) {
        Some(ports) if inputs > ports || outputs != inputs + ports => {
            format!(
                "a ROUTER with {ports} ports takes {ports} inputs at most, and {ports} outputs more than \
                 inputs"
            )
        }
        None if takes_frames && inputs != outputs => {
            "with FRAMES there are as many outputs as inputs".to_string()
        }
        None if !takes_frames && (inputs > 2 || outputs > 3) => {
            "without FRAMES there are 2 inputs and 3 outputs at most".to_string()
        }
        _ => return Ok(()),
    };
    Err(ArgError::wrong(format!("{inputs} inputs and {outputs} outputs are connected; {wanted}")))
}

/// The set of translated flows that all copies share.
pub(super) fn nat_flows(args: &Args<'_>) -> Result<NatFlows, ArgError> {
    let flows = (args.read::<u32>("FLOWS")? as usize).saturating_mul(args.copy_index().1);
    NatFlows::new(flows, &idle_times(args)?)
        .map_err(|error| ArgError::wrong(format!("no memory for FLOWS {flows} with FORWARD nat: {error}")))
}

fn idle_times(args: &Args<'_>) -> Result<IdleTimes, ArgError> {
    match args.read::<String>("PRESET")?.as_str() {
        "default" => Ok(IdleTimes::default()),
        "paper" => Ok(IdleTimes::PAPER),
        other => Err(ArgError::wrong_at(other, format!("PRESET is 'default' or 'paper', not '{other}'"))),
    }
}

/// The table of flows that the arguments describe; none without STATE.
pub(super) fn build_table<K: FlowKey>(
    args: &Args<'_>,
    has_service: bool,
) -> Result<Option<FlowTable<K>>, ArgError> {
    let limits = FlowLimits { flows: args.read("FLOWS")?, young: args.read("YOUNG")? };
    let idle = idle_times(args)?;
    if !args.read::<bool>("STATE")? {
        return Ok(None);
    }
    let settings = FlowSettings { idle, ..FlowSettings::default() };
    let reserve: u32 = args.read("RESERVE")?;
    // Huge pages that are allocated while packets flow would delay them.
    let storage: &dyn Storage = if reserve > 0 { &HugePages } else { &Pages };
    let table = FlowTable::new(limits, settings, Seed::random(), storage);
    let mut table =
        table.map_err(|error| ArgError::wrong(format!("no memory for FLOWS {}: {error}", limits.flows)))?;
    if has_service {
        table.populate_memory(reserve);
    }
    Ok(Some(table))
}
