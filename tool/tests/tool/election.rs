//! `elect`: a command while this machine leads.

use std::fs;

use crate::common::{Server, eventually};
use crate::scene::{LONG, freed, held, in_line, is_free, tool};

#[tokio::test]
async fn a_leader_that_was_deposed_leads_again() {
    let server = Server::start().await;
    let admin = server.admin().await;
    let runs = server.dir().join("runs");
    let script = format!("echo $PARKLOCK_TOKEN >>{}; exec sleep 60", runs.display());
    let words = ["elect", "a", "--", "sh", "-c", &script];
    let mut tool = tool(&server, &words).start();
    let tokens = || {
        let text = fs::read_to_string(&runs).unwrap_or_default();
        text.lines().filter_map(|line| line.parse::<u64>().ok()).collect::<Vec<_>>()
    };
    for terms in 1..=2 {
        eventually(LONG, "it leads", async || tokens().len() == terms).await;
        admin.cmd::<()>(&["DEL", "lock:{a}"]).await;
    }
    eventually(LONG, "it leads again", async || tokens().len() == 3).await;
    assert!(tokens().is_sorted_by(|a, b| a < b), "{:?}", tokens());
    tool.signal("TERM");
    assert_eq!(tool.code().await, 143);
    freed(&admin, "a").await;
}

#[tokio::test]
async fn a_leader_whose_command_has_survived_a_signal_leads_again_after_a_loss() {
    let server = Server::start().await;
    let admin = server.admin().await;
    let script = "trap 'echo heard' HUP QUIT; echo leads; while :; do sleep 0.05 & wait; done";
    let words = ["elect", "a", "--", "sh", "-c", script];
    let mut tool = tool(&server, &words).start();
    tool.says("leads").await;
    for (terms, signal) in [(1, "HUP"), (2, "QUIT")] {
        tool.signal(signal);
        let heard = async || tool.output().matches("heard").count() == terms;
        eventually(LONG, "the command hears it", heard).await;
        admin.cmd::<()>(&["DEL", "lock:{a}"]).await;
        let again = "leads\nheard\n".repeat(terms) + "leads";
        let over = async || !tool.is_running() || tool.output().contains(&again);
        eventually(LONG, "the term ends", over).await;
        assert!(tool.is_running(), "{signal} has ended the election: {}", tool.complaint());
    }
    tool.signal("TERM");
    assert_eq!(tool.code().await, 143);
    freed(&admin, "a").await;
}

#[tokio::test]
async fn a_server_that_comes_back_has_its_leader_again() {
    let server = Server::start().await;
    let script = "echo leads; exec sleep 60";
    let words = ["elect", "--watchdog", "5s", "a", "--", "sh", "-c", script];
    let mut tool = tool(&server, &words).start();
    tool.says("leads").await;
    server.kill();
    eventually(LONG, "it has lost", async || tool.complaint().contains("renewed")).await;
    server.start_again().await;
    tool.says("leads\nleads").await;
    tool.signal("TERM");
    assert_eq!(tool.code().await, 143);
}

#[tokio::test]
async fn one_candidate_leads_and_the_other_follows_when_it_ends() {
    let server = Server::start().await;
    let admin = server.admin().await;
    let words = ["elect", "a", "--", "sh", "-c", "echo leads; read x; exec sleep 60"];
    let mut first =
        tool(&server, &["elect", "a", "--", "sh", "-c", "echo leads; sleep 1; exit 6"]).start();
    first.says("leads").await;
    let mut second = tool(&server, &words).start();
    held(&admin, "a").await;
    assert_eq!(first.code().await, 6, "a command that ends by itself ends the tool");
    second.says("leads").await;
    assert!(!is_free(&admin, "a").await);
    second.signal("KILL");
    assert_eq!(second.code().await, 137);
}

#[tokio::test]
async fn a_command_that_ends_with_69_is_not_a_server_that_is_away() {
    let server = Server::start().await;
    let admin = server.admin().await;
    // The first term lasts. The second one ends by itself, with the code that the tool has for a server that is away.
    let been = server.dir().join("been");
    let been = been.display();
    let script = format!("mkdir {been} && {{ echo leads; exec sleep 60; }}; echo leads; exit 69");
    let words = ["elect", "--watchdog", "2s", "a", "--", "sh", "-c", &script];
    let mut tool = tool(&server, &words).start();
    tool.says("leads").await;
    admin.cmd::<()>(&["DEL", "lock:{a}"]).await;
    assert_eq!(tool.code().await, 69);
    assert_eq!(tool.output().matches("leads").count(), 2);
}

#[tokio::test]
async fn a_candidate_that_has_never_led_waits_for_the_server_too() {
    let server = Server::start().await;
    let admin = server.admin().await;
    let holder = tool(&server, &["hold", "a"]).start();
    held(&admin, "a").await;
    let words = ["elect", "--watchdog", "2s", "a", "--", "sh", "-c", "echo leads; exec sleep 60"];
    let mut candidate = tool(&server, &words).start();
    in_line(&admin, "a", 1).await;
    server.kill();
    drop(holder);
    // It rides an outage out for ten seconds. Then this campaign has failed.
    let failed = async || candidate.complaint().contains("parklock: ");
    eventually(LONG, "a campaign fails", failed).await;
    server.start_again().await;
    candidate.says("leads").await;
    candidate.signal("TERM");
    assert_eq!(candidate.code().await, 143);
}

#[tokio::test]
async fn a_signal_while_the_server_is_away_is_what_the_tool_ended_by() {
    let server = Server::start().await;
    let words = ["elect", "--watchdog", "2s", "a", "--", "sh", "-c", "echo leads; exec sleep 60"];
    let mut tool = tool(&server, &words).start();
    tool.says("leads").await;
    server.kill();
    eventually(LONG, "a campaign fails", async || tool.complaint().contains("not available")).await;
    tool.signal("TERM");
    assert_eq!(tool.code().await, 143, "{}", tool.complaint());
}

#[tokio::test]
async fn a_signal_that_comes_with_the_end_of_a_campaign_is_what_the_tool_ended_by() {
    let server = Server::start().await;
    let holder = tool(&server, &["hold", "a"]).start();
    holder.says("token").await;
    let mut candidate = tool(&server, &["elect", "--watchdog", "2s", "a", "--", "true"]).start();
    in_line(&server.admin().await, "a", 1).await;
    let keeper = candidate.keeper();
    // The tool reads of the failed campaign and of the signal at once.
    candidate.signal("STOP");
    server.kill();
    // Nobody reaps the keeper meanwhile. A process that has ended has no command line.
    let line = format!("/proc/{keeper}/cmdline");
    let has_ended = async || fs::read_to_string(&line).is_ok_and(|line| line.is_empty());
    eventually(LONG, "the campaign fails", has_ended).await;
    candidate.signal("TERM");
    candidate.signal("CONT");
    assert_eq!(candidate.code().await, 143, "{}", candidate.complaint());
}
