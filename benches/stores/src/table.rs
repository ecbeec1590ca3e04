//! A table of Markdown for each workload.

use crate::rows::Row;
use crate::stats::{digits, median, ratio, time};

/// What a column holds, and how it is shown.
#[derive(Clone, Copy, Debug)]
pub enum Column {
    /// Pairs or turns a second, with the ratio to the floor.
    Rate(&'static str),
    /// Seconds.
    Time(&'static str),
    /// Seconds that were watched to their end, if they are as many as this.
    Capped(&'static str, f64),
    /// A plain number.
    Count(&'static str),
}

/// What one row did in all rounds.
#[derive(Debug)]
pub struct Results {
    pub row: Row,
    /// For each round, a value for each column; `None` where there is none.
    pub rounds: Vec<Vec<Option<f64>>>,
    /// Why there is nothing to report.
    pub trouble: Option<Trouble>,
}

#[derive(Debug)]
pub enum Trouble {
    LeftOut(String),
    Failed(String),
}

/// A workload that was run.
#[derive(Debug)]
pub struct Table {
    pub title: &'static str,
    pub about: String,
    pub columns: Vec<Column>,
    pub rows: Vec<Results>,
}

impl Table {
    pub fn is_faulty(&self) -> bool {
        self.rows.iter().any(|row| matches!(row.trouble, Some(Trouble::Failed(_))))
    }

    /// Those that have numbers.
    pub fn sound_rows(&self) -> impl Iterator<Item = &Results> {
        self.rows.iter().filter(|row| row.trouble.is_none())
    }

    pub fn text(&self) -> String {
        let mut text = format!("\n## {}\n\n{}\n\n| row |", self.title, self.about);
        for column in &self.columns {
            text += &format!(" {} |", column.title());
        }
        text += &format!("\n|---|{}\n", "---:|".repeat(self.columns.len()));
        for row in self.sound_rows() {
            let cells = (0..self.columns.len()).map(|column| self.cell(row, column));
            text += &format!("| {} | {} |\n", row.row, cells.collect::<Vec<_>>().join(" | "));
        }
        text + &self.notes()
    }

    fn cell(&self, row: &Results, column: usize) -> String {
        let Some(value) = row.median(column) else {
            return "-".to_owned();
        };
        let shown = self.columns[column].show(value);
        match self.columns[column] {
            Column::Rate(_) => shown + &self.over_the_floor(row, column),
            _ => shown,
        }
    }

    fn over_the_floor(&self, row: &Results, column: usize) -> String {
        let floor = self.rows.iter().find(|row| row.row == Row::SetNxPx);
        let ratio = floor.and_then(|floor| ratio(&row.column(column), &floor.column(column)));
        ratio.map(|ratio| format!(" (×{})", digits(ratio))).unwrap_or_default()
    }

    fn notes(&self) -> String {
        let mut text = "\n".to_owned();
        for row in &self.rows {
            match &row.trouble {
                Some(Trouble::LeftOut(why)) => text += &format!("- {}: left out: {why}\n", row.row),
                Some(Trouble::Failed(why)) => text += &format!("- {}: FAILED: {why}\n", row.row),
                None => {}
            }
        }
        text
    }
}

impl Column {
    pub fn show(&self, value: f64) -> String {
        match self {
            Self::Rate(_) => digits(value),
            Self::Time(_) => time(value),
            Self::Capped(_, cap) if value >= *cap => format!("> {cap:.0} s"),
            Self::Capped(..) => time(value),
            Self::Count(_) => format!("{value}"),
        }
    }

    pub fn title(&self) -> &'static str {
        match self {
            Self::Rate(title) | Self::Time(title) | Self::Capped(title, _) | Self::Count(title) => {
                title
            }
        }
    }
}

impl Results {
    /// Of the rounds that have a value.
    pub fn median(&self, column: usize) -> Option<f64> {
        median(self.column(column).into_iter().flatten())
    }

    fn column(&self, column: usize) -> Vec<Option<f64>> {
        self.rounds.iter().map(|round| round.get(column).copied().flatten()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(column: Column, rows: Vec<Results>) -> Table {
        Table { title: "test", about: String::new(), columns: vec![column], rows }
    }

    fn measured(row: Row, rounds: &[f64]) -> Results {
        let rounds = rounds.iter().map(|&value| vec![Some(value)]).collect();
        Results { row, rounds, trouble: None }
    }

    #[test]
    fn a_rate_stands_with_its_ratio_to_the_floor_of_the_same_round() {
        // The machine was ten times faster in the second round: the ratio does not notice.
        let rows =
            vec![measured(Row::Parklock, &[20.0, 200.0]), measured(Row::SetNxPx, &[10.0, 100.0])];
        let text = table(Column::Rate("turns/s"), rows).text();
        assert!(text.contains("| parklock | 110 (×2.00) |"), "{text}");
    }

    #[test]
    fn a_wait_that_was_watched_to_the_end_is_more_than_that() {
        let rows = vec![measured(Row::PgAdvisory, &[30.0]), measured(Row::Parklock, &[9.0])];
        let text = table(Column::Capped("wait", 30.0), rows).text();
        assert!(text.contains("| pg-advisory | > 30 s |"), "{text}");
        assert!(text.contains("| parklock | 9.00 s |"), "{text}");
    }

    #[test]
    fn a_row_in_trouble_has_no_numbers() {
        let mut row = measured(Row::Etcd, &[1.0]);
        row.trouble = Some(Trouble::Failed("NO EXCLUSION".to_owned()));
        let table = table(Column::Rate("turns/s"), vec![row]);
        assert!(table.is_faulty());
        let text = table.text();
        assert!(
            text.contains("- etcd: FAILED: NO EXCLUSION") && !text.contains("| etcd |"),
            "{text}"
        );
    }
}
