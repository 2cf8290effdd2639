//! The modelled files of the engine. The models are modules beside them, because these files share items with `super` only.

#[path = "../../../src/engine/alarm.rs"]
mod alarm;
#[path = "../../../src/engine/deadline_queue.rs"]
mod deadline_queue;
#[path = "../../../src/engine/echoes.rs"]
mod echoes;
#[path = "../../../src/engine/intents.rs"]
mod intents;
#[path = "../../../src/engine/local_lock/mod.rs"]
mod local_lock;
#[path = "../../../src/engine/room.rs"]
mod room;
#[path = "../../../src/engine/room_queue.rs"]
mod room_queue;
#[path = "../../../src/engine/time_limits.rs"]
mod time_limits;
#[path = "../../../src/engine/uses.rs"]
mod uses;
#[path = "../../../src/engine/waiters.rs"]
mod waiters;
#[path = "../../../src/engine/yielding.rs"]
mod yielding;

#[path = "local_queue.rs"]
pub mod local_queue;
#[path = "sleep.rs"]
pub mod sleep;
#[path = "uses_of_entries.rs"]
pub mod uses_of_entries;
#[path = "waits.rs"]
pub mod waits;
