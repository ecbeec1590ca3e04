//! The statements of `docs/loss.md`, as they stand there, refuse a late holder.

use rusqlite::{Connection, OptionalExtension, Params};

const LATE: i64 = 1_838_795_981_739_020_288;
const LATEST: i64 = LATE + 1;

/// The statements of the page, in order, without their comments.
fn statements() -> Vec<&'static str> {
    let blocks = include_str!("../../../docs/loss.md").split("```").skip(1).step_by(2);
    let lines = blocks.filter_map(|block| block.strip_prefix("sql\n")).flat_map(str::lines);
    lines.map(|line| line.split("--").next().expect("there is a first part").trim()).collect()
}

/// A ledger in which a holder with the token [`LATE`] has been overtaken.
struct Ledger(Connection);

impl Ledger {
    fn new() -> Self {
        let ledger = Connection::open_in_memory().expect("memory");
        let table =
            "CREATE TABLE ledger (id INTEGER, balance INTEGER, token INTEGER, read_token INTEGER);
                     INSERT INTO ledger VALUES (7, 100, 0, 0)";
        ledger.execute_batch(table).expect("SQL");
        Self(ledger)
    }

    fn changes(&self, statement: &str, values: impl Params) -> bool {
        self.0.execute(statement, values).expect("SQL") == 1
    }

    /// The balance, if the statement returns it.
    fn reads(&self, statement: &str, values: impl Params) -> Option<i64> {
        // SQLite has another name for this function.
        let statement = statement.replace("GREATEST(", "MAX(");
        self.0.query_row(&statement, values, |row| row.get(0)).optional().expect("SQL")
    }
}

#[test]
fn a_late_write_changes_no_row() {
    let [write, read, shared_read, shared_write] = statements()[..] else {
        panic!("the page has other statements now");
    };

    let ledger = Ledger::new();
    assert!(ledger.changes(write, (130, LATEST, 7)));
    assert!(ledger.changes(write, (140, LATEST, 7)), "a holder may write twice");
    assert!(!ledger.changes(write, (150, LATE, 7)));
    assert_eq!(ledger.reads(read, (LATE, 7)), None);
    assert_eq!(ledger.reads(read, (LATEST, 7)), Some(140));

    // The latest holder has only read.
    let ledger = Ledger::new();
    assert_eq!(ledger.reads(read, (LATEST, 7)), Some(100));
    assert!(!ledger.changes(write, (150, LATE, 7)));

    // Readers do not keep each other out, and a later reader keeps a writer out.
    let ledger = Ledger::new();
    assert_eq!(ledger.reads(shared_read, (LATEST, 7)), Some(100));
    assert_eq!(ledger.reads(shared_read, (LATE, 7)), Some(100));
    assert!(!ledger.changes(shared_write, (150, LATE, 7)));
    assert!(ledger.changes(shared_write, (130, LATEST, 7)));
    assert_eq!(ledger.reads(shared_read, (LATE, 7)), None);
}
