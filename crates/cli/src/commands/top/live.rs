//! The live view: a terminal, keys, signals, and a thread that asks the server.

use std::io;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread;
use std::time::{Duration, Instant};

use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use tokio::runtime::Builder;
use tokio::signal::unix::{SignalKind, signal};
use zonda_exports::snapshot::Snapshot;

use super::draw::draw;
use super::frame::Frame;
use super::next_update;
use super::source::Source;
use super::view::{Action, Connection, View};
use crate::commands::status::Unreachable;
use crate::errors::Failure;

/// How often the seconds since an event are updated.
const TICK: Duration = Duration::from_millis(500);

/// What happens while the view is shown.
enum Event {
    Key(KeyEvent),
    /// The terminal has another size, or this program was continued.
    Redraw,
    Answer(Box<Result<Snapshot, Unreachable>>),
    /// SIGTERM, SIGINT or SIGHUP.
    Stop,
    /// Keys cannot be read any more.
    NoInput(io::Error),
}

/// Shows the view until the user quits or a signal arrives.
pub(super) fn run(source: Source, interval: Duration, first: &Snapshot) -> Result<(), Failure> {
    let mut view = View::new(source.name());
    view.has_colours = std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
    view.is_interactive = true;
    view.show(Frame::of(None, first));
    let (sender, events) = mpsc::channel();
    watch_signals(sender.clone()).map_err(|error| not_started(&error))?;
    let answers = sender.clone();
    thread::spawn(move || ask(&source, interval, &answers));
    let mut screen = FullScreen::enter().map_err(|error| not_started(&error))?;
    thread::spawn(move || read_keys(&sender));
    let shown = show(&mut screen, &mut view, first.clone(), &events);
    // The terminal is restored before an error is printed.
    drop(screen);
    shown.map_err(|error| {
        Failure::broken(format!("the terminal has failed: {error}"), "use --json, which needs no terminal")
    })
}

fn not_started(error: &io::Error) -> Failure {
    Failure::broken(format!("cannot use the terminal: {error}"), "use --json, which needs no terminal")
}

/// The alternate screen of the terminal, in raw mode; left on drop, and by a hook before a panic is
/// reported.
pub(super) struct FullScreen {
    terminal: DefaultTerminal,
}

impl FullScreen {
    pub(super) fn enter() -> io::Result<FullScreen> {
        match ratatui::try_init() {
            Ok(terminal) => Ok(FullScreen { terminal }),
            Err(error) => {
                // It may have begun to change the terminal.
                let _ = ratatui::try_restore();
                Err(error)
            }
        }
    }
}

impl Drop for FullScreen {
    fn drop(&mut self) {
        // A terminal that was closed cannot be restored.
        let _ = self.terminal.show_cursor();
        let _ = ratatui::try_restore();
    }
}

fn show(screen: &mut FullScreen, view: &mut View, first: Snapshot, events: &Receiver<Event>) -> io::Result<()> {
    let (mut before, mut lost_at, mut restarted_at) = (first, None, None);
    loop {
        view.set_times(seconds_since(lost_at).unwrap_or(0), seconds_since(restarted_at));
        screen.terminal.draw(|frame| draw(view, frame.buffer_mut()))?;
        match events.recv_timeout(TICK) {
            Ok(Event::Key(key)) => match action_of(key) {
                Some(Pressed::Quit) => return Ok(()),
                Some(Pressed::Action(action)) => view.act(action),
                None => {}
            },
            // `clear` would ask the terminal for the position of its cursor, and the answer would be among
            // the keys.
            Ok(Event::Redraw) => {
                let size = screen.terminal.size()?;
                screen.terminal.resize(size.into())?;
            }
            Ok(Event::Answer(answer)) => match *answer {
                Ok(now) => {
                    let was_restarted = view.restarted_s;
                    view.show(Frame::of(Some(&before), &now));
                    if was_restarted != view.restarted_s {
                        restarted_at = Some(Instant::now());
                    }
                    (before, lost_at) = (now, None);
                }
                Err(error) => {
                    if !matches!(view.connection, Connection::Lost { .. }) {
                        lost_at = Some(Instant::now());
                    }
                    view.lose(error.reason);
                }
            },
            Ok(Event::Stop) | Err(RecvTimeoutError::Disconnected) => return Ok(()),
            Ok(Event::NoInput(error)) => return Err(error),
            Err(RecvTimeoutError::Timeout) => {}
        }
    }
}

fn seconds_since(event: Option<Instant>) -> Option<u64> {
    event.map(|at| at.elapsed().as_secs())
}

/// What a key does.
#[derive(Debug, PartialEq, Eq)]
enum Pressed {
    Quit,
    Action(Action),
}

fn action_of(key: KeyEvent) -> Option<Pressed> {
    if key.kind == KeyEventKind::Release {
        return None;
    }
    let is_control = key.modifiers.contains(KeyModifiers::CONTROL);
    Some(match key.code {
        // In raw mode the terminal sends no SIGINT.
        KeyCode::Char('c') if is_control => Pressed::Quit,
        _ if is_control => return None,
        KeyCode::Char('q') => Pressed::Quit,
        KeyCode::Down | KeyCode::Right | KeyCode::Tab => Pressed::Action(Action::Next),
        KeyCode::Up | KeyCode::Left | KeyCode::BackTab => Pressed::Action(Action::Previous),
        KeyCode::Char('s') => Pressed::Action(Action::Sort),
        KeyCode::Char('d') => Pressed::Action(Action::Map),
        KeyCode::Char('?' | 'h') => Pressed::Action(Action::Help),
        KeyCode::Esc => Pressed::Action(Action::Close),
        _ => return None,
    })
}

/// Reads keys and changes of the size until the view ends with the process.
fn read_keys(events: &Sender<Event>) {
    loop {
        let event = match event::read() {
            Ok(event::Event::Key(key)) => Event::Key(key),
            Ok(event::Event::Resize(..)) => Event::Redraw,
            Ok(_) => continue,
            Err(error) => Event::NoInput(error),
        };
        let is_last = matches!(event, Event::NoInput(_));
        if events.send(event).is_err() || is_last {
            return;
        }
    }
}

/// Asks the server for its state, once in each interval.
fn ask(source: &Source, interval: Duration, events: &Sender<Event>) {
    let mut last = Instant::now();
    loop {
        let next = next_update(last, interval);
        thread::sleep(next.saturating_duration_since(Instant::now()));
        last = next;
        if events.send(Event::Answer(Box::new(source.fetch()))).is_err() {
            return;
        }
    }
}

/// Passes on the signals that would otherwise end the process and leave the terminal in raw mode.
fn watch_signals(events: Sender<Event>) -> io::Result<()> {
    let runtime = Builder::new_current_thread().enable_io().build()?;
    let inside = runtime.enter();
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut hangup = signal(SignalKind::hangup())?;
    // After SIGCONT the shell has drawn over the view.
    let mut resume = signal(SignalKind::from_raw(rustix::process::Signal::CONT.as_raw()))?;
    drop(inside);
    thread::spawn(move || {
        runtime.block_on(async {
            loop {
                let event = tokio::select! {
                    _ = terminate.recv() => Event::Stop,
                    _ = interrupt.recv() => Event::Stop,
                    _ = hangup.recv() => Event::Stop,
                    _ = resume.recv() => Event::Redraw,
                };
                if events.send(event).is_err() {
                    return;
                }
            }
        });
    });
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_have_their_actions() {
        let plain = |code| action_of(KeyEvent::new(code, KeyModifiers::NONE));
        let control = |letter| action_of(KeyEvent::new(KeyCode::Char(letter), KeyModifiers::CONTROL));
        assert_eq!((plain(KeyCode::Char('q')), control('c')), (Some(Pressed::Quit), Some(Pressed::Quit)));
        assert_eq!((control('q'), plain(KeyCode::Char('x'))), (None, None));
        let actions =
            [KeyCode::Tab, KeyCode::Up, KeyCode::Char('s'), KeyCode::Char('d'), KeyCode::Char('?'), KeyCode::Esc];
        let actions = actions.map(|code| plain(code).expect("it has an action"));
        let expected = [Action::Next, Action::Previous, Action::Sort, Action::Map, Action::Help, Action::Close];
        assert_eq!(actions, expected.map(Pressed::Action));
        let released =
            KeyEvent { kind: KeyEventKind::Release, ..KeyEvent::new(KeyCode::Char('q'), KeyModifiers::NONE) };
        assert_eq!(action_of(released), None);
    }

    /// Set for the test that panics on a terminal of its own.
    const PANICS: &str = "ZONDA_TEST_PANICS";

    #[test]
    fn panics_with_the_terminal_in_raw_mode() {
        if std::env::var_os(PANICS).is_some() {
            let _screen = FullScreen::enter().expect("it has a terminal");
            panic!("seen on the restored terminal");
        }
    }

    #[test]
    fn a_panic_restores_the_terminal_before_it_is_reported() {
        let program = std::env::current_exe().expect("it runs");
        let test = "panics_with_the_terminal_in_raw_mode --nocapture";
        let run = format!("stty rows 24 cols 80; stty -g; {} {test}; stty -g", program.display());
        let mut script = std::process::Command::new("script");
        script.args(["-qec", &run, "/dev/null"]).env(PANICS, "1").stdin(std::process::Stdio::null());
        let output = script.output().expect("util-linux is installed");
        let output = String::from_utf8_lossy(&output.stdout);
        let left = output.rfind("\u{1b}[?1049l").expect("it leaves the alternate screen");
        assert!(output.find("seen on the restored terminal") > output.find("\u{1b}[?1049l"), "{output}");
        let modes: Vec<&str> = output.lines().map(str::trim).filter(|line| line.matches(':').count() > 20).collect();
        assert!(left > 0 && modes.len() == 2 && modes[0] == modes[1], "{output}");
    }
}
