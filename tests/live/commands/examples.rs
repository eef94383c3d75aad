//! Every example of a path in the help of a command, and in the tour, selects something in a real answer.

use everwatch_tests::dev::Dev;
use serde_json::json;
use std::process::Command;

/// The help of all commands, and the tour of the commands.
const PAGES: [&str; 2] = [include_str!("../../../docs/cli.md"), include_str!("../../../docs/tour.md")];

/// The lines that print parts of an answer.
fn examples() -> Vec<&'static str> {
    let lines = PAGES.iter().flat_map(|page| page.lines()).map(str::trim);
    let has_path = |line: &&str| line.contains("-o jsonpath=") || line.contains("-o custom-columns=");
    lines.filter(|line| line.starts_with("everwatch ")).filter(has_path).collect()
}

#[tokio::test]
async fn every_example_of_a_path_selects_something() {
    let dev = Dev::start(1, 9).await;
    for name in ["prices-1", "prices-2", "hello"] {
        dev.api.create(json!({"name": name, "kind": "ticker", "labels": {"team": "prices"}})).await;
        dev.api.until_status(name, "Processing").await;
    }
    let fails = json!({"argv": ["/bin/false"]});
    dev.api.create(json!({"name": "fails", "kind": "exec", "spec": fails})).await;
    assert_eq!(dev.run("observer wait fails --for health=restarting").0, Some(0));
    let examples = examples();
    assert!(examples.len() >= 8, "{examples:?}");
    for line in examples {
        let everwatch = dev.command(&[]);
        let mut shell = Command::new("sh");
        shell.args(["-c", &format!("everwatch() {{ \"$0\" \"$@\"; }}; {line}")]);
        shell.arg(everwatch.get_program());
        for (name, value) in everwatch.get_envs() {
            match value {
                Some(value) => shell.env(name, value),
                None => shell.env_remove(name),
            };
        }
        let ended = shell.output().unwrap();
        let [said, beside] = [&ended.stdout, &ended.stderr].map(|text| String::from_utf8_lossy(text));
        assert!(
            ended.status.success() && beside.is_empty() && !said.trim().is_empty(),
            "{line}: {said}{beside}"
        );
    }
}
