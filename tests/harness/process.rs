//! Worker processes do as they are told, and end when they should.

use crate::common::{Worker, WorkerSide, eventually};
use crate::{SOON, is_alive, is_pending, state_of};

fn echo() -> Worker {
    Worker::start("process::worker_that_echoes", &[("GREETING", "hello, you")])
}

#[tokio::test]
#[ignore = "a worker process"]
async fn worker_that_echoes() {
    let Some(mut boss) = WorkerSide::here() else { return };
    boss.tell(&boss.variable("GREETING"));
    println!("this is noise");
    while let Some(order) = boss.order().await {
        boss.tell(&order);
    }
}

#[tokio::test]
async fn a_worker_hears_and_answers() {
    let mut worker = echo();
    assert_eq!(worker.hear().await, "hello, you");
    assert_eq!(worker.ask("one").await, "one");
    assert_eq!(worker.ask("two words").await, "two words");
}

#[tokio::test]
async fn a_worker_is_another_process_and_dies_when_killed() {
    let mut worker = echo();
    worker.hear().await;
    assert!(worker.pid() != std::process::id() && is_alive(worker.pid()));
    worker.kill9();
    assert!(!is_alive(worker.pid()));
}

#[tokio::test]
async fn a_dropped_worker_is_gone() {
    let mut worker = echo();
    worker.hear().await;
    let pid = worker.pid();
    drop(worker);
    assert!(!is_alive(pid));
}

#[tokio::test]
async fn a_stopped_worker_answers_once_it_is_continued() {
    let mut worker = echo();
    worker.hear().await;

    worker.stop_process();
    eventually(SOON, "it stops", async || state_of(worker.pid()) == Some('T')).await;
    worker.order("are you there?").await;
    assert!(is_pending(Box::pin(worker.hear())).await);
    worker.continue_process();

    assert_eq!(worker.hear().await, "are you there?");
}

#[tokio::test]
#[should_panic(expected = "the worker has not ended")]
async fn a_worker_that_has_ended_is_noticed() {
    let mut worker = echo();
    worker.hear().await;
    worker.kill9();
    worker.hear().await;
}
