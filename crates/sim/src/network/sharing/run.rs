//! The hosts that share a namespace, in a run: timing, connections, and checks of the responses.

use std::collections::BTreeMap;

use bytes::Bytes;
use zonda_nvme::reservation::SavedReservations;
use zonda_nvme::{HostId, StatusCode};
use zonda_target::DeviceKey;
use zonda_zoned::{Duration, Geometry, Instant, NamespaceId, Prng};

use super::SharingTraits;
use super::commands::{answer, command, generate};
use super::history::{History, Number, OPEN_MAX};
use super::peer::{Peer, PeerAction, PeerEvent, TIMEOUT};
use super::rules::{Request, Response, State};
use crate::network::bugs::NetworkBug;
use crate::network::link::Owner;
use crate::network::run::{FOREVER, NetworkRun};
use crate::network::simulation::Network;
use crate::observe::CheckError;
use crate::outcome::FailureKind;

/// How long a host waits before it reconnects.
const RETRY: Duration = Duration::from_millis(40);
/// How long a host waits while too many commands of all hosts are in flight.
const WAIT: Duration = Duration::from_millis(1);

/// The hosts that share a namespace.
pub(crate) struct Sharing {
    traits: SharingTraits,
    namespace: NamespaceId,
    geometry: Geometry,
    members: Vec<Member>,
    identifiers: Vec<HostId>,
    history: History,
    /// Commands of lost connections, each with its link.
    lost: Vec<(Number, u64)>,
    /// Consequences of injected faults are excused until then.
    disturbed_until: Instant,
    prng: Prng,
}

struct Member {
    peer: Peer,
    links: [Option<u64>; 2],
    is_ready: bool,
    /// The key with which it believes to be registered.
    own: Option<u64>,
    in_flight: BTreeMap<Number, Request>,
    left: u64,
    wake_at: Option<Instant>,
}

impl Sharing {
    pub(crate) fn new(traits: &SharingTraits, simulation: &Network, bug: Option<NetworkBug>) -> Sharing {
        let drive = simulation.drives.len() - 1;
        let identifiers: Vec<HostId> = (0..traits.hosts).map(|host| HostId([host as u8 + 1; 16])).collect();
        let members = (0..traits.hosts).map(|host| {
            // With this seeded bug, two hosts have the same identifier for the server.
            let identifier = if bug == Some(NetworkBug::HalvedHostId) { host & !1 } else { host };
            Member {
                peer: Peer::new(host, identifiers[identifier]),
                links: [None; 2],
                is_ready: false,
                own: None,
                in_flight: BTreeMap::new(),
                left: traits.commands,
                wake_at: Some(Instant(1)),
            }
        });
        Sharing {
            members: members.collect(),
            identifiers,
            namespace: NamespaceId(drive as u32 + 1),
            geometry: simulation.drives[drive].geometry.clone(),
            history: History::new(traits.keeps),
            lost: Vec::new(),
            disturbed_until: FOREVER,
            prng: simulation.root.fork("sharing/run"),
            traits: traits.clone(),
        }
    }

    /// Whether all commands are done.
    pub(crate) fn is_done(&self) -> bool {
        self.members.iter().all(|member| member.left == 0 && member.peer.is_down())
    }

    /// Whether few commands are left.
    pub(crate) fn has_little_left(&self) -> bool {
        self.members.iter().all(|member| member.left <= self.traits.commands / 5)
    }

    /// The next timer of each host.
    pub(crate) fn wakeups(&self) -> impl Iterator<Item = (usize, Instant)> + '_ {
        self.members.iter().enumerate().filter_map(|(host, member)| {
            let times_out_at = member.peer.waits_since().map(|since| since + TIMEOUT);
            Some((host, member.wake_at.into_iter().chain(times_out_at).min()?))
        })
    }

    pub(crate) fn disturb_until(&mut self, until: Instant) {
        self.disturbed_until = until;
    }

    /// The server ends, and unsaved changes are lost.
    pub(crate) fn server_ends(&mut self) {
        self.history.server_ends();
        self.lost.clear();
    }

    /// A device failed to save a change; these bytes are durable.
    fn save_failed(&mut self, durable: &Bytes) {
        let mut state = State::default();
        if !durable.is_empty() {
            let saved = SavedReservations::read(durable).expect("the target saves valid reservations");
            let number =
                |of: HostId| self.identifiers.iter().position(|it| *it == of).expect("a host of this scenario");
            state.generation = saved.generation;
            state.keys = saved.registrants.iter().map(|(host, key)| (number(*host), key.0)).collect();
            state.held = saved.held.map(|(kind, by)| (kind.code(), by.map_or(0, number)));
            state.persists = true;
        }
        self.history.save_failed(state);
    }
}

impl NetworkRun<'_> {
    /// Runs a closure with the sharing hosts, if there are any.
    pub(in crate::network) fn with_sharing<R>(&mut self, act: impl FnOnce(&mut Self, &mut Sharing) -> R) -> Option<R> {
        let mut sharing = self.sharing.take()?;
        let result = act(self, &mut sharing);
        self.sharing = Some(sharing);
        Some(result)
    }

    /// Acts when the timer of a host expires.
    pub(in crate::network) fn sharing_acts(&mut self, host: usize) -> Result<(), CheckError> {
        self.with_sharing(|run, sharing| run.member_acts(sharing, host)).unwrap_or(Ok(()))
    }

    fn member_acts(&mut self, sharing: &mut Sharing, host: usize) -> Result<(), CheckError> {
        let now = self.now;
        let disturbed_until = sharing.disturbed_until;
        let member = &mut sharing.members[host];
        if let Some(since) = member.peer.waits_since().filter(|since| *since + TIMEOUT <= now) {
            if since > disturbed_until {
                let message = format!("a command of sharing host {host} does not complete, without an injected fault");
                return Err(CheckError::new(FailureKind::Starved, None, message));
            }
            member.peer.close();
            return Ok(());
        }
        member.wake_at = None;
        if member.peer.is_down() {
            if member.left > 0 {
                member.peer.start(now);
            }
            return Ok(());
        }
        if !member.is_ready {
            return Ok(());
        }
        if member.left == 0 {
            if member.in_flight.is_empty() {
                member.peer.close();
            }
            return Ok(());
        }
        if member.in_flight.len() >= sharing.traits.queue_depth {
            return Ok(());
        }
        if sharing.history.open() >= OPEN_MAX {
            member.wake_at = Some(now + WAIT);
            return Ok(());
        }
        member.wake_at = Some(now + Duration(1 + sharing.prng.exponential(sharing.traits.pause.0)));
        match sharing.prng.below(60) {
            0 => {
                self.trace.log(now, || format!("sharing host {host} resets its controller"));
                member.is_ready = false;
                member.peer.reset(now);
            }
            1 => member.peer.close(),
            _ => {
                let request = generate(&mut sharing.prng, member.own, sharing.traits.keeps);
                let sent = command(request, sharing.namespace, &sharing.geometry, &mut sharing.prng);
                let number = sharing.history.start(host, request);
                self.trace.log(now, || format!("sharing host {host}: {number} {request}"));
                member.in_flight.insert(number, request);
                member.left -= 1;
                self.count_command();
                member.peer.send(now, number, sent);
            }
        }
        Ok(())
    }

    /// Processes the actions and events of all sharing hosts; returns whether there were any.
    pub(in crate::network) fn sharing_effects(&mut self) -> Result<bool, CheckError> {
        self.with_sharing(|run, sharing| {
            let mut has_moved = false;
            for host in 0..sharing.members.len() {
                has_moved |= run.member_effects(sharing, host)?;
            }
            Ok(has_moved)
        })
        .unwrap_or(Ok(false))
    }

    fn member_effects(&mut self, sharing: &mut Sharing, host: usize) -> Result<bool, CheckError> {
        let member = &mut sharing.members[host];
        let (events, actions) = (std::mem::take(&mut member.peer.events), std::mem::take(&mut member.peer.actions));
        let has_moved = !events.is_empty() || !actions.is_empty();
        for event in events {
            self.process_event(sharing, host, event)?;
        }
        let member = &mut sharing.members[host];
        for action in actions {
            match action {
                PeerAction::Open(queue) => member.links[queue] = Some(self.open_link(Owner::Sharing { host, queue })),
                PeerAction::Send(queue, pieces) => {
                    if let Some(link) = member.links[queue].and_then(|id| self.links.get_mut(&id)) {
                        link.up.push(pieces);
                    }
                }
                PeerAction::CloseAll => {
                    for id in member.links.iter_mut().filter_map(Option::take) {
                        if let Some(link) = self.links.get_mut(&id).filter(|link| link.host_end) {
                            link.host_closes();
                        }
                    }
                }
            }
        }
        Ok(has_moved)
    }

    fn process_event(&mut self, sharing: &mut Sharing, host: usize, event: PeerEvent) -> Result<(), CheckError> {
        let now = self.now;
        let member = &mut sharing.members[host];
        match event {
            PeerEvent::Ready => {
                self.trace.log(now, || format!("sharing host {host} is connected"));
                member.is_ready = true;
                member.wake_at = Some(now);
            }
            PeerEvent::Lost(numbers) => {
                self.trace.log(now, || format!("sharing host {host} is disconnected; lost commands: {numbers:?}"));
                member.is_ready = false;
                // The command was sent on one of both links.
                let links = member.links;
                for number in numbers {
                    member.in_flight.remove(&number);
                    sharing.history.lose(number);
                    sharing.lost.extend(links.iter().flatten().map(|&link| (number, link)));
                }
                if member.left > 0 {
                    member.wake_at = Some(now + RETRY);
                }
            }
            PeerEvent::Ended(number, status, data) => {
                let request = member.in_flight.remove(&number).expect("the command is in flight");
                let (status, data) = self.with_bugs(status, data, request);
                let controller = member.peer.controller();
                let answer = answer(request, status, &data, controller, &sharing.identifiers, host);
                self.trace.log(now, || format!("sharing host {host}: {number} completed, {answer}"));
                self.mix(number << 8 ^ u64::from(status.is_success()));
                let is_excused = sharing.traits.keeps && sharing.traits.fails;
                if answer == Response::WriteFault && !is_excused {
                    let message = format!(
                        "{request} of sharing host {host} completed with a write fault that the device did not report"
                    );
                    return Err(CheckError::new(FailureKind::WrongAnswer, None, message));
                }
                let wrong = |message| CheckError::new(FailureKind::WrongAnswer, None, message);
                sharing.history.end(number, &answer).map_err(wrong)?;
                member.update_key(request, &answer, host, &mut sharing.prng);
                if member.wake_at.is_none() {
                    member.wake_at = Some(now);
                }
            }
        }
        Ok(())
    }

    /// Applies seeded bugs of the server to a response.
    fn with_bugs(&mut self, status: StatusCode, mut data: Vec<u8>, request: Request) -> (StatusCode, Vec<u8>) {
        let bug = self.bug;
        if bug == Some(NetworkBug::IgnoredConflict)
            && status == StatusCode::RESERVATION_CONFLICT
            && matches!(request, Request::Read | Request::Write)
            && self.bug_prng.chance(1, 3)
        {
            return (StatusCode::SUCCESS, data);
        }
        // Byte 66 is the status of the first registered controller.
        if bug == Some(NetworkBug::MisreportedHolder)
            && request == Request::Report
            && data.get(5).is_some_and(|count| *count > 0)
            && self.bug_prng.chance(1, 3)
        {
            data[66] ^= 1;
        }
        (status, data)
    }

    /// A connect of a sharing host succeeded or failed.
    pub(in crate::network) fn sharing_opened(&mut self, host: usize, queue: usize, id: u64, is_taken: bool) {
        self.with_sharing(|_, sharing| {
            let member = &mut sharing.members[host];
            match is_taken {
                _ if member.links[queue] != Some(id) => {}
                true => member.peer.opened(queue),
                false => member.peer.close(),
            }
        });
    }

    pub(in crate::network) fn sharing_received(&mut self, host: usize, queue: usize, id: u64, chunk: Bytes) {
        self.with_sharing(|run, sharing| {
            let member = &mut sharing.members[host];
            if member.links[queue] == Some(id) {
                member.peer.on_bytes(run.now, queue, chunk);
            }
        });
    }

    pub(in crate::network) fn sharing_loses(&mut self, host: usize, queue: usize, id: u64) {
        self.with_sharing(|_, sharing| {
            let member = &mut sharing.members[host];
            if member.links[queue] == Some(id) {
                member.peer.close();
            }
        });
    }

    /// The device of the shared namespace has saved reservations, or failed to.
    pub(in crate::network) fn end_save(&mut self) {
        let forgets = self.bug == Some(NetworkBug::UnkeptReservation) && self.bug_prng.chance(1, 4);
        let Some(store) = &mut self.server.store else { return };
        let result = store.end(forgets);
        let now = self.now;
        let device = DeviceKey(self.simulation.drives.len() as u32 - 1);
        if let Err(durable) = &result {
            self.with_sharing(|run, sharing| {
                sharing.save_failed(durable);
                run.trace.log(now, || "the device failed to save the reservations".to_owned());
            });
        }
        let target = self.server.target.as_mut().expect("a save in progress belongs to a running server");
        target.on_reservations_saved(now, device, result.is_ok());
    }

    /// Expires commands of lost connections that the target has released: they took effect, or
    /// never will.
    pub(in crate::network) fn expire_lost(&mut self) {
        if self.server.store.as_ref().is_some_and(|store| store.next_at().is_some()) {
            return;
        }
        self.with_sharing(|run, sharing| {
            if sharing.lost.is_empty() {
                return;
            }
            let is_open =
                |id: &u64| run.links.get(id).is_some_and(|link| link.connection.is_some() || link.opens_at.is_some());
            let open: Vec<Number> =
                sharing.lost.iter().filter(|(_, id)| is_open(id)).map(|(number, _)| *number).collect();
            let expired: Vec<Number> =
                sharing.lost.iter().map(|(number, _)| *number).filter(|number| !open.contains(number)).collect();
            sharing.lost.retain(|(number, _)| open.contains(number));
            sharing.history.expire(&expired);
        });
    }

    /// Disconnects all sharing hosts.
    pub(in crate::network) fn close_sharing(&mut self) -> Result<(), CheckError> {
        self.with_sharing(|_, sharing| sharing.members.iter_mut().for_each(|member| member.peer.close()));
        self.sharing_effects().map(|_| ())
    }
}

impl Member {
    /// Updates the key from a response.
    fn update_key(&mut self, request: Request, answer: &Response, host: usize, prng: &mut Prng) {
        match (request, answer) {
            (Request::Register { action: 0 | 2, new, .. }, Response::Success) => self.own = Some(new),
            (Request::Register { .. } | Request::Release { action: 1, .. }, Response::Success) => self.own = None,
            (_, Response::Report { registrants, .. }) => self.own = registrants.get(&host).map(|(key, _)| *key),
            (Request::Acquire { .. } | Request::Release { .. }, Response::Conflict) if prng.chance(1, 3) => {
                self.own = None;
            }
            _ => {}
        }
    }
}
