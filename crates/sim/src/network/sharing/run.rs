//! The hosts that share, in a run: when they ask, what becomes of their connections, and whether the answers can be.

use std::collections::BTreeMap;

use bytes::Bytes;
use zonda_nvme::reservation::SavedReservations;
use zonda_nvme::{HostId, StatusCode};
use zonda_target::DeviceKey;
use zonda_zoned::{Duration, Geometry, Instant, NamespaceId, Prng};

use super::SharingTraits;
use super::commands::{answer, command, draw};
use super::history::{History, Number, OPEN_MAX};
use super::peer::{Deed, News, PATIENCE, Peer};
use super::rules::{Answer, Ask, State};
use crate::network::bugs::NetworkBug;
use crate::network::link::Owner;
use crate::network::run::{EVER, NetworkRun};
use crate::network::world::Network;
use crate::outcome::FailureKind;
use crate::survey::Trouble;

/// How long a host waits that could not connect, or has lost its connections.
const RETRY: Duration = Duration::from_millis(40);
/// How long it waits while too many commands of all have not ended.
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
    /// What the world has done to the network and the server is over.
    disturbed_until: Instant,
    prng: Prng,
}

struct Member {
    peer: Peer,
    links: [Option<u64>; 2],
    is_ready: bool,
    /// The key that it believes it has.
    own: Option<u64>,
    asked: BTreeMap<Number, Ask>,
    left: u64,
    wake_at: Option<Instant>,
}

impl Sharing {
    pub(crate) fn new(traits: &SharingTraits, world: &Network, bug: Option<NetworkBug>) -> Sharing {
        let drive = world.drives.len() - 1;
        let identifiers: Vec<HostId> = (0..traits.hosts).map(|host| HostId([host as u8 + 1; 16])).collect();
        let members = (0..traits.hosts).map(|host| {
            // This server takes two hosts for one.
            let as_known = if bug == Some(NetworkBug::HalvedHostId) { host & !1 } else { host };
            Member {
                peer: Peer::new(host, identifiers[as_known]),
                links: [None; 2],
                is_ready: false,
                own: None,
                asked: BTreeMap::new(),
                left: traits.commands,
                wake_at: Some(Instant(1)),
            }
        });
        Sharing {
            members: members.collect(),
            identifiers,
            namespace: NamespaceId(drive as u32 + 1),
            geometry: world.drives[drive].geometry.clone(),
            history: History::new(traits.keeps),
            lost: Vec::new(),
            disturbed_until: EVER,
            prng: world.root.fork("sharing/run"),
            traits: traits.clone(),
        }
    }

    /// Whether all their work is done.
    pub(crate) fn is_done(&self) -> bool {
        self.members.iter().all(|member| member.left == 0 && member.peer.is_down())
    }

    /// Whether they have little left to do.
    pub(crate) fn has_little_left(&self) -> bool {
        self.members.iter().all(|member| member.left <= self.traits.commands / 5)
    }

    /// When each of them does something by itself, next.
    pub(crate) fn wakeups(&self) -> impl Iterator<Item = (usize, Instant)> + '_ {
        self.members.iter().enumerate().filter_map(|(host, member)| {
            let gives_up_at = member.peer.waits_since().map(|since| since + PATIENCE);
            Some((host, member.wake_at.into_iter().chain(gives_up_at).min()?))
        })
    }

    pub(crate) fn disturb_until(&mut self, until: Instant) {
        self.disturbed_until = until;
    }

    /// The server ends, and with it what it has not kept.
    pub(crate) fn server_ends(&mut self) {
        self.history.server_ends();
        self.lost.clear();
    }

    /// A device could not keep a change; these bytes are durable.
    fn keep_failed(&mut self, durable: &Bytes) {
        let mut state = State::default();
        if !durable.is_empty() {
            let saved = SavedReservations::read(durable).expect("a target keeps what can be read");
            let number = |of: HostId| self.identifiers.iter().position(|it| *it == of).expect("a host of this world");
            state.generation = saved.generation;
            state.keys = saved.registrants.iter().map(|(host, key)| (number(*host), key.0)).collect();
            state.held = saved.held.map(|(kind, by)| (kind.code(), by.map_or(0, number)));
            state.persists = true;
        }
        self.history.keep_failed(state);
    }
}

impl NetworkRun<'_> {
    /// Carries out something for the hosts that share, if there are any.
    pub(in crate::network) fn with_sharing<R>(&mut self, act: impl FnOnce(&mut Self, &mut Sharing) -> R) -> Option<R> {
        let mut sharing = self.sharing.take()?;
        let result = act(self, &mut sharing);
        self.sharing = Some(sharing);
        Some(result)
    }

    /// The time has come that a host waited for.
    pub(in crate::network) fn sharing_acts(&mut self, host: usize) -> Result<(), Trouble> {
        self.with_sharing(|run, sharing| run.member_acts(sharing, host)).unwrap_or(Ok(()))
    }

    fn member_acts(&mut self, sharing: &mut Sharing, host: usize) -> Result<(), Trouble> {
        let now = self.now;
        let disturbed_until = sharing.disturbed_until;
        let member = &mut sharing.members[host];
        if let Some(since) = member.peer.waits_since().filter(|since| *since + PATIENCE <= now) {
            if since > disturbed_until {
                let message = format!("a command of sharing host {host} does not end, and nobody disturbed it");
                return Err(Trouble::new(FailureKind::Starved, None, message));
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
            if member.asked.is_empty() {
                member.peer.close();
            }
            return Ok(());
        }
        if member.asked.len() >= sharing.traits.queue_depth {
            return Ok(());
        }
        if sharing.history.open() >= OPEN_MAX {
            member.wake_at = Some(now + WAIT);
            return Ok(());
        }
        member.wake_at = Some(now + Duration(1 + sharing.prng.exponential(sharing.traits.pause.0)));
        match sharing.prng.below(60) {
            0 => {
                self.teller.tell(now, || format!("sharing host {host} resets its controller"));
                member.is_ready = false;
                member.peer.reset(now);
            }
            1 => member.peer.close(),
            _ => {
                let ask = draw(&mut sharing.prng, member.own, sharing.traits.keeps);
                let sent = command(ask, sharing.namespace, &sharing.geometry, &mut sharing.prng);
                let number = sharing.history.start(host, ask);
                self.teller.tell(now, || format!("sharing host {host}: {number} {ask:?}"));
                member.asked.insert(number, ask);
                member.left -= 1;
                self.count_command();
                member.peer.send(now, number, sent);
            }
        }
        Ok(())
    }

    /// Carries out what the hosts that share want, and takes what has come to them; says whether there was anything.
    pub(in crate::network) fn sharing_effects(&mut self) -> Result<bool, Trouble> {
        self.with_sharing(|run, sharing| {
            let mut has_moved = false;
            for host in 0..sharing.members.len() {
                has_moved |= run.member_effects(sharing, host)?;
            }
            Ok(has_moved)
        })
        .unwrap_or(Ok(false))
    }

    fn member_effects(&mut self, sharing: &mut Sharing, host: usize) -> Result<bool, Trouble> {
        let member = &mut sharing.members[host];
        let (news, deeds) = (std::mem::take(&mut member.peer.news), std::mem::take(&mut member.peer.deeds));
        let has_moved = !news.is_empty() || !deeds.is_empty();
        for it in news {
            self.take_news(sharing, host, it)?;
        }
        let member = &mut sharing.members[host];
        for deed in deeds {
            match deed {
                Deed::Open(queue) => member.links[queue] = Some(self.open_link(Owner::Sharing { host, queue })),
                Deed::Send(queue, pieces) => {
                    if let Some(link) = member.links[queue].and_then(|id| self.links.get_mut(&id)) {
                        link.up.push(pieces);
                    }
                }
                Deed::CloseAll => {
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

    fn take_news(&mut self, sharing: &mut Sharing, host: usize, news: News) -> Result<(), Trouble> {
        let now = self.now;
        let member = &mut sharing.members[host];
        match news {
            News::Ready => {
                self.teller.tell(now, || format!("sharing host {host} is connected"));
                member.is_ready = true;
                member.wake_at = Some(now);
            }
            News::Lost(numbers) => {
                self.teller
                    .tell(now, || format!("sharing host {host} has no connections any more; {numbers:?} are lost"));
                member.is_ready = false;
                // Both links are looked at: a command goes over one of them.
                let links = member.links;
                for number in numbers {
                    member.asked.remove(&number);
                    sharing.history.lose(number);
                    sharing.lost.extend(links.iter().flatten().map(|&link| (number, link)));
                }
                if member.left > 0 {
                    member.wake_at = Some(now + RETRY);
                }
            }
            News::Ended(number, status, data) => {
                let ask = member.asked.remove(&number).expect("it was asked");
                let (status, data) = self.as_answered(status, data, ask);
                let controller = member.peer.controller();
                let answer = answer(ask, status, &data, controller, &sharing.identifiers, host);
                self.teller.tell(now, || format!("sharing host {host}: {number} ended, {answer:?}"));
                self.mix(number << 8 ^ u64::from(status.is_success()));
                let is_excused = sharing.traits.keeps && sharing.traits.fails;
                if answer == Answer::WriteFault && !is_excused {
                    let message =
                        format!("{ask:?} of sharing host {host} ended with a fault that the device did not have");
                    return Err(Trouble::new(FailureKind::WrongAnswer, None, message));
                }
                let wrong = |message| Trouble::new(FailureKind::WrongAnswer, None, message);
                sharing.history.end(number, &answer).map_err(wrong)?;
                member.believe(ask, &answer, host, &mut sharing.prng);
                if member.wake_at.is_none() {
                    member.wake_at = Some(now);
                }
            }
        }
        Ok(())
    }

    /// An answer, as a server with a seeded bug gives it.
    fn as_answered(&mut self, status: StatusCode, mut data: Vec<u8>, ask: Ask) -> (StatusCode, Vec<u8>) {
        let bug = self.bug;
        if bug == Some(NetworkBug::IgnoredConflict)
            && status == StatusCode::RESERVATION_CONFLICT
            && matches!(ask, Ask::Read | Ask::Write)
            && self.bug_prng.chance(1, 3)
        {
            return (StatusCode::SUCCESS, data);
        }
        // Byte 66 is the status of the first registered controller.
        if bug == Some(NetworkBug::MisreportedHolder)
            && ask == Ask::Report
            && data.get(5).is_some_and(|count| *count > 0)
            && self.bug_prng.chance(1, 3)
        {
            data[66] ^= 1;
        }
        (status, data)
    }

    /// A connection of a host that shares has been made, or not.
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
                member.peer.received(run.now, queue, chunk);
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

    /// The device of the shared namespace has kept what it was asked to, or could not.
    pub(in crate::network) fn end_keeping(&mut self) {
        let forgets = self.bug == Some(NetworkBug::UnkeptReservation) && self.bug_prng.chance(1, 4);
        let Some(store) = &mut self.server.store else { return };
        let result = store.end(forgets);
        let now = self.now;
        let device = DeviceKey(self.world.drives.len() as u32 - 1);
        if let Err(durable) = &result {
            self.with_sharing(|run, sharing| {
                sharing.keep_failed(durable);
                run.teller.tell(now, || "the device could not keep the reservations".to_owned());
            });
        }
        let target = self.server.target.as_mut().expect("a server that ends asks for nothing any more");
        target.reservations_kept(now, device, result.is_ok());
    }

    /// Commands of lost connections that the target cannot know of any more have happened, or never will.
    pub(in crate::network) fn expire_lost(&mut self) {
        if self.server.store.as_ref().is_some_and(|store| store.next_at().is_some()) {
            return;
        }
        self.with_sharing(|run, sharing| {
            if sharing.lost.is_empty() {
                return;
            }
            let is_known =
                |id: &u64| run.links.get(id).is_some_and(|link| link.connection.is_some() || link.opens_at.is_some());
            let kept: Vec<Number> =
                sharing.lost.iter().filter(|(_, id)| is_known(id)).map(|(number, _)| *number).collect();
            let gone: Vec<Number> =
                sharing.lost.iter().map(|(number, _)| *number).filter(|number| !kept.contains(number)).collect();
            sharing.lost.retain(|(number, _)| kept.contains(number));
            sharing.history.expire(&gone);
        });
    }

    /// All hosts leave.
    pub(in crate::network) fn dismiss_sharing(&mut self) -> Result<(), Trouble> {
        self.with_sharing(|_, sharing| sharing.members.iter_mut().for_each(|member| member.peer.close()));
        self.sharing_effects().map(|_| ())
    }
}

impl Member {
    /// What the host takes from an answer for its key.
    fn believe(&mut self, ask: Ask, answer: &Answer, host: usize, prng: &mut Prng) {
        match (ask, answer) {
            (Ask::Register { action: 0 | 2, new, .. }, Answer::Success) => self.own = Some(new),
            (Ask::Register { .. } | Ask::Release { action: 1, .. }, Answer::Success) => self.own = None,
            (_, Answer::Report { registrants, .. }) => self.own = registrants.get(&host).map(|(key, _)| *key),
            (Ask::Acquire { .. } | Ask::Release { .. }, Answer::Conflict) if prng.chance(1, 3) => self.own = None,
            _ => {}
        }
    }
}
