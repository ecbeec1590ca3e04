//! Alternates the variants within each round, so that what disturbs the machine disturbs all alike.

use crate::outcome::{Outcome, Row, Trouble};
use crate::stage::Stage;
use crate::variants::Variant;
use crate::workloads::{Card, Workload};

/// Runs one workload. A variant that has failed is not tried again.
pub async fn run(workload: &dyn Workload, asked: &[Variant], stage: &mut Stage) -> Outcome {
    let card = workload.card();
    let rounds = stage.plan.rounds.unwrap_or(card.rounds);
    let mut rows: Vec<Row> =
        workload.cast(asked).into_iter().map(|variant| row(&card, variant)).collect();
    for round in 0..rounds {
        for row in in_turn(&mut rows, round) {
            if row.trouble.is_some() {
                row.samples.push(None);
                continue;
            }
            row.push(workload.run(stage, row.variant).await);
            progress(&card, &format!("{}/{rounds}", round + 1), row);
        }
    }
    stage.clear();
    Outcome { card, rounds, rows }
}

fn row(card: &Card, variant: Variant) -> Row {
    Row::new(variant, card.refuses(variant).map(Trouble::LeftOut))
}

/// Every other round runs backwards: nobody always follows the same neighbour.
fn in_turn(rows: &mut [Row], round: usize) -> Box<dyn Iterator<Item = &mut Row> + '_> {
    if round.is_multiple_of(2) {
        Box::new(rows.iter_mut())
    } else {
        Box::new(rows.iter_mut().rev())
    }
}

fn progress(card: &Card, round: &str, row: &Row) {
    let first = card.quantities[0];
    let value = row.samples.last().and_then(|sample| sample.as_ref()?.get(first));
    let said = match (&row.trouble, value) {
        (Some(trouble), _) => trouble.to_string(),
        (None, Some(value)) => format!("{} {}", first.show(value), first.title()),
        (None, None) => "-".to_owned(),
    };
    eprintln!("{} {:<14} round {round}  {:<19} {said}", card.id, card.name, row.variant);
}
