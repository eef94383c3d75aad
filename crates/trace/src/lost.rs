//! Both ends of the queue to the collector. They count and log the spans that the full queue or the collector
//! rejects.

use crate::hide::{Hide, hide};
use opentelemetry::Context;
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::trace::{BatchSpanProcessor, Span, SpanData, SpanExporter, SpanProcessor};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Metric: spans that were to be exported and were lost.
pub const LOST: &str = "everwatch_lost_spans_total";
/// Metric: log lines that were lost because standard error did not accept them.
pub const LOST_LOG_LINES: &str = "everwatch_lost_log_lines_total";
/// How many spans may wait for export; each takes about 1 KiB.
pub(crate) const WAITING_MAX: usize = 8192;
/// The shortest time between two log messages about lost spans.
const TELL_EVERY: Duration = Duration::from_secs(60);

/// The number of spans that wait, and of spans that are lost and not yet logged.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    waiting: AtomicUsize,
    lost: AtomicU64,
    told: Mutex<Option<Instant>>,
}

impl Ledger {
    fn lose(&self, spans: u64) {
        self.lost.fetch_add(spans, Ordering::Relaxed);
        metrics::counter!(LOST).increment(spans);
    }

    fn tell(&self, sent: &OTelSdkResult) {
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        if told.is_some_and(|told| told.elapsed() < TELL_EVERY) {
            return;
        }
        let spans = self.lost.swap(0, Ordering::Relaxed);
        if spans > 0 {
            *told = Some(Instant::now());
            let why = sent.as_ref().err().map_or_else(|| "it is too slow".to_owned(), ToString::to_string);
            tracing::warn!(spans, why, "spans dropped: the collector does not accept them");
        }
    }
}

/// The input of the span queue. The queue drops spans silently when it is full; this type counts them.
#[derive(Debug)]
pub(crate) struct Incoming {
    pub(crate) queue: BatchSpanProcessor,
    pub(crate) ledger: Arc<Ledger>,
    pub(crate) hide: Hide,
}

impl SpanProcessor for Incoming {
    fn on_start(&self, span: &mut Span, context: &Context) {
        self.queue.on_start(span, context);
    }
    fn on_end(&self, mut span: SpanData) {
        if self.ledger.waiting.fetch_add(1, Ordering::Relaxed) >= WAITING_MAX {
            self.ledger.waiting.fetch_sub(1, Ordering::Relaxed);
            return self.ledger.lose(1);
        }
        // Now: when the span is exported, nobody may know any longer what is secret.
        hide(&mut span, self.hide);
        self.queue.on_end(span);
    }
    fn force_flush(&self) -> OTelSdkResult {
        self.queue.force_flush()
    }
    fn shutdown_with_timeout(&self, timeout: Duration) -> OTelSdkResult {
        self.queue.shutdown_with_timeout(timeout)
    }
    fn set_resource(&mut self, resource: &Resource) {
        self.queue.set_resource(resource);
    }
}

/// The output of the span queue, which sends spans to the collector.
#[derive(Debug)]
pub(crate) struct Outgoing {
    pub(crate) otlp: opentelemetry_otlp::SpanExporter,
    pub(crate) ledger: Arc<Ledger>,
}

impl SpanExporter for Outgoing {
    async fn export(&self, batch: Vec<SpanData>) -> OTelSdkResult {
        let spans = batch.len();
        self.ledger.waiting.fetch_sub(spans, Ordering::Relaxed);
        let sent = self.otlp.export(batch).await;
        if sent.is_err() {
            self.ledger.lose(spans as u64);
        }
        self.ledger.tell(&sent);
        sent
    }
    fn shutdown_with_timeout(&self, timeout: Duration) -> OTelSdkResult {
        self.otlp.shutdown_with_timeout(timeout)
    }
    fn set_resource(&mut self, resource: &Resource) {
        self.otlp.set_resource(resource);
    }
}
