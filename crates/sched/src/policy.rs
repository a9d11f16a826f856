//! [`Policy`]: a scheduler as data.

use crate::{Ezns, EznsConfig, Fifo, Interference, InterferenceConfig, MqDeadline, MqDeadlineConfig, Scheduler};

/// Which scheduler, with its parameters.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Policy {
    /// Requests are released in the order of their arrival.
    #[default]
    None,
    /// [`MqDeadline`].
    MqDeadline(MqDeadlineConfig),
    /// [`Ezns`].
    Ezns(EznsConfig),
    /// [`Interference`].
    Interference(InterferenceConfig),
}

impl Policy {
    /// A scheduler of this kind.
    #[must_use]
    pub fn scheduler(&self) -> Box<dyn Scheduler> {
        match self {
            Policy::None => Box::new(Fifo::default()),
            Policy::MqDeadline(config) => Box::new(MqDeadline::new(*config)),
            Policy::Ezns(config) => Box::new(Ezns::new(config.clone())),
            Policy::Interference(config) => Box::new(Interference::new(config.clone())),
        }
    }
}
