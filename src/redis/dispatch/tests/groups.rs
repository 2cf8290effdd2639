use futures_util::FutureExt;

use super::*;
#[cfg(feature = "blocking")]
use crate::redis::dispatch::together::Apart;
use crate::{
    redis::{
        batcher::Batcher,
        dispatch::together::{Clients, address, send_together},
    },
    wire::Request,
};

impl Stage {
    fn clients(&self) -> Clients {
        [address(&self.lane.redis)].into()
    }
}

#[test]
fn operations_of_a_group_leave_in_one_call() {
    let stage = Stage::new();
    let clients = stage.clients();
    stage.connect();
    let early = send_together(&clients, || {
        (0..100).for_each(|number| stage.submit(number));
        stage.run();
        stage.calls()
    });
    assert_eq!(early, [[0u8; 0]; 0], "the group is held back");
    stage.run();
    assert_eq!(stage.calls(), [Vec::from_iter(0..100u8)]);
}

#[test]
fn operations_of_other_tasks_do_not_split_a_group() {
    let stage = Stage::new();
    let clients = stage.clients();
    stage.connect();
    stage.submit(200);
    send_together(&clients, || {
        (0..50).for_each(|number| stage.submit(number));
        stage.run();
        thread::scope(|scope| {
            let lane = stage.lane.clone();
            let other = stage.completion(201);
            scope.spawn(move || drop(lane.submit(other)));
        });
        (50..100).for_each(|number| stage.submit(number));
        stage.run();
    });
    stage.run();
    let group = Vec::from_iter(0..100);
    assert_eq!(stage.calls(), [vec![200u8], vec![201], group]);
}

#[test]
fn a_group_leaves_in_one_call_for_each_lane() {
    let stage = Stage::new();
    let clients = stage.clients();
    let dispatch = Dispatch::new(stage.server.clone(), stage.runtime.handle().clone());
    let lanes = [1, 2].map(|slot| dispatch.lane(&SCRIPT, slot, Durability::Local));
    send_together(&clients, || {
        for number in 0..6 {
            let lane = lanes[usize::from(number % 2)].clone();
            drop(lane.submit(stage.completion(number)));
        }
    });
    stage.connect();
    let mut calls = stage.calls();
    calls.sort_unstable();
    assert_eq!(calls, [[0u8, 2, 4], [1, 3, 5]]);
}

#[test]
fn operations_of_other_clients_leave_at_once() {
    let [stage, other] = [(); 2].map(|()| Stage::new());
    other.connect();
    let early = send_together(&stage.clients(), || {
        stage.submit(1);
        other.submit(2);
        other.run();
        other.calls()
    });
    assert_eq!(early, [[2u8]]);
}

#[cfg(feature = "blocking")]
#[test]
fn a_call_that_waits_within_a_group_leaves_at_once() {
    let stage = Stage::new();
    let clients = stage.clients();
    stage.connect();
    let early = send_together(&clients, || {
        stage.submit(1);
        let apart = Apart::new();
        stage.submit(2);
        drop(apart);
        stage.submit(3);
        stage.run();
        stage.calls()
    });
    assert_eq!(early, [[2u8]]);
    stage.run();
    assert_eq!(stage.calls(), [vec![2u8], vec![1, 3]]);
}

/// A thread-local that is made first is dropped last.
#[test]
fn a_group_in_a_thread_local_leaves() {
    struct AtEnd(Option<Box<dyn FnOnce()>>);
    impl Drop for AtEnd {
        fn drop(&mut self) {
            self.0.take().unwrap()();
        }
    }
    thread_local! {
        static KEPT: std::cell::RefCell<Option<AtEnd>> = const { std::cell::RefCell::new(None) };
    }
    let stage = Stage::new();
    stage.connect();
    let (clients, lane) = (stage.clients(), stage.lane.clone());
    let operations = [1, 2].map(|number| stage.completion(number));
    let ends = thread::spawn(move || {
        KEPT.set(None);
        send_together(&clients, || {});
        let submit = move |operation| drop(lane.clone().submit(operation));
        let leave = move || send_together(&clients, || operations.into_iter().for_each(submit));
        KEPT.set(Some(AtEnd(Some(Box::new(leave)))));
    });
    ends.join().unwrap();
    stage.run();
    assert_eq!(stage.calls(), [[1u8, 2]]);
}

#[test]
fn a_group_within_a_group_leaves_with_it_also_after_a_panic() {
    let stage = Stage::new();
    let clients = stage.clients();
    stage.connect();
    let early = std::cell::Cell::new(None);
    let panics = AssertUnwindSafe(|| {
        send_together(&clients, || {
            stage.submit(1);
            send_together(&clients, || stage.submit(2));
            stage.submit(3);
            stage.run();
            early.set(Some(stage.calls().len()));
            panic!("the test has a future panic");
        })
    });
    assert!(catch_unwind(panics).is_err());
    assert_eq!(early.get(), Some(0), "the group is held back");
    stage.submit(4);
    stage.run();
    assert_eq!(stage.calls(), [[1u8, 2, 3, 4]]);
}

#[test]
fn a_panic_of_a_completion_that_is_dropped_keeps_no_lane_of_a_group() {
    let stage = Stage::new();
    let clients = stage.clients();
    let dispatch = Dispatch::new(stage.server.clone(), stage.runtime.handle().clone());
    let closed = dispatch.lane(&SCRIPT, 1, Durability::Local);
    drop(closed.locked().close());
    send_together(&clients, || {
        let mut unsent = stage.completion(1);
        unsent.at_end = Some(Box::new(|| panic!("the test has a drop panic")));
        drop(closed.submit(unsent));
        stage.submit(2);
    });
    stage.connect();
    assert_eq!(stage.calls(), [[2u8]]);
}

/// A completion may lock what the caller of `submit` has locked.
#[test]
fn completions_are_dropped_with_what_a_submission_returns() {
    let stage = Stage::new();
    drop(stage.lane.locked().close());
    let submitted = stage.lane.clone().submit(stage.completion(1));
    assert_eq!(stage.told(), Vec::new());
    drop(submitted);
    assert_eq!(stage.told(), [(1, Unanswered)]);
}

/// Of two operations that wait for the end of a group, one has a caller that goes.
#[test]
fn request_whose_caller_has_gone_before_it_leaves_is_not_sent() {
    let stage = Stage::new();
    let redis: Arc<dyn Redis> = stage.server.clone();
    let clients = [address(&redis)].into();
    let batcher = Batcher::new(redis, stage.runtime.handle().clone());
    let ask = |number| {
        let parts = vec![Bytes::copy_from_slice(&[number])];
        let request = Request {
            script: &SCRIPT,
            parts,
        };
        Box::pin(batcher.run(request, Durability::Local))
    };
    let [mut gone, mut waits] = [1, 2].map(ask);
    send_together(&clients, || {
        assert!((&mut gone).now_or_never().is_none());
        assert!((&mut waits).now_or_never().is_none());
        drop(gone);
    });
    stage.connect();
    assert_eq!(stage.calls(), [[2u8]]);
}
