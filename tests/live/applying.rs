//! `everwatch observer apply`: creates, updates and deletes observers from files.

use everwatch_tests::cluster::{Cluster, everwatch};
use serde_json::json;
use std::path::Path;
use std::process::Command;

fn apply(cluster: &Cluster, arguments: &[&str]) -> (Option<i32>, String) {
    let output = Command::new(everwatch())
        .args(["--server", &cluster.api.url, "observer", "apply"])
        .args(arguments)
        .output()
        .unwrap();
    let said = [output.stdout, output.stderr].concat();
    (output.status.code(), String::from_utf8(said).unwrap())
}

fn write(folder: &Path, file: &str, text: &str) {
    std::fs::write(folder.join(file), text).unwrap();
}

#[tokio::test]
async fn files_make_change_and_end_observers() {
    let mut cluster = Cluster::new("apply");
    cluster.manager().await;
    cluster.service("a", 10).await;
    let folder = cluster.folder("manifests");
    let at = folder.to_str().unwrap();
    write(
        &folder,
        "one.yaml",
        "name: one\nkind: ticker\nlabels: {app: x}\n---\nname: two\nkind: ticker\nlabels: {app: x}\nspec:\n  every: 2s\n",
    );
    write(&folder, "three.json", r#"[{"name": "three", "kind": "ticker", "labels": {"app": "x"}}]"#);
    write(&folder, "notes.txt", "not an observer");
    cluster.api.create(json!({"name": "stranger", "kind": "ticker"})).await;

    let (code, said) = apply(&cluster, &["-f", at, "--dry-run"]);
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("would be: 3 created, 0 changed, 0 unchanged, 0 deleted"), "{said}");
    assert_eq!(cluster.api.observers().await.len(), 1, "a dry run does nothing");

    let (code, said) = apply(&cluster, &["-f", at]);
    assert_eq!((code, said.contains("3 created")), (Some(0), true), "{said}");
    cluster.api.until_status("two", "Processing").await;
    let (_, said) = apply(&cluster, &["-f", at]);
    assert!(said.contains("0 created, 0 changed, 3 unchanged, 0 deleted"), "{said}");

    // A pool without services refuses what does not wait; the check of a dry run is that of the create.
    let other = folder.join("other.yaml");
    for (on_full, refused) in [("reject", true), ("queue", false)] {
        write(
            &folder,
            "other.yaml",
            &format!("name: four\nkind: ticker\npool: defualt\non_full: {on_full}\n"),
        );
        let (code, said) = apply(&cluster, &["-f", other.to_str().unwrap(), "--dry-run"]);
        assert_eq!(code, Some(i32::from(refused)), "{said}");
        assert_eq!(said.contains("four failed: pool defualt has no service"), refused, "{said}");
        let waits =
            "pool defualt has no service: its observers wait until one starts; did you mean `default`?";
        assert_eq!(said.contains(waits), !refused, "{said}");
    }
    std::fs::remove_file(other).unwrap();

    write(&folder, "one.yaml", "name: two\nkind: ticker\nlabels: {app: x}\nspec: {every: 3s}\n");
    let (_, said) = apply(&cluster, &["-f", at, "--prune", "-l", "app=x", "--dry-run"]);
    assert!(
        said.contains("two would be changed: spec\n- spec.every: \"2s\"\n+ spec.every: \"3s\"\n"),
        "{said}"
    );
    assert!(said.contains("one would be deleted"), "{said}");
    let (code, said) = apply(&cluster, &["-f", at, "--prune", "-l", "app=x"]);
    assert!(said.contains("0 created, 1 changed, 1 unchanged, 1 deleted"), "{said}");
    assert_eq!(code, Some(0));
    assert_eq!(cluster.api.observer("two").await.spec, json!({"every": "3s"}));
    cluster.api.get("/v1/observers/stranger").await;
    everwatch_tests::wait::wait_for("one to be gone", || async {
        let left = cluster.api.observers().await;
        if left.len() == 3 { Ok(()) } else { Err(format!("{left:?}")) }
    })
    .await;
}

#[tokio::test]
async fn apply_waits_until_the_observers_run_with_their_new_definitions() {
    let mut cluster = Cluster::new("apply-wait");
    cluster.manager().await;
    cluster.service("a", 10).await;
    let folder = cluster.folder("manifests");
    let at = folder.to_str().unwrap();
    let waits = || apply(&cluster, &["-f", at, "--wait", "30s"]);
    write(&folder, "a.yaml", "{name: runs, kind: ticker, spec: {every: 1s}}");
    write(&folder, "b.yaml", "{name: rests, kind: ticker, desired: paused}");
    let (code, said) = waits();
    assert_eq!(code, Some(0), "{said}");
    for told in ["observer runs is Processing (running)", "observer rests is Paused"] {
        assert!(said.contains(told), "{told} in {said}");
    }
    let first = cluster.api.observer("runs").await;
    write(&folder, "a.yaml", "{name: runs, kind: ticker, spec: {every: 2s}}");
    let (code, said) = waits();
    let second = cluster.api.observer("runs").await;
    assert!(
        code == Some(0) && second.epoch > first.epoch,
        "{said}\n{} after {}",
        second.epoch_string,
        first.epoch_string
    );
    let (code, said) = waits();
    assert!(code == Some(0) && said.contains("2 unchanged"), "{said}");
    assert_eq!(cluster.api.observer("runs").await.epoch, second.epoch, "nothing changed");
    write(&folder, "c.yaml", "{name: full, kind: ticker, pool: empty, on_full: queue}");
    let (code, said) = apply(&cluster, &["-f", at, "--wait", "1s"]);
    let told = "\nfull is Created (waiting) after 1s, not running: no service in pool empty\n";
    assert!(code == Some(5) && said.contains(told), "{code:?} {said}");
}

#[tokio::test]
async fn prune_deletes_in_the_namespaces_of_the_command_and_of_the_files_only() {
    let mut cluster = Cluster::new("apply-namespaces");
    cluster.manager().await;
    cluster.service("a", 20).await;
    let folder = cluster.folder("manifests");
    let at = folder.to_str().unwrap();
    for namespace in ["red", "blue"] {
        let path = format!("/v1/namespaces/{namespace}");
        cluster.api.done::<everwatch_api::Namespace>("PUT", &path, Some(json!({})), 201).await;
    }
    for namespace in ["default", "red", "blue"] {
        for name in ["kept", "old"] {
            let body =
                json!({"name": name, "namespace": namespace, "kind": "ticker", "labels": {"app": "x"}});
            cluster.api.create(body).await;
        }
    }
    let left = async || {
        let all = cluster.api.observers().await;
        let mut names: Vec<String> = all.iter().map(|it| format!("{}/{}", it.namespace, it.name)).collect();
        names.sort();
        names
    };
    let pruned = async |arguments: &[&str], expected: &[&str]| {
        let (code, said) = apply(&cluster, &[&["-f", at, "--prune", "-l", "app=x"], arguments].concat());
        assert_eq!(code, Some(0), "{said}");
        everwatch_tests::wait::wait_for("the others to be gone", || async {
            let left = left().await;
            if left == expected { Ok(()) } else { Err(format!("{left:?}")) }
        })
        .await;
    };
    let manifest = "{name: kept, kind: ticker, labels: {app: x}}";
    write(&folder, "a.yaml", manifest);
    pruned(&[], &["blue/kept", "blue/old", "default/kept", "red/kept", "red/old"]).await;
    pruned(&["-n", "red"], &["blue/kept", "blue/old", "default/kept", "red/kept"]).await;
    write(&folder, "b.yaml", "{name: kept, namespace: blue, kind: ticker, labels: {app: x}}");
    pruned(&[], &["blue/kept", "default/kept", "red/kept"]).await;
}

#[tokio::test]
async fn what_is_wrong_with_a_file_is_said_and_does_not_stop_the_others() {
    let mut cluster = Cluster::new("apply-wrong");
    cluster.manager().await;
    cluster.service("a", 10).await;
    let folder = cluster.folder("manifests");
    let at = folder.to_str().unwrap();
    let refused = |arguments: &[&str], why: &str| {
        let (code, said) = apply(&cluster, arguments);
        assert!(code == Some(2) && said.contains(why), "{arguments:?}: {code:?} {said}");
    };
    refused(&["-f", at], "contains no .yaml, .yml or .json file");
    refused(&["-f", "/nowhere.yaml"], "/nowhere.yaml: No such file");
    write(&folder, "a.yaml", "name: good\nkind: ticker\n");
    refused(&["-f", at, "--prune"], "--label <KEY=VALUE>");
    refused(&["-f", at, "--prune", "-l", "app=x"], "good lacks the label app=x");
    write(&folder, "b.yaml", "name: good\nkind: ticker\n");
    refused(&["-f", at], "also defines good");
    write(&folder, "b.yaml", "- 7\n");
    refused(&["-f", at], "an observer is a mapping");
    write(&folder, "b.yaml", "kind: ticker\n");
    refused(&["-f", at], "has no `name`");
    write(&folder, "b.yaml", "name: [\n");
    refused(&["-f", at], "b.yaml");
    write(&folder, "b.yaml", "name: bad\nkind: nobody-has-this\n");
    let (code, said) = apply(&cluster, &["-f", at]);
    assert_eq!(code, Some(1), "{said}");
    assert!(
        said.contains("observer good is created")
            && said.contains("bad failed")
            && said.contains("nobody-has-this"),
        "{said}"
    );
}
