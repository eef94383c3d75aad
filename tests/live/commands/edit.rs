//! `everwatch observer edit` with editors that are programs.

use super::Dev;
use everwatch_api::{Desired, Observer};
use everwatch_tests::cluster::everwatch;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// The exit code and everything that the command prints, with this editor.
fn edit(dev: &Dev, editor: &str) -> (Option<i32>, String) {
    let mut command = dev.command(&["observer", "edit", "one"]);
    let ended = command.env("EDITOR", editor).env_remove("VISUAL").output().unwrap();
    (ended.status.code(), String::from_utf8([ended.stdout, ended.stderr].concat()).unwrap())
}

/// The file that a failed command has kept. It is deleted here.
fn kept(said: &str) -> String {
    let path = said.split_once("your changes are in ").and_then(|(_, rest)| rest.split_once(": ")).unwrap().0;
    let mode = std::fs::metadata(path).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600, "only its user can read it");
    let text = std::fs::read_to_string(path).unwrap();
    std::fs::remove_file(path).unwrap();
    text
}

fn script(folder: &Path, text: &str) -> PathBuf {
    let path = folder.join("editor");
    std::fs::write(&path, text).unwrap();
    std::fs::set_permissions(&path, PermissionsExt::from_mode(0o700)).unwrap();
    path
}

#[tokio::test]
async fn a_definition_is_changed_in_an_editor_and_no_change_is_lost() {
    let dev = Dev::start(1, 5).await;
    let (code, ..) = dev.run(r#"observer create one --kind ticker --spec {"every":"2s"} --label app=x"#);
    assert_eq!(code, Some(0));
    let one = async || dev.api.read::<Observer>("/v1/observers/one").await;

    let (code, said) = edit(&dev, "sed -i s/2s/3s/");
    assert!(code == Some(0) && said.contains("its definition has version 2"), "{said}");
    assert!(said.contains("- spec.every: \"2s\"\n+ spec.every: \"3s\""), "{said}");
    let (code, said) = edit(&dev, "true");
    assert_eq!((code, said.as_str()), (Some(0), "observer one is unchanged\n"));

    // What the manager refuses is kept.
    let (code, said) = edit(&dev, "sed -i s/3s/soon/");
    assert!(code == Some(2) && said.contains("spec.every is not a duration"), "{code:?} {said}");
    assert!(kept(&said).contains("every: soon"));
    let (code, said) = edit(&dev, "sed -i 's/^spec:/spec: [/'");
    assert!(code == Some(2) && said.contains("the file is not a definition"), "{code:?} {said}");
    assert!(kept(&said).contains("spec: ["));
    // The editor opens again with the error, and the user corrects it.
    let folder = tempfile::tempdir().unwrap();
    let correct = "#!/bin/sh\nif grep -q 'Nothing was changed' \"$1\"; then sed -i s/soon/3s/ \"$1\"; else sed -i 's/3s/soon/; s/app: x/app: z/' \"$1\"; fi\n";
    let (code, said) = edit(&dev, script(folder.path(), correct).to_str().unwrap());
    assert!(code == Some(0) && said.contains("- labels.app: \"x\"\n+ labels.app: \"z\""), "{code:?} {said}");
    // A new name would be another observer.
    let (code, said) = edit(&dev, "sed -i 's/^name: one/name: two/'");
    assert!(
        code == Some(2) && said.contains("a name cannot be changed") && !said.contains("apply"),
        "{code:?} {said}"
    );
    kept(&said);
    let (code, said) = edit(&dev, "false");
    assert!(code == Some(1) && said.contains("nothing was changed: set EDITOR"), "{code:?} {said}");
    assert_eq!((one().await.definition_version, one().await.spec["every"].as_str()), (3, Some("3s")));

    // Another user pauses the observer while the editor is open.
    let pause = format!(
        "#!/bin/sh\n{} observer pause one --server {} >&2 && sed -i s/3s/4s/ \"$1\"\n",
        everwatch().display(),
        dev.api.url
    );
    let (code, said) = edit(&dev, script(folder.path(), &pause).to_str().unwrap());
    assert!(code == Some(4) && said.contains("was changed meanwhile"), "{code:?} {said}");
    assert!(kept(&said).contains("every: 4s"));
    assert_eq!((one().await.desired, one().await.spec["every"].as_str()), (Desired::Paused, Some("3s")));
}
