//! Writes the log from a thread of its own, so that a reader that has stopped (a paused terminal, a full
//! pipe) does not stop the server: lines that find no room are lost, and counted.

use std::io::{self, Write};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, channel, sync_channel};
use std::sync::{Arc, mpsc::Sender};
use std::time::Duration;

use tracing_subscriber::fmt::MakeWriter;

/// Lines that wait to be written.
const WAITING_MAX: usize = 4096;
/// How long the end of the program waits for lines to be written.
const END_MAX: Duration = Duration::from_secs(1);

enum Message {
    Line(Vec<u8>),
    /// All lines before it are written when its sender is dropped.
    End(#[expect(dead_code, reason = "only dropped")] Sender<()>),
}

/// What a log is written to; each write is a line.
#[derive(Clone)]
pub(super) struct Lines {
    to: SyncSender<Message>,
    lost: Arc<AtomicU64>,
}

/// Waits for lines to be written when it is dropped.
pub(super) struct UntilWritten(SyncSender<Message>);

/// Starts the thread, which writes to `out`.
pub(super) fn start(out: impl Write + Send + 'static) -> io::Result<(Lines, UntilWritten)> {
    let (to, from) = sync_channel(WAITING_MAX);
    let lost = Arc::new(AtomicU64::new(0));
    let counted = lost.clone();
    std::thread::Builder::new().name("log".to_owned()).spawn(move || write_all(&from, &counted, out))?;
    Ok((Lines { to: to.clone(), lost }, UntilWritten(to)))
}

fn write_all(from: &Receiver<Message>, lost: &AtomicU64, mut out: impl Write) {
    while let Ok(message) = from.recv() {
        // A line that cannot be written, for example to a full disk, is lost.
        if let Message::Line(line) = message {
            let _ = out.write_all(&line);
        }
        let count = lost.swap(0, Ordering::Relaxed);
        if count > 0 {
            let warning = format!("warning: {count} lines of the log are lost: they were not read in time\n");
            let _ = out.write_all(warning.as_bytes());
        }
    }
}

impl Write for Lines {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        match self.to.try_send(Message::Line(line.to_owned())) {
            Ok(()) => {}
            Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) => {
                self.lost.fetch_add(1, Ordering::Relaxed);
            }
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl MakeWriter<'_> for Lines {
    type Writer = Lines;

    fn make_writer(&self) -> Lines {
        self.clone()
    }
}

impl Drop for UntilWritten {
    fn drop(&mut self) {
        let (end, written) = channel();
        if self.0.try_send(Message::End(end)).is_ok() {
            // It ends because the other end is dropped, or is late.
            let ended: Result<(), RecvTimeoutError> = written.recv_timeout(END_MAX);
            let _ = ended;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Receiver, Sender, channel};

    use super::*;

    /// Takes a write only after a permission, and sends what was written.
    struct Slow(Receiver<()>, Sender<String>);

    impl Write for Slow {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.recv().map_err(io::Error::other)?;
            let text = String::from_utf8(bytes.to_owned()).expect("it is text");
            self.1.send(text).map_err(io::Error::other)?;
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_log_that_is_not_read_does_not_block_and_says_later_how_many_lines_are_lost() {
        let (permit, permitted) = channel();
        let (written, lines) = channel();
        let (mut log, until_written) = start(Slow(permitted, written)).expect("a thread can be started");
        let line_count = 3 * WAITING_MAX;
        (0..line_count).for_each(|line| log.write_all(format!("{line}\n").as_bytes()).expect("it is lost at most"));
        drop(until_written);
        (0..2 * line_count).for_each(|_| permit.send(()).expect("the thread is running"));
        let next = || lines.recv().expect("the thread is running");
        assert_eq!(next(), "0\n");
        let warning = next();
        let count: usize = warning.split(' ').nth(1).and_then(|count| count.parse().ok()).expect("a number");
        // One more line may have left the queue before it was full.
        assert!([WAITING_MAX, WAITING_MAX + 1].contains(&(line_count - count)), "{warning}");
    }

    #[test]
    fn all_lines_are_written_before_the_end() {
        let (permit, permitted) = channel();
        let (written, lines) = channel();
        (0..10).for_each(|_| permit.send(()).expect("it is not dropped"));
        let (mut log, until_written) = start(Slow(permitted, written)).expect("a thread can be started");
        (0..10).for_each(|line: u32| log.write_all(line.to_string().as_bytes()).expect("there is room"));
        drop(until_written);
        assert_eq!(lines.try_iter().collect::<String>(), "0123456789");
    }
}
