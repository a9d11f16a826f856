//! The items of a v-zone, one after the other.

use zonda_zoned::{Completion, Key, Outcome, Status, ZoneIndex, ZoneState};

use super::{Pool, Waiter};
use crate::bug::SeededBug;
use crate::vzone::{Busy, Item, Write};

impl Pool {
    pub(super) fn add_item(&mut self, namespace: u32, vzone: u32, item: Item) {
        if self.reclaim.is_some() && !matches!(item, Item::Read { .. }) {
            self.abandon_reclaim(namespace, vzone);
        }
        self.vzone(namespace, vzone).items.push_back(item);
        self.pump(namespace, vzone);
    }

    /// Does what can be done now.
    pub(super) fn pump(&mut self, namespace: u32, vzone: u32) {
        loop {
            let mut own = self.vzone(namespace, vzone);
            if own.busy.is_none() && own.failure.is_some() {
                self.close_failed(namespace, vzone);
                own = self.vzone(namespace, vzone);
            }
            if own.busy.is_some() {
                return;
            }
            let Some(item) = own.items.front() else { return };
            match item {
                Item::Write(write) => {
                    let write = *write;
                    // A reset or finish before it has waited for earlier writes only.
                    own.is_unmovable = false;
                    if own.writes.back() != Some(&write) {
                        own.writes.push_back(write);
                    }
                    if !self.issue_write(namespace, vzone, write) {
                        return;
                    }
                    self.vzone(namespace, vzone).items.pop_front();
                    // Otherwise its last block ends it, and those before it have ended or are at the drive, too.
                    if self.writes[write].outstanding == 0 {
                        self.end_writes(namespace, vzone);
                    }
                }
                Item::Read { host, blocks, at } => {
                    let (host, blocks, at) = (*host, blocks.clone(), *at);
                    own.items.pop_front();
                    self.issue_read(namespace, vzone, host, blocks, at);
                }
                Item::Deallocate { host, blocks } => {
                    let (host, blocks) = (*host, blocks.clone());
                    own.items.pop_front();
                    self.issue_deallocate(namespace, vzone, host, blocks);
                }
                Item::Finish(host, number) => {
                    let (host, number) = (*host, *number);
                    if !own.writes.is_empty() || own.endings > 0 {
                        return;
                    }
                    own.items.pop_front();
                    own.busy = Some(Busy::Finish(host, number));
                    own.is_finished = true;
                    if self.bug.has(SeededBug::UnrecordedFinish) {
                        self.on_finish_recorded(namespace, vzone, true);
                        continue;
                    }
                    self.record_vzone(namespace, vzone, Waiter::Finish { namespace, vzone });
                }
                Item::Reset(host, number) => {
                    let (host, number) = (*host, *number);
                    let is_waiting = own.endings > 0 || own.reads > 0 || own.headers_in_flight > 0;
                    if !own.writes.is_empty() || is_waiting {
                        return;
                    }
                    own.items.pop_front();
                    self.begin_reset(namespace, vzone, Some((host, number)));
                }
                Item::Record(host, number, extension) => {
                    let (host, number, extension) = (*host, *number, extension.clone());
                    if self.must_wait_for_releases(namespace, vzone, number) {
                        if !self.lacks_space {
                            return;
                        }
                        // What it waits for is recorded when the pool is opened again.
                        self.vzone(namespace, vzone).items.pop_front();
                        self.end_part(host, Status::CapacityExceeded);
                        continue;
                    }
                    let own = self.vzone(namespace, vzone);
                    own.items.pop_front();
                    // Not before: a reset before it forgets the extension.
                    own.extension = extension.or(own.extension.take());
                    own.busy = Some(Busy::Record(host));
                    self.record_vzone(namespace, vzone, Waiter::Change { namespace, vzone });
                }
            }
        }
    }

    pub(super) fn on_change_recorded(&mut self, namespace: u32, vzone: u32, is_durable: bool) {
        let own = self.vzone(namespace, vzone);
        let Some(Busy::Record(host)) = own.busy.take() else { unreachable!("the v-zone waits for its record") };
        let status = self.status_of_record(is_durable);
        self.end_part(host, status);
        self.pump(namespace, vzone);
    }

    /// Whether a v-zone that becomes active must wait until finishes and resets before it are recorded:
    /// otherwise a mount would find more active v-zones than the namespace may have.
    pub(super) fn must_wait_for_releases(&mut self, namespace: u32, vzone: u32, number: u64) -> bool {
        let own = self.namespaces.get_mut(&namespace).expect("it has the v-zone");
        let is_ignored = self.bug.has(SeededBug::UnawaitedRelease);
        let must_wait = !is_ignored && own.releases.must_wait(number);
        if must_wait {
            own.waiting_for_releases.insert(vzone);
        }
        must_wait
    }

    /// A finish or a reset is recorded, or the last write of a v-zone has ended.
    pub(super) fn on_released(&mut self, namespace: u32, number: u64) {
        let Some(own) = self.namespaces.get_mut(&namespace) else { return };
        if own.releases.remove_command(number) {
            self.pump_waiting(namespace);
        }
    }

    pub(super) fn pump_waiting(&mut self, namespace: u32) {
        let own = self.namespaces.get_mut(&namespace).expect("its v-zones wait");
        for vzone in std::mem::take(&mut own.waiting_for_releases) {
            self.pump(namespace, vzone);
        }
    }

    /// Delivers the writes that have ended, in their order: what is acknowledged has no gap before it.
    pub(super) fn end_writes(&mut self, namespace: u32, vzone: u32) {
        loop {
            let found = self.namespaces.get_mut(&namespace).expect("a namespace stays while it has writes");
            let own = &mut found.vzones[vzone as usize];
            let Some(key) = own.writes.front().copied() else { break };
            let write = &self.writes[key];
            if write.outstanding > 0 {
                break;
            }
            let is_issued = write.issued == write.blocks.end && write.refusal.is_none();
            if is_issued && write.status.is_success() && !own.has_failed {
                let (id, number) = (write.id, write.number);
                let outcome = write.appended.map_or(Outcome::None, Outcome::Appended);
                own.written = write.blocks.end;
                own.writes.pop_front();
                self.writes.discard(key);
                self.deliver_write(namespace, number, Completion { id, status: Status::Success, outcome });
                continue;
            }
            if write.issued < write.blocks.end && write.refusal.is_none() {
                // Behind a failed write nothing stands, and what waits there was never submitted.
                if write.status.is_success() && !own.has_failed {
                    own.written = own.written.max(write.issued);
                }
                break;
            }
            if own.headers_in_flight > 0 && !write.status.is_success() {
                // The error of a block before it may be on its way.
                break;
            }
            self.end_failed_write(namespace, vzone, key);
        }
        self.end_groups(namespace, vzone);
    }

    /// Ends a write that has failed or was refused, or behind which an earlier one has failed.
    fn end_failed_write(&mut self, namespace: u32, vzone: u32, key: Key<Write>) {
        let write = self.writes.remove(key);
        let state = self.namespaces[&namespace].table.zone(ZoneIndex(vzone)).state;
        let own = self.vzone(namespace, vzone);
        own.writes.pop_front();
        let status = match (own.has_failed, write.refusal) {
            (true, _) if own.lacks_space || own.is_finished_by_pool => Status::CapacityExceeded,
            // Behind a Reset that could not be recorded.
            (true, _) if state == ZoneState::Offline => Status::ZoneIsOffline,
            (true, _) => Status::ZoneIsReadOnly,
            (false, Some(refusal)) if write.status.is_success() => {
                own.written = own.written.max(write.issued);
                refusal
            }
            (false, _) => {
                // Blocks behind one that found no space are refused for another reason.
                let status = if own.lacks_space { Status::CapacityExceeded } else { write.status };
                self.fail(namespace, vzone, Some(write.number));
                status
            }
        };
        self.deliver_write(namespace, write.number, Completion::of(write.id, status));
    }

    /// A write has ended: its completion, and what waits for it.
    #[inline]
    fn deliver_write(&mut self, namespace: u32, number: u64, completion: Completion) {
        let found = self.namespaces.get_mut(&namespace).expect("a namespace stays while it has writes");
        found.writes.remove(number);
        let (has_flushes, is_awaited) = (!found.flushes.is_empty(), found.releases.has_commands());
        self.completions.push(completion);
        if has_flushes {
            self.release_flushes(namespace);
        }
        if is_awaited {
            self.on_released(namespace, number);
        }
    }

    /// The status of a command whose record is durable, or could not be written.
    pub(super) fn status_of_record(&self, is_durable: bool) -> Status {
        match is_durable {
            true => Status::Success,
            false if self.log_lacks_space => Status::CapacityExceeded,
            false => Status::InternalError,
        }
    }
}
