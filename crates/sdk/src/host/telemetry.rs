//! What the process tells of itself: its log, on standard error, and its spans, if they are exported.

use super::settings::{Log, LogFormat, SettingsError, Telemetry};
use super::stderr::{self, LastLines};
use crate::tasks::log_capture::LogCaptureLayer;
use crate::tasks::mask;
use everwatch_trace::{Export, Exporting};
use std::backtrace::{Backtrace, BacktraceStatus};
use std::panic::PanicHookInfo;
use tracing::{Event, Subscriber};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::FmtContext;
use tracing_subscriber::fmt::format::{Format, FormatEvent, FormatFields, Json, Writer};
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::util::SubscriberInitExt as _;

/// Who tells: `everwatch-service`, `everwatch-manager`, and which one of them.
#[derive(Debug, Clone, Copy)]
pub struct Teller<'a> {
    /// The role: `service.name` of its spans.
    pub role: &'static str,
    /// Its name among those of the same role: `service.instance.id` of its spans.
    pub instance: &'a str,
}

/// Keeps the log and the export of spans running; both end within about a second when it is dropped.
pub struct Telling {
    _exporting: Exporting,
    _lines: LastLines,
}

/// Starts the process's log and the export of its spans, which end when the returned value is dropped. What the code
/// of an observer logs is kept beside its lines, too. Panics go to the log as well. No code ever waits for the reader
/// of standard error: lines that it does not take are lost and counted.
///
/// # Errors
/// If the filter or the endpoint cannot be read.
pub fn init_telemetry(
    log: &Log,
    telemetry: &Telemetry,
    teller: Teller<'_>,
) -> Result<Telling, SettingsError> {
    let filter = EnvFilter::try_new(&log.filter)
        .map_err(|error| SettingsError::new(format!("log.filter: `{}`: {error}", log.filter)))?;
    let export = Export {
        endpoint: &telemetry.otlp_endpoint,
        sample: telemetry.sample,
        role: teller.role,
        instance: teller.instance,
        hide: mask::of_process,
    };
    let exporting = Exporting::begin(&export)
        .map_err(|error| SettingsError::new(format!("telemetry.otlp_endpoint: {error}")))?;
    let (writer, last_lines) = stderr::lines();
    let lines = tracing_subscriber::fmt().with_env_filter(filter).with_writer(writer);
    let begun = match log.format {
        LogFormat::Text => {
            let colours = std::io::IsTerminal::is_terminal(&std::io::stderr());
            let lines = lines.with_ansi(colours).finish().with(LogCaptureLayer);
            lines.with(exporting.layer()).try_init()
        }
        LogFormat::Json => {
            let lines = lines.json().map_event_format(Traced).finish().with(LogCaptureLayer);
            lines.with(exporting.layer()).try_init()
        }
    };
    begun.map_err(|error| SettingsError::new(format!("the log cannot be started: {error}")))?;
    // The default hook writes to standard error itself: a panic would block its thread while standard error is stuck.
    std::panic::set_hook(Box::new(log_panic));
    Ok(Telling { _exporting: exporting, _lines: last_lines })
}

fn log_panic(panic: &PanicHookInfo<'_>) {
    let thread = std::thread::current();
    let backtrace = Backtrace::capture();
    let thread = thread.name().unwrap_or("unnamed");
    match backtrace.status() {
        BacktraceStatus::Captured => tracing::error!(thread, "{panic}\n{backtrace}"),
        _ => tracing::error!(thread, "{panic}"),
    }
}

/// Lines of JSON, with the `trace_id` of what goes on.
struct Traced(Format<Json>);

impl<S, N> FormatEvent<S, N> for Traced
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> std::fmt::Result {
        let Some(trace) = everwatch_trace::current() else {
            return self.0.format_event(context, writer, event);
        };
        let mut line = String::new();
        self.0.format_event(context, Writer::new(&mut line), event)?;
        match line.trim_end().strip_suffix('}') {
            Some(open) => writeln!(writer, "{open},\"trace_id\":\"{}\"}}", trace.trace_id()),
            None => writer.write_str(&line),
        }
    }
}
