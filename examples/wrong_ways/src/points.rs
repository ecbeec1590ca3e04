//! Named points within a lock's own code, where a schedule may stop a caller, or where its process is killed.

use std::future::pending;
use std::sync::Arc;

use tokio::sync::Notify;

/// What a caller does at the points that it comes by.
#[derive(Debug)]
pub enum Points {
    /// It goes on.
    Pass,
    /// It stops at this one until it is told to go on.
    Stop(Arc<Stop>),
    /// It tells the parent process that it is at this one, and stays. The parent kills it.
    Die(&'static str),
}

/// A point at which a caller stops.
#[derive(Debug)]
pub struct Stop {
    point: &'static str,
    reached: Notify,
    go_on: Notify,
}

impl Points {
    /// Stops at this point. The second value is for the schedule.
    pub fn stop(point: &'static str) -> (Self, Arc<Stop>) {
        let stop = Stop { point, reached: Notify::new(), go_on: Notify::new() };
        let stop = Arc::new(stop);
        (Self::Stop(Arc::clone(&stop)), stop)
    }

    /// The caller has come to this point.
    pub async fn reach(&self, point: &str) {
        match self {
            Self::Stop(stop) if stop.point == point => {
                stop.reached.notify_one();
                stop.go_on.notified().await;
            }
            Self::Die(here) if *here == point => {
                println!("at {point}");
                pending::<()>().await;
            }
            _ => {}
        }
    }
}

impl Stop {
    /// Until the caller stands at the point.
    pub async fn reached(&self) {
        self.reached.notified().await;
    }

    pub fn go_on(&self) {
        self.go_on.notify_one();
    }
}
