//! Tests the export of a whole process with collectors that do not work.

use everwatch_trace::{Export, Exporting, Kind, LOST, Span};
use std::net::TcpListener;
use std::time::{Duration, Instant};

fn export(endpoint: &str) -> Export<'_> {
    Export { endpoint, sample: 1.0, role: "test", instance: "here", hide: |text| text.into() }
}

#[test]
fn a_collector_that_never_answers_costs_spans_and_no_time() {
    let recorder = metrics_exporter_prometheus::PrometheusBuilder::new().install_recorder().unwrap();
    let _installed = rustls::crypto::ring::default_provider().install_default();
    // The operating system accepts the connections; nothing answers them.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", silent.local_addr().unwrap());
    let exporting = Exporting::begin(&export(&url)).unwrap();
    let begun = Instant::now();
    for _ in 0..20_000 {
        assert!(Span::begin("x", Kind::Internal, None).trace().is_sampled());
    }
    assert!(begun.elapsed() < Duration::from_secs(4), "{:?}", begun.elapsed());
    let told = recorder.render();
    let lost = told.lines().find_map(|line| line.strip_prefix(LOST)?.trim().parse::<u64>().ok()).unwrap();
    // All spans are lost except those that wait in the queue and those in the request under way.
    assert!((20_000 - 8192 - 512..=20_000 - 8192).contains(&lost), "{lost}");
    let begun = Instant::now();
    drop(exporting);
    assert!(begun.elapsed() < Duration::from_secs(4), "{:?}", begun.elapsed());
    // A span that starts after the export has stopped is not exported and does no harm.
    assert!(!Span::begin("late", Kind::Internal, None).trace().is_sampled());
}

#[test]
fn an_endpoint_that_is_none_is_refused_by_name() {
    for wrong in ["127.0.0.1:4318", "grpc://127.0.0.1:4317", "http://"] {
        let error = Exporting::begin(&export(wrong)).unwrap_err().to_string();
        assert!(error.contains(wrong), "{error}");
    }
}
