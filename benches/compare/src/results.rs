//! The results of a run, as they are stored.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use compare::stats::Spread;

use crate::{
    about::About,
    figure::{Figure, Sample},
    workload::Workload,
};

/// The version of the format. It changes when earlier results can no longer be read.
pub const SCHEMA: u32 = 1;

/// The results of one run.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub struct Report {
    pub schema: u32,
    pub about: About,
    /// The peers that did not take part, each with the reason.
    pub absent: BTreeMap<String, String>,
    pub tables: Vec<Table>,
    /// The workloads for which there was no time.
    pub unmeasured: Vec<String>,
}

/// The results of one workload.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub struct Table {
    /// [`Workload::name`].
    pub workload: String,
    pub rows: Vec<Row>,
}

/// The results of one peer.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub struct Row {
    pub peer: String,
    /// The samples in the order of their measurement. Only their medians are stored.
    #[serde(skip)]
    pub samples: Vec<Sample>,
    pub medians: BTreeMap<Figure, Spread>,
    /// The reason why there is no result.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub missing: Option<String>,
    /// A note of the peer about the result.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

impl Row {
    pub fn new(peer: &str) -> Self {
        Self {
            peer: peer.to_owned(),
            samples: Vec::new(),
            medians: BTreeMap::new(),
            missing: None,
            note: None,
        }
    }

    pub fn add(&mut self, samples: Vec<Sample>) {
        self.samples.extend(samples);
        let figures = self.samples.iter().flat_map(BTreeMap::keys).copied();
        let spread = |figure| {
            let values = self.samples.iter().filter_map(|one| one.get(&figure));
            (figure, Spread::of(values.copied()))
        };
        self.medians = figures.map(spread).collect();
    }

    /// Discards the samples of a peer that failed, or does not support the workload.
    pub fn miss(&mut self, why: String) {
        self.samples.clear();
        self.medians.clear();
        self.missing = Some(why);
    }
}

impl Table {
    fn spread(&self, peer: &str, figure: Figure) -> Option<Spread> {
        let row = self.rows.iter().find(|row| row.peer == peer)?;
        row.medians.get(&figure).copied()
    }
}

impl Report {
    pub fn new(about: About) -> Self {
        Self {
            schema: SCHEMA,
            about,
            absent: BTreeMap::new(),
            tables: Vec::new(),
            unmeasured: Vec::new(),
        }
    }

    pub fn table(&self, workload: Workload) -> Option<&Table> {
        let name = workload.name();
        self.tables.iter().find(|table| table.workload == name)
    }

    pub fn spread(&self, workload: Workload, peer: &str, figure: Figure) -> Option<Spread> {
        self.table(workload)?.spread(peer, figure)
    }

    pub fn median(&self, workload: Workload, peer: &str, figure: Figure) -> Option<f64> {
        Some(self.spread(workload, peer, figure)?.median)
    }

    pub fn read(text: &str) -> Result<Self, compare::Failure> {
        let schema = serde_json::from_str::<serde_json::Value>(text)?["schema"].clone();
        if schema != SCHEMA {
            return Err(format!("results of schema {schema}, not {SCHEMA}").into());
        }
        Ok(serde_json::from_str(text)?)
    }

    /// Renders the report. A row of a table is a line, so that a change of stored results can be
    /// read.
    pub fn written(&self) -> Result<String, compare::Failure> {
        let about = serde_json::to_string_pretty(&self.about)?;
        let absent = serde_json::to_string_pretty(&self.absent)?;
        let unmeasured = serde_json::to_string(&self.unmeasured)?;
        let mut tables = Vec::new();
        for table in &self.tables {
            let rows: Result<Vec<_>, _> = table.rows.iter().map(serde_json::to_string).collect();
            let workload = serde_json::to_string(&table.workload)?;
            let rows = rows?.join(",\n");
            tables.push(format!(
                "{{\"workload\": {workload}, \"rows\": [\n{rows}]}}"
            ));
        }
        let tables = tables.join(",\n");
        let schema = self.schema;
        Ok(format!(
            "{{\n\"schema\": {schema},\n\"about\": {about},\n\"absent\": {absent},\n\
             \"tables\": [\n{tables}\n],\n\"unmeasured\": {unmeasured}\n}}\n"
        ))
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use crate::workload::pair;

    /// A report with one sample for each of these.
    pub fn report(samples: &[(Workload, &str, Figure, f64)]) -> Report {
        let mut report = Report::new(About::default());
        for (workload, peer, figure, value) in samples {
            let name = workload.name();
            let mut row = Row::new(peer);
            row.add(vec![Sample::from([(*figure, *value)])]);
            match report
                .tables
                .iter_mut()
                .find(|table| table.workload == name)
            {
                Some(table) => table.rows.push(row),
                None => report.tables.push(Table {
                    workload: name,
                    rows: vec![row],
                }),
            }
        }
        report
    }

    #[test]
    fn a_report_is_read_as_it_was_written() {
        let mut report = report(&[
            (pair(1), "ours", Figure::P50, 150.5),
            (pair(1), "fred", Figure::P50, 140.0),
        ]);
        report.tables[0].rows[1].miss("gone".into());
        report.absent.insert("redsync".into(), "no Go".into());
        report.unmeasured.push("loss".into());
        report.tables[0].rows[0].samples.clear();
        let text = report.written().expect("it can be written");
        assert_eq!(Report::read(&text).expect("it can be read"), report);
        let other = text.replace("\"schema\": 1", "\"schema\": 2");
        let refused = Report::read(&other).expect_err("another schema");
        assert_eq!(refused.to_string(), "results of schema 2, not 1");
    }

    #[test]
    fn medians_are_of_all_samples() {
        let mut row = Row::new("ours");
        for value in [3.0, 1.0, 2.0] {
            row.add(vec![Sample::from([(Figure::P50, value)])]);
        }
        let spread = row.medians[&Figure::P50];
        assert_eq!((spread.median, spread.min, spread.max), (2.0, 1.0, 3.0));
    }
}
