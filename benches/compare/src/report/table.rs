//! The table: one for each workload, variants down, quantities across.

use crate::measure::Quantity;
use crate::measure::machine::Machine;
use crate::measure::quantity::digits;
use crate::outcome::{Outcome, Row};

/// All tables, with the machine above them.
pub fn document(machine: &Machine, outcomes: &[Outcome]) -> String {
    let facts: Vec<String> =
        machine.iter().map(|(name, value)| format!("{name} {value}")).collect();
    let mut text = format!("{}\n\n", facts.join(" · "));
    text += "Medians of the rounds. In brackets: a ratio, the median of the rounds' ratios.\n";
    for outcome in outcomes {
        text += &section(outcome);
    }
    text
}

fn section(outcome: &Outcome) -> String {
    let card = &outcome.card;
    let mut text =
        format!("\n## {} {}\n\n{}; rounds: {}.\n", card.id, card.name, card.about, outcome.rounds);
    text += &format!("Target: {}. In brackets: {}.\n\n", card.target, card.ratio);
    let mut head = vec!["variant".to_owned()];
    head.extend(card.quantities.iter().map(|quantity| quantity.title().to_owned()));
    let mut lines = vec![head];
    let measured = outcome.rows.iter().filter(|row| !row.quantities().is_empty());
    lines.extend(measured.map(|row| cells(outcome, row)));
    text + &aligned(&lines) + &notes(&outcome.rows)
}

/// Notes under the table: variants that are left out and why, and callers that a lock left waiting.
fn notes(rows: &[Row]) -> String {
    let mut text = String::new();
    for row in rows {
        if let Some(trouble) = &row.trouble {
            text += &format!("- {}: {trouble}\n", row.variant);
        }
        if let Some(failed @ 1.0..) = row.median(Quantity::Errors) {
            text += &format!("- {}: {failed} calls ended with an error\n", row.variant);
        }
        if let Some(tasks @ 1.0..) = row.median(Quantity::Unfinished) {
            text += &format!("- {}: {tasks} tasks were never served\n", row.variant);
        }
    }
    if text.is_empty() { text } else { format!("\n{text}") }
}

fn cells(outcome: &Outcome, row: &Row) -> Vec<String> {
    let mut cells = vec![row.variant.to_string()];
    for &quantity in outcome.card.quantities {
        let value = row.median(quantity).map(|value| quantity.show(value));
        let ratio = outcome.ratio(row, quantity).map(|ratio| format!(" (×{})", digits(ratio)));
        cells.push(match value {
            Some(value) => value + &ratio.unwrap_or_default(),
            None => "-".to_owned(),
        });
    }
    cells
}

/// Columns of one width each: names to the left, numbers to the right.
fn aligned(lines: &[Vec<String>]) -> String {
    let columns = lines.first().map_or(0, Vec::len);
    let width =
        |column: usize| lines.iter().map(|line| line[column].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let mut text = String::new();
    for (number, line) in lines.iter().enumerate() {
        for (column, cell) in line.iter().enumerate() {
            let width = widths[column];
            text += &if column == 0 {
                format!("| {cell:<width$} ")
            } else {
                format!("| {cell:>width$} ")
            };
        }
        text += "|\n";
        if number == 0 {
            text += &ruler(&widths);
        }
    }
    text
}

fn ruler(widths: &[usize]) -> String {
    let mut text = String::new();
    for (column, width) in widths.iter().enumerate() {
        let dashes = "-".repeat(width + 1);
        text += &if column == 0 { format!("|{dashes}-") } else { format!("|{dashes}:") };
    }
    text + "|\n"
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::Sample;
    use crate::outcome::tests::outcome;
    use crate::variants::Variant;

    #[test]
    fn a_peer_stands_with_its_ratio() {
        let outcome =
            outcome(&[(Variant::PARKLOCK, &[3000.0, 3000.0]), (Variant::RLOCK, &[1000.0, 1000.0])]);
        let text = document(&Machine::new(), &[outcome]);
        assert!(text.contains("| parklock |      3 k |"), "{text}");
        assert!(text.contains("| rlock    | 1 k (×3) |"), "{text}");
    }

    #[test]
    fn a_violation_stands_alone() {
        let mut outcome = outcome(&[(Variant::RSLOCK, &[1000.0])]);
        outcome.rows[0].push(Ok(Sample { violations: 3, ..Sample::default() }));
        let text = document(&Machine::new(), &[outcome]);
        assert!(text.contains("- rslock: NO EXCLUSION, seen 3 times"));
        assert!(!text.contains("1 k"));
    }
}
