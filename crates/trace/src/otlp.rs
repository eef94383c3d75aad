//! Exports spans by OTLP over HTTP, if this is configured. The export has its own thread and a bounded queue.
//! It drops spans that find no room in the queue or that no collector accepts, and never blocks the code that
//! starts spans.

use crate::SCOPE;
use crate::hide::Hide;
use crate::lost::{Incoming, Ledger, Outgoing, WAITING_MAX};
use async_trait::async_trait;
use bytes::{Bytes, BytesMut};
use opentelemetry::trace::TracerProvider as _;
use opentelemetry::{KeyValue, global};
use opentelemetry_http::{HttpClient, HttpError, Request, Response};
use opentelemetry_otlp::{Protocol, SpanExporter, WithExportConfig as _, WithHttpConfig as _};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::{
    BatchConfigBuilder, BatchSpanProcessor, Sampler, SdkTracer, SdkTracerProvider,
};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tracing_opentelemetry::OpenTelemetryLayer;
use tracing_subscriber::registry::LookupSpan;

static EXPORTS: AtomicBool = AtomicBool::new(false);

const BATCH: usize = 512;
const EVERY: Duration = Duration::from_secs(1);
/// The time limit for one request. `FLUSH_WITHIN`: for the last requests of a process together.
const SEND_WITHIN: Duration = Duration::from_secs(5);
const FLUSH_WITHIN: Duration = Duration::from_secs(2);
/// How many bytes of a response are read.
const ANSWER_MAX: usize = 64 * 1024;

/// Each of these environment variables enables the export too.
const ENDPOINTS: [&str; 2] = ["OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT"];

/// The destination of the spans and the identity of the process that sends them.
#[derive(Debug, Clone)]
pub struct Export<'a> {
    /// A base URL such as `http://127.0.0.1:4318`. If empty, the environment decides; if that sets no
    /// endpoint either, nothing is exported.
    pub endpoint: &'a str,
    /// The fraction of the traces that start in this process that is exported, from 0 to 1.
    pub sample: f64,
    /// The role of the process; used as its service name unless `OTEL_SERVICE_NAME` is set.
    pub role: &'static str,
    pub instance: &'a str,
    /// Hides secrets in what leaves the process.
    pub hide: Hide,
}

/// Why the export cannot start. The text names the wrong value.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct ExportError(String);

/// The export of this process. Dropping it sends the last spans.
#[derive(Debug)]
pub struct Exporting(Option<SdkTracerProvider>);

impl Exporting {
    /// # Errors
    /// If the endpoint is not a URL, or no thread can be started.
    pub fn begin(export: &Export<'_>) -> Result<Self, ExportError> {
        let is_set = |name: &str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
        let disabled = std::env::var("OTEL_SDK_DISABLED").is_ok_and(|it| it.eq_ignore_ascii_case("true"));
        if disabled || export.endpoint.is_empty() && !ENDPOINTS.iter().any(|name| is_set(name)) {
            return Ok(Self(None));
        }
        let config = BatchConfigBuilder::default()
            .with_max_queue_size(WAITING_MAX)
            .with_max_export_batch_size(BATCH)
            .with_scheduled_delay(EVERY)
            .build();
        let ledger = Arc::new(Ledger::default());
        let outgoing = Outgoing { otlp: exporter(export)?, ledger: ledger.clone() };
        let queue = BatchSpanProcessor::builder(outgoing).with_batch_config(config).build();
        let mut resource = Resource::builder().with_attributes([
            KeyValue::new("service.version", env!("CARGO_PKG_VERSION")),
            KeyValue::new("service.instance.id", export.instance.to_owned()),
        ]);
        if !is_set("OTEL_SERVICE_NAME") {
            resource = resource.with_service_name(export.role);
        }
        let sampler = Sampler::ParentBased(Box::new(Sampler::TraceIdRatioBased(export.sample)));
        let provider = SdkTracerProvider::builder()
            .with_span_processor(Incoming { queue, ledger, hide: export.hide })
            .with_sampler(sampler)
            .with_resource(resource.build())
            .build();
        global::set_tracer_provider(provider.clone());
        EXPORTS.store(true, Ordering::Release);
        Ok(Self(Some(provider)))
    }

    /// Exports the `tracing` spans of observers' code.
    #[must_use]
    pub fn layer<S>(&self) -> Option<OpenTelemetryLayer<S, SdkTracer>>
    where
        S: tracing::Subscriber + for<'a> LookupSpan<'a>,
    {
        let provider = self.0.as_ref()?;
        Some(tracing_opentelemetry::layer().with_tracer(provider.tracer(SCOPE)))
    }
}

/// Whether this process has begun to export spans.
pub(crate) fn exports() -> bool {
    EXPORTS.load(Ordering::Acquire)
}

impl Drop for Exporting {
    fn drop(&mut self) {
        let Some(provider) = &self.0 else { return };
        if let Err(error) = provider.shutdown_with_timeout(FLUSH_WITHIN) {
            tracing::warn!(%error, "the last spans are not exported");
        }
    }
}

fn exporter(export: &Export<'_>) -> Result<SpanExporter, ExportError> {
    let wrong = |error: &dyn std::fmt::Display| ExportError(error.to_string());
    let is_url = |url: reqwest::Url| url.has_host() && ["http", "https"].contains(&url.scheme());
    if !export.endpoint.is_empty() && !reqwest::Url::parse(export.endpoint).is_ok_and(is_url) {
        return Err(ExportError(format!("`{}` is not a URL such as http://127.0.0.1:4318", export.endpoint)));
    }
    let http = reqwest::Client::builder().timeout(SEND_WITHIN).build().map_err(|error| wrong(&error))?;
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(|error| wrong(&error))?;
    let mut otlp = SpanExporter::builder()
        .with_http()
        .with_http_client(Client { http, runtime })
        .with_protocol(Protocol::HttpBinary)
        .with_timeout(SEND_WITHIN);
    if !export.endpoint.is_empty() {
        otlp = otlp.with_endpoint(format!("{}/v1/traces", export.endpoint.trim_end_matches('/')));
    }
    otlp.build().map_err(|error| wrong(&error))
}

/// Runs the HTTP client of the other crates on the exporter's own thread, which may block.
#[derive(Debug)]
struct Client {
    http: reqwest::Client,
    runtime: tokio::runtime::Runtime,
}

#[async_trait]
impl HttpClient for Client {
    async fn send_bytes(&self, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
        self.runtime.block_on(async {
            let mut answer =
                self.http.execute(request.try_into()?).await.map_err(reqwest::Error::without_url)?;
            let mut body = BytesMut::new();
            while let Some(chunk) = answer.chunk().await.map_err(reqwest::Error::without_url)?
                && body.len() + chunk.len() <= ANSWER_MAX
            {
                body.extend_from_slice(&chunk);
            }
            Ok(Response::builder().status(answer.status()).body(body.freeze())?)
        })
    }
}
