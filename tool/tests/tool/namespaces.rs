//! Applications that share a server, each in its own namespace.

use parklock::{Client, Config, Layout};
use serde_json::Value;

use crate::common::fixture::comes_in;
use crate::common::{Server, eventually};
use crate::scene::{LONG, tool};

/// A glob character in each place where a pattern could take it for one.
const STRANGE: &str = "b*[i]?\\";

async fn client(server: &Server, namespace: Option<&str>, layout: Layout) -> Client {
    let config = Config::default().layout(layout).describe("program");
    let config = namespace.into_iter().fold(config, Config::namespace);
    comes_in(server.url(), config).await
}

/// The namespaces and names that a call lists.
async fn listed(server: &Server, words: &[&str]) -> Vec<(Option<String>, String)> {
    let text = tool(server, words).output().await;
    let lock = |line: &str| serde_json::from_str::<Value>(line).expect("a line of JSON");
    let word = |word: &Value| word.as_str().map(str::to_owned);
    let full_name = |lock: Value| (word(&lock["namespace"]), word(&lock["name"]).expect("a name"));
    text.lines().map(lock).map(full_name).collect()
}

fn names(names: &[(Option<&str>, &str)]) -> Vec<(Option<String>, String)> {
    names.iter().map(|(within, name)| (within.map(str::to_owned), (*name).to_owned())).collect()
}

#[tokio::test]
async fn two_runs_in_two_namespaces_hold_one_name_at_once() {
    let server = Server::start().await;
    let admin = server.admin().await;
    let words = ["run", "-n", "job", "--namespace"];
    let run = |namespace| {
        let words = [&words[..], &[namespace, "--", "sh", "-c", "echo in; read up; sleep 600"]];
        tool(&server, &words.concat())
    };
    let (billing, orders) = (run("billing").start(), run("orders").start());
    for key in ["billing:lock:{job}", "orders:lock:{job}"] {
        let is_held = async || admin.pttl(key).await > 0;
        eventually(LONG, &format!("{key} is held"), is_held).await;
    }
    // Each keeps out others of its own namespace alone, however that is named.
    assert_eq!(run("billing").code().await, 1);
    let by_variable = tool(&server, &["run", "-n", "job", "--", "true"]);
    assert_eq!(by_variable.start_by(&["env", "PARKLOCK_NAMESPACE=orders"]).code().await, 1);
    assert_eq!(tool(&server, &["run", "-n", "job", "--", "true"]).code().await, 0);
    drop((billing, orders));
}

#[tokio::test]
async fn one_namespace_is_shown_and_cleaned_or_all_of_them() {
    let server = Server::start().await;
    let mut held = Vec::new();
    for namespace in [None, Some("billing"), Some("billing:eu"), Some(STRANGE), Some("lock")] {
        let client = client(&server, namespace, Layout::Native).await;
        held.push((client.lock("a").lock().await.expect("free"), client));
    }
    assert_eq!(listed(&server, &["ls", "--json"]).await, names(&[(None, "a")]));
    for namespace in ["billing", STRANGE, "lock"] {
        let of_it = listed(&server, &["ls", "--json", "--namespace", namespace]).await;
        assert_eq!(of_it, names(&[(Some(namespace), "a")]));
    }
    let all = listed(&server, &["ls", "--json", "--namespace", "*"]).await;
    let within = [None, Some(STRANGE), Some("billing"), Some("billing:eu"), Some("lock")];
    assert_eq!(all, names(&within.map(|namespace| (namespace, "a"))));

    let table = tool(&server, &["ls", "--namespace", "*"]).output().await;
    assert!(table.starts_with("NAMESPACE"), "{table}");
    let row = |line: &&str| line.starts_with("billing:eu ") && line.contains("program@");
    assert_eq!(table.lines().filter(row).count(), 1, "{table}");
    let table = tool(&server, &["ls", "--namespace", "billing"]).output().await;
    assert!(table.starts_with("NAME ") && table.lines().count() == 2, "{table}");

    let info = tool(&server, &["info", "a", "--namespace", STRANGE]).output().await;
    assert!(info.contains(&format!("namespace  {STRANGE}\n")), "{info}");
    let words = ["unlock", "a", "--force", "--yes", "--namespace"];
    assert_eq!(tool(&server, &[&words[..], &[STRANGE]].concat()).code().await, 0);
    for (at, (guard, client)) in held.into_iter().enumerate() {
        assert_eq!(guard.unlock().await.is_err(), at == 3, "it alone was taken away");
        client.close().await;
    }
}

#[tokio::test]
async fn in_redissons_layout_a_namespace_is_the_beginning_of_the_names() {
    let server = Server::start().await;
    let client = client(&server, Some(STRANGE), Layout::Redisson).await;
    let held = (
        client.lock("a").lock().await.expect("free"),
        client.semaphore("b", 2).acquire().await.expect("free"),
        client.rw_lock("c").read().await.expect("free"),
    );
    let words = ["ls", "--json", "--layout", "redisson"];
    let of_it = listed(&server, &[&words[..], &["--namespace", STRANGE]].concat()).await;
    assert_eq!(of_it, names(&["a", "b", "c"].map(|name| (Some(STRANGE), name))));
    let mapped = ["a", "b", "c"].map(|name| format!("{STRANGE}:{name}"));
    assert_eq!(
        listed(&server, &words).await,
        names(&mapped.each_ref().map(|name| (None, &**name)))
    );
    drop(held);
}

#[tokio::test]
async fn the_doctor_examines_a_namespace_and_finds_what_is_wrong_there() {
    let server = Server::start().await;
    let admin = server.admin().await;
    admin.cmd::<()>(&["SET", "billing:lock:{a}", "1"]).await;
    let doctor = async |namespace: &[&str]| {
        let mut asked = tool(&server, &[&["doctor"], namespace].concat()).start();
        (asked.code().await, asked.output())
    };
    for (namespace, is_bad) in [(&[][..], false), (&["--namespace", "orders"], false)]
        .into_iter()
        .chain([(&["--namespace", "billing"][..], true), (&["--namespace", "*"], true)])
    {
        let (code, said) = doctor(namespace).await;
        assert_eq!(said.contains("such as billing:lock:{a}"), is_bad, "{namespace:?}: {said}");
        assert_eq!(code == 1, is_bad, "{namespace:?}: {said}");
    }
}

#[tokio::test]
async fn a_bad_namespace_is_refused_and_so_is_a_star_where_one_is_needed() {
    let server = Server::start().await;
    for words in [&["ls"][..], &["info", "a"], &["run", "-n", "a"]] {
        let command: &[&str] = if words[0] == "run" { &["--", "true"] } else { &[] };
        let call = [words, &["--namespace", "a{b"], command].concat();
        let mut asked = tool(&server, &call).start();
        assert_eq!(asked.code().await, 78, "{call:?}");
        assert!(asked.complaint().contains("namespace must have no braces"), "{call:?}");
        let call = [words, &["--namespace", "*"], command].concat();
        let code = tool(&server, &call).code().await;
        assert_eq!(code, if words[0] == "ls" { 0 } else { 78 }, "{call:?}");
    }
}
