//! [`Policy`]: a scheduler as data.

use crate::{Fifo, MqDeadline, MqDeadlineConfig, Scheduler};

/// Which scheduler, with its parameters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Policy {
    /// Requests are released in the order of their arrival.
    #[default]
    None,
    /// [`MqDeadline`].
    MqDeadline(MqDeadlineConfig),
}

impl Policy {
    /// A scheduler of this kind.
    #[must_use]
    pub fn scheduler(&self) -> Box<dyn Scheduler> {
        match self {
            Policy::None => Box::new(Fifo::default()),
            Policy::MqDeadline(config) => Box::new(MqDeadline::new(*config)),
        }
    }
}
