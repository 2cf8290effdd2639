//! The page of metrics that a Prometheus server reads.

use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle};

/// The gauges of the clients of one test.
pub struct Page {
    handle: PrometheusHandle,
    _recorder: Box<dyn std::any::Any>,
}

impl Page {
    /// Records the gauges of this thread until the page is dropped.
    pub fn new() -> Self {
        let builder = PrometheusBuilder::new();
        let recorder = builder
            .set_buckets_for_metric(Matcher::Suffix("_seconds".into()), &[0.01, 0.1, 1.0, 10.0])
            .and_then(|builder| {
                let batch = Matcher::Suffix("_operations".into());
                builder.set_buckets_for_metric(batch, &[1.0, 8.0, 64.0])
            })
            .expect("the buckets are not empty")
            .build_recorder();
        let handle = recorder.handle();
        // The guard borrows the recorder until the end of the test.
        let guard = metrics::set_default_local_recorder(Box::leak(Box::new(recorder)));
        Self {
            handle,
            _recorder: Box::new(guard),
        }
    }

    pub fn text(&self) -> String {
        self.handle.render()
    }

    /// The number of a series, which is written as on the page: `name{label="value",..}`. A missing series is an error, not 0.
    pub fn number(&self, series: &str) -> f64 {
        let text = self.text();
        let line = text.lines().find_map(|line| line.strip_prefix(series));
        let number = line.unwrap_or_else(|| panic!("no {series} in\n{text}"));
        number.trim().parse().expect("a number ends the line")
    }
}
