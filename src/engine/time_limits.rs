//! The time limits of waits, releases and renewals: what each bounds, and what a wrong value does.
//!
//! Limits that a user sets are fields of [`Config`](crate::Config), and leases are [`Lease`](crate::lease::Lease)s.

use std::time::Duration;

// Waits of one caller.

/// How long after the deadline an answer still counts: the server may have granted the lock at the last moment. A shorter
/// time gives such grants back; a longer one holds the caller beyond its deadline.
pub(super) const LATE_GRANT_WAIT: Duration = Duration::from_millis(100);
/// The pause before a request is sent again after a transient error, and the first pause that grows. A shorter one loads a
/// server that loads its data; a longer one delays the caller after it.
pub(super) const TRANSIENT_PAUSE: Duration = Duration::from_millis(50);
/// The longest of these pauses. A script that the server refuses at its first write has published its message, which wakes
/// waiters in vain. A shorter pause does so more often; a longer one delays the caller.
pub(super) const LONGEST_RETRY_PAUSE: Duration = Duration::from_secs(2);
/// The longest pause before a verification is repeated. The holders learn of a loss that much after a server has loaded its
/// data. A shorter one loads that server; a longer one lets a holder work without its lock.
pub(super) const LONGEST_LOOK_UP_PAUSE: Duration = Duration::from_millis(500);

/// What a validity leaves of its lease for the drift of clocks, besides a hundredth of the lease. A shorter time lets a holder
/// work while another client has its lock; a longer one ends short leases early.
pub(super) const DRIFT: Duration = Duration::from_millis(2);

// Polls and messages.

/// The pause before a second attempt without a message. It doubles while such attempts come to nothing. A shorter one sends
/// attempts in vain; a longer one misses a lease that ends early.
pub(super) const SHORTEST_POLL_PAUSE: Duration = Duration::from_millis(2);
/// The end of the doubling: a lock with senseless answers costs ten attempts a second. A shorter one costs more of them; a
/// longer one delays the waiter of such a lock.
pub(super) const LONGEST_POLL_PAUSE: Duration = Duration::from_millis(100);
/// The unit in which a server counts what is left of a lease. A shorter time asks while the lease still lasts; a longer one
/// delays the waiter behind it. Also the least time since a prior attempt that a request tells: 0 says that there was none.
pub(super) const SERVER_CLOCK_STEP: Duration = Duration::from_millis(1);
/// The poll interval of kinds whose releases may come without a message. A shorter one loads the server; a longer one is how
/// late their waiters learn of a release.
pub(super) const UNANNOUNCED_POLL_INTERVAL: Duration = Duration::from_millis(200);
/// How long after the answer to its release an echo is expected. A shorter time wakes waiters by the client's own message; a
/// longer one takes another client's message for an echo, and a waiter sleeps.
pub(super) const ECHO_WAIT: Duration = Duration::from_millis(100);

// The local queue.

/// How long a notified task may take to be polled. A shorter time takes locks from tasks of a busy runtime; a longer one
/// leaves the lock with a task that is never polled.
pub(super) const PICK_UP: Duration = Duration::from_millis(2);
/// The interval between two checks, and the age at which a tenure with waiters behind it is verified. A shorter one costs a
/// verification for each long hold; a longer one delays the discovery of a lost hold.
pub(super) const CHECK_INTERVAL: Duration = Duration::from_millis(50);
/// How long an asker may take to send its attempt before the next waiter asks too. A shorter time has several tasks ask; a
/// longer one has the queue wait for a stalled task.
pub(super) const ASKER_WAIT: Duration = Duration::from_millis(200);
/// The upper bound of that time where answers take long. A shorter one has several tasks ask a slow server; a longer one has
/// the queue wait for a stalled task.
pub(super) const LONGEST_ASKER_WAIT: Duration = Duration::from_secs(2);
/// How long tasks of this client pass the lock on without a gap. A shorter time costs throughput; a longer one lets other
/// clients wait.
pub(super) const GAP_AFTER: Duration = Duration::from_millis(100);
/// How long the next asker then leaves the lock free. A shorter time is over before another client's script arrives; a
/// longer one leaves the lock idle.
pub(super) const GAP: Duration = Duration::from_millis(2);
/// How long at least a reader waits for another reader's answer, which it may share. A shorter time sends more acquisitions;
/// a longer one delays readers behind a stalled one.
pub(super) const SHORTEST_READER_WAIT: Duration = Duration::from_millis(50);
/// How long at most, where answers take long. A shorter time sends more acquisitions to a slow server; a longer one delays
/// readers behind a stalled one.
pub(super) const LONGEST_READER_WAIT: Duration = Duration::from_secs(2);
/// The age of the server's last answer from which on a reader that leaves has the client verify the hold that the remaining
/// readers share. A shorter one costs verifications; a longer one leaves a lost hold unnoticed.
pub(super) const SHARED_HOLD_STALE_AFTER: Duration = Duration::from_millis(50);
/// How long permits wait for the task that was notified of them, or handed them: a future may be kept and not polled. A
/// shorter time takes permits from tasks of a busy runtime; a longer one leaves them idle.
pub(super) const PERMITS_PICK_UP: Duration = Duration::from_millis(10);

// Turns between clients.

/// The first yield at a lock: a script of a process on the same machine needs at least that long. A shorter one never lets a
/// neighbour in; a longer one leaves the lock idle.
pub(super) const SHORTEST_YIELD: Duration = Duration::from_micros(500);
/// The longest yield to clients that listen: neighbours farther away than this are not waited for. A shorter one starves
/// distant clients; a longer one leaves the lock idle.
pub(super) const LONGEST_YIELD: Duration = Duration::from_millis(64);
/// The longest yield to clients that poll: Redisson's spin lock polls after 128 ms at most, other locks mostly after 200 ms.
/// A shorter one starves such clients; a longer one leaves the lock idle.
pub(super) const LONGEST_YIELD_TO_POLLS: Duration = Duration::from_millis(256);
/// How long without a heard release the neighbours of a lock are remembered. A shorter time learns their distance again and
/// again; a longer one yields to clients that have gone.
pub(super) const NEIGHBOURS_REMEMBERED_FOR: Duration = Duration::from_secs(10);
/// The shortest intent: longer than most critical sections of readers that wait for nothing. A shorter one ends before the
/// readers do; a longer one keeps new readers out in vain.
pub(super) const SHORTEST_INTENT: Duration = Duration::from_millis(4);
/// The longest intent: a writer waits for readers with longer critical sections as without intents. A shorter one starves
/// writers; a longer one starves readers.
pub(super) const LONGEST_INTENT: Duration = Duration::from_millis(64);
/// The longest wait between two intents. A shorter one keeps readers out in vain; a longer one delays a writer whose readers
/// have become quick.
pub(super) const LONGEST_INTENT_PAUSE: Duration = Duration::from_secs(5);
/// The difference in transit times by which an intent may reach the server later than another one. A shorter one lets two
/// clients' intents follow each other; a longer one delays the next intent.
pub(super) const INTENT_TRANSIT: Duration = Duration::from_millis(5);
/// How long without a waiting writer the length that worked is remembered. A shorter time tries short intents again and
/// again; a longer one keeps readers out for longer than needed.
pub(super) const INTENT_REMEMBERED_FOR: Duration = Duration::from_secs(10);

// Groups.

/// How long a group keeps its acquired members while it waits for the rest, at most. Bounded as well by a twentieth of the
/// shortest lease for each round so far, and by a quarter of that lease. A shorter time repeats acquisitions; a longer one
/// keeps other clients from members that it does not use yet.
pub(super) const MEMBERS_KEPT_FOR: Duration = Duration::from_millis(250);
/// The longest pause of a group after the second round; it doubles with each of the next three. A shorter one has groups that
/// have collided collide again; a longer one leaves the lock idle.
pub(super) const COLLISION_PAUSE: Duration = Duration::from_millis(20);
/// How long a majority waits for one lock that refused, before it tries all locks again: it may do without that one. A
/// shorter time repeats rounds; a longer one waits for a lock that it does not need.
pub(super) const REFUSED_MEMBER_WAIT: Duration = Duration::from_secs(1);
/// The pause before a majority asks again after a round with too few answers. A shorter one loads servers that come back; a
/// longer one delays the caller after it.
pub(super) const TOO_FEW_ANSWERS_PAUSE: Duration = Duration::from_millis(200);
/// How long a group waits for the rest once a majority has answered, besides the time that the majority took. A shorter time
/// leaves members out that were granted; a longer one delays each acquisition by a dead server.
pub(super) const STRAGGLERS_WAIT: Duration = Duration::from_millis(10);
/// The shortest time that a member of a majority has to answer. A shorter one counts distant servers as dead; a longer one
/// uses up short leases of the members that were acquired.
pub(super) const SHORTEST_MEMBER_WAIT: Duration = Duration::from_millis(50);

// The end of a client.

/// How long a shutdown waits for releases to be answered. A shorter time leaves locks to expire; a longer one delays the end
/// of a program whose server is dead.
pub(super) const SHUTDOWN_WAIT: Duration = Duration::from_secs(5);
/// How long a shutdown waits for the release of one member of a RedLock. A shorter time leaves members to expire; a longer
/// one delays the end of a program by each dead server.
pub(super) const MAJORITY_SHUTDOWN_WAIT: Duration = Duration::from_millis(500);
/// How often a shutdown that waits for holders looks for them. A shorter time costs processor time; a longer one delays the
/// shutdown.
pub(super) const HOLDERS_LOOKED_FOR_EVERY: Duration = Duration::from_millis(10);
/// How long the end of a runtime, or the drop of a guard after it, is held up. A reachable server takes milliseconds, and an
/// unreachable one is tried once, so there is time for a busy machine. A shorter time leaves locks to expire; a longer one
/// delays the program's end.
pub(super) const FINAL_REQUESTS_WAIT: Duration = Duration::from_secs(5);
/// How long the drop of the last handle waits for the queued releases. A shorter time leaves locks to expire; a longer one
/// blocks the thread that drops.
pub(super) const LAST_HANDLE_WAIT: Duration = Duration::from_secs(1);
/// The time between two looks at holds or waits for the gauges. A shorter one costs processor time; a longer one makes
/// gauges old and warnings late.
pub(super) const LOOK_INTERVAL: Duration = Duration::from_secs(5);
