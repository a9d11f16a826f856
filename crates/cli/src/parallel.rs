//! Independent work items, run on all processors.

use std::num::NonZero;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::thread;

/// Threads if the number of processors is unknown.
const THREADS_DEFAULT: usize = 1;

/// Runs each item on `threads` threads (default: one for each processor) and returns the results in
/// the order of the items. Calls `done` with the number of completed items and the latest one.
pub(crate) fn in_parallel<T: Sync, R: Send>(
    items: &[T],
    threads: Option<NonZero<usize>>,
    run: impl Fn(&T) -> R + Sync,
    mut done: impl FnMut(usize, &T),
) -> Vec<R> {
    let threads = threads.or_else(|| thread::available_parallelism().ok()).map_or(THREADS_DEFAULT, NonZero::get);
    let next = AtomicUsize::new(0);
    let mut results: Vec<Option<R>> = items.iter().map(|_| None).collect();
    let (sender, finished) = mpsc::channel();
    thread::scope(|scope| {
        for _ in 0..threads.min(items.len()) {
            let sender = sender.clone();
            let (next, run) = (&next, &run);
            scope.spawn(move || {
                loop {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    let Some(item) = items.get(index) else { break };
                    // The receiver is dropped early only if the main thread has panicked.
                    let _ = sender.send((index, run(item)));
                }
            });
        }
        drop(sender);
        for (count, (index, result)) in finished.iter().enumerate() {
            results[index] = Some(result);
            done(count + 1, &items[index]);
        }
    });
    results.into_iter().map(|result| result.expect("every item was run, or a thread has panicked")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_are_in_the_order_of_the_items_for_any_number_of_threads() {
        let items: Vec<u64> = (0..100).collect();
        for threads in [1, 2, 7, 1000] {
            let mut counts = Vec::new();
            let squares = in_parallel(&items, NonZero::new(threads), |item| item * item, |count, _| counts.push(count));
            assert!(squares.iter().zip(&items).all(|(square, item)| *square == item * item));
            assert_eq!(counts, (1..=100).collect::<Vec<_>>());
        }
        assert!(in_parallel(&[0u8; 0], None, |item| *item, |_, _| {}).is_empty());
    }
}
