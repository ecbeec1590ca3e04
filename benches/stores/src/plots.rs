//! The plots of `alone` and `crowd`: a bar for each row.

#[path = "../../compare/src/report/axis.rs"]
#[allow(dead_code, reason = "the other comparison uses the rest")]
mod axis;
#[path = "../../compare/src/report/bars.rs"]
mod bars;
#[path = "../../compare/src/report/svg.rs"]
#[allow(dead_code, reason = "the other comparison uses the rest")]
mod svg;

use bars::{Bar, Chart};

use crate::kind::Kind;
use crate::rows::Row;
use crate::table::Table;

/// The titles of the columns that are drawn, and the names of the files.
const DRAWN: [(&str, &str); 5] = [
    ("pairs/s", "alone-pairs.svg"),
    ("p99 of a pair", "alone-p99.svg"),
    ("turns/s", "crowd-turns.svg"),
    ("longest wait", "crowd-longest-wait.svg"),
    ("server CPU a turn", "crowd-server.svg"),
];

/// The plots of a table by file name; none, if it has no such column.
pub fn of(table: &Table) -> Vec<(&'static str, String)> {
    let drawn = DRAWN.into_iter().filter_map(|(title, file)| {
        let column = table.columns.iter().position(|column| column.title() == title)?;
        Some((file, plot(table, column)?))
    });
    drawn.collect()
}

fn plot(table: &Table, column: usize) -> Option<String> {
    let kind = table.columns[column];
    let bars = table.sound_rows().filter_map(|row| {
        let (name, color) = (row.row.to_string(), color(row.row));
        Some(Bar { name, value: row.median(column)?, color })
    });
    let title = format!("{}: {} (logarithmic)", table.title, kind.title());
    let (bars, show) = (bars.collect(), &|value| kind.show(value));
    Chart { title: &title, about: &table.about, bars, show }.draw()
}

fn color(row: Row) -> &'static str {
    match (row, row.kind()) {
        (Row::Parklock | Row::ParklockSynced | Row::ParklockRedlock, _) => "#d1495b",
        (_, Kind::Redis | Kind::RedisSynced | Kind::FiveRedis) => "#8d99ae",
        (_, Kind::Postgres) => "#2e4057",
        (_, Kind::MariaDb) => "#edae49",
        (_, Kind::ZooKeeper) => "#66a182",
        (_, Kind::Etcd) => "#00798c",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::{Column, Results, Trouble};
    use crate::workloads::{Plan, Workload};

    fn results(row: Row, value: f64, trouble: Option<Trouble>) -> Results {
        Results { row, rounds: vec![vec![Some(value)]], trouble }
    }

    fn table(title: &'static str, rows: Vec<Results>) -> Table {
        Table { title: "test", about: "a < b".to_owned(), columns: vec![Column::Rate(title)], rows }
    }

    #[test]
    fn each_column_that_is_drawn_is_one_of_a_workload() {
        let columns: Vec<Column> =
            Workload::ALL.iter().flat_map(|workload| workload.columns(&Plan::default())).collect();
        for (title, _) in DRAWN {
            assert!(columns.iter().any(|column| column.title() == title), "{title}");
        }
    }

    #[test]
    fn a_plot_is_well_formed_and_leaves_out_a_row_in_trouble() {
        let trouble = Some(Trouble::Failed("NO EXCLUSION".to_owned()));
        let rows = vec![results(Row::Parklock, 300.0, None), results(Row::Etcd, 20.0, trouble)];
        let plots = of(&table("turns/s", rows));
        let (name, plot) = plots.first().expect("one plot");
        assert_eq!(*name, "crowd-turns.svg");
        assert!(roxmltree::Document::parse(plot).is_ok(), "{plot}");
        assert!(plot.contains(">parklock<") && !plot.contains(">etcd<"), "{plot}");
    }

    #[test]
    fn a_table_without_such_a_column_has_no_plot() {
        assert!(of(&table("holder killed", vec![results(Row::Parklock, 9.0, None)])).is_empty());
    }
}
