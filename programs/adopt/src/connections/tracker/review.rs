//! What becomes of a connection by what is known now: its flows are forwarded, or stay with the kernel.
use super::{ConnectionTracker, Flows, Known};
use crate::connections::judgement::{Egresses, PortBounds};
use crate::connections::keeper::ConnectionKeeper;
use crate::connections::timeouts::Traffic;
use crate::fast::{Accelerator, FlowAction, Translation};
use crate::kernel::Family;

/// The next step for a connection.
enum Plan {
    Forward(Flows),
    /// The kernel must first let segments out of window through.
    RequestLiberal,
    /// Routes or neighbors are missing: it is looked at again each second.
    Wait(ConnectionKeeper),
    Leave(ConnectionKeeper),
}

impl ConnectionTracker {
    /// Has a connection forwarded, or no longer, by what is known now.
    pub(super) fn review(&mut self, id: u32, accelerator: &mut Accelerator) {
        let Some(known) = self.known.get_mut(&id) else { return };
        let egresses = known.entry.directions().map(|to| accelerator.egress(to.destination));
        for (exit, now) in known.exits.iter_mut().zip(egresses) {
            *exit = exit.or(now.flatten());
        }
        let consent = self.consent[usize::from(known.entry.family == Family::V6)];
        let is_asked = consent.is_given && consent.asks_rules && known.entry.is_established();
        let before = known.judged.take();
        known.judged =
            is_asked.then(|| self.judge.judge(&known.entry, egresses, consent.minds_windows, before));
        match self.plan(&self.known[&id], egresses, accelerator) {
            Plan::Forward(flows) => {
                let judgement = self.known[&id].judged.map(|judged| judged.judgement);
                match judgement.is_some_and(|all| all.is_ok_and(|all| all.iter().any(PortBounds::is_bound))) {
                    true => self.bound.insert(id),
                    false => self.bound.remove(&id),
                };
                self.forward(id, flows, accelerator);
            }
            Plan::Leave(why) => {
                self.pending.remove(&id);
                self.keep(id, why, accelerator);
            }
            Plan::Wait(why) => {
                self.pending.insert(id);
                self.keep(id, why, accelerator);
            }
            Plan::RequestLiberal => {
                self.pending.insert(id);
                self.keep(id, ConnectionKeeper::Pending, accelerator);
                self.request_liberal(id);
            }
        }
    }

    fn keep(&mut self, id: u32, why: ConnectionKeeper, accelerator: &mut Accelerator) {
        self.bound.remove(&id);
        let Some(known) = self.known.get_mut(&id) else { return };
        let is_counted = known.flows.is_some() && known.kept_by == Some(why);
        if is_counted {
            return;
        }
        self.leave(id, accelerator);
        let Some(known) = self.known.get_mut(&id) else { return };
        known.kept_by = Some(why);
        if matches!(why, ConnectionKeeper::Rule | ConnectionKeeper::Window) {
            self.uncounted.insert(id);
        }
    }

    fn plan(&self, known: &Known, egresses: Egresses, accelerator: &Accelerator) -> Plan {
        let entry = &known.entry;
        let consent = self.consent_of(entry);
        if let Some(why) = entry.keeper() {
            return Plan::Leave(why);
        }
        if known.is_closing {
            return Plan::Leave(ConnectionKeeper::Closing);
        }
        let directions = entry.directions();
        let is_local = directions.iter().any(|direction| accelerator.is_own(direction.destination));
        if is_local {
            return Plan::Leave(ConnectionKeeper::Local);
        }
        if !consent.is_given {
            return Plan::Leave(ConnectionKeeper::Policy);
        }
        if entry.is_translated() && !consent.translates {
            return Plan::Leave(ConnectionKeeper::Translation);
        }
        let bounds = match known.judged.map(|judged| judged.judgement) {
            None => [PortBounds::default(); 2],
            Some(Ok(bounds)) => bounds,
            // Another port may do, once routes lead there.
            Some(Err(refusal)) if egresses.contains(&None) => return Plan::Wait(refusal.keeper()),
            Some(Err(refusal)) => return Plan::Leave(refusal.keeper()),
        };
        let interval = self.timeouts.interval(entry, self.ticks_of_a_second);
        let flow = |at: usize| {
            let direction = &directions[at];
            let exit = egresses[at].ok_or(ConnectionKeeper::Route)?;
            let translation = direction.translation;
            let exit = translation.map(|_| exit.ok_or(ConnectionKeeper::Route)).transpose()?;
            // A masqueraded connection whose output has changed is the kernel's to end. Where it changed
            // before the kernel was asked, the address is one of another port.
            let is_elsewhere =
                |new: Translation, exit| at == 0 && accelerator.is_own_elsewhere(new.source, exit);
            if let (Some(new), Some(exit)) = (translation, exit)
                && (known.exits[at] != Some(exit) || is_elsewhere(new, exit))
            {
                return Err(ConnectionKeeper::OtherPort);
            }
            let (entry, exit) = (bounds[at].entry, exit.or(bounds[at].exit));
            Ok((direction.arrives, FlowAction { translation, entry, exit, interval, kept_by: None }))
        };
        match (flow(0), flow(1)) {
            (Ok(_), Ok(_)) if !entry.is_liberal() => Plan::RequestLiberal,
            (Ok(there), Ok(back)) => Plan::Forward([there, back]),
            (Err(why @ ConnectionKeeper::OtherPort), _) | (_, Err(why @ ConnectionKeeper::OtherPort)) => {
                Plan::Leave(why)
            }
            (Err(why), _) | (_, Err(why)) => Plan::Wait(why),
        }
    }

    fn forward(&mut self, id: u32, flows: Flows, accelerator: &mut Accelerator) {
        if self.known.get(&id).is_some_and(|known| known.flows == Some(flows)) {
            return;
        }
        self.leave(id, accelerator);
        let Some(table) = accelerator.flows_mut() else { return };
        let is_there = flows.iter().all(|(key, action)| table.insert(*key, action));
        let Some(known) = self.known.get_mut(&id) else { return };
        if !is_there {
            flows.iter().for_each(|(key, _)| table.remove(key));
            known.kept_by = Some(ConnectionKeeper::Room);
            self.pending.insert(id);
            return;
        }
        self.pending.remove(&id);
        self.forwarded += 1;
        (known.flows, known.kept_by, known.traffic) = (Some(flows), None, Traffic::default());
    }

    pub(super) fn leave(&mut self, id: u32, accelerator: &mut Accelerator) {
        let Some(known) = self.known.get_mut(&id) else { return };
        let Some(flows) = known.flows.take() else { return };
        self.forwarded -= usize::from(known.kept_by.is_none());
        // Until it is reviewed.
        known.kept_by.get_or_insert(ConnectionKeeper::Pending);
        if let Some(table) = accelerator.flows_mut() {
            flows.iter().for_each(|(key, _)| table.remove(key));
        }
    }

    /// The event of the change says that it is done.
    fn request_liberal(&mut self, id: u32) {
        let Some(known) = self.known.get_mut(&id).filter(|known| !known.has_asked) else { return };
        known.has_asked = self.sockets.request(&known.entry.to_liberal_request());
    }
}
