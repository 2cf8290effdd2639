//! What a Prometheus server would read.

use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle};

/// The gauges of the clients that one test makes.
pub struct Page {
    handle: PrometheusHandle,
    _recorder: Box<dyn std::any::Any>,
}

impl Page {
    /// Counts what this thread does until it is dropped.
    pub fn new() -> Self {
        let builder = PrometheusBuilder::new();
        let recorder = builder
            .set_buckets_for_metric(Matcher::Suffix("_seconds".into()), &[0.01, 0.1, 1.0, 10.0])
            .and_then(|builder| {
                let batch = Matcher::Suffix("_operations".into());
                builder.set_buckets_for_metric(batch, &[1.0, 8.0, 64.0])
            })
            .expect("there are buckets")
            .build_recorder();
        let handle = recorder.handle();
        // The guard borrows the recorder: a test needs it to its end.
        let guard = metrics::set_default_local_recorder(Box::leak(Box::new(recorder)));
        Self {
            handle,
            _recorder: Box::new(guard),
        }
    }

    pub fn text(&self) -> String {
        self.handle.render()
    }

    /// The number behind a series, written as `name{label="value",..}` in the order of the page. One that is missing is an
    /// error of the test, and not 0.
    pub fn number(&self, series: &str) -> f64 {
        let text = self.text();
        let line = text.lines().find_map(|line| line.strip_prefix(series));
        let number = line.unwrap_or_else(|| panic!("no {series} in\n{text}"));
        number.trim().parse().expect("a number ends the line")
    }
}
