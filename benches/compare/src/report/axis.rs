//! From values to places: a logarithmic scale, and its ticks.

/// Whole decades around the values.
#[derive(Clone, Copy, Debug)]
pub struct Decades {
    low: i32,
    high: i32,
}

impl Decades {
    /// Around all that are greater than nothing; `None` if none is.
    pub fn around(values: impl Iterator<Item = f64>) -> Option<Self> {
        let logs: Vec<f64> = values.filter(|v| *v > 0.0).map(f64::log10).collect();
        let least = logs.iter().copied().reduce(f64::min)?;
        let greatest = logs.iter().copied().reduce(f64::max)?;
        let low = least.floor() as i32;
        Some(Self { low, high: (greatest.ceil() as i32).max(low + 1) })
    }

    /// A decade lower, so that the least value still has a bar.
    pub fn with_room_below(self) -> Self {
        Self { low: self.low - 1, ..self }
    }

    /// Where a value lies: 0 at the lower end, 1 at the upper.
    pub fn place(self, value: f64) -> f64 {
        if value <= 0.0 {
            return 0.0;
        }
        let span = f64::from(self.high - self.low);
        ((value.log10() - f64::from(self.low)) / span).clamp(0.0, 1.0)
    }

    pub fn ticks(self) -> impl Iterator<Item = f64> {
        (self.low..=self.high).map(|power| 10_f64.powi(power))
    }
}

/// Where a part of the waits lies on an axis that gives each further nine the same room: 0.9, 0.99, 0.999, ...
pub fn nines(part: f64) -> f64 {
    -(1.0 - part).max(1e-9).log10()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decades_enclose_their_values() {
        let axis = Decades::around([30.0, 4_000.0].into_iter()).expect("two values");
        assert_eq!(axis.ticks().collect::<Vec<_>>(), [10.0, 100.0, 1_000.0, 10_000.0]);
        assert_eq!(axis.place(10.0), 0.0);
        assert_eq!(axis.place(10_000.0), 1.0);
    }

    #[test]
    fn nothing_has_no_axis() {
        assert!(Decades::around([0.0].into_iter()).is_none());
    }

    #[test]
    fn each_nine_has_the_same_room() {
        assert!((nines(0.9) - 1.0).abs() < 1e-9);
        assert!((nines(0.999) - 3.0).abs() < 1e-9);
    }
}
