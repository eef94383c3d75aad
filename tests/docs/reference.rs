//! The references of the commands and of the HTTP API, generated from what the program says about itself.

use super::schema::{Schemas, text};
use super::{keep, root};
use everwatch_core::wording::or;
use everwatch_tests::cluster::{everwatch, free_address};
use everwatch_tests::http::Api;
use everwatch_tests::wait::wait_for;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::process::{Child, Command, Stdio};

const COMMANDS: &str = "# Commands

<!-- Generated from the help texts: UPDATE_DOCS=1 tests/run -E 'binary(docs)' -->

`everwatch --help` prints the list of commands, and `--help` after a command prints what follows here. The
[tour](tour.md) shows the commands that you need every day.

";

const REQUESTS: &str = "# HTTP API

<!-- Generated from the OpenAPI document: UPDATE_DOCS=1 tests/run -E 'binary(docs)' -->

Every manager serves the OpenAPI document of this API at `/openapi.json`, with all parameters, bodies and errors, and
`/docs` to browse it and to send requests. Errors are problems as in RFC 9457, with a stable `code`: see [Errors](#errors). The body of a
create or an update is the [definition of an observer](definition.md). Each response has an id in the header `X-Request-Id`. Requests need a
token whose role permits the verb, in the header `Authorization: Bearer TOKEN`: see [Access](access.md). `{key}` in a path is the id or the
name of the object.

Further headers of requests:

- `If-Match` with the `ETag` of an earlier response: a change fails with 412 if the object has changed meanwhile.
- `Idempotency-Key` for a create or an action: if a client repeats the request with the same key within a day, the manager does not carry
  it out again.
- `Content-Type: application/merge-patch+json` for `PATCH`; `application/json` is accepted, too.
- `Accept: text/event-stream` for events as they happen, and `Last-Event-ID` with the id of the last event that the client has.

## Examples

Create an observer, wait until it runs, read the first page of a list and the next one, and follow the events. The responses are
shortened:

```text
$ curl -sS http://127.0.0.1:7700/v1/observers -H 'content-type: application/json' \\
    -d '{\"name\": \"page\", \"kind\": \"http\", \"spec\": {\"url\": \"http://127.0.0.1:7700/livez\", \"every\": \"5s\"}}'
{\"id\":\"01a224ca-0a68-70f6-9308-71d18c060000\",\"name\":\"page\",\"status\":\"Created\",\"health\":\"waiting\",\"service\":null,…}

$ curl -sS 'http://127.0.0.1:7700/v1/observers/page?wait_for=status=Processing&wait=10s'
{\"id\":\"01a224ca-0a68-70f6-9308-71d18c060000\",\"name\":\"page\",\"status\":\"Processing\",\"service\":{\"name\":\"service-1\",…},…}

$ curl -sS 'http://127.0.0.1:7700/v1/observers?health=running&limit=1'
{\"items\":[{\"name\":\"page\",…}],\"next_cursor\":\"eyJxdWVyeSI6Nzk1Mz…\",\"total\":2}

$ curl -sS 'http://127.0.0.1:7700/v1/observers?health=running&limit=1&cursor=eyJxdWVyeSI6Nzk1Mz…'
{\"items\":[{\"name\":\"tick\",…}],\"next_cursor\":null,\"total\":2}

$ curl -sSN http://127.0.0.1:7700/v1/events -H 'accept: text/event-stream'
```
";

const PARAMETERS: &str = "
## Query parameters

| parameter | type | meaning | requests |
|---|---|---|---|
";

const OBJECTS: &str = "
## Objects

The objects in the bodies of requests and responses, except the [definition of an observer](definition.md). A page of a list has the fields
`items`, `total` (the number of all items) and `next_cursor` (the `cursor` of the next page, or null).
";

const ERRORS: &str = "
## Errors

The body of an error has the members `type`, `title`, `status`, `detail`, `instance` and `code`; an error of single fields also has
`errors` with a `pointer` and a `detail` for each. Programs use the `code`, which does not change; the other texts are for people.

| code | status | meaning | example of a detail |
|---|---|---|---|
";

/// In the order of the reference.
const METHODS: [&str; 5] = ["get", "post", "put", "patch", "delete"];

/// What `--help` prints. `Global options:` begins the flags that all commands have.
fn help(path: &[String]) -> String {
    let output = Command::new(everwatch()).args(path).arg("--help").env_clear().output().unwrap();
    assert!(output.status.success(), "{path:?} --help");
    String::from_utf8(output.stdout).unwrap()
}

/// The names of the commands, which the help of `everwatch` has in groups.
fn subcommands(help: &str) -> Vec<String> {
    let lines = help.lines().take_while(|line| *line != "Options:");
    let is_name = |it: &&str| it.starts_with(|first: char| first.is_ascii_lowercase());
    let names = lines.filter_map(|line| line.strip_prefix("  ").filter(is_name));
    let names = names.filter_map(|line| line.split_whitespace().next()).map(str::to_owned);
    names.filter(|name| name != "help").collect()
}

/// A command, by its path, and what its `--help` prints.
struct CommandHelp {
    path: Vec<String>,
    help: String,
}

impl CommandHelp {
    fn name(&self) -> String {
        format!("everwatch {}", self.path.join(" "))
    }

    /// A link to its heading.
    fn link(&self) -> String {
        let text = self.path.last().map_or("everwatch", String::as_str);
        format!("[{text}](#{})", self.name().replace(' ', "-"))
    }

    /// The first paragraph of its help, as the cell of a table.
    fn about(&self) -> String {
        let lines = self.help.lines().take_while(|line| !line.is_empty()).collect::<Vec<_>>().join(" ");
        lines.trim_end_matches('.').replace('|', "\\|")
    }

    fn section(&self) -> String {
        let (own, everywhere) = self.help.split_once("\nGlobal options:\n").unwrap_or((&self.help, ""));
        // Examples follow the flags of all commands.
        let examples = everywhere.split_once("\n\n").map_or("", |(_, examples)| examples);
        let own = format!("{}\n\n{}", own.trim_end(), examples.trim_end());
        let level = if self.path.len() == 1 { "##" } else { "###" };
        format!("{level} {}\n\n```text\n{}\n```\n\n", self.name(), own.trim_end())
    }
}

/// The commands below a path, each before its own subcommands.
fn commands(path: &[String], found: &mut Vec<CommandHelp>) {
    let help = help(path);
    let below = subcommands(&help);
    if !path.is_empty() {
        found.push(CommandHelp { path: path.to_vec(), help });
    }
    for name in below {
        commands(&[path, &[name]].concat(), found);
    }
}

/// One row for each command, with links to its subcommands.
fn contents(found: &[CommandHelp]) -> String {
    let mut table = "| command | what it does | subcommands |\n|---|---|---|\n".to_owned();
    for command in found.iter().filter(|it| it.path.len() == 1) {
        let below = found.iter().filter(|it| it.path.len() > 1 && it.path[0] == command.path[0]);
        let below = below.map(CommandHelp::link).collect::<Vec<_>>().join(", ");
        writeln!(table, "| {} | {} | {below} |", command.link(), command.about()).unwrap();
    }
    table + "| [all commands](#global-options) | Flags of all commands, and exit codes | |\n\n"
}

#[test]
fn the_reference_of_the_commands_is_as_their_help() {
    let mut found = Vec::new();
    commands(&[], &mut found);
    let mut page = COMMANDS.to_owned() + &contents(&found);
    page.extend(found.iter().map(CommandHelp::section));
    let all = help(&[]);
    let everywhere = all.split("\nGlobal options:\n").nth(1).unwrap();
    let (flags, codes) = everywhere.split_once("\n\n").unwrap();
    write!(
        page,
        "## Global options\n\n```text\n{}\n```\n\n```text\n{}\n```\n",
        flags.trim_end(),
        codes.trim()
    )
    .unwrap();
    keep("docs/cli.md", &page);
}

/// Ends the process when a test ends.
pub(super) struct Dev(Child);

impl Drop for Dev {
    fn drop(&mut self) {
        let _ended = self.0.kill();
        let _reaped = self.0.wait();
    }
}

/// Starts `everwatch dev`.
pub(super) fn dev() -> (Dev, Api) {
    let address = free_address();
    let mut dev = Command::new(everwatch());
    dev.args(["dev", "--services", "1", "--listen", &address]).stdout(Stdio::null()).stderr(Stdio::null());
    (Dev(dev.current_dir(root()).spawn().unwrap()), Api::new(format!("http://{address}")))
}

/// The OpenAPI document.
pub(super) async fn document(api: &Api) -> Value {
    wait_for("the manager to serve", || api.try_read("/openapi.json")).await
}

/// The schemas that the page of the definition describes.
const OF_DEFINITION: [&str; 6] =
    ["NewObserver", "ObserverPatch", "RetryPolicy", "RunSchedule", "RunWindows", "WindowOpening"];

/// The link to the description of a schema.
fn link(name: &str) -> String {
    if OF_DEFINITION.contains(&name) {
        return "[definition](definition.md)".to_owned();
    }
    format!("[{name}](#{})", name.to_lowercase())
}

/// The parameters of the query, and the body.
fn sent(operation: &Value, schemas: &Schemas<'_>) -> String {
    let parameters = operation["parameters"].as_array().into_iter().flatten();
    let query =
        parameters.filter(|it| it["in"] == "query").map(|it| format!("`{}`", it["name"].as_str().unwrap()));
    let content = operation["requestBody"]["content"].as_object().and_then(|it| it.values().next());
    let body = content.map(|it| format!("body: {}", schemas.kind(&it["schema"])));
    query.chain(body).collect::<Vec<_>>().join(", ")
}

/// A parameter, its type and what it means, and the requests that accept it.
type Parameters = BTreeMap<[String; 3], Vec<String>>;

/// The parameters of the queries; one that means something else elsewhere is there several times.
fn parameters(document: &Value) -> String {
    let schemas = Schemas { all: &document["components"]["schemas"], link };
    let mut found = Parameters::new();
    for (path, operations) in document["paths"].as_object().unwrap() {
        for (method, operation) in operations.as_object().unwrap() {
            for it in
                operation["parameters"].as_array().into_iter().flatten().filter(|it| it["in"] == "query")
            {
                let (name, about) = (it["name"].as_str().unwrap(), text(it));
                assert!(!about.is_empty(), "{method} {path}: nothing says what {name} means");
                let key = [name.to_owned(), schemas.kind(&it["schema"]), about];
                found.entry(key).or_default().push(format!("`{} {path}`", method.to_uppercase()));
            }
        }
    }
    let shown = |requests: &[String]| match requests {
        [_, _, _, _, ..] => format!("{} and {} others", requests[..2].join(", "), requests.len() - 2),
        few => few.join(", "),
    };
    let row = |([name, kind, about], requests): (&[String; 3], &Vec<String>)| {
        format!("| `{name}` | {kind} | {about} | {} |\n", shown(requests))
    };
    PARAMETERS.to_owned() + &found.iter().map(row).collect::<String>()
}

/// The statuses of the answers of a request that succeeds, or of a redirect, and their body.
fn answered(operation: &Value, schemas: &Schemas<'_>) -> String {
    let answers = operation["responses"].as_object().unwrap();
    let mut statuses: Vec<&String> = answers.keys().filter(|status| status.starts_with('2')).collect();
    if statuses.is_empty() {
        statuses.extend(answers.keys().next());
    }
    let told = or(&statuses);
    let content =
        statuses.into_iter().find_map(|status| answers[status]["content"].as_object()?.values().next());
    let schema = content.map(|it| &it["schema"]).filter(|it| !it.is_null());
    schema.map_or_else(|| told.clone(), |schema| format!("{told}: {}", schemas.kind(schema)))
}

/// The fields of the bodies, except those of a definition.
fn objects(document: &Value) -> String {
    let all = &document["components"]["schemas"];
    let (schemas, mut page) = (Schemas { all, link }, OBJECTS.to_owned());
    for (name, schema) in all.as_object().unwrap() {
        // An object has fields, or is one of several objects.
        let forms: Vec<_> =
            schema["oneOf"].as_array().map_or_else(|| vec![schema], |forms| forms.iter().collect());
        let forms: Vec<_> = forms.into_iter().filter_map(|it| it["properties"].as_object()).collect();
        if forms.is_empty() || name.starts_with("Listed_") || OF_DEFINITION.contains(&name.as_str()) {
            continue;
        }
        let about = text(schema);
        let about = if about.is_empty() { String::new() } else { format!("{about}\n\n") };
        let tables = forms.into_iter().map(|members| {
            let row = |(field, member): (&String, &Value)| {
                let is_tag = member["enum"].as_array().is_some_and(|words| words.len() == 1);
                let about = match schemas.about(member) {
                    about if about.is_empty() && is_tag => "Says which of these objects this is.".to_owned(),
                    about => about,
                };
                assert!(!about.is_empty(), "nothing says what {field} of {name} means");
                format!("| `{field}` | {} | {about} |\n", schemas.kind(member))
            };
            let rows = members.iter().map(row).collect::<String>();
            format!("| field | type | meaning |\n|---|---|---|\n{rows}")
        });
        write!(page, "\n### {name}\n\n{about}{}", tables.collect::<Vec<_>>().join("\nor\n\n")).unwrap();
    }
    page
}

/// One row for each operation of a tag, in the order of the paths.
fn rows(document: &Value) -> BTreeMap<&str, String> {
    let mut rows = BTreeMap::<&str, String>::new();
    let schemas = Schemas { all: &document["components"]["schemas"], link };
    let known = |it: &serde_json::Map<String, Value>| it.keys().all(|it| METHODS.contains(&&**it));
    assert!(document["paths"].as_object().unwrap().values().all(|it| it.as_object().is_some_and(known)));
    for (path, operations) in document["paths"].as_object().unwrap() {
        for method in METHODS {
            let Some(operation) = operations.get(method) else { continue };
            let tag = operation["tags"][0].as_str().unwrap();
            // One of these is sufficient.
            let verbs =
                operation["security"].as_array().unwrap().iter().filter_map(|it| it["token"][0].as_str());
            let verbs = verbs.map(|it| format!("`{it}`")).collect::<Vec<_>>().join(" or ");
            let verbs = if verbs.is_empty() { "–".to_owned() } else { verbs };
            let summary = operation["summary"].as_str().unwrap().replace('|', "\\|");
            let (method, sent) = (method.to_uppercase(), sent(operation, &schemas));
            let answer = answered(operation, &schemas);
            writeln!(
                rows.entry(tag).or_default(),
                "| `{method} {path}` | {summary} | {sent} | {answer} | {verbs} |"
            )
            .unwrap();
        }
    }
    rows
}

/// The errors of all operations, by status and code: title, and an example of a detail.
fn errors(document: &Value) -> BTreeMap<[String; 2], [String; 2]> {
    let operations =
        document["paths"].as_object().unwrap().values().flat_map(|it| it.as_object().unwrap().values());
    let answers = operations.flat_map(|it| it["responses"].as_object().unwrap().values());
    let bodies = answers.flat_map(|it| it["content"].as_object().into_iter().flat_map(|it| it.values()));
    let several = |body: &Value| {
        let examples = body["examples"].as_object().into_iter().flat_map(|it| it.values());
        examples.map(|it| it["value"].clone()).collect::<Vec<_>>()
    };
    let examples = bodies.flat_map(|body| [vec![body["example"].clone()], several(body)].concat());
    let word = |it: &Value| it.as_str().map_or_else(|| it.to_string(), |it| it.replace('|', "\\|"));
    let errors = examples.filter(|it| it["code"].is_string() && it["detail"].is_string());
    errors
        .map(|it| ([word(&it["status"]), word(&it["code"])], [word(&it["title"]), word(&it["detail"])]))
        .collect()
}

#[tokio::test]
async fn the_reference_of_the_api_is_as_the_openapi_document() {
    let (_dev, api) = dev();
    let document = document(&api).await;
    let mut page = REQUESTS.to_owned();
    let mut rows = rows(&document);
    for tag in document["tags"].as_array().unwrap() {
        let name = tag["name"].as_str().unwrap();
        let (title, about) = (name[..1].to_uppercase() + &name[1..], tag["description"].as_str().unwrap());
        let rows = rows.remove(name).unwrap_or_default();
        write!(page, "\n## {title}\n\n{about}\n\n| request | what it does | query and body | response | verb |\n|---|---|---|---|---|\n{rows}")
            .unwrap();
    }
    assert!(rows.is_empty(), "operations without a described tag: {rows:?}");
    page += &parameters(&document);
    page += &objects(&document);
    page += &super::events::table();
    page += ERRORS;
    for ([status, code], [title, detail]) in errors(&document) {
        writeln!(page, "| `{code}` | {status} | {title} | {detail} |").unwrap();
    }
    keep("docs/api.md", &page);
}
