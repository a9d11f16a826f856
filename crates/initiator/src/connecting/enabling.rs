//! Enables the controller.

use zonda_nvme::fabrics::{Capabilities, Configuration, ControllerStatus, Property, PropertyCommand};
use zonda_zoned::{Duration, Instant};

use super::{Progress, send, succeeded};
use crate::error::Reason;
use crate::queue::{CommandData, Ended, Queue};
use crate::state::Step;

/// Interval of reading CSTS.
const POLL_INTERVAL: Duration = Duration::from_millis(20);
/// The unit of CAP.TO (NVMe Base 2.0, Figure 36).
const READY_UNIT: Duration = Duration::from_millis(500);

/// The procedure.
#[derive(Debug)]
pub(crate) struct Enabling {
    stage: Stage,
    pub(crate) capabilities: Capabilities,
    /// When to read CSTS again.
    poll_at: Option<Instant>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Capabilities,
    Enable,
    Ready,
}

impl Enabling {
    pub(crate) fn start(now: Instant, queue: &mut Queue) -> Enabling {
        send(queue, now, PropertyCommand::get(Property::Capabilities).into(), CommandData::None);
        let stage = Stage::Capabilities;
        Enabling { stage, capabilities: Capabilities::from_value(0), poll_at: None }
    }

    pub(crate) fn step(&self) -> Step {
        match self.stage {
            Stage::Capabilities => Step::ReadCapabilities,
            Stage::Enable => Step::Enable,
            Stage::Ready => Step::WaitUntilReady,
        }
    }

    /// The timeout of the step that the controller specifies (CAP.TO).
    pub(crate) fn ready_timeout(&self) -> Duration {
        match self.stage {
            Stage::Ready => READY_UNIT * u64::from(self.capabilities.ready_timeout_500ms),
            _ => Duration::ZERO,
        }
    }

    pub(crate) fn ended(&mut self, now: Instant, queue: &mut Queue, ended: &Ended) -> Result<Progress, Reason> {
        succeeded(ended)?;
        match self.stage {
            Stage::Capabilities => {
                self.capabilities = Capabilities::from_value(ended.result);
                // Zones need all I/O command sets enabled; a controller without I/O queues has its
                // own setting.
                let command_set = if self.capabilities.all_command_sets {
                    Configuration::CSS_ALL
                } else if self.capabilities.nvm_command_set || !self.capabilities.no_io_command_set {
                    Configuration::CSS_NVM
                } else {
                    Configuration::CSS_ADMIN_ONLY
                };
                let value = Configuration::enabled(command_set).0;
                send(queue, now, PropertyCommand::set(Property::Configuration, value.into()).into(), CommandData::None);
                self.stage = Stage::Enable;
            }
            Stage::Enable => {
                self.stage = Stage::Ready;
                read_status(now, queue);
            }
            Stage::Ready => {
                let status = ControllerStatus(ended.result as u32);
                if status.is_fatal() {
                    return Err(Reason::ControllerFatal);
                }
                if status.is_ready() {
                    return Ok(Progress::Done);
                }
                self.poll_at = Some(now + POLL_INTERVAL);
            }
        }
        Ok(Progress::More)
    }

    pub(crate) fn next_timeout(&self) -> Option<Instant> {
        self.poll_at
    }

    pub(crate) fn on_timeout(&mut self, now: Instant, queue: &mut Queue) {
        if self.poll_at.is_some_and(|at| at <= now) {
            self.poll_at = None;
            read_status(now, queue);
        }
    }
}

#[cfg(test)]
impl Enabling {
    /// CC.EN is set.
    pub(crate) fn waiting_until_ready() -> Enabling {
        Enabling { stage: Stage::Ready, capabilities: Capabilities::from_value(0), poll_at: None }
    }
}

fn read_status(now: Instant, queue: &mut Queue) {
    send(queue, now, PropertyCommand::get(Property::Status).into(), CommandData::None);
}
