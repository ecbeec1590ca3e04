//! The arithmetic of the report: medians, ratios taken within a round, how even a share is.

/// The middle value; of an even number of values the mean of the two in the middle.
pub fn median(values: impl IntoIterator<Item = f64>) -> Option<f64> {
    let mut sorted: Vec<f64> = values.into_iter().filter(|v| v.is_finite()).collect();
    sorted.sort_by(f64::total_cmp);
    let half = sorted.len() / 2;
    match sorted.len() {
        0 => None,
        n if n % 2 == 1 => Some(sorted[half]),
        _ => Some(f64::midpoint(sorted[half - 1], sorted[half])),
    }
}

/// The median of ours over theirs, each pair from the same round. A round that lacks one side is left out.
pub fn ratio(ours: &[Option<f64>], theirs: &[Option<f64>]) -> Option<f64> {
    let rounds = ours.iter().zip(theirs);
    median(rounds.filter_map(|pair| match pair {
        (Some(a), Some(b)) if *b != 0.0 => Some(a / b),
        _ => None,
    }))
}

/// Jain's index: 1 if all have the same, 1/n if one has everything.
pub fn jain(shares: &[u64]) -> f64 {
    let sum: f64 = shares.iter().map(|&x| x as f64).sum();
    let squares: f64 = shares.iter().map(|&x| (x as f64).powi(2)).sum();
    if squares == 0.0 {
        return 0.0;
    }
    sum * sum / (shares.len() as f64 * squares)
}

/// The least share over the greatest.
pub fn least_over_greatest(shares: &[u64]) -> f64 {
    match (shares.iter().min(), shares.iter().max()) {
        (Some(&least), Some(&greatest)) if greatest > 0 => least as f64 / greatest as f64,
        _ => 0.0,
    }
}

/// The least share over the mean.
pub fn least_over_mean(shares: &[u64]) -> f64 {
    let sum: u64 = shares.iter().sum();
    match shares.iter().min() {
        Some(&least) if sum > 0 => least as f64 * shares.len() as f64 / sum as f64,
        _ => 0.0,
    }
}

/// The value below which `part` (0 to 1) of the values lie.
pub fn quantile(values: &mut [f64], part: f64) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    let last = values.len().checked_sub(1)?;
    values.get((last as f64 * part).round() as usize).copied()
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
    fn a_round_without_a_value_does_not_move_the_median() {
        assert_eq!(median([f64::NAN, 5.0]), Some(5.0));
    }

    #[test]
    fn ratios_are_taken_within_a_round() {
        // The machine was ten times faster in the second round: the ratio does not notice.
        let ours = [Some(2.0), Some(20.0), Some(3.0)];
        let theirs = [Some(1.0), Some(10.0), Some(1.0)];
        assert_eq!(ratio(&ours, &theirs), Some(2.0));
    }

    #[test]
    fn a_round_that_one_side_missed_is_left_out() {
        assert_eq!(ratio(&[Some(2.0), None], &[Some(1.0), Some(9.0)]), Some(2.0));
        assert_eq!(ratio(&[Some(2.0)], &[Some(0.0)]), None);
    }

    #[test]
    fn jain_runs_from_one_over_n_to_one() {
        assert_eq!(jain(&[5, 5, 5, 5]), 1.0);
        assert_eq!(jain(&[8, 0, 0, 0]), 0.25);
        assert_eq!(jain(&[0, 0]), 0.0);
    }

    #[test]
    fn the_least_share_is_compared_with_the_greatest() {
        assert_eq!(least_over_greatest(&[8, 10, 9]), 0.8);
        assert_eq!(least_over_greatest(&[]), 0.0);
    }

    #[test]
    fn the_least_share_is_compared_with_the_mean() {
        assert_eq!(least_over_mean(&[5, 10, 15]), 0.5);
        assert_eq!(least_over_mean(&[]), 0.0);
    }

    #[test]
    fn a_quantile_is_one_of_the_values() {
        let mut values = [5.0, 1.0, 3.0];
        assert_eq!(quantile(&mut values, 0.5), Some(3.0));
        assert_eq!(quantile(&mut values, 1.0), Some(5.0));
        assert_eq!(quantile(&mut [], 0.5), None);
    }
}
