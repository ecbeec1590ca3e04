//! The clocks by which tests judge stalls.

use std::thread;
use std::time::Duration;

use crate::common::Watch;

#[tokio::test]
async fn a_watch_apart_goes_on_while_the_test_keeps_its_runtime_busy() {
    let (beside, apart) = (Watch::start(), Watch::apart());
    let busy = Duration::from_millis(300);
    while apart.passed() < busy {
        thread::sleep(Duration::from_millis(1));
    }
    assert!(beside.passed() < busy / 3, "{:?} by a runtime that does not run", beside.passed());
}
