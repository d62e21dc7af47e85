//! Arrows between lists of elements with lists of ports.

use super::Elaborator;
use super::chain::Part;
use crate::diagnostic::Diagnostic;
use crate::source::Span;
use crate::tree::Arrow;

/// One side of an arrow: 0 inputs, 1 outputs.
struct Side<'p> {
    parts: &'p [Part],
    side: usize,
    /// Ports it has at least.
    least: usize,
    expandable: bool,
    /// True if it goes on to its next port for each connection.
    steps: bool,
    /// Ports that expansion may still add.
    extra: usize,
    part: usize,
    position: usize,
}

impl<'p> Side<'p> {
    fn new(parts: &'p [Part], side: usize) -> Side<'p> {
        let least = parts.iter().map(|part| part.ports[side].numbers.len().max(1)).sum();
        Side { parts, side, least, expandable: false, steps: false, extra: 0, part: 0, position: 0 }
    }

    fn expandable_parts(&self) -> usize {
        self.parts.iter().filter(|part| part.ports[self.side].expandable).count()
    }

    /// True if `=>` may take the missing port for any number of ports.
    fn stretches(&self, other: &Side<'_>) -> bool {
        self.least == 1 && other.least > 1 && self.parts[0].ports[self.side].is_empty()
    }

    fn current_part(&self) -> Option<&'p Part> {
        self.parts.get(self.part)
    }

    /// The port in turn.
    fn current_port(&self) -> usize {
        let Some(part) = self.current_part() else { return 0 };
        let numbers = &part.ports[self.side].numbers;
        match (numbers.get(self.position), numbers.last()) {
            (Some(&port), _) => port,
            (None, Some(&last)) => last + self.position - (numbers.len() - 1),
            (None, None) => self.position,
        }
    }

    fn advance_port(&mut self) {
        let Some(part) = self.current_part() else { return };
        let ports = &part.ports[self.side];
        self.position += 1;
        if self.position < ports.numbers.len() {
            return;
        }
        let may_expand = ports.expandable || (ports.is_empty() && self.least == 1);
        if may_expand && self.extra > 0 {
            self.extra -= 1;
        } else {
            (self.part, self.position) = (self.part + 1, 0);
        }
    }
}

impl Elaborator<'_, '_> {
    pub(super) fn connect_all(&mut self, outputs: &[Part], inputs: &[Part], arrow: Arrow, after: Span) {
        if outputs.is_empty() || inputs.is_empty() {
            return;
        }
        let mut sides = [Side::new(inputs, 0), Side::new(outputs, 1)];
        self.find_expandable(&mut sides, arrow, after);
        for k in 0..2 {
            sides[k].steps = sides[k].least > 1 || sides[k].expandable;
            let other = sides[1 - k].least;
            sides[k].extra = if sides[k].expandable { other.saturating_sub(sides[k].least) } else { 0 };
        }
        if sides[0].steps && sides[1].steps {
            if let Some(error) = describe_mismatch(&sides, arrow) {
                self.report(error.landmark(after));
                for part in outputs.iter().chain(inputs) {
                    self.current.items[part.item].doubtful = true;
                }
            }
        } else if !sides[0].steps && !sides[1].steps {
            sides[0].steps = true;
        }
        self.connect_sides(&mut sides, arrow);
    }

    fn find_expandable(&mut self, sides: &mut [Side<'_>; 2], arrow: Arrow, after: Span) {
        let counts = [sides[0].expandable_parts(), sides[1].expandable_parts()];
        for k in 0..2 {
            sides[k].expandable = counts[k] > 0;
        }
        if counts[0] + counts[1] > 1 {
            let message = "at most one expandable port allowed per connection";
            let error = Diagnostic::error(message, arrow.span).landmark(after);
            self.report(error.help("give all ports but one as numbers"));
            let loser = usize::from(sides[0].least < sides[1].least);
            sides[loser].expandable = false;
        }
        if arrow.double {
            for k in 0..2 {
                let stretches = sides[k].stretches(&sides[1 - k]);
                sides[k].expandable |= stretches;
            }
        }
    }

    fn connect_sides(&mut self, sides: &mut [Side<'_>; 2], arrow: Arrow) {
        while let (Some(to), Some(from)) = (sides[0].current_part(), sides[1].current_part()) {
            let span = if from.span.file == to.span.file { from.span.to(to.span) } else { arrow.span };
            self.current.connect_ports(
                (from.item, sides[1].current_port()),
                (to.item, sides[0].current_port()),
                span,
            );
            for side in sides.iter_mut().filter(|side| side.steps) {
                side.advance_port();
            }
        }
    }
}

/// What is wrong with a connection of many outputs to many inputs.
fn describe_mismatch(sides: &[Side<'_>; 2], arrow: Arrow) -> Option<Diagnostic> {
    let [inputs, outputs] = sides;
    if !arrow.double {
        let message = "syntax error: many-to-many connections require '=>'";
        let help = "write `=>` to connect the ports in pairs";
        return Some(Diagnostic::error(message, arrow.span).help(help));
    }
    let (more_outputs, more_inputs) = match (inputs.expandable, outputs.expandable) {
        (false, false) if inputs.least != outputs.least => ("", ""),
        (false, _) if inputs.least < outputs.least => (" or more", ""),
        (_, false) if outputs.least < inputs.least => ("", " or more"),
        _ => return None,
    };
    let message = format!(
        "connection mismatch: {}{more_outputs} outputs connected to {}{more_inputs} inputs",
        outputs.least, inputs.least
    );
    Some(Diagnostic::error(message, arrow.span).help("make both sides have as many ports"))
}
