//! A primary, its replica, and all that an operator or a bad day does to them.

use std::fs;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::time::sleep;

use crate::common::{Admin, Class, Proxy, Server, clock};
use crate::kept;
use crate::pulse::patiently;
use crate::schedule::{ServerFault, Trial};
use crate::settings::{self, KEPT, STUCK, Topology};
use crate::stage::{self, Log};
use crate::switch::Switch;
use crate::verdict::Break;

/// Two servers that take turns as the primary, each with the proxy through which the other one follows it.
pub struct Pair {
    servers: [Server; 2],
    feeds: [Proxy; 2],
    primary: usize,
    topology: Topology,
    pub switch: Switch,
    pub log: Log,
}

impl Pair {
    pub async fn set(topology: Topology, seed: u64) -> Self {
        // Each write is in the file before it is answered: SIGKILL takes nothing back. A file of a long run would take long to load.
        let keeps = || {
            let files = Server::builder().set("appendonly", "yes").set("appendfsync", "no");
            files.set("auto-aof-rewrite-min-size", "4mb")
        };
        let servers = [keeps().start().await, keeps().start().await];
        let feeds = [
            Proxy::seeded(servers[0].address(), seed).await,
            Proxy::seeded(servers[1].address(), seed).await,
        ];
        let switch = Switch::to(servers[0].address());
        let pair = Self { servers, feeds, primary: 0, topology, switch, log: Log::default() };
        pair.follow(1).await;
        pair
    }

    fn primary(&self) -> &Server {
        &self.servers[self.primary]
    }

    fn replica(&self) -> &Server {
        &self.servers[1 - self.primary]
    }

    pub async fn admin(&self) -> Admin {
        self.primary().admin().await
    }

    fn key(&self, lock: &str) -> String {
        if self.topology == Topology::Redisson { lock.to_owned() } else { settings::key(lock) }
    }

    /// Makes a server the replica of the other one.
    async fn follow(&self, replica: usize) {
        let port = self.feeds[1 - replica].port().to_string();
        self.servers[replica].admin().await.cmd::<()>(&["REPLICAOF", "127.0.0.1", &port]).await;
    }

    async fn lead(&self, server: usize) {
        self.servers[server].admin().await.cmd::<()>(&["REPLICAOF", "NO", "ONE"]).await;
    }

    /// Whether the replica has a copy at all.
    async fn is_followed(&self) -> bool {
        for _ in 0..100 {
            let admin = self.replica().admin().await;
            if admin.info("replication", "master_link_status").await.as_deref() == Some("up") {
                return true;
            }
            sleep(Duration::from_millis(20)).await;
        }
        false
    }

    /// Whether it has happened: not everything can at any time.
    pub async fn suffer(&mut self, fault: ServerFault) -> bool {
        match fault {
            ServerFault::FlushScripts => self.admin().await.script_flush().await,
            ServerFault::KillConnections(kind) => {
                self.admin().await.client_kill(kind).await;
            }
            ServerFault::Pause(time) => {
                self.primary().pause();
                sleep(time).await;
                self.primary().resume();
            }
            ServerFault::ClientPause(time, what) => {
                let millis = time.as_millis().to_string();
                self.admin().await.cmd::<()>(&["CLIENT", "PAUSE", &millis, what]).await;
                sleep(time).await;
            }
            ServerFault::MemoryFull(time) => {
                let admin = self.admin().await;
                admin.config_set("maxmemory", "1").await;
                sleep(time).await;
                admin.config_set("maxmemory", "0").await;
            }
            ServerFault::RestartWithData => return self.restart().await,
            ServerFault::RestartEmpty => self.restart_empty().await,
            ServerFault::Promote(deaf) => return self.promote(deaf).await,
            ServerFault::Demote(time) => return self.demote(time).await,
            ServerFault::Misdirect(time) => {
                // It has not heard of the latest grants.
                self.feeds[self.primary].refuse().await;
                self.feeds[self.primary].reset(Class::Replica).await;
                sleep(time).await;
                self.switch.point_at(self.replica().address()).await;
                sleep(time * 2).await;
                self.switch.point_at(self.primary().address()).await;
                self.feeds[self.primary].accept_again().await;
            }
            ServerFault::FlushAll => {
                let admin = self.admin().await;
                let from = clock::now();
                admin.cmd::<()>(&["FLUSHALL"]).await;
                self.log.breaks.push(Break::loose(None, from, clock::now()));
            }
            ServerFault::Del(lock) => return self.delete(lock).await,
            ServerFault::ForceUnlock(lock) => {
                let url = self.primary().url();
                return stage::force_unlock(self.topology.layout(), &url, lock, &mut self.log)
                    .await;
            }
            ServerFault::Kept(trial) => {
                self.log.spared.store(true, Ordering::Relaxed);
                let reached = self.try_keeper(trial).await;
                self.log.spared.store(false, Ordering::Relaxed);
                return reached;
            }
            ServerFault::Upheaval(..) | ServerFault::Blow(..) => {
                unreachable!("one server has no slots, and no host")
            }
        }
        true
    }

    /// Until the keeper's hold has outlived it, which asks for a hold that was confirmed before and is afterwards; or,
    /// if it was deleted, until the keeper has noticed.
    async fn try_keeper(&mut self, trial: Trial) -> bool {
        for _ in 0..3 {
            let Some(owner) = self.kept(trial).await else { continue };
            let has_happened = match trial {
                Trial::Failover => self.promote(Duration::ZERO).await,
                Trial::Restart => self.restart().await,
                Trial::Del => self.delete(KEPT).await,
                Trial::Move | Trial::StandOpen => unreachable!("one server has no slots"),
            };
            if !has_happened {
                continue;
            }
            let admin = self.admin().await;
            let reached = match trial {
                Trial::Del => kept::changed(&admin, &self.key(KEPT), &owner).await,
                _ => kept::confirmed(&admin, &self.key(KEPT)).await.is_some_and(|now| now == owner),
            };
            if reached {
                self.log.tally.add("server: tried the keeper", 1);
                return true;
            }
        }
        false
    }

    /// Whose the kept lock is, as the server that has to know it knows.
    async fn kept(&self, trial: Trial) -> Option<String> {
        match trial {
            Trial::Failover if self.is_followed().await => {
                kept::confirmed(&self.replica().admin().await, &self.key(KEPT)).await
            }
            Trial::Failover => None,
            _ => kept::confirmed(&self.admin().await, &self.key(KEPT)).await,
        }
    }

    async fn delete(&mut self, lock: &'static str) -> bool {
        let (admin, key) = (self.admin().await, self.key(lock));
        stage::delete(&admin, &key, lock, &mut self.log).await
    }

    /// Once its file has all that a former replica was sent; until then it would come back with less.
    async fn restart(&mut self) -> bool {
        let admin = self.admin().await;
        let written = async {
            while admin.info("persistence", "aof_rewrite_in_progress").await.as_deref() != Some("0")
                || admin.info("persistence", "aof_rewrite_scheduled").await.as_deref() != Some("0")
            {
                sleep(Duration::from_millis(10)).await;
            }
        };
        if patiently(STUCK, written).await.is_none() {
            return false;
        }
        self.primary().kill();
        self.log.restarts.push(clock::now());
        self.primary().start_again().await;
        true
    }

    async fn restart_empty(&mut self) {
        self.primary().kill();
        self.log.breaks.push(Break::sharp(clock::now()));
        let _ = fs::remove_dir_all(self.primary().dir().join("appendonlydir"));
        let _ = fs::remove_file(self.primary().dir().join("appendonly.aof"));
        self.primary().start_again().await;
    }

    async fn promote(&mut self, deaf: Duration) -> bool {
        if !self.is_followed().await {
            self.log.tally.add("server: no replica to promote", 1);
            return false;
        }
        let (old, new) = (self.primary, 1 - self.primary);
        if !deaf.is_zero() {
            self.feeds[old].refuse().await;
            self.feeds[old].reset(Class::Replica).await;
            sleep(deaf).await;
        }
        self.servers[old].kill();
        self.lead(new).await;
        // From here on nobody gets anything from the old one, and nobody yet from the new one.
        self.log.breaks.push(Break::sharp(clock::now()));
        self.switch.point_at(self.servers[new].address()).await;
        self.primary = new;
        self.servers[old].start_again().await;
        self.feeds[old].accept_again().await;
        self.follow(old).await;
        true
    }

    async fn demote(&mut self, time: Duration) -> bool {
        if !self.is_followed().await {
            self.log.tally.add("server: no replica to promote", 1);
            return false;
        }
        let (old, new) = (self.primary, 1 - self.primary);
        self.lead(new).await;
        self.follow(old).await;
        sleep(time).await;
        self.log.breaks.push(Break::sharp(clock::now()));
        self.switch.point_at(self.servers[new].address()).await;
        self.primary = new;
        true
    }
}
