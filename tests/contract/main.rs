//! The contract that everything keeps which one at a time can hold, whatever it is and however it lies in Redis.
//!
//! `pair.rs` has a table of them all; below stand those that are tested, and what each of them must show. A failure names
//! both: `native_fair::hand_over::a_release_lets_the_waiter_in`. Leases are thirty seconds unless a loss is to be seen, so
//! that whatever is free soon was given back, and not waited for.

#![allow(
    clippy::unwrap_used,
    reason = "all of it is tests, though each stands in a function that several call"
)]

#[path = "../common/mod.rs"]
mod common;

mod cancelling;
mod closing;
mod ending;
mod exclusion;
mod hand_over;
mod keeping;
mod losing;
mod pair;
mod replaying;
mod scene;
mod server;
mod silence;
mod trying;
mod waiting;

/// A module for each pair, in which each behaviour is a test. The second word says whether its guards can wait for a
/// condition.
macro_rules! tested {
    ($($pair:ident $waits:ident)*) => {
        $(
            mod $pair {
                contract!($pair);
                $waits!($pair);
            }
        )*
    };
}

macro_rules! contract {
    ($pair:ident) => {
        must! { $pair:
            exclusion {
                holders_of_several_clients_take_turns
                holders_of_several_processes_take_turns
            }
            hand_over {
                a_release_lets_the_waiter_in
                a_guard_that_is_dropped_lets_the_waiter_in
                a_crowd_comes_through
            }
            trying {
                a_try_while_it_is_held_is_none
                a_wait_with_a_limit_ends_in_time_and_holds_up_nobody
                a_try_after_a_dropped_guard_of_the_same_client_gets_it
                a_try_beside_an_unlock_of_the_same_client_gets_it
                a_try_after_a_lost_hold_of_the_same_client_gets_it
            }
            losing {
                a_holder_whose_key_is_gone_has_lost_it
                a_holder_that_learns_of_its_loss_tells_the_waiters
                a_holder_that_is_forced_out_is_told_and_the_waiter_comes_in
            }
            silence { a_silent_holder_loses_the_lock_when_its_lease_is_over_and_a_live_one_keeps_it }
            ending {
                a_guard_that_is_leaked_ends_with_its_client
                a_task_that_panics_gives_it_back
            }
            cancelling {
                a_wait_that_is_dropped_at_any_poll_leaves_nothing
                many_waits_that_are_given_up_under_contention_leave_nothing
            }
            replaying {
                an_acquire_whose_reply_is_lost_is_one_tenure
                a_waiter_whose_reply_is_lost_still_gets_it_once
                a_release_whose_reply_is_lost_is_a_release
                a_renewal_whose_reply_is_lost_is_repeated
                a_fixed_lease_is_confirmed_though_the_first_word_is_lost
                a_caller_that_is_never_answered_is_told_so
                a_wait_that_was_answered_again_knows_that_it_is_held
                an_acquire_that_runs_late_blocks_nobody
                a_sign_of_life_that_runs_late_blocks_nobody
                a_release_that_runs_late_hurts_nobody
                a_renewal_that_runs_late_brings_nothing_back
            }
            closing {
                a_client_that_is_closed_gives_back_what_it_held
                a_waiter_of_a_closed_client_is_told
            }
            keeping {
                a_fixed_lease_ends
                an_extension_keeps_it
            }
            server {
                a_server_that_forgets_its_scripts_is_taught_again
                a_server_that_lost_its_data_tells_the_holder_and_lets_the_waiter_in
                a_replica_is_not_believed
                what_is_held_is_kept_and_given_back_when_memory_is_full
            }
        }
    };
}

macro_rules! waits {
    ($pair:ident) => {
        must! { $pair:
            waiting {
                a_waiter_gives_the_lock_back_and_has_it_again
                nobody_comes_in_before_the_waiter_stands_in_line
                a_wait_that_nobody_ends_is_over_in_time
                a_wait_that_is_dropped_leaves_nothing
                a_holder_that_has_lost_the_lock_does_not_wait
            }
        }
    };
}

macro_rules! cannot_wait {
    ($pair:ident) => {
        must! { $pair:
            waiting { a_guard_that_cannot_wait_says_so }
        }
    };
}

macro_rules! must {
    ($pair:ident: $($file:ident { $($what:ident)* })*) => {
        $(
            mod $file {
                $(
                    #[tokio::test]
                    async fn $what() {
                        crate::$file::$what(crate::pair::$pair).await;
                    }
                )*
            }
        )*
    };
}

tested! {
    native_lock waits
    native_reentrant waits
    native_fair waits
    native_write waits
    native_reentrant_write waits
    native_semaphore cannot_wait
    redisson_lock cannot_wait
    redisson_reentrant cannot_wait
    redisson_fenced cannot_wait
    redisson_fair cannot_wait
    redisson_write cannot_wait
    redisson_reentrant_write cannot_wait
    redisson_semaphore cannot_wait
    redisson_expirable cannot_wait
}
