//! Turns a second over time, and what was done to the servers meanwhile.

use super::svg::{Anchor, Svg};
use crate::measure::{Quantity, Timeline};
use crate::outcome::Outcome;

const WIDTH: f64 = 760.0;
const LEFT: f64 = 70.0;
const RIGHT: f64 = 20.0;
const TOP: f64 = 76.0;
const HEIGHT: f64 = 240.0;
const BOTTOM: f64 = 44.0;
const TICKS: usize = 6;

/// The plot by file name, for a workload that has one.
pub fn of(outcome: &Outcome) -> Option<(String, String)> {
    let timelines = outcome.rows.iter().flat_map(|row| row.samples.iter().flatten());
    let timeline = timelines.filter_map(|sample| sample.timeline.as_ref()).next()?;
    Some((format!("{}-turns.svg", outcome.card.name), plot(outcome, timeline)?))
}

fn plot(outcome: &Outcome, timeline: &Timeline) -> Option<String> {
    let greatest = timeline.turns.iter().copied().reduce(f64::max)?;
    let (top, end) = (rounded_up(greatest), timeline.turns.len() as f64);
    let x = |second: f64| LEFT + (WIDTH - LEFT - RIGHT) * second / end;
    let y = |turns: f64| TOP + HEIGHT * (1.0 - turns / top);
    let mut svg = Svg::new(WIDTH, TOP + HEIGHT + BOTTOM);
    let card = &outcome.card;
    svg.text(
        16.0,
        24.0,
        Anchor::Start,
        16.0,
        &format!("{} {}: turns/s over time", card.id, card.name),
    );
    svg.text(16.0, 42.0, Anchor::Start, 12.0, &card.about);
    for (from, to, what) in &timeline.marks {
        svg.rect((x(*from), TOP), ((x(*to) - x(*from)).max(1.0), HEIGHT), "#f3d9a4");
        svg.text(x(*from), TOP - 6.0, Anchor::Middle, 11.0, what);
    }
    for tick in 0..=TICKS {
        let part = tick as f64 / TICKS as f64;
        svg.rule((LEFT, y(top * part)), (WIDTH - RIGHT, y(top * part)));
        let said = Quantity::PairsPerSecond.show(top * part);
        svg.text(LEFT - 8.0, y(top * part) + 4.0, Anchor::End, 11.0, &said);
        let said = format!("{:.0} s", end * part);
        svg.text(x(end * part), TOP + HEIGHT + 18.0, Anchor::Middle, 11.0, &said);
    }
    let points =
        timeline.turns.iter().enumerate().map(|(at, turns)| (x(at as f64 + 0.5), y(*turns)));
    svg.curve(&points.collect::<Vec<_>>(), "#d1495b");
    Some(svg.finish())
}

/// To a number with one digit, so that the ticks are easy to read.
fn rounded_up(value: f64) -> f64 {
    let decade = 10_f64.powf(value.max(1.0).log10().floor());
    (value / decade).ceil() * decade
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outcome::tests::outcome;
    use crate::variants::Variant;

    #[test]
    fn a_timeline_is_drawn_well_formed() {
        let mut upgrade = outcome(&[(Variant::PARKLOCK, &[4_000.0])]);
        assert_eq!(of(&upgrade), None);
        let marks = vec![(1.0, 1.5, "primary".to_owned())];
        let timeline = Timeline { turns: vec![4_100.0, 900.0, 4_300.0], marks };
        upgrade.rows[0].samples[0].as_mut().expect("it ran").timeline = Some(timeline);
        let (name, plot) = of(&upgrade).expect("a plot");
        assert_eq!(name, "example-turns.svg");
        assert!(roxmltree::Document::parse(&plot).is_ok(), "{plot}");
    }

    #[test]
    fn the_axis_ends_at_a_round_number() {
        assert_eq!([rounded_up(4_300.0), rounded_up(12_000.0), rounded_up(0.0)], [5e3, 2e4, 0.0]);
    }
}
