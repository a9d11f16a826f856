//! Requests of operators to a volume.

use std::fmt;

use serde::{Deserialize, Serialize};
use zonda_config::Rate;
use zonda_raid::{MemberIndex, MemberState};
use zonda_ring::Ring;
use zonda_zoned::{CompletionQueue, Duration, Instant, NamespaceId, ZonedDevice};

use super::VolumeDrive;
use super::adopt::{ADOPTIONS_MAX, Adoption, RequestId, Role};
use super::directory::{Place, WhyFailed};
use super::member_device::refuse_volume;
use super::refusals::{CANNOT_LOSE, failed_already};
use super::report::VolumeReport;
use super::spares::Spare;
use super::start::{blocks_per_second, tuning};
use crate::opening::OnRing;
use crate::{Credentials, DriveError, Location};

/// A request. Members are named by their number, by their path or URL, or by the last part of that.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum VolumeRequest {
    /// Report the state of the volume.
    Report,
    /// Report the state with the first ranges of lost blocks from `from` on
    /// ([`VolumeReport::lost`]): there may be more after the last of them.
    Lost {
        /// A logical block.
        from: u64,
    },
    /// Fail a member: it is neither read nor written any more.
    Fail {
        /// The member.
        member: String,
    },
    /// Replace a failed member by a device; all zones of the device are reset.
    Replace {
        /// The member.
        member: String,
        /// The path or URL of the device; paths are absolute, or relative to the program that
        /// serves the volume.
        with: String,
        /// Whether the device may be wiped if it is not empty.
        may_wipe: bool,
        /// Credentials for a device of a server.
        #[serde(default, skip_serializing_if = "Credentials::is_empty")]
        credentials: Credentials,
    },
    /// Re-add a failed member with its contents, and resynchronize what it missed.
    Readd {
        /// The member.
        member: String,
    },
    /// Add a spare, which replaces a member that fails.
    AddSpare {
        /// The path or URL of the device.
        spare: String,
        /// Whether the device may be wiped if it is not empty.
        may_wipe: bool,
        /// Credentials for a device of a server.
        #[serde(default, skip_serializing_if = "Credentials::is_empty")]
        credentials: Credentials,
    },
    /// Remove a spare.
    RemoveSpare {
        /// The path or URL of the device.
        spare: String,
    },
    /// Start a scrub: read and verify everything.
    Scrub,
    /// Stop the scrub in progress.
    StopScrub,
    /// Set the rate limits of background operations.
    Rates {
        /// The limit of rebuilds; absent: unchanged.
        rebuild: Option<RateLimit>,
        /// The limit of scrubs; absent: unchanged.
        scrub: Option<RateLimit>,
    },
}

/// The rate limit of a background operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RateLimit {
    /// Unlimited for a rebuild, 64 MiB/s for a scrub.
    Default,
    /// At most this rate.
    AtMost(Rate),
}

impl RateLimit {
    fn rate(self) -> Option<Rate> {
        match self {
            RateLimit::Default => None,
            RateLimit::AtMost(rate) => Some(rate),
        }
    }
}

impl fmt::Display for VolumeRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let wiping = |may_wipe: &bool| if *may_wipe { ", even if it is not empty" } else { "" };
        let limit = |limit: &Option<RateLimit>| match limit {
            None => "unchanged".to_owned(),
            Some(RateLimit::Default) => "default".to_owned(),
            Some(RateLimit::AtMost(rate)) => rate.to_string(),
        };
        match self {
            VolumeRequest::Report => f.write_str("report its state"),
            VolumeRequest::Lost { from } => write!(f, "list lost blocks from {from} on"),
            VolumeRequest::Fail { member } => write!(f, "fail member {member}"),
            VolumeRequest::Replace { member, with, may_wipe, .. } => {
                write!(f, "replace member {member} with {with}{}", wiping(may_wipe))
            }
            VolumeRequest::Readd { member } => write!(f, "re-add member {member}"),
            VolumeRequest::AddSpare { spare, may_wipe, .. } => write!(f, "add the spare {spare}{}", wiping(may_wipe)),
            VolumeRequest::RemoveSpare { spare } => write!(f, "remove the spare {spare}"),
            VolumeRequest::Scrub => f.write_str("scrub"),
            VolumeRequest::StopScrub => f.write_str("stop the scrub"),
            VolumeRequest::Rates { rebuild, scrub } => {
                write!(f, "set rates: rebuild {}, scrub {}", limit(rebuild), limit(scrub))
            }
        }
    }
}

/// Timeout for all members to record that one has failed.
const RECORD_MAX: Duration = Duration(5_000_000_000);

fn not_recorded() -> DriveError {
    DriveError::new(
        "the member has failed, but the other members have not recorded it yet: until they have, a restart makes it \
         active again",
        "zonda volume status shows for which members the volume waits, and why",
    )
}

/// The reply to a request.
#[derive(Debug)]
pub enum VolumeReply {
    /// The request was executed or refused; long operations continue in the background.
    Done(Box<Result<VolumeReport, DriveError>>),
    /// A device has to be opened first: [`VolumeDrive::take_answer`] returns the answer later.
    Pending(RequestId),
}

impl VolumeDrive {
    /// Submits a request. Never blocks.
    pub fn ask(&mut self, request: &VolumeRequest, ring: &Ring) -> VolumeReply {
        let done = match request {
            VolumeRequest::Report => Ok(()),
            VolumeRequest::Lost { from } => {
                let report = VolumeReport { lost: Some(self.lost(*from)), ..self.report() };
                return VolumeReply::Done(Box::new(Ok(report)));
            }
            VolumeRequest::Fail { member } => {
                return self.later(|volume, id| volume.fail(id, member, ring));
            }
            VolumeRequest::Replace { member, with, may_wipe, credentials } => {
                return self.later(|volume, id| volume.replace(id, member, with, (*may_wipe, credentials), ring));
            }
            VolumeRequest::Readd { member } => {
                return self.later(|volume, id| volume.readd(id, member, ring));
            }
            VolumeRequest::AddSpare { spare, may_wipe, credentials } => {
                let agreed = (*may_wipe, credentials);
                return self.later(|volume, id| volume.begin_adoption(id, Role::Spare, spare, agreed, ring));
            }
            VolumeRequest::RemoveSpare { spare } => self.remove_spare(spare, ring),
            VolumeRequest::Scrub => {
                self.last_scrub = None;
                self.on.volume_mut().start_scrub(ring.now());
                Ok(())
            }
            VolumeRequest::StopScrub => {
                self.on.volume_mut().stop_scrub();
                Ok(())
            }
            VolumeRequest::Rates { rebuild, scrub } => {
                let before = self.directory.file.rates;
                let rates = super::VolumeRates {
                    rebuild: rebuild.map_or(before.rebuild, RateLimit::rate),
                    scrub: scrub.map_or(before.scrub, RateLimit::rate),
                };
                if rates == before { Ok(()) } else { self.set_rates(rates) }
            }
        };
        VolumeReply::Done(Box::new(done.map(|()| self.report())))
    }

    /// Takes the next answer to a pending request.
    pub fn take_answer(&mut self) -> Option<(RequestId, Result<VolumeReport, DriveError>)> {
        self.answers.pop_front()
    }

    /// Executes a request, and returns the state of the volume after it. Blocks on devices that
    /// have to be opened: for programs that do nothing else. No command of a host may be in flight.
    ///
    /// # Errors
    /// When the request fails; with the remedy. Nothing is changed then.
    pub fn manage(&mut self, request: &VolumeRequest, ring: &Ring) -> Result<VolumeReport, DriveError> {
        let id = match self.ask(request, ring) {
            VolumeReply::Done(answer) => return *answer,
            VolumeReply::Pending(id) => id,
        };
        let mut completions = CompletionQueue::new();
        loop {
            self.poll(ring.now(), &mut completions);
            if let Some(at) = self.answers.iter().position(|(answered, _)| *answered == id)
                && let Some((_, answer)) = self.answers.remove(at)
            {
                return answer;
            }
            ring.run_once(self.next_timeout())
                .map_err(|error| DriveError::new(format!("the event loop failed: {error}"), ""))?;
        }
    }

    fn later(&mut self, begin: impl FnOnce(&mut VolumeDrive, RequestId) -> Result<(), DriveError>) -> VolumeReply {
        self.next_request += 1;
        let id = RequestId(self.next_request);
        match begin(self, id) {
            Ok(()) => VolumeReply::Pending(id),
            Err(error) => VolumeReply::Done(Box::new(Err(error))),
        }
    }

    fn fail(&mut self, id: RequestId, name: &str, ring: &Ring) -> Result<(), DriveError> {
        let member = self.member_named(name)?;
        if self.state(member) == MemberState::Failed && self.keep_away(ring.now(), member)? {
            self.failing.push((ring.now() + RECORD_MAX, id));
            return Ok(());
        }
        if self.state(member) == MemberState::Failed {
            return Err(failed_already(&self.shown(member)));
        }
        let is_active = self.state(member) == MemberState::Active;
        if is_active && self.can_lose() == 0 {
            let help =
                if self.is_quiescent() { CANNOT_LOSE } else { "wait for the rebuild: zonda volume status DIR --wait" };
            return Err(DriveError::new(format!("the volume cannot lose {}", self.shown(member)), help));
        }
        // That it must stay failed is saved first: a mount after a crash must not re-add it.
        let before = self.directory.file.clone();
        self.directory.file.member[usize::from(member.0)].failed = Some(WhyFailed::Command);
        self.save_or_revert(before)?;
        self.on.volume_mut().fail_member(ring.now(), member);
        self.on_events(ring.now());
        self.failing.push((ring.now() + RECORD_MAX, id));
        Ok(())
    }

    /// Answers requests to fail members, once all others and `volume.toml` have recorded that: a
    /// mount after that does not re-add them.
    pub(super) fn answer_failures(&mut self, now: Instant) {
        if self.failing.is_empty() {
            return;
        }
        let volume = self.on.volume();
        let is_known = !volume.is_ready() || volume.is_epoch_durable() && self.is_epoch_saved();
        let report = self.report();
        for (until, id) in std::mem::take(&mut self.failing) {
            if is_known {
                self.answers.push_back((id, Ok(report.clone())));
            } else if until <= now {
                self.answers.push_back((id, Err(not_recorded())));
            } else {
                self.failing.push((until, id));
            }
        }
    }

    /// The volume is being closed, and it is not known whether all members have recorded a failure.
    pub(super) fn abandon_failures(&mut self) {
        let failing = std::mem::take(&mut self.failing);
        self.answers.extend(failing.into_iter().map(|(_, id)| (id, Err(not_recorded()))));
    }

    /// Fails a member without saving `volume.toml` first, for tests: a request would be refused
    /// while the file cannot be written.
    #[doc(hidden)]
    pub fn fail_unsaved(&mut self, member: u8, ring: &Ring) {
        self.on.volume_mut().fail_member(ring.now(), MemberIndex(member));
        self.on_events(ring.now());
    }

    fn replace(
        &mut self,
        id: RequestId,
        name: &str,
        with: &str,
        agreed: (bool, &Credentials),
        ring: &Ring,
    ) -> Result<(), DriveError> {
        let member = self.member_named(name)?;
        self.must_have_failed(member)?;
        // The device of a member that has just failed is detached first: it may be the one that is
        // added.
        self.on_events(ring.now());
        self.stop_looking(ring.now(), |adoption| adoption.role == Role::Return(member));
        // The present device is a replacement that is being wiped.
        let is_joining = self.on.member(member).is_some();
        if is_joining || self.adoptions.iter().any(|adoption| adoption.role == Role::Member(member)) {
            let what = format!("{} is being replaced already", self.shown(member));
            return Err(DriveError::new(what, "wait until that has succeeded or failed"));
        }
        self.begin_adoption(id, Role::Member(member), with, agreed, ring)
    }

    pub(super) fn must_have_failed(&self, member: MemberIndex) -> Result<(), DriveError> {
        if self.state(member) == MemberState::Failed {
            return Ok(());
        }
        let what = format!("{} has not failed", self.shown(member));
        Err(DriveError::new(what, "fail it first: zonda member fail"))
    }

    /// Begins to add a device to the volume.
    fn begin_adoption(
        &mut self,
        id: RequestId,
        role: Role,
        text: &str,
        (may_wipe, credentials): (bool, &Credentials),
        ring: &Ring,
    ) -> Result<(), DriveError> {
        let location = location_of(text)?;
        refuse_volume(&location)?;
        self.stop_looking(ring.now(), |adoption| adoption.location == location);
        self.must_not_be_in_use(text, &location)?;
        if self.adoptions.len() >= ADOPTIONS_MAX {
            return Err(DriveError::new(
                format!("{ADOPTIONS_MAX} drives are being added already"),
                "wait until one of them has been added, and try again",
            ));
        }
        let place = self.directory.place(&location).with_credentials(self.directory.path(), credentials);
        let named = (text, location, place);
        self.adoptions.push(Adoption::new(Some(id), role, named, may_wipe, ring.now(), OnRing::of(ring)));
        // Makes as much progress as possible at once.
        self.adopt(ring.now());
        Ok(())
    }

    fn remove_spare(&mut self, name: &str, ring: &Ring) -> Result<(), DriveError> {
        let open = self.spares.iter().map(|spare| &spare.place);
        let places: Vec<Place> = open.chain(self.spare_watch.away.iter().map(|away| &away.place)).cloned().collect();
        let at = spare_named(&places, name)?;
        let before = self.directory.file.clone();
        let place = &places[at];
        self.directory.file.spare.retain(|spare| spare != place);
        self.save_or_revert(before)?;
        self.spare_watch.forget(&place.at);
        self.stop_looking(ring.now(), |adoption| adoption.role == Role::SpareAgain && adoption.place.at == place.at);
        if at < self.spares.len() {
            let Spare { device, .. } = self.spares.remove(at);
            self.detach(device, ring.now());
        }
        Ok(())
    }

    fn set_rates(&mut self, rates: super::VolumeRates) -> Result<(), DriveError> {
        let before = self.directory.file.clone();
        self.directory.file.rates = rates;
        self.save_or_revert(before)?;
        let block_bytes = self.on.geometry(NamespaceId::FIRST).block_size_bytes;
        let scrub = tuning(0, rates, block_bytes).scrub_blocks_per_second;
        self.on.volume_mut().set_rates(rates.rebuild.map(|rate| blocks_per_second(rate, block_bytes)), scrub);
        Ok(())
    }

    pub(super) fn member_named(&self, name: &str) -> Result<MemberIndex, DriveError> {
        member_named(&self.directory.file.member, name)
    }
}

/// The member that an operator names: by its number, by its path or URL, or by a short name of
/// that.
pub(super) fn member_named(places: &[Place], name: &str) -> Result<MemberIndex, DriveError> {
    if let Some(number) = name.parse().ok().filter(|number: &usize| *number < places.len()) {
        return Ok(MemberIndex(number as u8));
    }
    let named = |is_it: fn(&Place, &str) -> bool| (0..places.len()).filter(|at| is_it(&places[*at], name)).collect();
    let mut named_so: Vec<usize> = named(is_at);
    if named_so.is_empty() {
        named_so = named(is_named);
    }
    if let [at] = named_so[..] {
        return Ok(MemberIndex(at as u8));
    }
    let shown = |which: &[usize]| {
        let shown = which.iter().map(|at| format!("{at} ({})", places[*at].shown()));
        shown.collect::<Vec<String>>().join(", ")
    };
    Err(if named_so.is_empty() {
        let all: Vec<usize> = (0..places.len()).collect();
        DriveError::new(format!("the volume has no member {name}"), format!("it has {}", shown(&all)))
    } else {
        let help = format!("give the number, one of {}", shown(&named_so));
        DriveError::new(format!("{name} is ambiguous: several members of the volume have that name"), help)
    })
}

/// The spare that an operator names by its path or URL, or by a short name of that.
pub(super) fn spare_named(places: &[Place], name: &str) -> Result<usize, DriveError> {
    places.iter().position(|place| is_named(place, name)).ok_or_else(|| {
        let spares: Vec<String> = places.iter().map(Place::shown).collect();
        let help =
            if spares.is_empty() { "it has no spares".to_owned() } else { format!("it has {}", spares.join(", ")) };
        DriveError::new(format!("the volume has no spare {name}"), help)
    })
}

/// The error for a spare that is named as another spare, or as the replacement of a member.
pub(super) fn is_spare(text: &str) -> DriveError {
    DriveError::new(
        format!("{text} is a spare of this volume"),
        "a spare replaces a failed member automatically while the volume is served (zonda serve DIR) or assembled \
         (zonda volume status DIR --wait --assemble); to use it otherwise, remove it first with zonda volume spare remove",
    )
}

/// The location that an operator names.
pub(super) fn location_of(text: &str) -> Result<Location, DriveError> {
    text.parse()
        .map_err(|error: zonda_config::ConfigError| DriveError::new(error.message, error.help.unwrap_or_default()))
}

/// Whether `name` matches this entry: its location, the last part of it, or the part after the last
/// colon of a subsystem NQN, which is the name of the drive on servers of zonda.
fn is_named(place: &Place, name: &str) -> bool {
    if is_at(place, name) || name.contains("://") {
        return is_at(place, name);
    }
    let last = |text: &str| text.trim_end_matches('/').rsplit('/').next().map(str::to_owned);
    let own = last(&place.at);
    let is_url = matches!(place.at.parse(), Ok(Location::NvmeTcp(_)));
    let short = own.as_deref().filter(|_| is_url).and_then(|own| own.rsplit(':').next());
    (own.is_some() && own == last(name)) || short.is_some_and(|short| short == name)
}

/// Whether `name` is the location of this entry. The default port of a URL is optional.
fn is_at(place: &Place, name: &str) -> bool {
    let url = |text: &str| text.parse().ok().filter(|location| matches!(location, Location::NvmeTcp(_)));
    let named: Option<Location> = url(name);
    place.at == name || place.shown() == name || (named.is_some() && named == url(&place.at))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_described() {
        let limit = RateLimit::AtMost("200 MiB/s".parse().expect("a rate"));
        let with = "drives/f".to_owned();
        for (request, words) in [
            (VolumeRequest::Fail { member: "b".to_owned() }, "fail member b"),
            (VolumeRequest::Scrub, "scrub"),
            (
                VolumeRequest::Replace {
                    member: "1".to_owned(),
                    with,
                    may_wipe: true,
                    credentials: Default::default(),
                },
                "replace member 1 with drives/f, even if it is not empty",
            ),
            (
                VolumeRequest::Rates { rebuild: Some(limit), scrub: None },
                "set rates: rebuild 200 MiB/s, scrub unchanged",
            ),
        ] {
            assert_eq!(request.to_string(), words);
        }
    }

    #[test]
    fn members_are_found_by_their_path_url_or_short_name() {
        let place = Place::new("../drives/b".to_owned());
        for name in ["../drives/b", "drives/b", "b", "b/"] {
            assert!(is_named(&place, name), "{name}");
        }
        for name in ["a", "drives", "", "bb"] {
            assert!(!is_named(&place, name), "{name}");
        }
        let url = "nvme-tcp://10.0.0.7:4420/nqn.2026-01.io.zonda:b";
        let place = Place::new(url.to_owned());
        for name in [url, "nvme-tcp://10.0.0.7/nqn.2026-01.io.zonda:b", "nqn.2026-01.io.zonda:b", "b"] {
            assert!(is_named(&place, name), "{name}");
        }
        for name in
            ["nvme-tcp://10.0.0.8/nqn.2026-01.io.zonda:b", "a", "10.0.0.7:4420", "nqn.2026-01.io.zonda", "4420", ""]
        {
            assert!(!is_named(&place, name), "{name}");
        }
        let second = Place::new(format!("{url}?namespace=2"));
        assert!(is_named(&second, "b?namespace=2") && !is_named(&second, "b"));
    }

    #[test]
    fn an_ambiguous_name_is_refused_with_the_numbers_of_the_members() {
        let at = |host: u8| Place::new(format!("nvme-tcp://10.0.0.{host}:4420/nqn.2026-01.io.zonda:b"));
        let places = [at(7), at(8), Place::new("../drives/c".to_owned())];
        let error = member_named(&places, "b").expect_err("two are called that");
        assert_eq!(error.message, "b is ambiguous: several members of the volume have that name");
        assert_eq!(error.help, format!("give the number, one of 0 ({}), 1 ({})", places[0].at, places[1].at));
        assert_eq!(member_named(&places, "1"), Ok(MemberIndex(1)));
        assert_eq!(member_named(&places, &places[0].at), Ok(MemberIndex(0)));
        assert_eq!(member_named(&places, "c"), Ok(MemberIndex(2)));
        let error = member_named(&places, "d").expect_err("no member has that name");
        assert_eq!(error.message, "the volume has no member d");
        assert!(error.help.starts_with("it has 0 (nvme-tcp://10.0.0.7"), "{error}");
    }
}
