//! Each wrong way does its harm, and parklock does none on the same schedule. Each test has servers of its own.

use wrong_ways::Stage;
use wrong_ways::ways::ALL;

macro_rules! ways {
    ($($name:ident: $number:literal, $rows:literal;)+) => {$(
        #[tokio::test]
        async fn $name() {
            shown($number, $rows).await;
        }
    )+};
}

ways! {
    d1_nobody_gets_in_behind_a_dead_holder_of_a_lock_without_expiry: "D1", 1;
    d2_nobody_gets_in_behind_a_process_that_died_before_its_expire: "D2", 1;
    d3_others_come_in_while_the_work_outlasts_the_lease: "D3", 1;
    d4_an_unchecked_delete_lets_two_in: "D4", 1;
    d5_a_release_in_two_steps_lets_two_in: "D5", 1;
    d6_a_shared_id_keeps_its_holder_from_releasing: "D6", 1;
    d7_an_end_written_by_a_client_depends_on_its_clock: "D7", 3;
    d8_a_lease_cut_to_whole_seconds_is_none: "D8", 1;
    d9_an_id_that_is_left_behind_passes_for_the_lock: "D9", 3;
    d10_a_renewal_without_owner_keeps_the_lock_of_the_dead: "D10", 1;
    d11_a_row_that_is_not_there_locks_nothing_or_too_much: "D11", 3;
    d12_nobody_gets_in_behind_a_dead_holder_of_a_version: "D12", 1;
}

async fn shown(number: &str, rows: usize) {
    let stage = Stage::set(env!("CARGO_BIN_EXE_wrong-ways").into()).await.expect("a redis-server");
    let way = ALL.iter().find(|way| way.number == number).expect("a way of this number");
    let shown = way.show(&stage).await.unwrap_or_else(|error| panic!("{error:#}"));
    // Those on a database that is not installed are left out.
    assert!(shown.len() == rows || ["D11", "D12"].contains(&number), "{number} has all its rows");
    for row in shown {
        assert!(row.wrong.times > 0, "{}: the wrong way did no harm: {}", row.number, row.wrong);
        assert_eq!(row.right.times, 0, "{}: the right way did harm: {}", row.number, row.right);
    }
}
