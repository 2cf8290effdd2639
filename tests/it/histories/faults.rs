//! Random faults of a history.

use std::time::Duration;

use fastrand::Rng;
use histories::actor::Scene;
use testbed::{Faults, Proxy, Server};
use tokio::time::sleep;

/// Disturbs one connection behind `proxies` after the other, and seldom the server, each for up to
/// `longest`. Ends without faults.
pub async fn inject(
    server: &Server,
    proxies: &[Proxy],
    longest: Duration,
    mut random: Rng,
    scene: &Scene,
) {
    let faults: Vec<_> = proxies.iter().map(Proxy::faults).collect();
    faults.iter().for_each(|faults| faults.seed(random.u64(..)));
    while !scene.is_over() {
        sleep(longest.mul_f64(random.f64() / 4.0)).await;
        let proxy = random.usize(..faults.len());
        let lasting = longest.mul_f64(random.f64());
        let fault = disturb(server, &faults[proxy], &mut random);
        scene
            .log
            .fault(format!("connection {proxy}: {fault} for {lasting:?}"));
        sleep(lasting).await;
        faults[proxy].heal();
        server.resume();
        scene.log.fault(format!("connection {proxy}: healed"));
    }
}

/// Disturbs one connection or the server, and returns what it did.
fn disturb(server: &Server, faults: &Faults, random: &mut Rng) -> &'static str {
    match random.u8(..10) {
        0 | 1 => {
            faults.cut_all();
            "cut"
        }
        2 => {
            faults.lose_replies(0.2);
            "replies are lost"
        }
        3 => {
            faults.lose_requests(0.2);
            "requests are lost"
        }
        4 => {
            faults.delay(Duration::from_millis(random.u64(1..30)));
            "late"
        }
        5 => {
            faults.mute_messages(true);
            "no messages"
        }
        6 => {
            faults.refuse(true);
            faults.cut_all();
            "cut, and refused"
        }
        7 => {
            faults.stall(true);
            "stalled"
        }
        8 => {
            faults.stall_replies(true);
            "replies are stalled"
        }
        _ => {
            server.pause();
            "the server is stopped"
        }
    }
}
