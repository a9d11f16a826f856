//! The clients: each asks for one thing at a time.

use zonda_files::RequestId;
use zonda_zoned::{Duration, Instant, Prng};

use super::world::ClientLoad;

/// All clients of a run.
pub(super) struct Clients {
    each: Vec<Client>,
    pause: Duration,
    pauses: Prng,
    /// Of requests.
    pub(super) prng: Prng,
}

#[derive(Clone, Copy)]
struct Client {
    /// When it asks for something again.
    ready_at: Instant,
    /// What it waits for.
    waits_for: Option<RequestId>,
}

impl Clients {
    pub(super) fn new(load: &ClientLoad, root: &Prng) -> Clients {
        Clients {
            each: vec![Client { ready_at: Instant::ZERO, waits_for: None }; load.clients],
            pause: load.pause,
            pauses: root.fork("pauses"),
            prng: root.fork("requests"),
        }
    }

    /// When the first client is ready, if not all wait; and which one that is.
    pub(super) fn next_ready(&self) -> Option<(Instant, usize)> {
        let ready = self.each.iter().enumerate().filter(|(_, client)| client.waits_for.is_none());
        ready.map(|(index, client)| (client.ready_at, index)).min()
    }

    /// A client has asked for something, and waits for it unless it is done.
    pub(super) fn asked(&mut self, now: Instant, client: usize, request: Option<RequestId>) {
        self.each[client].waits_for = request;
        if request.is_none() {
            self.rest(now, client);
        }
    }

    /// A request has ended.
    pub(super) fn ended(&mut self, now: Instant, request: RequestId) {
        if let Some(client) = self.each.iter().position(|client| client.waits_for == Some(request)) {
            self.each[client].waits_for = None;
            self.rest(now, client);
        }
    }

    /// The store is gone, and with it what they wait for.
    pub(super) fn forget(&mut self, now: Instant) {
        self.each.fill(Client { ready_at: now, waits_for: None });
    }

    fn rest(&mut self, now: Instant, client: usize) {
        let pause = if self.pause == Duration::ZERO { 0 } else { self.pauses.exponential(self.pause.0) };
        self.each[client].ready_at = now + Duration(pause);
    }
}
