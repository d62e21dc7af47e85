//! The same on a terminal, again and again.
use super::view::View;
use super::{Source, State};
use crate::signals::end_flag;
use anyhow::Context as _;
use ratatui::DefaultTerminal;
use ratatui::Frame;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Style, Stylize as _};
use ratatui::text::{Line, Text};
use ratatui::widgets::{Gauge, Paragraph, Wrap};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// How long it takes at most until a signal is seen.
const SIGNAL_PAUSE: Duration = Duration::from_millis(100);

/// Shows the screen until a key or a signal ends it, or the observed process ends.
pub(super) fn show(mut source: Source, before: State, every: Duration) -> anyhow::Result<()> {
    let ended = end_flag()?;
    let mut terminal =
        ratatui::try_init().context("can't use the terminal; 'artery top --once' needs none")?;
    let shown = follow(&mut terminal, &mut source, before, every, &ended);
    ratatui::restore();
    shown
}

fn follow(
    terminal: &mut DefaultTerminal,
    source: &mut Source,
    mut before: State,
    every: Duration,
    ended: &AtomicBool,
) -> anyhow::Result<()> {
    let mut view = before.since(&before);
    loop {
        terminal.draw(|frame| draw(frame, &view)).context("can't write to the terminal")?;
        let due = Instant::now() + every;
        while let Some(left) = due.checked_duration_since(Instant::now()) {
            if ended.load(Relaxed) {
                return Ok(());
            }
            match next_event(left.min(SIGNAL_PAUSE)).context("can't read from the terminal")? {
                Some(Event::Key(key)) if ends(key) => return Ok(()),
                Some(Event::Resize(..)) => {
                    terminal.draw(|frame| draw(frame, &view)).context("can't write to the terminal")?;
                }
                _ => {}
            }
        }
        let now = source.state()?;
        view = now.since(&before);
        before = now;
    }
}

fn next_event(wait: Duration) -> std::io::Result<Option<Event>> {
    if event::poll(wait)? { event::read().map(Some) } else { Ok(None) }
}

fn ends(key: KeyEvent) -> bool {
    let is_interrupt = key.modifiers.contains(KeyModifiers::CONTROL) && key.code == KeyCode::Char('c');
    let is_end = matches!(key.code, KeyCode::Char('q' | 'Q') | KeyCode::Esc);
    key.kind == KeyEventKind::Press && (is_end || is_interrupt)
}

fn draw(frame: &mut Frame<'_>, view: &View) {
    let height = |lines: &[String]| Constraint::Length(lines.len() as u16 + 1);
    let areas = Layout::vertical([
        height(&view.summary),
        Constraint::Length(2),
        height(&view.ports),
        height(&view.reasons),
        // Where there are none, there is no row for them either.
        Constraint::Length(view.connections.len() as u16 + u16::from(!view.connections.is_empty())),
        Constraint::Min(0),
        Constraint::Length(1),
    ]);
    let [summary, share, ports, reasons, connections, guards, keys] = areas.areas(frame.area());
    frame.render_widget(Paragraph::new(titled(&view.summary)), summary);
    draw_share(frame, view.share, share);
    frame.render_widget(Paragraph::new(titled(&view.ports)), ports);
    frame.render_widget(Paragraph::new(titled(&view.reasons)), reasons);
    frame.render_widget(Paragraph::new(titled(&view.connections)), connections);
    frame.render_widget(Paragraph::new(titled(&view.guards)).wrap(Wrap { trim: false }), guards);
    frame.render_widget(Line::from("q: end").dim(), keys);
}

fn draw_share(frame: &mut Frame<'_>, share: Option<f64>, area: Rect) {
    let Some(share) = share else { return };
    let bar = Rect { height: area.height.min(1), ..area };
    let label = format!("{:.1} % past the kernel", 100.0 * share);
    let gauge = Gauge::default().ratio(share.clamp(0.0, 1.0)).label(label).gauge_style(Style::new().green());
    frame.render_widget(gauge, bar);
}

/// Lines with the first one highlighted.
fn titled(lines: &[String]) -> Text<'_> {
    let line = |(n, line): (usize, &'_ String)| {
        let line = Line::from(line.clone());
        if n == 0 { line.bold() } else { line }
    };
    lines.iter().enumerate().map(line).collect::<Vec<_>>().into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::adopt::example;
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    #[test]
    fn a_screen_of_any_size_is_drawn() {
        let (before, mut now) = (example(), example());
        now.seconds += 1.0;
        now.ports[0].received += 3;
        now.kernel_ipv4 += 1;
        let view = View::new(&before, &now);
        for (width, height) in [(1, 1), (20, 5), (120, 30)] {
            let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
            terminal.draw(|frame| draw(frame, &view)).unwrap();
            let text: String =
                terminal.backend().buffer().content().iter().map(|cell| cell.symbol()).collect();
            let has_all =
                ["75.0 % past the kernel", "eth0.7", "q: end"].iter().all(|part| text.contains(part));
            assert!(height < 30 || has_all, "{text}");
        }
    }

    #[test]
    fn the_keys_that_end_it_are_pressed() {
        let press = |code, modifiers| ends(KeyEvent::new(code, modifiers));
        assert!(press(KeyCode::Char('q'), KeyModifiers::NONE) && press(KeyCode::Esc, KeyModifiers::NONE));
        assert!(press(KeyCode::Char('c'), KeyModifiers::CONTROL));
        assert!(!press(KeyCode::Char('c'), KeyModifiers::NONE) && !press(KeyCode::Enter, KeyModifiers::NONE));
    }
}
