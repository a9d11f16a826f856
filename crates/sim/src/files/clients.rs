//! The clients of a file store: each has one outstanding request.

use zonda_files::RequestId;
use zonda_zoned::{Duration, Instant, Prng};

use super::simulation::ClientLoad;

/// All clients of a run.
pub(super) struct Clients {
    each: Vec<Client>,
    mean_pause: Duration,
    pauses: Prng,
    /// Random numbers of the requests.
    pub(super) prng: Prng,
}

#[derive(Clone, Copy)]
struct Client {
    /// When it submits its next request.
    ready_at: Instant,
    /// Its outstanding request.
    waits_for: Option<RequestId>,
}

impl Clients {
    pub(super) fn new(load: &ClientLoad, root: &Prng) -> Clients {
        Clients {
            each: vec![Client { ready_at: Instant::ZERO, waits_for: None }; load.clients],
            mean_pause: load.pause,
            pauses: root.fork("pauses"),
            prng: root.fork("requests"),
        }
    }

    /// The first client that is ready for a request, and when; `None` if all wait.
    pub(super) fn next_ready(&self) -> Option<(Instant, usize)> {
        let ready = self.each.iter().enumerate().filter(|(_, client)| client.waits_for.is_none());
        ready.map(|(index, client)| (client.ready_at, index)).min()
    }

    /// Notes a request of a client, which waits for it unless it has completed already.
    pub(super) fn submitted(&mut self, now: Instant, client: usize, request: Option<RequestId>) {
        self.each[client].waits_for = request;
        if request.is_none() {
            self.pause(now, client);
        }
    }

    /// Notes the completion of a request.
    pub(super) fn completed(&mut self, now: Instant, request: RequestId) {
        if let Some(client) = self.each.iter().position(|client| client.waits_for == Some(request)) {
            self.each[client].waits_for = None;
            self.pause(now, client);
        }
    }

    /// Drops all outstanding requests, after the store is closed.
    pub(super) fn forget(&mut self, now: Instant) {
        self.each.fill(Client { ready_at: now, waits_for: None });
    }

    fn pause(&mut self, now: Instant, client: usize) {
        let pause = if self.mean_pause == Duration::ZERO { 0 } else { self.pauses.exponential(self.mean_pause.0) };
        self.each[client].ready_at = now + Duration(pause);
    }
}
