//! Goes random ways through large systems on the core: `walks FIRST COUNT`, or `walks SEED` to print the way of one.

use explorer::{walk::walk, world::World};

fn main() {
    let numbers: Vec<u64> = std::env::args()
        .skip(1)
        .filter_map(|word| word.parse().ok())
        .collect();
    let (first, count) = (
        numbers.first().copied().unwrap_or(1),
        numbers.get(1).copied(),
    );
    let began = std::time::Instant::now();
    let (mut steps, mut failed) = (0, 0);
    for seed in first..first + count.unwrap_or(1) {
        let walked = walk(seed);
        steps += walked.steps;
        let Some(found) = walked.found else { continue };
        failed += 1;
        println!("{seed}: {} after {} steps", found.rule, walked.steps);
        if std::env::var("SHOW").is_ok() {
            let s = &walked.system;
            let flags = [
                (s.limits.is_fair, "fair"),
                (s.limits.hands_off, "hands"),
                (s.clocks_lag, "clocks"),
                (s.timers_lag, "timers"),
                (s.unordered, "unordered"),
                (s.keeps_answers, "keeps"),
                (s.batches, "batches"),
                (s.elsewhere, "elsewhere"),
            ];
            let set: Vec<_> = flags.iter().filter(|f| f.0).map(|f| f.1).collect();
            let faults: Vec<_> = found.events.iter().filter(|e| e.is_fault()).collect();
            println!("    {set:?} {faults:?}");
        }
        if count.is_none() {
            println!("{:?}", walked.system);
            let mut world = World::new(&walked.system);
            for event in &found.events {
                world.apply(*event, &walked.system);
                println!("  {:<22} {world}", format!("{event:?}"));
            }
        }
    }
    let took = began.elapsed().as_secs_f64();
    println!(
        "{} ways of {steps} steps in {took:.1} s, {failed} of them wrong",
        count.unwrap_or(1)
    );
    std::process::exit(i32::from(failed > 0));
}
