//! The project that `everwatch new` creates. Its code and its test are the example `my-project` of the program, because
//! a build of all dependencies in another workspace takes minutes: `tests/run --long new` does that.

use everwatch_tests::cluster::{Cluster, everwatch};
use everwatch_tests::wait::wait_for;
use serde_json::json;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_path_buf()
}

fn new(folder: &Path, arguments: &[&str]) -> (Option<i32>, String) {
    let mut command = Command::new(everwatch());
    let output =
        command.arg("new").args(arguments).current_dir(folder).stdin(Stdio::null()).output().unwrap();
    (output.status.code(), said(&output))
}

fn said(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

/// Runs cargo in a project, with the packages that this repository was built with.
fn cargo(folder: &Path, arguments: &[&str]) -> String {
    let output =
        Command::new("cargo").args(arguments).current_dir(folder).stdin(Stdio::null()).output().unwrap();
    assert!(output.status.success(), "cargo {arguments:?}: {}", said(&output));
    said(&output)
}

#[test]
fn nothing_is_overwritten_and_the_crate_must_be_there() {
    let folder = tempfile::tempdir().unwrap();
    let elsewhere = folder.path().join("elsewhere").display().to_string();
    let (code, said) = new(folder.path(), &["prices", "--sdk", &elsewhere]);
    assert!(code == Some(2) && said.contains("elsewhere is not the folder of the crate everwatch"), "{said}");
    assert!(!folder.path().join("prices").exists(), "{said}");

    let sdk = repository().join("crates/sdk").display().to_string();
    let (code, said) = new(folder.path(), &["prices", "--sdk", &sdk]);
    assert_eq!(code, Some(0), "{said}");
    let main = folder.path().join("prices/src/main.rs");
    std::fs::write(&main, "mine").unwrap();
    let (code, said) = new(folder.path(), &["prices", "--sdk", &sdk]);
    assert!(code == Some(4) && said.contains("prices exists already"), "{said}");
    assert_eq!(std::fs::read_to_string(&main).unwrap(), "mine");
}

#[test]
fn cargo_accepts_the_project_without_a_change() {
    let folder = tempfile::tempdir().unwrap();
    let (code, said) = new(folder.path(), &["price-feed"]);
    assert!(code == Some(0) && said.contains("cd price-feed"), "{said}");
    let project = folder.path().join("price-feed");
    cargo(&project, &["fmt", "--check"]);
    // It resolves all dependencies and features, with the versions of this repository.
    let tree = cargo(&project, &["tree", "--offline", "--prefix", "none", "--edges", "all"]);
    assert!(tree.starts_with("price-feed v0.1.0"), "{tree}");
    let versions = |file: PathBuf| {
        let lock = std::fs::read_to_string(file.join("Cargo.lock")).unwrap();
        lock.lines().filter(|line| line.starts_with("checksum")).map(str::to_owned).collect::<BTreeSet<_>>()
    };
    let (ours, its) = (versions(repository()), versions(project));
    assert!(its.len() > 50 && its.is_subset(&ours), "{:?}", its.difference(&ours));
}

/// The service of the project `my-project`, whose code is that of the example, with the configuration of the project.
#[tokio::test]
async fn its_service_runs_an_observer() {
    let mut cluster = Cluster::new("new");
    let (code, said) = new(cluster.scratch.path(), &["my-project"]);
    assert_eq!(code, Some(0), "{said}");
    let project = cluster.scratch.path().join("my-project");
    let code = std::fs::read_to_string(project.join("src/main.rs")).unwrap();
    let template = repository().join("crates/app/templates/project/src/main.rs");
    assert_eq!(code, std::fs::read_to_string(template).unwrap());
    cluster.service_program = everwatch().with_file_name("examples").join("my-project");
    let config = project.join("config/service.toml").display().to_string();
    cluster.extra.push(("EVERWATCH_CONFIG".to_owned(), config));
    cluster.manager().await;
    cluster.service("a", 10).await;
    let api = cluster.api.clone();
    api.create(json!({"name": "first", "kind": "my-project", "spec": {"whom": "you"}})).await;
    wait_for("the greeting", || async {
        let logs = api.get("/v1/observers/first/logs").await.to_string();
        if logs.contains("hello you") { Ok(()) } else { Err(logs) }
    })
    .await;
}
