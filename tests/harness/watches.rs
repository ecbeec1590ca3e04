//! The clocks by which tests judge stalls.

use std::cell::Cell;
use std::thread;
use std::time::Duration;

use tokio::time::sleep;

use crate::common::{Watch, judged};

#[tokio::test]
async fn a_watch_apart_goes_on_while_the_test_keeps_its_runtime_busy() {
    let (beside, apart) = (Watch::start(), Watch::apart());
    let busy = Duration::from_millis(300);
    while apart.passed() < busy {
        thread::sleep(Duration::from_millis(1));
    }
    assert!(beside.passed() < busy / 3, "{:?} by a runtime that does not run", beside.passed());
}

/// It is far less than an eighth of the time that the test takes, and may still be the rest of a lease.
#[tokio::test]
async fn a_long_test_that_stalls_once_for_long_is_judged_again() {
    let tries = Cell::new(0);
    judged(async || {
        tries.set(tries.get() + 1);
        if tries.get() == 1 {
            sleep(Duration::from_secs(9)).await;
            thread::sleep(Duration::from_millis(1_100));
            panic!("its lease was over");
        }
    })
    .await;
    assert_eq!(tries.get(), 2);
}
