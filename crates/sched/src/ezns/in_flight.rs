//! [`InFlight`]: the commands of a stream at the device.

use zonda_zoned::Class;

/// Commands of one direction that are in flight, by class.
#[derive(Debug, Default)]
pub(super) struct InFlight([u32; 2]);

impl InFlight {
    /// Whether one more of a class is below the maximum. Commands in the background use what the
    /// foreground leaves.
    pub(super) fn is_below(&self, max: u32, class: Class) -> bool {
        match class {
            Class::Foreground => self.0[Class::Foreground as usize] < max,
            Class::Background => self.total() < max,
        }
    }

    pub(super) fn total(&self) -> u32 {
        self.0.iter().sum()
    }

    pub(super) fn add(&mut self, class: Class) {
        self.0[class as usize] += 1;
    }

    /// The command has ended, or the device has refused it.
    pub(super) fn remove(&mut self, class: Class) {
        let count = &mut self.0[class as usize];
        *count = count.checked_sub(1).expect("a command is released before it returns");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_in_the_background_leave_the_maximum_to_the_foreground() {
        let mut in_flight = InFlight::default();
        in_flight.add(Class::Foreground);
        in_flight.add(Class::Background);
        assert!(in_flight.is_below(2, Class::Foreground) && !in_flight.is_below(2, Class::Background));
        in_flight.remove(Class::Foreground);
        assert!(in_flight.is_below(2, Class::Background));
        assert_eq!(in_flight.total(), 1);
    }
}
