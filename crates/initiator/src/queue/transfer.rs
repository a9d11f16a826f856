//! Solicited data: sent in the order of the commands, or of the R2Ts.

use super::commands::{Cid, Transfer};
use super::{Queue, QueueEvent};

impl Queue {
    /// Sends solicited data, up to the first write whose data has not been solicited.
    ///
    /// The target executes a write when its data has arrived, so the order of the data is the order
    /// of the writes.
    pub(super) fn send_in_order(&mut self, events: &mut Vec<QueueEvent>) {
        while let Some(&id) = self.unsent.front() {
            if !self.send_request(id, events) {
                break;
            }
            self.unsent.pop_front();
        }
    }

    /// Sends the solicited data of a command, in PDUs of the controller's maximum length. Returns
    /// whether all its data has been sent.
    pub(super) fn send_request(&mut self, id: Cid, events: &mut Vec<QueueEvent>) -> bool {
        let slot = self.commands.find(id).expect("a command with data to send is outstanding");
        let Transfer::Send { data, sent, request } = &mut slot.transfer else {
            unreachable!("the command has data to send");
        };
        let Some(requested) = request.take() else { return false };
        let end = *sent + requested.length;
        while *sent < end {
            let length = (end - *sent).min(self.host_data_bytes_max);
            let pieces = data.pieces(*sent, length);
            let is_last = *sent + length == end;
            self.writer.host_data(id.0, requested.tag, *sent, pieces.as_slice(), is_last);
            *sent += length;
        }
        if *sent < data.len() {
            return false;
        }
        events.push(QueueEvent::DataSent(slot.owner));
        true
    }

    /// A command has completed before its data was sent: later ones need not wait for it.
    pub(super) fn forget_unsent(&mut self, id: Cid) {
        if let Some(place) = self.unsent.iter().position(|&unsent| unsent == id) {
            self.unsent.remove(place);
        }
    }
}
