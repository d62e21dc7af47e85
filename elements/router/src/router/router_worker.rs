//! The router on one worker: its copy of the element, around the slow path.
use super::claims::Claims;
use super::config;
use super::limits::Rate;
use super::port_news::{PortMonitor, PortUpdates};
use super::port_update::{PortUpdate, apply_change, mtu_warning};
use super::shared_state::SharedState;
use super::slow_path::{SlowPath, SlowPathContext, SlowPathSettings};
use super::verdict::Origin;
use artery_common::chance::Chance;
use artery_device::Ports;
use artery_engine::names::Names;
use artery_engine::{
    ArgError, Args, Batch, Context, DropReason, Element, HandlerError, Interest, StartError,
};
use artery_forward::shared::{NamedRouters, SharedRouter};
use artery_l3::PortId;
use artery_l3::neighbor::claim::ClaimSettings;
use std::any::Any;
use std::sync::Arc;
use std::time::Duration;

/// The router on one worker.
pub(super) struct IpRouter {
    pub(super) router: Arc<SharedRouter>,
    /// For addresses that handlers write.
    pub(super) names: Names,
    pub(super) slow_path: SlowPath,
    /// Whether it is the copy that follows the interfaces behind the ports.
    is_first: bool,
    port_monitor: Option<PortMonitor>,
    /// The ports of the machine, by which frames go.
    pub(super) devices: Arc<Ports>,
}

impl IpRouter {
    pub(super) fn new(args: &mut Args<'_>) -> Result<IpRouter, ArgError> {
        let names = args.names().clone();
        let router = match args.already_shared::<SharedRouter>() {
            Some(router) => router,
            None => {
                let router = SharedRouter::new(args.name(), config::build_tables(args)?, args.worker().1);
                let router = args.shared_value(|| router);
                args.resource::<NamedRouters>().insert(&router);
                router
            }
        };
        let slow = build_slow_path(args)?;
        let ports = router.port_count();
        let host_ports = if slow.settings.has_host_ports { ports } else { 0 };
        if args.inputs() > ports + 2 + host_ports || args.outputs() > ports + 1 + host_ports {
            let why = format!(
                "{ports} ports have as many inputs and outputs, the host one of each, the router's own \
                 elements an input, and {host_ports} host ports as many inputs and outputs"
            );
            return Err(ArgError::wrong(why));
        }
        let (is_first, devices) = (args.copy_index().0 == 0, args.resource::<Ports>());
        Ok(IpRouter { router, names, slow_path: slow, is_first, port_monitor: None, devices })
    }

    /// What the slow path has counted: of this name, or all, a line each.
    pub(super) fn counters_text(&self, name: &str) -> Result<String, HandlerError> {
        let counters = self.slow_path.shared.total_counters();
        if name.is_empty() {
            return Ok(counters.named().map(|(name, count)| format!("{name} {count}\n")).collect());
        }
        let found = counters.named().find(|(other, _)| *other == name);
        found
            .map(|(_, count)| count.to_string())
            .ok_or_else(|| HandlerError::refused(format!("nothing is counted as '{name}'")))
    }

    /// Does what follows from a change of the tables.
    pub(super) fn tables_changed(&mut self, cx: &mut Context<'_>) {
        self.run_slow_path(cx, |slow, job| slow.change_tables(job, |_, _, _| ()));
    }

    /// Follows the interfaces behind the ports from now on.
    fn follow_interfaces(&mut self, cx: &mut Context<'_>) {
        let ports = self.router.lock_tables().ports();
        match PortMonitor::open(self.devices.clone(), &self.names, &ports) {
            Ok(news) => self.port_monitor = news,
            Err(error) => {
                let remedy = "tell it of them by its handler 'port'";
                cx.print_message(&format!(
                    "{}: can't hear of what becomes of its interfaces: {error}; {remedy}",
                    cx.name()
                ));
            }
        }
        let down = self.port_monitor.as_ref().map(PortMonitor::down_ports).unwrap_or_default();
        self.apply_changes(&down, cx);
    }

    /// Applies changes of interfaces to ports, which can't fail.
    fn apply_changes(&self, changes: &[(PortId, PortUpdate)], cx: &mut Context<'_>) {
        let now = now(cx);
        let mut tables = self.router.lock_tables();
        for (port, change) in changes {
            // It is refused only if a table is full, which is reported elsewhere.
            let _ = apply_change(&mut tables, *port, *change, now);
        }
    }

    /// Reads changes of the interfaces and applies them.
    fn poll_interfaces(&mut self, cx: &mut Context<'_>) {
        let Some(news) = &mut self.port_monitor else { return };
        let PortUpdates { changes, log_lines: said } = news.poll_changes();
        said.iter().for_each(|said| cx.print_message(&format!("{}: {said}", cx.name())));
        if !changes.is_empty() {
            self.apply_changes(&changes, cx);
            self.warn_of_mtus(&changes, cx);
            self.tables_changed(cx);
        }
    }

    /// Warns of ports whose interface has a smaller MTU than the port.
    fn warn_of_mtus(&self, changes: &[(PortId, PortUpdate)], cx: &mut Context<'_>) {
        let warnings: Vec<String> = {
            let tables = self.router.lock_tables();
            changes.iter().filter_map(|(port, change)| mtu_warning(&tables, *port, *change)).collect()
        };
        warnings.iter().for_each(|warning| cx.print_message(&format!("{}: {warning}", cx.name())));
    }

    /// Runs the slow path, and schedules its next call.
    pub(super) fn run_slow_path<T>(
        &mut self,
        cx: &mut Context<'_>,
        what: impl FnOnce(&mut SlowPath, &mut SlowPathContext<'_, '_>) -> T,
    ) -> T {
        let router = self.router.clone();
        let mut job = SlowPathContext::new(&router, cx);
        let done = what(&mut self.slow_path, &mut job);
        self.slow_path.finish_call(&mut job);
        done
    }
}

/// The time as tables count it: since the epoch.
pub(super) fn now(cx: &mut Context<'_>) -> Duration {
    cx.now().since_epoch()
}

/// The slow path as the arguments describe it.
fn build_slow_path(args: &mut Args<'_>) -> Result<SlowPath, ArgError> {
    let rate = |per_second: u32, burst: u32| Rate { per_second, burst: per_second.min(burst) };
    let each = args.read("ICMP_EACH")?;
    let settings = SlowPathSettings {
        host: args.read("HOST")?,
        has_host_ports: args.read("HOST_PORTS")?,
        hold: args.read("HOLD")?,
        icmp: rate(args.read("ICMP_RATE")?, 100),
        icmp_each: rate(each, each),
        messages: rate(args.read("MESSAGE_RATE")?, 1000),
        resolutions: rate(args.read("MESSAGE_RATE")?, 1000),
    };
    let (acd, dad, hold) = (args.read("ACD")?, args.read("DAD")?, args.read("HOLD_ALL")?);
    let claimed = |settings: ClaimSettings, probes| if probes { settings } else { settings.without_probes() };
    let seed = args.resource::<Chance>().next_u64();
    let claims = Claims::new(claimed(ClaimSettings::arp(), acd), claimed(ClaimSettings::nd(), dad), seed);
    let together = args.shared_value(|| SharedState::new(claims, hold));
    let workers = args.copy_index().1;
    Ok(SlowPath::new(settings, &together, (args.worker().0, workers), seed as u32))
}

impl Element for IpRouter {
    fn start(&mut self, cx: &mut Context<'_>) -> Result<(), StartError> {
        if self.is_first {
            self.follow_interfaces(cx);
        }
        // Other elements have not started yet, and a replaced router still has state to hand over.
        cx.schedule();
        Ok(())
    }

    fn push(&mut self, input: usize, batch: &mut Batch, cx: &mut Context<'_>) {
        let ports = self.router.port_count();
        if input == ports + 1 {
            return self.run_slow_path(cx, |slow, job| slow.receive_own(batch, job));
        }
        if input > ports {
            let port = PortId((input - ports - 2) as u16);
            return self.run_slow_path(cx, |slow, job| {
                slow.poll(job);
                batch.drain().for_each(|packet| slow.send_from_host_port(packet, port, job));
            });
        }
        let from = if input < ports { Origin::Port(PortId(input as u16)) } else { Origin::Host };
        self.run_slow_path(cx, |slow, job| {
            slow.poll(job);
            batch.drain().for_each(|packet| slow.receive(packet, from, job));
        });
    }

    fn run_task(&mut self, cx: &mut Context<'_>) -> bool {
        self.poll_interfaces(cx);
        self.run_slow_path(cx, |slow, job| slow.poll(job));
        if let Some(news) = &self.port_monitor {
            cx.watch_file(news.news_fd(), Interest::Readable);
        }
        true
    }

    fn take_state(&mut self, old: &mut dyn Any, cx: &mut Context<'_>) {
        if let Some(old) = old.downcast_mut::<IpRouter>() {
            let (router, names) = (old.router.clone(), self.names.clone());
            self.run_slow_path(cx, |slow, job| slow.restore_from(&router, &names, &mut old.slow_path, job));
            self.slow_path.schedule_now();
            cx.schedule();
        }
    }

    fn stop(&mut self, cx: &mut Context<'_>) {
        let reason = if cx.is_replacing() { DropReason::Replaced } else { DropReason::Ended };
        self.run_slow_path(cx, |slow, job| slow.discard_all(reason, job));
    }
}
