//! Admin commands.

use bytes::Bytes;
use zonda_nvme::features::{Feature, FeatureRequest};
use zonda_nvme::{AdminOpcode, StatusCode, SubmissionEntry};
use zonda_zoned::Instant;

use super::ControllerKey;
use crate::connection::receive::{Answer, Needed};
use crate::effects::ConnectionId;
use crate::target::Target;

/// Bytes of Host Behavior Support, the only feature whose data comes from the host.
const HOST_BEHAVIOR_BYTES: u32 = 512;

impl Target {
    /// An admin command on a connected and, where that is needed, authenticated admin queue.
    pub(crate) fn admin(
        &mut self,
        now: Instant,
        id: ConnectionId,
        key: ControllerKey,
        entry: &SubmissionEntry,
        capsule: &Bytes,
    ) -> Result<Answer, StatusCode> {
        let controller = self.controllers.get(key).expect("a queue's controller exists");
        let opcode = AdminOpcode::try_from(entry.opcode).map_err(|_| StatusCode::INVALID_OPCODE)?;
        if !controller.is_ready() && opcode != AdminOpcode::KeepAlive {
            return Err(StatusCode::COMMAND_SEQUENCE_ERROR);
        }
        // Discovery controllers have few commands (NVMe Base 2.0, Figure 28).
        if controller.subsystem.is_none() && opcode == AdminOpcode::Abort {
            return Err(StatusCode::INVALID_OPCODE);
        }
        match opcode {
            AdminOpcode::Identify => self.identify(id, key, entry),
            AdminOpcode::GetLogPage => self.get_log_page(id, key, entry),
            AdminOpcode::GetFeatures => self.get_features(id, key, entry),
            AdminOpcode::SetFeatures
                if FeatureRequest::decode(entry.cdw10.get()).feature == Feature::HostBehavior as u8 =>
            {
                self.with_host_data(id, entry, capsule, Needed::AtLeast(HOST_BEHAVIOR_BYTES), now)
            }
            AdminOpcode::SetFeatures
                if FeatureRequest::decode(entry.cdw10.get()).feature == Feature::ReservationPersistence as u8 =>
            {
                self.set_reservation_persistence(id, key, entry)
            }
            AdminOpcode::SetFeatures => self.set_features(now, key, entry, &Bytes::new()).map(Answer::Now),
            AdminOpcode::Abort => self.abort(key, entry).map(Answer::Now),
            AdminOpcode::AsyncEventRequest => self.async_event_request(key, entry),
            // Receiving the command has already restarted the timer.
            AdminOpcode::KeepAlive => Ok(Answer::Now(0)),
            AdminOpcode::Fabrics => unreachable!("Fabrics commands are dispatched elsewhere"),
        }
    }

    /// Abort: cancels an Asynchronous Event Request. Commands at devices cannot be aborted, and
    /// commands that wait for data complete by themselves. Bit 0 of the result: the command was not
    /// aborted (NVMe Base 2.0, section 5.1).
    fn abort(&mut self, key: ControllerKey, entry: &SubmissionEntry) -> Result<u64, StatusCode> {
        let queue = entry.cdw10.get() as u16;
        let command_id = (entry.cdw10.get() >> 16) as u16;
        let controller = self.controllers.get_mut(key).expect("a queue's controller exists");
        if queue == 0 && controller.events.withdraw(command_id) {
            let admin = controller.admin_queue().expect("an admin command came from the admin queue");
            self.respond(admin, command_id, StatusCode::ABORT_REQUESTED, 0);
            return Ok(0);
        }
        Ok(1)
    }
}
