//! The same for a semaphore.

use bytes::Bytes;
use explorer::{
    core::permits::{
        attempts::AttemptKey,
        facts::{Answer, Request},
    },
    permits::server::{Data, SLOTS},
};
use model_server::{Detail, Operation, Script, Server, Value};

const SEMAPHORE: &str = "semaphore";
const CALLS: usize = 20_000;
const MOST_PERMITS: u8 = 9;
/// The ticks until the server forgets an attempt.
const LASTS: u8 = 4;
const TICK_MS: i64 = 500;

/// A semaphore at both servers.
struct Both {
    data: Data,
    server: Server,
    now: i64,
}

impl Both {
    fn request(&mut self, client: u8, key: AttemptKey, request: Request) {
        let attempt = format!("attempt:{client}:{}", key.slot);
        let lasts = (i64::from(LASTS) * TICK_MS).to_string();
        let (semaphore, number) = (SEMAPHORE.to_owned(), key.number.to_string());
        let (script, parts) = match request {
            Request::Acquire { permits } => {
                let keys = vec![semaphore, attempt, "ends".to_owned()];
                let arguments = vec![permits.to_string(), number, lasts];
                ("semaphore_acquire", [keys, arguments].concat())
            }
            Request::Release { permits } => {
                let channel = "channel".to_owned();
                let arguments = vec![permits.to_string(), channel, number, lasts];
                (
                    "semaphore_release",
                    [vec![semaphore, attempt], arguments].concat(),
                )
            }
        };
        let operation: Operation = parts.into_iter().map(Bytes::from).collect();
        let script = Script::named(script).unwrap();
        let reply = self.server.call(script, &[operation]).remove(0);
        let answer = match (reply.status, reply.detail) {
            (0, Detail::Number(left)) => Answer::Done { left },
            (1, Detail::Number(left)) => Answer::Busy { left },
            (2, _) => Answer::Busy { left: 0 },
            (4, _) => Answer::Refused,
            other => panic!("{other:?}"),
        };
        let mut messages = std::mem::take(&mut self.server.messages).into_iter();
        let told = messages.next().map(|message| number_of(&message.payload));
        assert_eq!(messages.next(), None);
        let ours = self.data.run(client, key, request, LASTS);
        assert_eq!(ours, (answer, told), "{request:?} of {client}, {key:?}");
    }

    fn tick(&mut self) {
        self.now += TICK_MS + 1;
        self.server.keys.set_now(self.now);
        self.data.tick();
    }

    fn compare(&self) {
        let left = match self.server.keys.get(SEMAPHORE.as_bytes()) {
            Some((Value::Text(left), None)) => number_of(left),
            None => 0,
            other => panic!("{other:?}"),
        };
        assert_eq!(self.data.left, left);
    }
}

fn number_of(digits: &[u8]) -> u8 {
    str::from_utf8(digits).unwrap().parse().unwrap()
}

#[test]
fn a_semaphore_is_that_of_the_scripts() {
    let (mut random, mut server) = (fastrand::Rng::with_seed(0x5eed_0003), Server::default());
    server.subscribe(0, Bytes::from_static(b"*"));
    let mut both = Both {
        data: Data::default(),
        server,
        now: 0,
    };
    let mut numbers = [[1; SLOTS]; 2];
    for _ in 0..CALLS {
        let (client, slot, permits) = (random.u8(..2), random.usize(..SLOTS), random.u32(1..4));
        let last = &mut numbers[usize::from(client)][slot];
        // A new attempt, the last one again, or one that is over.
        *last += u64::from(random.bool());
        let key = AttemptKey {
            slot: slot as u32,
            number: *last - u64::from(random.u8(..8) == 0),
        };
        match random.u8(..8) {
            0 => both.tick(),
            1..4 if both.data.left < MOST_PERMITS => {
                both.request(client, key, Request::Release { permits });
            }
            _ => both.request(client, key, Request::Acquire { permits }),
        }
        both.compare();
    }
}
