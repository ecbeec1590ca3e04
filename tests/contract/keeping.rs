//! How long it is held.

use std::time::{Duration, Instant};

use parklock::{Ended, Error};
use tokio::time::sleep;

use crate::common::fixture::SOON;
use crate::common::judged;
use crate::pair::Pair;
use crate::scene::{Scene, Waiter, assert_err, is_held, soon};

pub(crate) async fn a_fixed_lease_ends(pair: Pair) {
    let (scene, lease) = (Scene::new(pair).await, Duration::from_millis(300));
    for holder in [scene.ours(), scene.theirs()] {
        let began = Instant::now();
        let guard = holder.lease(lease).lock().await.unwrap();
        let waiter = Waiter::begin(scene.ours());
        let next = waiter.gets_it().await;
        assert!(began.elapsed() > lease - lease / 10, "it came in before the lease was over");
        assert!(!guard.is_valid());
        assert_eq!(soon(guard.ended()).await, Ended::Lost);
        assert_err!(guard.unlock().await, Error::Lost { .. });
        assert!(next.is_valid());
        next.unlock().await.unwrap();
    }
    scene.is_clean().await;
}

pub(crate) async fn an_extension_keeps_it(pair: Pair) {
    judged(async || {
        let (scene, lease) = (Scene::new(pair).await, Duration::from_secs(2));
        let guard = scene.ours().lease(lease).lock().await.unwrap();
        guard.extend(SOON).await.unwrap();
        guard.extend(lease).await.unwrap(); // never shortened
        assert!(guard.remaining() > SOON / 2);
        sleep(lease + lease / 2).await;
        assert!(guard.is_valid());
        is_held(&scene).await;
        guard.unlock().await.unwrap();
        scene.is_clean().await;
    })
    .await;
}
