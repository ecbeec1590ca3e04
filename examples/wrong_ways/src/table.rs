//! The report, as a table of Markdown.

use crate::harm::Row;

/// Columns of one width each, so that it can be read as it is.
pub fn table(rows: &[Row]) -> String {
    let head = ["", "wrong way", "schedule", "wrong", "parklock"].map(str::to_owned);
    let body = rows.iter().map(|row| {
        let [number, way, schedule] = [row.number, row.way, row.schedule].map(str::to_owned);
        [number, way, schedule, row.wrong.to_string(), row.right.to_string()]
    });
    let lines: Vec<[String; 5]> = std::iter::once(head).chain(body).collect();
    let width = |column: usize| lines.iter().map(|line| line[column].chars().count()).max();
    let widths: Vec<usize> = (0..5).map(|column| width(column).unwrap_or(0)).collect();
    let mut text = String::new();
    for (number, line) in lines.iter().enumerate() {
        let cells = line.iter().zip(&widths).map(|(cell, &width)| format!(" {cell:<width$} "));
        text += &format!("|{}|\n", cells.collect::<Vec<_>>().join("|"));
        if number == 0 {
            let rule = widths.iter().map(|&width| "-".repeat(width + 2));
            text += &format!("|{}|\n", rule.collect::<Vec<_>>().join("|"));
        }
    }
    text
}
