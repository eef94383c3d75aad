//! The form of an answer, which users choose with `-o` and `--no-headers`.

use super::json_path::{CustomColumn, Path};
use clap::Args;
use clap::builder::{PossibleValue, TypedValueParser, ValueParserFactory};
use std::ffi::OsStr;

const PATH: &str = "jsonpath=";
const COLUMNS: &str = "custom-columns=";

/// The form of an answer.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) enum Output {
    #[default]
    Table,
    Wide,
    Json,
    Yaml,
    Name,
    JsonPath(Path),
    Columns(Vec<CustomColumn>),
}

/// How the answer looks.
#[derive(Debug, Clone, Default, PartialEq, Args)]
pub(crate) struct OutputArgs {
    /// Output format. `wide` shows all columns in full; jsonpath=EXPR prints the values that a path selects, and
    /// custom-columns=HEAD:PATH,... prints one column for each pair. json and yaml print a list as an array; in jsonpath, a list
    /// is {"items": [...]}, so begin its path with .items
    #[arg(short, long, value_name = "FORM", default_value = "table")]
    pub(crate) output: Output,
    /// Omit the header row of tables
    #[arg(long)]
    pub(crate) no_headers: bool,
}

impl OutputArgs {
    /// Whether the answer is a table.
    pub(crate) fn is_table(&self) -> bool {
        matches!(self.output, Output::Table | Output::Wide | Output::Columns(_))
    }
}

fn output(text: &str) -> Result<Output, String> {
    if let Some(path) = text.strip_prefix(PATH) {
        return path.parse().map(Output::JsonPath);
    }
    if let Some(columns) = text.strip_prefix(COLUMNS) {
        return CustomColumn::all(columns).map(Output::Columns);
    }
    Ok(match text {
        "table" => Output::Table,
        "wide" => Output::Wide,
        "json" => Output::Json,
        "yaml" => Output::Yaml,
        "name" => Output::Name,
        _ => {
            return Err(format!(
                "write table, wide, json, yaml, name, {PATH}EXPR or {COLUMNS}HEAD:PATH,..., such as \
                 {PATH}{{.items[*].name}} or {COLUMNS}NAME:.name"
            ));
        }
    })
}

/// Parses a form; the help and the completion of shells list the forms.
#[derive(Clone)]
pub(crate) struct OutputParser;

impl ValueParserFactory for Output {
    type Parser = OutputParser;
    fn value_parser() -> OutputParser {
        OutputParser
    }
}

impl TypedValueParser for OutputParser {
    type Value = Output;

    fn parse_ref(
        &self,
        command: &clap::Command,
        argument: Option<&clap::Arg>,
        value: &OsStr,
    ) -> Result<Output, clap::Error> {
        TypedValueParser::parse_ref(&output, command, argument, value)
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        let all = ["table", "wide", "json", "yaml", "name", PATH, COLUMNS];
        Some(Box::new(all.into_iter().map(PossibleValue::new)))
    }
}
