//! Medians and ratios.

/// The middle; `None` if there is nothing.
pub fn median(values: impl IntoIterator<Item = f64>) -> Option<f64> {
    let mut values: Vec<f64> = values.into_iter().filter(|value| !value.is_nan()).collect();
    values.sort_by(f64::total_cmp);
    let middle = values.len().checked_sub(1)? / 2;
    if values.len() % 2 == 1 {
        values.get(middle).copied()
    } else {
        Some((values[middle] + values[middle + 1]) / 2.0)
    }
}

/// The median of the rounds' ratios. A round that one of the two missed is left out.
pub fn ratio(ours: &[Option<f64>], theirs: &[Option<f64>]) -> Option<f64> {
    let both = ours.iter().zip(theirs).filter_map(|(ours, theirs)| Some((*ours)? / (*theirs)?));
    median(both.filter(|ratio| ratio.is_finite()))
}

/// Three digits that count.
pub fn digits(value: f64) -> String {
    let whole = value.abs().log10().floor().max(-6.0) as i32;
    let decimals = (2 - whole).clamp(0, 4) as usize;
    format!("{value:.decimals$}")
}

/// A time as people write it.
pub fn time(seconds: f64) -> String {
    match seconds {
        s if s < 1e-3 => format!("{} µs", digits(s * 1e6)),
        s if s < 1.0 => format!("{} ms", digits(s * 1e3)),
        s => format!("{} s", digits(s)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_the_middle() {
        assert_eq!(median([3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median([4.0, 1.0, 2.0, 3.0]), Some(2.5));
        assert_eq!(median([]), None);
    }

    #[test]
    fn a_round_that_one_side_missed_is_left_out() {
        assert_eq!(ratio(&[Some(2.0), None], &[Some(1.0), Some(9.0)]), Some(2.0));
        assert_eq!(ratio(&[Some(2.0)], &[None]), None);
    }

    #[test]
    fn numbers_have_three_digits() {
        assert_eq!(digits(12345.6), "12346");
        assert_eq!(digits(12.345), "12.3");
        assert_eq!(digits(0.01234), "0.0123");
        assert_eq!(time(0.000_045), "45.0 µs");
        assert_eq!(time(9.31), "9.31 s");
    }
}
