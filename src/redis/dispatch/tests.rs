use std::{
    future::ready,
    sync::{
        atomic::{AtomicBool, Ordering},
        mpsc,
    },
    thread,
    time::Duration,
};

use bytes::Bytes;
use tokio::{
    runtime::{Builder, Runtime},
    sync::watch,
};

use super::*;
use crate::{
    error::Cause,
    redis::{Answered, BoxFuture, CallError, ClientNames},
    wire::{Reply, reply::Detail, script::Operation},
};

static SCRIPT: Script = Script::new("", &["test"], 1);

/// A server that answers each call at once, with the numbers of its operations, while there is a connection.
#[derive(Default)]
struct Server {
    is_up: watch::Sender<bool>,
    /// The numbers of the operations of each call.
    calls: Mutex<Vec<Vec<u8>>>,
}

impl Redis for Server {
    fn slot(&self, _key: &[u8]) -> HashSlot {
        0
    }

    fn call(
        &self,
        _script: &'static Script,
        operations: Arc<[Operation]>,
        _durability: Durability,
    ) -> BoxFuture<Result<Vec<Answered>, CallError>> {
        let numbers: Vec<_> = operations.iter().map(|operation| operation[0][0]).collect();
        let answer = |number: &u8| Answered {
            reply: Reply {
                status: i64::from(*number),
                detail: Detail::Nothing,
            },
            acknowledged: None,
        };
        let answers = numbers.iter().map(answer).collect();
        lock(&self.calls).push(numbers);
        Box::pin(ready(Ok(answers)))
    }

    fn replicas(&self, _slot: HashSlot) -> usize {
        0
    }

    fn ready(&self, _slot: HashSlot, _durability: Durability) -> BoxFuture<()> {
        let mut is_up = self.is_up.subscribe();
        Box::pin(async move { drop(is_up.wait_for(|is_up| *is_up).await) })
    }

    fn is_ready(&self, _slot: HashSlot, _durability: Durability) -> bool {
        *self.is_up.borrow()
    }

    fn is_connected(&self) -> bool {
        *self.is_up.borrow()
    }

    fn trouble(&self, _slot: HashSlot, _durability: Durability) -> Option<Arc<Cause>> {
        None
    }

    fn server_of(&self, _slot: HashSlot) -> Option<String> {
        None
    }

    fn ping(&self) -> BoxFuture<Result<(), CallError>> {
        Box::pin(ready(Ok(())))
    }

    fn refused_message(&self, _: &Bytes, _: &Bytes) -> Option<BoxFuture<Option<String>>> {
        None
    }

    fn client_names(&self, _key: &Bytes) -> Option<BoxFuture<Option<ClientNames>>> {
        None
    }

    fn subscribe(&self, _channel: Bytes) -> BoxFuture<Result<(), CallError>> {
        Box::pin(ready(Ok(())))
    }

    fn unsubscribe(&self, _channel: Bytes) {}

    fn close(&self) -> BoxFuture<()> {
        Box::pin(ready(()))
    }
}

/// What happens to an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum What {
    Built,
    Answered,
    Unanswered,
}

use What::{Answered as Done, Built, Unanswered};

struct Completion {
    number: u8,
    is_wanted: Arc<AtomicBool>,
    told: mpsc::Sender<(u8, What)>,
    is_answered: bool,
    panics_at: Option<What>,
    at_end: Option<Box<dyn FnOnce() + Send>>,
}

impl Completion {
    fn new(number: u8, told: &mpsc::Sender<(u8, What)>) -> Self {
        Self {
            number,
            is_wanted: Arc::new(AtomicBool::new(true)),
            told: told.clone(),
            is_answered: false,
            panics_at: None,
            at_end: None,
        }
    }

    fn tell(&self, what: What) {
        assert_ne!(
            self.panics_at,
            Some(what),
            "the test has a completion panic"
        );
        let _ = self.told.send((self.number, what));
    }
}

impl Complete for Completion {
    fn is_wanted(&self) -> bool {
        self.is_wanted.load(Ordering::Relaxed)
    }

    fn build(&mut self) -> Option<Operation> {
        self.tell(Built);
        let operation = || vec![Bytes::copy_from_slice(&[self.number])];
        self.is_wanted().then(operation)
    }

    fn complete(mut self, answer: Result<Answered, CallError>) {
        let is_own = |answered: Answered| answered.reply.status == i64::from(self.number);
        self.is_answered = answer.is_ok_and(is_own);
        self.tell(Done);
    }
}

impl Drop for Completion {
    fn drop(&mut self) {
        if !self.is_answered {
            let _ = self.told.send((self.number, Unanswered));
        }
        if let Some(at_end) = self.at_end.take() {
            at_end();
        }
    }
}

/// A lane on a runtime of its own, without a connection yet.
struct Stage {
    runtime: Runtime,
    server: Arc<Server>,
    lane: Arc<Lane<Completion>>,
    tells: mpsc::Sender<(u8, What)>,
    told: mpsc::Receiver<(u8, What)>,
}

impl Stage {
    fn new() -> Self {
        let runtime = Builder::new_current_thread().build().unwrap();
        let server = Arc::new(Server::default());
        let dispatch = Dispatch::new(server.clone(), runtime.handle().clone());
        let (tells, told) = mpsc::channel();
        Self {
            lane: dispatch.lane(&SCRIPT, 0, Durability::Local),
            runtime,
            server,
            tells,
            told,
        }
    }

    fn completion(&self, number: u8) -> Completion {
        Completion::new(number, &self.tells)
    }

    fn submit(&self, number: u8) {
        drop(self.lane.clone().submit(self.completion(number)));
    }

    /// Makes an operation that is not wanted any more.
    fn unwanted(&self, number: u8) -> Completion {
        let completion = self.completion(number);
        completion.is_wanted.store(false, Ordering::Relaxed);
        completion
    }

    /// Connects, and runs all tasks until they wait.
    fn connect(&self) {
        self.server.is_up.send_replace(true);
        self.run();
    }

    fn run(&self) {
        self.runtime.block_on(async {
            for _ in 0..20 {
                tokio::task::yield_now().await;
            }
        });
    }

    fn calls(&self) -> Vec<Vec<u8>> {
        lock(&self.server.calls).clone()
    }

    fn told(&self) -> Vec<(u8, What)> {
        self.told.try_iter().collect()
    }
}

#[test]
fn operations_are_built_in_their_order_when_their_batch_leaves() {
    let stage = Stage::new();
    stage.submit(1);
    let given_up = stage.completion(2);
    let is_wanted = given_up.is_wanted.clone();
    drop(stage.lane.clone().submit(given_up));
    stage.submit(3);
    stage.run();
    assert_eq!(stage.told(), Vec::new(), "there is no connection");
    is_wanted.store(false, Ordering::Relaxed);
    stage.connect();
    assert_eq!(stage.calls(), [[1u8, 3]]);
    let all = [
        (1, Built),
        (2, Built),
        (2, Unanswered),
        (3, Built),
        (1, Done),
        (3, Done),
    ];
    assert_eq!(stage.told(), all);
}

#[test]
fn the_answer_to_a_lone_operation_lets_the_next_one_go_alone() {
    let stage = Stage::new();
    let lone = stage.lane.begin_lone(1);
    assert!(lone.is_some() && stage.lane.begin_lone(1).is_none());
    drop(lone);
    assert!(stage.lane.begin_lone(1).is_some());
}

#[test]
fn a_batch_of_unwanted_operations_delays_no_other() {
    let stage = Stage::new();
    (0..40).for_each(|number| drop(stage.lane.clone().submit(stage.unwanted(number))));
    stage.submit(40);
    stage.connect();
    assert_eq!(stage.calls(), [[40u8]]);
}

#[test]
fn a_panic_of_one_completion_concerns_no_other() {
    let stage = Stage::new();
    for (number, panics_at) in [(1, Some(Built)), (2, Some(Done)), (3, None)] {
        let mut completion = stage.completion(number);
        completion.panics_at = panics_at;
        drop(stage.lane.clone().submit(completion));
    }
    let mut unwanted = stage.unwanted(5);
    unwanted.at_end = Some(Box::new(|| panic!("the test has a drop panic")));
    drop(stage.lane.clone().submit(unwanted));
    stage.connect();
    stage.submit(4);
    stage.run();
    assert_eq!(stage.calls(), [vec![2u8, 3], vec![4]]);
    let told = stage.told();
    assert!(
        told.contains(&(3, Done)) && told.contains(&(4, Done)),
        "{told:?}"
    );
}

#[test]
fn the_end_of_the_runtime_answers_no_operation() {
    let stage = Stage::new();
    stage.submit(1);
    stage.run();
    let Stage {
        runtime,
        lane,
        told,
        tells,
        ..
    } = stage;
    drop(runtime);
    assert_eq!(told.try_recv(), Ok((1, Unanswered)));
    drop(lane.submit(Completion::new(2, &tells)));
    assert_eq!(told.try_recv(), Ok((2, Unanswered)));
}

/// A completion may submit another one when it is answered, or dropped: with the batch, among many, at the end of the runtime.
#[test]
fn no_lock_is_held_while_a_completion_ends() {
    let (done, is_done) = mpsc::channel();
    thread::spawn(move || {
        let stage = Stage::new();
        let submits = |mut completion: Completion, number| {
            let (lane, next) = (stage.lane.clone(), stage.completion(number));
            completion.at_end = Some(Box::new(move || drop(lane.submit(next))));
            drop(stage.lane.clone().submit(completion));
        };
        (1..=100).for_each(|number| submits(stage.unwanted(number), 100 + number));
        submits(stage.completion(0), 201);
        stage.connect();
        let mut answered: Vec<_> = stage.calls().concat();
        answered.sort_unstable();
        let wanted: Vec<_> = std::iter::once(0).chain(101..=201).collect();
        assert_eq!(answered, wanted);
        stage.server.is_up.send_replace(false);
        submits(stage.completion(202), 203);
        let Stage { runtime, told, .. } = stage;
        drop(runtime);
        let told: Vec<_> = told.try_iter().collect();
        assert_eq!(
            told[told.len() - 2..],
            [(202, Unanswered), (203, Unanswered)]
        );
        done.send(())
    });
    let waited = is_done.recv_timeout(Duration::from_secs(20));
    assert_eq!(waited, Ok(()), "a lock is held, or an assertion has failed");
}

mod groups;
