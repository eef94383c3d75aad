//! The reference of the definition of an observer, generated from the OpenAPI document and from the defaults that a manager fills in.

use super::links::anchor as anchor_of;
use super::reference::dev;
use super::schema::{Schemas, text};
use super::{keep, root};
use everwatch_core::observer::definition::MEMBERS;
use everwatch_core::record::service::ServiceState;
use everwatch_tests::http::Api;
use serde_json::{Value, json};
use std::fmt::Write as _;

const HEAD: &str = "# Definition of an observer

<!-- Generated from the OpenAPI document: UPDATE_DOCS=1 tests/run -E 'binary(docs)' -->

You write the definition of an observer as YAML or JSON for `everwatch observer apply -f FILE`, with the flags of `everwatch observer
create`, in the form of the console, or as the body of `POST /v1/observers` and `PUT /v1/observers/{key}`. Only `kind` is required;
files for `apply` also need `name`:

```yaml
name: btc-price
kind: http
spec: { url: \"https://prices.example/btc\", every: 5s }
labels: { team: prices }
retry: { kind: exponential, max: 30s }
on_full: queue
```

Durations are strings such as `500ms`, `10s` or `1h 30m`. Times are strings in RFC 3339 with an offset, such as `2027-01-31T09:30:00Z`. The
value `null` means the default. A manager refuses a definition with an unknown field. It names all
errors of the fields of this table; those of the spec, and kinds and pools that do not exist, once these fields are valid.

A change of `labels`, `on_full`, `priority`, `start_at`, `start_within` or `schedule` leaves the run alone. A change of `desired` pauses or
resumes the observer. A change of `pool` ends the run, and the observer waits for a slot of the other pool. A change of another field
restarts the observer. `name` and `namespace` cannot change. The chapters [When an observer runs](scheduling.md), [Limits by
key](limits.md) and [Weight](weight.md) explain the fields about time and slots.
";

/// An example of each field of an observer, and where the book explains the field.
const FIELDS: [(&str, &str, &str); 20] = [
    ("name", "btc-price", ""),
    ("namespace", "default", "namespaces.md"),
    ("kind", "http", "observers/README.md"),
    ("spec", r#"{ url: "https://prices.example/btc" }"#, "writing-observers.md#the-spec"),
    ("pool", "default", "operating.md#create-and-delete-pools"),
    ("labels", "{ team: prices }", "operating.md#many-observers-at-once"),
    ("retry", "{ kind: fixed, every: 10s, attempts: 5 }", "#retry"),
    ("overlap", "forbid", "failures.md#prevent-overlap"),
    ("grace", "30s", "writing-observers.md#when-code-must-stop"),
    ("on_full", "queue", "scheduling.md#the-backlog"),
    ("priority", "50", "scheduling.md#priority"),
    ("weight", "1", "weight.md"),
    ("limits", "[tenant-acme]", "limits.md"),
    ("start_at", "2099-01-31T09:30:00Z", "scheduling.md#from-when-and-until-when"),
    ("finish_at", "2099-01-31T17:00:00Z", "scheduling.md#from-when-and-until-when"),
    (
        "windows",
        r#"{ time_zone: America/New_York, open: [{ days: mon-fri, from: "09:30", to: "16:00" }] }"#,
        "scheduling.md#windows",
    ),
    ("schedule", r#"{ cron: "30 6 * * *", time_zone: Europe/Berlin }"#, "scheduling.md#schedules"),
    ("start_within", "5m", "scheduling.md#the-backlog"),
    ("attempt_timeout", "1h", "scheduling.md#how-long-an-attempt-may-take"),
    ("desired", "paused", "first-observer.md#pause-move-delete"),
];

/// The definitions within a definition, in the order of the page.
const PARTS: [(&str, &str); 4] = [
    ("RetryPolicy", "Retry"),
    ("RunWindows", "Windows"),
    ("WindowOpening", "Opening of a window"),
    ("RunSchedule", "Schedule"),
];

#[tokio::test]
async fn the_reference_of_the_definition_is_as_the_openapi_document() {
    let (_dev, api) = dev();
    let document: Value = super::reference::document(&api).await;
    api.until_service("service-1", |it| it.state == ServiceState::Active).await;
    let sent = api.call("POST", "/v1/observers?dry_run=true", Some(json!({"kind": "ticker"}))).await;
    let (200, defaults) = sent else { panic!("{sent:?}") };
    let (status, set) = api.call("PUT", "/v1/limits/tenant-acme", Some(json!({"max": 10}))).await;
    assert!((200..300).contains(&status), "{set}");
    let schemas = &document["components"]["schemas"];
    let table = Table(Schemas { all: schemas, link });
    let mut page = HEAD.to_owned();
    let members = MEMBERS.into_iter().chain(["desired"]);
    let mut rows = String::new();
    for name in members {
        let (_, example, chapter) = FIELDS.into_iter().find(|(field, ..)| *field == name).unwrap();
        accepts(&api, name, example).await;
        let default = match name {
            "kind" => "required".to_owned(),
            "name" => "generated".to_owned(),
            _ => shown(&defaults[name]),
        };
        let member = &schemas["NewObserver"]["properties"][name];
        let see =
            if chapter.is_empty() { String::new() } else { format!(" See [{}]({chapter}).", title(chapter)) };
        let (kind, about) = (table.0.kind(member), table.about(name, member));
        writeln!(rows, "| `{name}` | {kind} | {default} | `{example}` | {about}{see} |").unwrap();
    }
    write!(
        page,
        "\n## Fields\n\n| field | type | default | example | meaning |\n|---|---|---|---|---|\n{rows}"
    )
    .unwrap();
    for (name, title) in PARTS {
        let schema = &schemas[name];
        let heading = format!("## {title}");
        match schema["oneOf"].as_array() {
            None => page += &section(&heading, &text(schema), &table.rows(schema)),
            Some(kinds) => {
                write!(page, "\n{heading}\n\n{}\n", text(schema)).unwrap();
                for kind in kinds {
                    let word = kind["properties"]["kind"]["enum"][0].as_str().unwrap();
                    page += &section(&format!("### `kind: {word}`"), &text(kind), &table.rows(kind));
                }
            }
        }
    }
    keep("docs/definition.md", &page);
}

/// The heading to which a link leads.
fn title(link: &str) -> String {
    let (file, anchor) = link.split_once('#').unwrap_or((link, ""));
    let file = if file.is_empty() { "definition.md" } else { file };
    let text = std::fs::read_to_string(root().join("docs").join(file)).unwrap();
    let headings =
        text.lines().filter(|line| line.starts_with('#')).map(|line| line.trim_start_matches(['#', ' ']));
    let mut found = headings.filter(|heading| anchor.is_empty() || anchor_of(heading) == anchor);
    found.next().unwrap().to_owned()
}

/// Asks the manager whether it accepts the example of a field.
async fn accepts(api: &Api, field: &str, example: &str) {
    let mut definition = json!({"kind": "http", "spec": {"url": "https://prices.example/btc"}});
    definition[field] = serde_saphyr::from_str(example).unwrap();
    let (status, answer) = api.call("POST", "/v1/observers?dry_run=true", Some(definition)).await;
    assert_eq!(status, 200, "{field}: {example}: {answer}");
}

/// The link to a part of this page.
fn link(name: &str) -> String {
    let (_, title) = PARTS.into_iter().find(|(part, _)| *part == name).unwrap();
    format!("[{}](#{})", title.to_lowercase(), title.to_lowercase().replace(' ', "-"))
}

fn section(heading: &str, about: &str, rows: &str) -> String {
    let about = if about.is_empty() { String::new() } else { format!("{about}\n\n") };
    format!("\n{heading}\n\n{about}| field | type | default | meaning |\n|---|---|---|---|\n{rows}")
}

/// A default as the cell of a table.
fn shown(value: &Value) -> String {
    match value {
        Value::Null => "none".to_owned(),
        Value::String(text) => format!("`{text}`"),
        Value::Object(members) if members.contains_key("kind") => {
            "[exponential](#kind-exponential)".to_owned()
        }
        other if *other == json!({}) || *other == json!([]) => "empty".to_owned(),
        other => format!("`{other}`"),
    }
}

struct Table<'a>(Schemas<'a>);

impl Table<'_> {
    /// The rows of an object: the required members first. The tag of an alternative is in its heading.
    fn rows(&self, schema: &Value) -> String {
        let required = |name: &str| schema["required"].as_array().unwrap().contains(&json!(name));
        let mut members: Vec<_> = schema["properties"].as_object().unwrap().iter().collect();
        members.retain(|(name, _)| *name != "kind");
        members.sort_by_key(|(name, _)| !required(name));
        let row = |(name, member): &(&String, &Value)| {
            let default = if required(name) { "required".to_owned() } else { self.default(member) };
            self.row(name, member, &default)
        };
        members.iter().map(row).collect()
    }

    /// Without a default in the document, a list is empty, a choice has its first word, and others are unset.
    fn default(&self, member: &Value) -> String {
        match &member["default"] {
            Value::Null if member["type"] == "array" => "empty".to_owned(),
            Value::Null => shown(&self.0.named(member).map_or(Value::Null, |(_, it)| it["enum"][0].clone())),
            default => shown(default),
        }
    }

    fn row(&self, name: &str, member: &Value, default: &str) -> String {
        format!("| `{name}` | {} | {default} | {} |\n", self.0.kind(member), self.about(name, member))
    }

    fn about(&self, name: &str, member: &Value) -> String {
        let about = self.0.about(member);
        assert!(!about.is_empty(), "the OpenAPI document does not describe {name}");
        about
    }
}
