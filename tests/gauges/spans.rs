//! The spans `lock.acquire` and `lock.hold`: their fields, their parents, and when they end.

use std::{
    fmt,
    sync::{Arc, LazyLock, Mutex, MutexGuard},
    time::Duration,
};

use redisson_lock_test::InMemoryRedis;
use tokio::time::{sleep, timeout};
use tracing::{
    Dispatch, Event, Metadata, Subscriber,
    field::{Field, Visit},
    span::{Attributes, Id, Record},
    subscriber::{DefaultGuard, set_default},
};

/// A second subscriber. With a single one, tracing caches for each span whether the first thread that reaches it wants it, and tests
/// run in several threads.
static ANOTHER: LazyLock<Dispatch> = LazyLock::new(|| Dispatch::new(Spans::default()));

/// The spans of a test, each with its name, its fields and its end in the order of recording.
#[derive(Clone, Default)]
struct Spans(Arc<Mutex<Vec<String>>>);

impl Spans {
    fn keep() -> (Self, DefaultGuard) {
        LazyLock::force(&ANOTHER);
        let spans = Self::default();
        (spans.clone(), set_default(spans))
    }

    fn all(&self) -> MutexGuard<'_, Vec<String>> {
        self.0.lock().unwrap()
    }

    /// The spans of a name, each without the name.
    fn named(&self, name: &str) -> Vec<String> {
        let all = self.all();
        let named = all.iter().filter_map(|span| span.strip_prefix(name));
        named.map(|span| span.trim().into()).collect()
    }
}

struct Fields<'a>(&'a mut String);

impl Visit for Fields<'_> {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        *self.0 += &format!(" {field}={value:?}");
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        *self.0 += &format!(" {field}={value:.1}");
    }
}

impl Subscriber for Spans {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.is_span()
    }

    fn new_span(&self, span: &Attributes<'_>) -> Id {
        let mut all = self.all();
        let mut text = span.metadata().name().to_owned();
        span.record(&mut Fields(&mut text));
        all.push(text);
        Id::from_u64(all.len() as u64)
    }

    fn record(&self, span: &Id, values: &Record<'_>) {
        values.record(&mut Fields(&mut self.all()[span.into_u64() as usize - 1]));
    }

    fn try_close(&self, span: Id) -> bool {
        self.all()[span.into_u64() as usize - 1] += " closed";
        true
    }

    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn event(&self, _: &Event<'_>) {}
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

#[tokio::test(start_paused = true)]
async fn an_acquisition_and_a_hold_are_spans() {
    let (spans, _guard) = Spans::keep();
    let server = InMemoryRedis::new();
    let (one, other) = (
        server.client().await.unwrap(),
        server.client().await.unwrap(),
    );
    let held = one.reentrant_lock("a").lock().await.unwrap();
    assert_eq!(spans.named("lock.hold"), ["name=a kind=\"reentrant\""]);
    let wait = Duration::from_secs(2);
    assert!(
        other
            .fair_lock("a")
            .try_lock_for(wait)
            .await
            .unwrap()
            .is_none()
    );
    let lock = other.reentrant_lock("a");
    assert!(timeout(wait, lock.lock()).await.is_err());
    held.unlock().await.unwrap();
    let acquired = [
        "name=a kind=\"reentrant\" outcome=\"acquired\" waited=0.0 closed",
        "name=a kind=\"fair\" outcome=\"busy\" waited=2.0 closed",
        "name=a kind=\"reentrant\" outcome=\"cancelled\" waited=2.0 closed",
    ];
    assert_eq!(spans.named("lock.acquire"), acquired);
    let released = "name=a kind=\"reentrant\" end=\"released\" closed";
    assert_eq!(spans.named("lock.hold"), [released]);
}

#[tokio::test(start_paused = true)]
async fn the_span_of_a_hold_records_its_end() {
    let (spans, _guard) = Spans::keep();
    let server = InMemoryRedis::new();
    let client = server.client().await.unwrap();
    let lock = client.reentrant_lock("a");
    let first = lock.lock().await.unwrap();
    let next = async {
        let second = lock.owned_by(&redisson_lock::Owner::new()).lock().await;
        server.delete("a");
        second.unwrap().lost().await;
    };
    tokio::join!(next, async {
        tokio::task::yield_now().await;
        first.unlock().await.unwrap();
    });
    sleep(Duration::from_secs(1)).await;
    let ends =
        ["handed-off", "gone"].map(|end| format!("name=a kind=\"reentrant\" end={end:?} closed"));
    assert_eq!(spans.named("lock.hold"), ends);
}
