//! The plots over the number of clients: one curve for each variant, from all tables that have that number.

use super::axis::Decades;
use super::plots::color;
use super::svg::{Anchor, Svg};
use crate::measure::Quantity;
use crate::outcome::Outcome;
use crate::variants::Variant;

const WIDTH: f64 = 760.0;
const LEFT: f64 = 90.0;
const RIGHT: f64 = 30.0;
const TOP: f64 = 40.0;
const HEIGHT: f64 = 340.0;
const LEGEND: f64 = 20.0;

/// The quantities that are drawn over the number of clients, by the end of the file's name.
const DRAWN: [(&str, Quantity); 3] = [
    ("throughput", Quantity::PairsPerSecond),
    ("scripts", Quantity::ScriptsPerPair),
    ("longest-wait", Quantity::WaitMax),
];

/// A variant, and its points: clients and value.
type Curve = (Variant, Vec<(f64, f64)>);

/// The plots by file name; none for less than two numbers of clients.
pub fn of(outcomes: &[Outcome]) -> Vec<(String, String)> {
    let plots = DRAWN.into_iter().filter_map(|(kind, quantity)| {
        Some((format!("crowd-growth-{kind}.svg"), plot(&curves(outcomes, quantity), quantity)?))
    });
    plots.collect()
}

fn curves(outcomes: &[Outcome], quantity: Quantity) -> Vec<Curve> {
    let mut curves: Vec<Curve> = Vec::new();
    for row in outcomes.iter().flat_map(|outcome| &outcome.rows) {
        let (Some(clients), Some(value)) = (row.median(Quantity::Clients), row.median(quantity))
        else {
            continue;
        };
        match curves.iter_mut().find(|(variant, _)| *variant == row.variant) {
            Some((_, points)) => points.push((clients, value)),
            None => curves.push((row.variant, vec![(clients, value)])),
        }
    }
    curves
}

fn plot(curves: &[Curve], quantity: Quantity) -> Option<String> {
    let points = || curves.iter().flat_map(|(_, points)| points);
    let across = Decades::around(points().map(|point| point.0))?;
    let down = Decades::around(points().map(|point| point.1))?;
    let is_one = |clients: f64| points().all(|point| point.0 == clients);
    if is_one(points().next()?.0) {
        return None;
    }
    let height = TOP + HEIGHT + 40.0 + curves.len() as f64 * LEGEND;
    let mut svg = Svg::new(WIDTH, height);
    let title = format!("W10 crowd: {} over the number of clients", quantity.title());
    svg.text(16.0, 24.0, Anchor::Start, 16.0, &title);
    grid(&mut svg, across, down, quantity);
    for (line, (variant, points)) in curves.iter().enumerate() {
        let places: Vec<_> =
            points.iter().map(|&(n, value)| (x(across, n), y(down, value))).collect();
        svg.curve(&places, color(*variant));
        let at = TOP + HEIGHT + 40.0 + line as f64 * LEGEND;
        svg.rect((LEFT, at), (14.0, 12.0), color(*variant));
        svg.text(LEFT + 22.0, at + 11.0, Anchor::Start, 12.0, &variant.to_string());
    }
    Some(svg.finish())
}

fn grid(svg: &mut Svg, across: Decades, down: Decades, quantity: Quantity) {
    for tick in down.ticks() {
        let at = y(down, tick);
        svg.rule((LEFT, at), (WIDTH - RIGHT, at));
        svg.text(LEFT - 8.0, at + 4.0, Anchor::End, 11.0, &quantity.show(tick));
    }
    for tick in across.ticks() {
        let at = x(across, tick);
        svg.rule((at, TOP), (at, TOP + HEIGHT));
        svg.text(at, TOP + HEIGHT + 18.0, Anchor::Middle, 11.0, &Quantity::Clients.show(tick));
    }
}

fn x(across: Decades, clients: f64) -> f64 {
    LEFT + (WIDTH - LEFT - RIGHT) * across.place(clients)
}

fn y(down: Decades, value: f64) -> f64 {
    TOP + HEIGHT * (1.0 - down.place(value))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outcome::tests::outcome;

    fn crowd(clients: f64, rate: f64) -> Outcome {
        let mut crowd = outcome(&[(Variant::PARKLOCK, &[rate]), (Variant::LINE, &[2.0 * rate])]);
        for sample in crowd.rows.iter_mut().flat_map(|row| row.samples.iter_mut().flatten()) {
            sample.set(Quantity::Clients, clients);
        }
        crowd
    }

    #[test]
    fn a_crowd_of_two_sizes_has_well_formed_plots() {
        let plots = of(&[crowd(10.0, 5_000.0), crowd(300.0, 400.0)]);
        assert_eq!(plots[0].0, "crowd-growth-throughput.svg");
        for (name, plot) in &plots {
            let parsed = roxmltree::Document::parse(plot);
            assert!(parsed.is_ok(), "{name}: {parsed:?}");
        }
    }

    #[test]
    fn one_size_does_not_grow() {
        assert!(of(&[crowd(10.0, 5_000.0)]).is_empty());
        assert!(of(&[outcome(&[(Variant::PARKLOCK, &[1.0])])]).is_empty());
    }
}
