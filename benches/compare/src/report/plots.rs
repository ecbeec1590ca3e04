//! The plots of a workload: throughput, waits, shares, commands; what waiting costs.

use super::axis::{Decades, nines};
use super::bars::{BAR, Bar, Chart, GAP, LEFT, RIGHT, TOP, WIDTH, headed, lines};
use super::svg::{Anchor, Svg};
use crate::measure::Quantity;
use crate::outcome::{Outcome, Row};
use crate::variants::{Kind, Library, Variant};

const CURVE_HEIGHT: f64 = 340.0;
const LEGEND: f64 = 20.0;

/// Parts of the waits that a curve goes through.
const PARTS: [f64; 14] =
    [0.0, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.98, 0.99, 0.995, 0.999, 0.9995, 0.9999, 0.999_99];

const LABELS: [(f64, &str); 6] = [
    (0.0, "0 %"),
    (0.5, "50 %"),
    (0.9, "90 %"),
    (0.99, "99 %"),
    (0.999, "99.9 %"),
    (0.9999, "99.99 %"),
];

/// The plots that the workload has figures for, by file name.
pub fn of(outcome: &Outcome) -> Vec<(String, String)> {
    let name = &outcome.card.name;
    let plots = [
        ("throughput", bars(outcome, Quantity::PairsPerSecond)),
        ("waits", waits(outcome)),
        ("shares", shares(outcome)),
        ("commands", bars(outcome, Quantity::CommandsPerPair)),
        ("requests", bars(outcome, Quantity::Requests)),
        ("server", bars(outcome, Quantity::ServerCore)),
    ];
    let drawn = plots.into_iter().filter_map(|(kind, plot)| Some((kind, plot?)));
    drawn.map(|(kind, plot)| (format!("{name}-{kind}.svg"), plot)).collect()
}

pub fn color(variant: Variant) -> &'static str {
    match (variant.library, variant.kind) {
        (Library::Parklock, Kind::Lock) => "#d1495b",
        (Library::Parklock, Kind::Fair) => "#e29578",
        (Library::Parklock, Kind::Read) => "#c77dff",
        (Library::Parklock, Kind::Write) => "#5a189a",
        (Library::Parklock, Kind::Permits(1)) => "#ff9f1c",
        (Library::Parklock, Kind::Permits(_)) => "#2ec4b6",
        (Library::ParklockKept, _) => "#f28482",
        (Library::Floor, _) => "#8d99ae",
        (Library::Line, _) => "#6c757d",
        (Library::Rlock, _) => "#00798c",
        (Library::Rslock, _) => "#edae49",
        (Library::AsyncRedisLock, _) => "#66a182",
        (Library::TokioMutex, _) => "#adb5bd",
        (Library::Redisson, Kind::Lock) => "#2e4057",
        (Library::Redisson, _) => "#7a6c9d",
    }
}

fn title(outcome: &Outcome, what: &str) -> String {
    format!("{} {}: {what}", outcome.card.id, outcome.card.name)
}

/// One bar for each variant.
fn bars(outcome: &Outcome, quantity: Quantity) -> Option<String> {
    let bars = outcome.rows.iter().filter_map(|row| {
        let (name, color) = (row.variant.to_string(), color(row.variant));
        Some(Bar { name, value: row.median(quantity)?, color })
    });
    let title = title(outcome, &format!("{} (logarithmic)", quantity.title()));
    let (bars, show) = (bars.collect(), &|value| quantity.show(value));
    Chart { title: &title, about: &outcome.card.about, bars, show }.draw()
}

/// The distribution of the waits: which wait so many of them did not exceed.
fn waits(outcome: &Outcome) -> Option<String> {
    let clean = outcome.rows.iter().filter(|row| !row.is_broken());
    let rows: Vec<&Row> = clean.filter(|row| !row.waits().is_empty()).collect();
    let ends = rows.iter().flat_map(|row| [row.waits().quantile(0.0), row.waits().max()]);
    let axis = Decades::around(ends)?;
    let height = TOP + CURVE_HEIGHT + 40.0 + rows.len() as f64 * LEGEND;
    let mut svg =
        headed(Svg::new(WIDTH, height), &title(outcome, "waits by quantile"), &outcome.card.about);
    grid(&mut svg, axis);
    for (line, row) in rows.into_iter().enumerate() {
        let waits = row.waits();
        let curve = PARTS.map(|part| (across(part), down(axis, waits.quantile(part))));
        svg.curve(&curve, color(row.variant));
        let y = TOP + CURVE_HEIGHT + 40.0 + line as f64 * LEGEND;
        svg.rect((LEFT, y), (14.0, 12.0), color(row.variant));
        let said = format!("{}, at most {}", row.variant, Quantity::WaitMax.show(waits.max()));
        svg.text(LEFT + 22.0, y + 11.0, Anchor::Start, 12.0, &said);
    }
    Some(svg.finish())
}

fn grid(svg: &mut Svg, axis: Decades) {
    for tick in axis.ticks() {
        let y = down(axis, tick);
        svg.rule((LEFT, y), (WIDTH - RIGHT, y));
        svg.text(LEFT - 8.0, y + 4.0, Anchor::End, 11.0, &Quantity::WaitMax.show(tick));
    }
    for (part, label) in LABELS {
        let x = across(part);
        svg.rule((x, TOP), (x, TOP + CURVE_HEIGHT));
        svg.text(x, TOP + CURVE_HEIGHT + 18.0, Anchor::Middle, 11.0, label);
    }
}

fn across(part: f64) -> f64 {
    let last = nines(PARTS[PARTS.len() - 1]);
    LEFT + (WIDTH - LEFT - RIGHT) * nines(part) / last
}

fn down(axis: Decades, seconds: f64) -> f64 {
    TOP + CURVE_HEIGHT * (1.0 - axis.place(seconds))
}

/// What part of all turns each process had: one segment for each, greatest first.
fn shares(outcome: &Outcome) -> Option<String> {
    let clean = outcome.rows.iter().filter(|row| !row.is_broken());
    let rows: Vec<&Row> = clean.filter(|row| row.shares().len() > 1).collect();
    if rows.is_empty() {
        return None;
    }
    let title = title(outcome, "share of each process");
    let mut svg = lines(&title, &outcome.card.about, rows.len());
    for (line, row) in rows.into_iter().enumerate() {
        let y = TOP + line as f64 * (BAR + GAP);
        svg.text(LEFT - 8.0, y + 15.0, Anchor::End, 12.0, &row.variant.to_string());
        segments(&mut svg, y, row);
    }
    Some(svg.finish())
}

fn segments(svg: &mut Svg, y: f64, row: &Row) {
    let shares = row.shares();
    let total = shares.iter().sum::<u64>().max(1) as f64;
    let mut x = LEFT;
    for share in shares {
        let part = share as f64 / total;
        let width = (WIDTH - LEFT - RIGHT) * part;
        svg.rect((x, y), ((width - 2.0).max(0.0), BAR), color(row.variant));
        if width > 40.0 {
            let percent = format!("{:.0} %", part * 100.0);
            svg.rect((x + width / 2.0 - 19.0, y + 3.0), (36.0, BAR - 6.0), "#fff");
            svg.text(x + width / 2.0 - 1.0, y + 15.0, Anchor::Middle, 11.0, &percent);
        }
        x += width;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outcome::tests::outcome;

    #[test]
    fn every_plot_is_well_formed() {
        let outcome = outcome(&[
            (Variant::PARKLOCK, &[400_000.0, 410_000.0]),
            (Variant::REDISSON, &[4_000.0, 3_900.0]),
        ]);
        let plots = of(&outcome);
        let names: Vec<&str> = plots.iter().map(|(name, _)| name.as_str()).collect();
        let kinds = ["throughput", "waits", "shares", "commands"];
        assert_eq!(names, kinds.map(|kind| format!("example-{kind}.svg")));
        for (name, plot) in &plots {
            let parsed = roxmltree::Document::parse(plot);
            assert!(parsed.is_ok(), "{name}: {parsed:?}");
        }
    }

    #[test]
    fn a_workload_without_figures_has_no_plots() {
        assert!(of(&outcome(&[(Variant::PARKLOCK, &[])])).is_empty());
    }
}
