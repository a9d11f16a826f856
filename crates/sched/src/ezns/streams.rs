//! [`Streams`]: the streams with requests in progress, and some that are idle.

use std::collections::{BTreeMap, VecDeque};

use zonda_zoned::{Class, Key, NamespaceId, Slab, StreamId, TenantId};

use super::EznsConfig;
use super::in_flight::InFlight;
use super::queue::{Queue, QueueState};
use super::tokens::Tokens;
use super::window::Window;
use crate::direction::Direction;
use crate::limits::EZNS_IDLE_STREAMS_MAX;
use crate::{Request, RequestKind, TenantLoad};

/// What shares a window and tokens: the zones of a stripe group, or a zone that is in none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum StreamKey {
    Stream(TenantId, StreamId),
    Zone(TenantId, NamespaceId, u32),
}

/// A stream.
#[derive(Debug)]
pub(super) struct Stream {
    key: StreamKey,
    pub(super) tenant: TenantId,
    /// Zones that it is striped over.
    pub(super) width: u32,
    pub(super) window: Window,
    pub(super) tokens: Tokens,
    pub(super) reads_in_flight: InFlight,
    pub(super) writes_in_flight: InFlight,
    /// Requests that wait.
    pub(super) waiting: u32,
    /// By class and direction.
    queues: [[Queue; 2]; 2],
    /// Whether it is in the list of streams that wait for tokens.
    pub(super) waits_for_tokens: bool,
    /// Whether it is in the list of idle streams, and whether it has been used since.
    is_listed: bool,
    is_recent: bool,
}

/// All streams. Their numbers come from tenants, and new ones come for ever; so a stream is
/// forgotten when [`EZNS_IDLE_STREAMS_MAX`] others are idle, too. If it returns, it begins as a new
/// one.
#[derive(Debug, Default)]
pub(super) struct Streams {
    streams: Slab<Stream>,
    keys: BTreeMap<StreamKey, Key<Stream>>,
    /// Of the keys, some that were used last.
    cache: Cache,
    /// Streams that have been idle, each once, the oldest first.
    listed: VecDeque<Key<Stream>>,
    idle: usize,
}

/// Streams that are found without a search: the last one of each place.
#[derive(Debug)]
struct Cache(Box<[Option<Cached>; CACHE_PLACES]>);

type Cached = (StreamKey, Key<Stream>);

/// A power of two: enough for the streams that a few tenants write at a time.
const CACHE_PLACES: usize = 256;

impl Default for Cache {
    fn default() -> Cache {
        Cache(Box::new([None; CACHE_PLACES]))
    }
}

impl Cache {
    fn place_of(&mut self, key: &StreamKey) -> &mut Option<Cached> {
        let (tenant, number) = match *key {
            StreamKey::Stream(tenant, stream) => (tenant, stream.0),
            StreamKey::Zone(tenant, _, zone) => (tenant, zone),
        };
        // Neighbours have separate places, and tenants do not begin at the same one.
        let place = number.wrapping_add(u32::from(tenant.0).wrapping_mul(0x9e37)) as usize;
        &mut self.0[place % CACHE_PLACES]
    }

    fn forget(&mut self, key: &StreamKey) {
        self.place_of(key).take_if(|(cached, _)| cached == key);
    }
}

impl StreamKey {
    fn of(request: &Request) -> StreamKey {
        let origin = request.origin;
        match origin.stream_width {
            0 => StreamKey::Zone(origin.tenant, request.namespace, request.zones.start),
            _ => StreamKey::Stream(origin.tenant, origin.stream),
        }
    }
}

impl Stream {
    fn new(key: StreamKey, tenant: TenantId, width: u32, config: &EznsConfig) -> Stream {
        Stream {
            key,
            tenant,
            width,
            window: Window::new(width),
            tokens: Tokens::full(width, config),
            reads_in_flight: InFlight::default(),
            writes_in_flight: InFlight::default(),
            waiting: 0,
            queues: Default::default(),
            waits_for_tokens: false,
            is_listed: false,
            is_recent: false,
        }
    }

    pub(super) fn queue(&mut self, class: Class, direction: Direction) -> &mut Queue {
        &mut self.queues[class as usize][direction as usize]
    }

    pub(super) fn state(&self, class: Class, direction: Direction) -> QueueState {
        self.queues[class as usize][direction as usize].state
    }

    pub(super) fn is_blocked(&self, direction: Direction) -> bool {
        [Class::Foreground, Class::Background].iter().any(|class| self.state(*class, direction) == QueueState::Blocked)
    }

    /// Whether another request of a class and direction may be in flight.
    pub(super) fn has_slot(&self, class: Class, direction: Direction, config: &EznsConfig) -> bool {
        match direction {
            Direction::Read => self.reads_in_flight.is_below(self.window.commands(), class),
            Direction::Write => self.writes_in_flight.is_below(config.writes_max(self.width), class),
        }
    }

    pub(super) fn in_flight(&mut self, direction: Direction) -> &mut InFlight {
        match direction {
            Direction::Read => &mut self.reads_in_flight,
            Direction::Write => &mut self.writes_in_flight,
        }
    }

    fn is_idle(&self) -> bool {
        self.waiting == 0 && self.reads_in_flight.total() == 0 && self.writes_in_flight.total() == 0
    }

    pub(super) fn check_invariants(&self, config: &EznsConfig) {
        self.window.check_invariants(self.width, config);
        for class in [Class::Foreground, Class::Background] {
            for direction in [Direction::Read, Direction::Write] {
                let queue = &self.queues[class as usize][direction as usize];
                let is_idle = queue.state == QueueState::Idle;
                assert!(!is_idle || queue.is_empty(), "a queue with requests is considered or blocked");
                let is_blocked = queue.state == QueueState::Blocked;
                assert!(!is_blocked || !queue.is_empty(), "a blocked queue has requests");
                let waits =
                    !self.has_slot(class, direction, config) || direction == Direction::Write && self.waits_for_tokens;
                assert!(!is_blocked || waits, "a blocked queue waits for a completion or for tokens");
            }
        }
        assert!(!self.waits_for_tokens || self.is_blocked(Direction::Write), "what waits for tokens is blocked");
    }
}

impl Streams {
    /// The stream of a request that arrives, and whether the request has changed its width.
    pub(super) fn enter(&mut self, request: &Request, config: &EznsConfig) -> (Key<Stream>, bool) {
        let stream_key = StreamKey::of(request);
        let width = config.width_of(request.origin.stream_width);
        match self.keys.get(&stream_key) {
            Some(&key) => {
                let stream = &mut self.streams[key];
                self.idle -= usize::from(stream.is_idle());
                stream.is_recent = true;
                let is_changed = stream.width != width;
                if is_changed {
                    stream.width = width;
                    stream.window.set_width(width, config);
                }
                stream.waiting += 1;
                (key, is_changed)
            }
            None => {
                let mut stream = Stream::new(stream_key, request.origin.tenant, width, config);
                stream.waiting = 1;
                let key = self.streams.insert(stream);
                self.keys.insert(stream_key, key);
                (key, false)
            }
        }
    }

    /// The stream of a request, if it is known with the width of the request.
    pub(super) fn find(&mut self, request: &Request, config: &EznsConfig) -> Option<Key<Stream>> {
        let key = self.key_of(&StreamKey::of(request))?;
        (self.streams[key].width == config.width_of(request.origin.stream_width)).then_some(key)
    }

    /// A request of the stream arrives, and is released without waiting.
    pub(super) fn pass(&mut self, key: Key<Stream>, direction: Direction, class: Class) {
        let stream = &mut self.streams[key];
        self.idle -= usize::from(stream.is_idle());
        stream.is_recent = true;
        stream.in_flight(direction).add(class);
    }

    /// The stream of a request that has been released.
    pub(super) fn of_released(&mut self, request: &Request) -> Key<Stream> {
        debug_assert!(matches!(request.kind, RequestKind::Read | RequestKind::Write | RequestKind::Append));
        self.key_of(&StreamKey::of(request)).expect("a stream is kept while its requests are in flight")
    }

    fn key_of(&mut self, stream_key: &StreamKey) -> Option<Key<Stream>> {
        let place = self.cache.place_of(stream_key);
        match place {
            Some((cached, key)) if cached == stream_key => Some(*key),
            _ => {
                let key = *self.keys.get(stream_key)?;
                *place = Some((*stream_key, key));
                Some(key)
            }
        }
    }

    pub(super) fn get(&self, key: Key<Stream>) -> &Stream {
        &self.streams[key]
    }

    pub(super) fn get_mut(&mut self, key: Key<Stream>) -> &mut Stream {
        &mut self.streams[key]
    }

    /// A request of the stream has ended: it may be idle now.
    pub(super) fn leave(&mut self, key: Key<Stream>) {
        let stream = &mut self.streams[key];
        if !stream.is_idle() {
            return;
        }
        self.idle += 1;
        if !stream.is_listed {
            (stream.is_listed, stream.is_recent) = (true, false);
            self.listed.push_back(key);
        }
        while self.idle > EZNS_IDLE_STREAMS_MAX {
            self.forget_one();
        }
    }

    /// Considers the stream that is listed longest. One that has been used since is listed again.
    fn forget_one(&mut self) {
        let key = self.listed.pop_front().expect("idle streams are listed");
        let stream = &mut self.streams[key];
        if !stream.is_idle() {
            stream.is_listed = false;
        } else if stream.is_recent {
            stream.is_recent = false;
            self.listed.push_back(key);
        } else {
            let forgotten = self.streams.remove(key);
            self.keys.remove(&forgotten.key);
            self.cache.forget(&forgotten.key);
            self.idle -= 1;
        }
    }

    /// The tenants with streams that are not idle.
    pub(super) fn loads(&self) -> Vec<TenantLoad> {
        let mut loads: BTreeMap<TenantId, TenantLoad> = BTreeMap::new();
        for (_, stream) in self.streams.iter().filter(|(_, stream)| !stream.is_idle()) {
            let load = loads.entry(stream.tenant).or_insert_with(|| TenantLoad::none(stream.tenant));
            load.streams += 1;
            load.waiting += stream.waiting;
            load.reads_in_flight += stream.reads_in_flight.total();
            load.read_window += stream.window.commands();
            load.writes_in_flight += stream.writes_in_flight.total();
            load.write_tokens_bytes = load.write_tokens_bytes.saturating_add(stream.tokens.bytes());
        }
        loads.into_values().collect()
    }

    /// Queues of a class that are ready.
    pub(super) fn ready(&self, class: Class) -> usize {
        let is_ready = |direction| move |stream: &&Stream| stream.state(class, direction) == QueueState::Ready;
        let streams = || self.streams.iter().map(|(_, stream)| stream);
        streams().filter(is_ready(Direction::Read)).count() + streams().filter(is_ready(Direction::Write)).count()
    }

    pub(super) fn check_invariants(&self, config: &EznsConfig) {
        let streams = || self.streams.iter().map(|(_, stream)| stream);
        streams().for_each(|stream| stream.check_invariants(config));
        assert_eq!(self.keys.len(), self.streams.len(), "each stream has a key");
        assert_eq!(streams().filter(|stream| stream.is_idle()).count(), self.idle, "idle streams are counted");
        assert_eq!(streams().filter(|stream| stream.is_listed).count(), self.listed.len(), "each is listed once");
        assert!(self.idle <= EZNS_IDLE_STREAMS_MAX, "few idle streams are kept");
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.streams.len()
    }

    #[cfg(test)]
    pub(super) fn is_known(&self, request: &Request) -> bool {
        self.keys.contains_key(&StreamKey::of(request))
    }
}
