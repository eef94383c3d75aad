//! One page of a query beyond its watermark.

use super::connection::Lost;
use super::{Query, within};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use sqlx::AssertSqlSafe;
use sqlx::postgres::PgListener;
use std::time::Duration;

/// The watermark of the last emitted row, as text.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Mark {
    watermark: String,
}

impl Mark {
    pub(super) fn new(watermark: &str) -> Self {
        Self { watermark: watermark.to_owned() }
    }
}

/// Rows in the order of the query, each with its watermark.
pub(super) struct Page {
    pub(super) rows: Vec<(Value, Mark)>,
    pub(super) has_more: bool,
}

impl Query {
    /// # Errors
    /// If the server does not answer or refuses, or if the watermark tells rows not apart.
    pub(super) async fn page(
        &self,
        listener: &mut PgListener,
        mark: Mark,
        timeout: Duration,
    ) -> Result<Page, Lost> {
        let batch = self.batch.size();
        let column = self.watermark.replace('"', "\"\"");
        // The row after the page tells whether there is more, and whether it has the watermark of the last one.
        let sql = format!(
            "SELECT row_to_json(everwatch_row)::text, (everwatch_row.\"{column}\")::text FROM ({}\n) AS everwatch_row \
             LIMIT {}",
            self.sql.trim().trim_end_matches(';'),
            batch + 1
        );
        // The query is as safe as the rights of the user that the spec names.
        let reading = sqlx::query_as::<_, (String, Option<String>)>(AssertSqlSafe(sql))
            .bind(mark.watermark.clone())
            .fetch_all(listener);
        let mut read = within(timeout, reading).await.map_err(|lost| match lost {
            Lost::Final(reason) => Lost::Final(format!("`query`: {reason}")),
            passes => passes,
        })?;
        let has_more = read.len() > batch;
        if has_more && read[batch].1 == read[batch - 1].1 {
            return Err(Lost::Final(repeated(&read[batch].1)));
        }
        read.truncate(batch);
        let mut rows: Vec<(Value, Mark)> = Vec::with_capacity(read.len());
        for (row, watermark) in read {
            let column = &self.watermark;
            let watermark = watermark
                .ok_or_else(|| Lost::Final(format!("`query.watermark`: `{column}` is null in {row}")))?;
            let last = rows.last().map_or(&mark, |(_, last)| last);
            if last.watermark == watermark {
                return Err(Lost::Final(repeated(&Some(watermark))));
            }
            let row = serde_json::from_str(&row)
                .map_err(|error| Lost::Final(format!("a row is not JSON: {error}")))?;
            rows.push((row, Mark { watermark }));
        }
        Ok(Page { rows, has_more })
    }
}

fn repeated(watermark: &Option<String>) -> String {
    let watermark = watermark.as_deref().unwrap_or("null");
    format!(
        "`query.watermark`: two rows have the watermark {watermark}, or `query.sql` returns the last row again; select a \
         column with unique values, with `> $1` and ordered by it"
    )
}
