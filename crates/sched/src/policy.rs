//! [`Policy`]: a scheduler as data.

use zonda_zoned::Geometry;

use crate::{
    Ezns, EznsConfig, Fifo, Interference, InterferenceConfig, MqDeadline, MqDeadlineConfig, Scheduler, Within,
};

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
    /// A scheduler of this kind for a drive.
    #[must_use]
    pub fn scheduler(&self, drive: &Geometry) -> Box<dyn Scheduler> {
        match self {
            Policy::None => Box::new(Fifo::default()),
            Policy::MqDeadline(config) => Box::new(MqDeadline::new(*config)),
            Policy::Ezns(config) => Box::new(Ezns::new(config.scaled_to(drive))),
            Policy::Interference(config) => {
                let within = match &config.within {
                    Within::Ezns(within) => Within::Ezns(within.scaled_to(drive)),
                    within => within.clone(),
                };
                Box::new(Interference::new(InterferenceConfig { within, ..config.clone() }))
            }
        }
    }
}
