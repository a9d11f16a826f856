//! Pools of which namespaces are served, and management requests to them.

use std::path::{Path, PathBuf};

use zonda_devices::{PoolDrive, PoolRequest};
use zonda_zoned::Instant;

use crate::control::PoolReplySender;
use crate::drives::Drives;
use crate::events;

impl Drives {
    /// The pool in this directory, if a namespace of it is served.
    pub(crate) fn pool(&mut self, path: &Path) -> Option<PoolDrive> {
        self.forget_unused_pools();
        let found = self.pools.iter().find(|(place, _)| place == path);
        found.map(|(_, pool)| pool.clone())
    }

    /// Releases pools that were closed with their last namespace.
    pub(crate) fn forget_unused_pools(&mut self) {
        let pools = &mut self.pools;
        pools.retain(|(_, pool)| pool.has_users());
        self.asked_pools.retain(|(path, ..)| pools.iter().any(|(open, _)| open == path));
    }

    /// Remembers a pool for its next namespace.
    pub(crate) fn add_pool(&mut self, path: PathBuf, pool: PoolDrive) {
        self.pools.push((path, pool));
    }

    /// Executes a management request on the pool in this directory. The reply is sent now, or by
    /// [`answer_pools`](Drives::answer_pools): no request blocks the loop.
    pub(crate) fn ask_pool(&mut self, now: Instant, path: &Path, request: &PoolRequest, answer: PoolReplySender) {
        let whole = path.canonicalize().unwrap_or_else(|_| path.to_owned());
        // The requester may have timed out.
        let Some(pool) = self.pool(&whole) else {
            let _ = answer.send(None);
            return;
        };
        if *request != PoolRequest::Report {
            events::asked_pool(path, request);
        }
        match pool.ask(now, request) {
            Ok(None) => {
                let _ = answer.send(Some(Ok(pool.report())));
            }
            Ok(Some(id)) => self.asked_pools.push((whole, id, answer)),
            Err(error) => {
                events::request_failed(path, &error);
                let _ = answer.send(Some(Err(error)));
            }
        }
    }

    /// Sends replies of completed requests.
    pub(crate) fn answer_pools(&mut self) {
        if self.asked_pools.is_empty() {
            return;
        }
        for (path, pool) in &self.pools {
            while let Some((id, result)) = pool.take_answer() {
                let is_asked = |(place, asked, _): &(PathBuf, _, _)| (place, *asked) == (path, id);
                let Some(place) = self.asked_pools.iter().position(is_asked) else { continue };
                if let Err(error) = &result {
                    events::request_failed(path, error);
                }
                let _ = self.asked_pools.swap_remove(place).2.send(Some(result.map(|()| pool.report())));
            }
        }
    }
}
