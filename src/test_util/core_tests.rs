//! The server without a network.

use bytes::Bytes;

use super::*;
use crate::{
    config::Config,
    wire::{AcquireArgs, Lease, script::Publishing, sealed::Known},
};

pub(super) struct Bed {
    pub(super) server: Server,
    pub(super) connection: ConnectionId,
    pub(super) deliveries: Vec<Delivery>,
    pub(super) now: u64,
}

impl Bed {
    pub(super) fn new() -> Self {
        let mut server = Server::new(Settings::default());
        let connection = server.open("127.0.0.1:50000", 1_000_000);
        Self {
            server,
            connection,
            deliveries: Vec::new(),
            now: 1_000_000,
        }
    }

    pub(super) fn run(&mut self, words: &[&str]) -> Frame {
        let args: Vec<Bytes> = words[1..]
            .iter()
            .map(|word| Bytes::copy_from_slice(word.as_bytes()))
            .collect();
        self.server.execute(
            self.connection,
            words[0],
            &args,
            self.now,
            &mut self.deliveries,
        )
    }
}

/// Speed: `cargo test --release --lib --features rustls,test-util -- --ignored --nocapture scripts_per_second`.
#[test]
#[ignore = "a measurement"]
fn scripts_per_second() {
    const ROUNDS: u32 = 500_000;
    let mut bed = Bed::new();
    let lock = crate::Reentrant::PROTOCOL.spec("order:42".into(), &Config::default());
    let owner = Bytes::from("11111111-1111-4111-8111-111111111111:4611686018427387905");
    let lease = Lease::new(std::time::Duration::from_secs(30)).unwrap();
    let claim = AcquireArgs {
        owner: &owner,
        lease: &lease,
        holds: 1,
        writes: false,
        relies: false,
        wait: None,
    };
    let acquire = lock.protocol.acquire(&lock, &claim);
    let release = lock.protocol.release(&lock, &owner, None, 0);
    let args = [&acquire, &release].map(|request| {
        let text = request.script.text(Publishing::Classic);
        bed.run(&["SCRIPT", "LOAD", std::str::from_utf8(&text.source).unwrap()]);
        let head = [text.sha.clone(), Bytes::from("1")];
        head.into_iter()
            .chain(request.parts.iter().cloned())
            .collect::<Vec<_>>()
    });
    let began = std::time::Instant::now();
    for _ in 0..ROUNDS {
        for args in &args {
            let reply = bed.server.execute(
                bed.connection,
                "EVALSHA",
                args,
                bed.now,
                &mut bed.deliveries,
            );
            assert_eq!(reply, Frame::Number(0));
        }
    }
    let rate = f64::from(2 * ROUNDS) / began.elapsed().as_secs_f64();
    println!("{rate:.0} scripts/s");
}

#[test]
fn simple() {
    let mut bed = Bed::new();
    for command in [
        &["SET", "s", "x"][..],
        &["EVAL", "return redis.call('hget','s','f')", "0"],
        &["EVAL", "return redis.pcall('hget','s','f')", "0"],
        &[
            "EVAL",
            "local ok, e = pcall(redis.call, 'hget', 's', 'f') return {type(e), e}",
            "0",
        ],
        &[
            "EVAL",
            "local ok, e = xpcall(function() return redis.call('hget', 's', 'f') end, function(e) return type(e) .. e.err end) return {tostring(ok), e}",
            "0",
        ],
        &["EVAL", "return redis.call('nosuch')", "0"],
        &[
            "EVAL",
            "\nlocal f = function() redis.call('hget','s','f') end \n f()",
            "0",
        ],
        &["EVAL", "error('boo')", "0"],
        &["EVAL", "error()", "0"],
        &["EVAL", "error({err='a b'})", "0"],
        &["EVAL", "string.find(nil)", "0"],
        &["EVAL", "local a\na.b=1", "0"],
        &["EVAL", "x=1", "0"],
        &["EVAL", "return x", "0"],
        &["EVAL", "redis=1", "0"],
        &["EVAL", "return syn tax", "0"],
        &["EVAL", "return 1 return 2", "0"],
        &["EVAL", "return redis.sha1hex()", "0"],
        &["EVAL", "return redis.sha1hex('')", "0"],
        &["EVAL", "return cmsgpack.unpack()", "0"],
        &["EVAL", "return cmsgpack.unpack(string.char(0xc1))", "0"],
        &["EVAL", "return cmsgpack.pack()", "0"],
        &["EVAL", "return {cmsgpack.unpack(string.char(1,2,3))}", "0"],
        &[
            "EVAL",
            "return tostring(cmsgpack.unpack(string.char(0x92,1)))",
            "0",
        ],
        &[
            "EVAL",
            "local t={} for k in pairs(_G) do t[#t+1]=k end return table.concat(t,' ')",
            "0",
        ],
    ] {
        println!("{command:?} {:?}", bed.run(command));
    }
}
