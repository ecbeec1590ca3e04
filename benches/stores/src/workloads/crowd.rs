//! Many clients in several processes, on one name.

use std::time::Duration;

use anyhow::{Result, ensure};

use super::Plan;
use crate::contenders::Terms;
use crate::counter::Counter;
use crate::crew::{Crew, Job};
use crate::group::Group;
use crate::processor;
use crate::rows::Row;
use crate::share::Share;
use crate::table::Column;

pub const COLUMNS: [Column; 6] = [
    Column::Rate("turns/s"),
    Column::Time("mean wait"),
    Column::Time("longest wait"),
    Column::Count("least turns"),
    Column::Count("most turns"),
    Column::Time("server CPU a turn"),
];

pub async fn run(
    row: Row,
    terms: Terms<'_>,
    plan: &Plan,
    group: &Group,
) -> Result<Vec<Option<f64>>> {
    let counter = Counter::create()?;
    let mut crews = Vec::new();
    for clients in parts(plan.clients, plan.processes) {
        // One after the other: servers dislike it if several make the same table at once.
        let job = Job { clients, timed: plan.timed, counter: counter.path() };
        crews.push(Crew::start(&plan.program, row, terms, job).await?);
    }
    let before = processor::time(&group.pids())?;
    let shares = play(&mut crews).await?;
    let used = processor::time(&group.pids())?.saturating_sub(before);
    let mut values = sum_up(&shares, counter.read()?, plan.timed)?;
    values.push(a_turn(used, &shares));
    Ok(values)
}

/// As even as may be.
fn parts(clients: usize, processes: usize) -> impl Iterator<Item = usize> {
    let processes = processes.clamp(1, clients.max(1));
    (0..processes).map(move |at| clients / processes + usize::from(at < clients % processes))
}

async fn play(crews: &mut [Crew]) -> Result<Vec<Share>> {
    for crew in crews.iter_mut() {
        crew.go().await?;
    }
    let mut shares = Vec::new();
    for crew in crews {
        shares.extend(crew.shares().await?);
    }
    Ok(shares)
}

fn sum_up(shares: &[Share], counted: u64, timed: Duration) -> Result<Vec<Option<f64>>> {
    let turns = turns_of(shares);
    ensure!(turns == counted, "NO EXCLUSION: {turns} turns, {counted} counted");
    let waited: Duration = shares.iter().map(|share| share.waited).sum();
    let longest = shares.iter().map(|share| share.longest).max();
    let count = |turns: Option<u64>| turns.map(|turns| turns as f64);
    Ok(vec![
        Some(turns as f64 / timed.as_secs_f64()),
        Some(waited.as_secs_f64() / turns.max(1) as f64),
        longest.map(|longest| longest.as_secs_f64()),
        count(shares.iter().map(|share| share.turns).min()),
        count(shares.iter().map(|share| share.turns).max()),
    ])
}

/// Nothing, if the system's clock of processor time has not moved on.
fn a_turn(used: Duration, shares: &[Share]) -> Option<f64> {
    (!used.is_zero()).then(|| used.as_secs_f64() / turns_of(shares).max(1) as f64)
}

fn turns_of(shares: &[Share]) -> u64 {
    shares.iter().map(|share| share.turns).sum()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use tokio::sync::{OwnedSemaphorePermit, Semaphore};

    use super::*;
    use crate::contenders::{Contender, Pending};
    use crate::turns;

    const TIMED: Duration = Duration::from_millis(20);

    /// As many of these are in at once as the semaphore has permits.
    struct Permit(Arc<Semaphore>, Option<OwnedSemaphorePermit>);

    impl Contender for Permit {
        fn lock(&mut self) -> Pending<'_, ()> {
            Box::pin(async {
                self.1 = Some(Arc::clone(&self.0).acquire_owned().await?);
                Ok(())
            })
        }

        fn unlock(&mut self) -> Pending<'_, ()> {
            self.1 = None;
            Box::pin(async { Ok(()) })
        }
    }

    async fn four_with(permits: usize) -> Result<Vec<Option<f64>>> {
        let semaphore = Arc::new(Semaphore::new(permits));
        let contender = || Box::new(Permit(Arc::clone(&semaphore), None)) as Box<dyn Contender>;
        let counter = Counter::create()?;
        let four = (0..4).map(|_| contender()).collect();
        let shares = turns::take(four, Counter::open(counter.path())?, TIMED).await?;
        sum_up(&shares, counter.read()?, TIMED)
    }

    #[tokio::test]
    async fn a_lock_that_lets_two_in_has_no_numbers() {
        let error = four_with(2).await.expect_err("two are in at once").to_string();
        assert!(error.starts_with("NO EXCLUSION"), "{error}");
    }

    #[tokio::test]
    async fn a_lock_that_excludes_has_them() {
        let values = four_with(1).await.expect("one at a time");
        assert!(values.iter().all(Option::is_some), "{values:?}");
    }

    #[test]
    fn clients_are_spread_over_the_processes() {
        assert_eq!(parts(16, 4).collect::<Vec<_>>(), [4, 4, 4, 4]);
        assert_eq!(parts(5, 4).collect::<Vec<_>>(), [2, 1, 1, 1]);
        assert_eq!(parts(2, 4).collect::<Vec<_>>(), [1, 1]);
    }

    #[test]
    fn a_clock_that_has_not_moved_on_says_nothing() {
        let shares = [Share { turns: 4, ..Share::default() }];
        assert_eq!(a_turn(Duration::ZERO, &shares), None);
        assert_eq!(a_turn(Duration::from_secs(2), &shares), Some(0.5));
    }
}
