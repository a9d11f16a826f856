//! A stripe is durable: the map is updated, and requests end.

use zonda_zoned::Status;

use super::Volume;
use super::address::Location;
use super::stripes::{Mover, Source, StripeKey};
use crate::format::Tombstone;
use crate::tables::SegmentIndex;

impl Volume {
    pub(super) fn commit(&mut self, key: StripeKey, segment: SegmentIndex) {
        let Volume { spec, stripes, segments, .. } = self;
        assert_eq!(stripes[key].pending, 0, "a chunk in flight may be in any slot of its group");
        stripes.place_absent(spec, segments, key);
        segments.note_metadata(spec, segment, &stripes[key]);
        let number = stripes[key].number;
        let mut ended = stripes.take_list();
        for at in 0..self.stripes[key].blocks.len() as u32 {
            let Volume { spec, stripes, segments, map, .. } = self;
            let place = stripes.place_of(spec, segments, key, at);
            let (lba, source) = stripes.take_source(key, at);
            match source {
                Source::Host { request } => {
                    map.publish(stripes, segments, lba, (key, at), place);
                    stripes.unbuffer_one();
                    match (request, ended.last_mut()) {
                        (None, _) => {}
                        (Some(request), Some((last, parts))) if *last == request => *parts += 1,
                        (Some(request), _) => ended.push((request, 1)),
                    }
                }
                Source::Moved { from, sequence, mover } => {
                    map.publish_moved(spec, stripes, segments, lba, (from, sequence), place);
                    if let (Mover::Repair, Location::Media(source)) = (mover, from.location()) {
                        segments.reader_left(source.segment);
                        self.damage_is_repaired(source);
                        self.scrub_repaired(source);
                    }
                    self.move_ended(mover);
                }
                Source::Trim { request, tombstones, olds } => {
                    segments.add_tombstones(place, tombstones.len() as u32);
                    map.tombstones_ended(olds.len());
                    stripes.put_trim(key, at, request, olds);
                    for (place, lba) in tombstones.iter().flat_map(Tombstone::lbas).enumerate() {
                        map.publish_trimmed(stripes, segments, lba, (key, at, place), segment);
                    }
                    stripes.unbuffer_one();
                    ended.push((request, 1));
                }
                Source::MovedTombstones { from, tombstones, mover } => {
                    segments.add_tombstones(place, tombstones.entries() as u32);
                    for range in &tombstones.ranges {
                        for lba in range.lbas() {
                            map.publish_moved_tombstone(stripes, (lba, range.is_lost), from, segment);
                        }
                    }
                    for place in tombstones.places {
                        self.lost_places.moved(place, from, segment);
                    }
                    self.move_ended(mover);
                }
                Source::Lost { tombstones, from } => {
                    segments.add_tombstones(place, (tombstones.len() + from.len()) as u32);
                    self.losses_recorded(&tombstones, &from, segment);
                }
            }
        }
        self.stripes.finish(key, &mut ended);
        self.segments.stripe_complete(&self.spec, &mut self.members, segment, number);
        for (request, parts) in ended.drain(..) {
            self.end_part(request, parts, Status::Success);
        }
        self.stripes.return_list(ended);
    }

    /// A moved block is durable in its new place.
    fn move_ended(&mut self, mover: Mover) {
        match mover {
            Mover::Collector => self.collector.arrived(),
            Mover::Repair => {}
            Mover::Mount => self.moved_at_start(),
        }
    }
}
