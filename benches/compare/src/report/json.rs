//! The same as data: every round, every ratio, the distributions.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

use crate::measure::machine::Machine;
use crate::measure::{Quantity, Waits};
use crate::outcome::{Outcome, Row};

/// Parts of the waits that are written down.
const PARTS: [f64; 11] = [0.0, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99, 0.999, 0.9999, 1.0];

pub fn document(machine: &Machine, outcomes: &[Outcome]) -> Value {
    json!({
        "machine": machine,
        "units": "seconds, bytes, or plain numbers",
        "workloads": outcomes.iter().map(workload).collect::<Vec<_>>(),
    })
}

fn workload(outcome: &Outcome) -> Value {
    let card = &outcome.card;
    json!({
        "id": card.id,
        "name": card.name,
        "about": card.about,
        "target": card.target,
        "rounds": outcome.rounds,
        "ratios_are": card.ratio.to_string(),
        "variants": outcome.rows.iter().map(|row| variant(outcome, row)).collect::<Vec<_>>(),
    })
}

/// A lock that did not exclude has its trouble and no figure.
fn variant(outcome: &Outcome, row: &Row) -> Value {
    let mut entry = json!({ "name": row.variant.to_string(), "trouble": row.trouble });
    if !row.is_broken() {
        let quantities = &row.quantities();
        entry["medians"] = by_name(quantities, |quantity| json!(row.median(quantity)));
        entry["ratios"] = by_name(quantities, |quantity| json!(outcome.ratio(row, quantity)));
        entry["by_round"] = by_name(quantities, |quantity| json!(row.by_round(quantity)));
        entry["shares"] = json!(row.shares());
        entry["commands"] = json!(row.commands().by_count());
        entry["memory"] = json!(row.memory());
        entry["waits"] = waits(&row.waits());
    }
    entry
}

fn by_name(quantities: &BTreeSet<Quantity>, value: impl Fn(Quantity) -> Value) -> Value {
    let named = quantities.iter().map(|&quantity| (name(quantity), value(quantity)));
    Value::Object(named.collect::<Map<_, _>>())
}

/// `WaitP99` is `wait_p99`.
fn name(quantity: Quantity) -> String {
    json!(quantity).as_str().unwrap_or_default().to_owned()
}

fn waits(waits: &Waits) -> Value {
    if waits.is_empty() {
        return Value::Null;
    }
    let parts = PARTS.map(|part| (part, waits.quantile(part)));
    json!({ "quantiles": parts, "mean": waits.mean(), "max": waits.max() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::Sample;
    use crate::outcome::tests::outcome;
    use crate::variants::Variant;

    #[test]
    fn every_round_and_the_ratio_are_there() {
        let outcome =
            outcome(&[(Variant::PARKLOCK, &[30.0, 300.0]), (Variant::RLOCK, &[10.0, 100.0])]);
        let all = document(&Machine::new(), &[outcome]);
        let peer = &all["workloads"][0]["variants"][1];
        assert_eq!(peer["by_round"]["pairs_per_second"], json!([10.0, 100.0]));
        assert_eq!(peer["ratios"]["pairs_per_second"], json!(3.0));
    }

    #[test]
    fn a_violation_leaves_no_figure() {
        let mut outcome = outcome(&[(Variant::RLOCK, &[10.0])]);
        outcome.rows[0].push(Ok(Sample { violations: 1, ..Sample::default() }));
        let all = document(&Machine::new(), &[outcome]);
        assert_eq!(all["workloads"][0]["variants"][0].get("medians"), None);
    }
}
