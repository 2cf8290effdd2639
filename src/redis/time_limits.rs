//! The time limits of connections, replies and discovery: what each bounds, and what a wrong value does.
//!
//! Limits that a user sets are fields of [`Config`](crate::Config).

use std::time::Duration;

// Opening a connection.

/// How long a client may take to connect to its server, or to a node of its cluster, before `connect` fails. A shorter time
/// fails at a server that is starting; a longer one hides a wrong address from the caller.
pub(super) const FIRST_CONNECT_WAIT: Duration = Duration::from_secs(10);
/// How long one connection may take to open, its handshakes included; `connect_timeout` may shorten it. A shorter time never
/// reaches a distant server; a longer one delays the next attempt.
pub(super) const CONNECTION_WAIT: Duration = Duration::from_secs(5);
/// The same where sentinels or servers report that a server has been replaced. A shorter time never reaches a distant
/// master; a longer one is spent on a dead master after a failover.
pub(super) const REPLACEABLE_WAIT: Duration = Duration::from_millis(1500);
/// The pause after no node named the server. The nodes have pauses of their own. A shorter one fills the log; a longer one
/// delays the first call after a failover.
pub(super) const UNLOCATED_PAUSE: Duration = Duration::from_millis(100);
/// How long an address of a name is tried alone before the next one is tried as well, as RFC 8305 recommends. A shorter time
/// opens sockets in vain; a longer one makes each dead address cost more.
pub(super) const NEXT_ADDRESS_AFTER: Duration = Duration::from_millis(250);
/// The lead of tokio's clock over the machine's from which the clock counts as paused. A shorter one takes a rounding for a
/// pause; a longer one leaves a failed connection in a test unexplained.
pub(super) const PAUSED_CLOCK_LEAD: Duration = Duration::from_millis(500);
/// How long a connection of the command-line tool may take to open. A shorter time reports a distant server as dead; a
/// longer one keeps the user waiting for each dead node.
pub(super) const PROBE_CONNECTION_WAIT: Duration = Duration::from_secs(3);
/// How long a server may take to answer the command-line tool. A shorter time reports a busy server as dead; a longer one
/// keeps the user waiting.
pub(super) const PROBE_ANSWER_WAIT: Duration = Duration::from_secs(10);

// Credentials.

/// How long a program's source of credentials may take. A shorter time fails at a slow token service; a longer one leaves
/// tasks behind for a source that never answers.
pub(super) const CREDENTIALS_WAIT: Duration = Duration::from_secs(5);
/// The longest time before the end of credentials in which the client asks for new ones. A shorter one leaves no room for a
/// retry; a longer one asks for tokens more often than needed.
pub(super) const LOG_IN_BEFORE_END: Duration = Duration::from_secs(60);
/// The shortest pause between two logins of a connection. A shorter one loads the source of credentials that end soon; a
/// longer one lets such credentials end.
pub(super) const LOG_INS_APART: Duration = Duration::from_millis(500);
/// The pause after the first login that failed. Each further pause is twice as long. A shorter one loads a failing source; a
/// longer one misses the end of the credentials.
pub(super) const FIRST_LOG_IN_PAUSE: Duration = Duration::from_secs(1);
/// The longest of these pauses. A shorter one loads a failing source for hours; a longer one keeps the connection on the old
/// login after the source works again.
pub(super) const LONGEST_LOG_IN_PAUSE: Duration = Duration::from_secs(30);

// A silent connection.

/// How long a call may wait before the client pings the server, and how often a connection is checked. A shorter time pings
/// slow servers; a longer one delays the discovery of a dead one.
pub(super) const CHECK_EVERY: Duration = Duration::from_millis(500);
/// How long a quiet connection gets no `PING`. A shorter time costs idle clients commands; a longer one lets firewalls drop
/// the connection, and the next call finds it dead.
pub(super) const PING_EVERY: Duration = Duration::from_secs(5);
/// How long a `PING`, or another short command, may stay unanswered before its connection counts as broken. A shorter time
/// ends connections to slow servers; a longer one delays calls after the server's death.
pub(super) const PING_WAIT: Duration = Duration::from_secs(2);
/// How long a close waits for pending answers. A shorter time drops answers that are on their way; a longer one delays a
/// shutdown by a dead server.
pub(super) const QUIT_WAIT: Duration = Duration::from_millis(500);
/// How long a connection stays silent before a second one asks whether the server lives. A shorter time opens connections to
/// slow servers; a longer one delays calls on a dead connection.
pub(super) const SECOND_CONNECTION_AFTER: Duration = Duration::from_millis(250);
/// The longest random addition to that. A shorter one lets the clients of a slow server connect together; a longer one
/// delays calls on a dead connection.
pub(super) const SECOND_CONNECTION_SPREAD: Duration = Duration::from_millis(100);
/// How long the old connection may stay silent after the new one has answered: as long as that took, within these bounds. A
/// shorter time kills a connection whose answer is on its way; a longer one delays its calls.
pub(super) const REPRIEVE: [Duration; 2] = [Duration::from_millis(50), Duration::from_millis(250)];
/// How late a server ends a `WAIT`: it looks for the end ten times a second (`hz`). A shorter time kills connections whose
/// `WAIT` is about to end; a longer one delays the discovery of a dead one.
pub(super) const WAIT_ENDS_LATE: Duration = Duration::from_millis(100);

// Connecting again.

/// The pause after the first failed attempt. Each further pause is twice as long. A shorter one spends attempts on a server
/// that restarts; a longer one delays calls after a broken connection.
pub(super) const FIRST_CONNECT_PAUSE: Duration = Duration::from_millis(5);
/// The longest pause between two attempts to connect to one server, before the random part is added. A shorter one loads a
/// server that cannot serve; a longer one delays calls after its return.
pub(super) const LONGEST_CONNECT_PAUSE: Duration = Duration::from_secs(1);
/// The longest pause while a caller waits for the connection, after attempts that did not reach the server, and so cost it
/// nothing. A shorter one sends more attempts into a dead network; a longer one delays the caller.
pub(super) const LONGEST_AWAITED_PAUSE: Duration = Duration::from_millis(200);
/// The longest pause after short-lived connections of one purpose. There are two purposes, which together make at most one
/// attempt a second. A shorter one loads a server that closes each connection; a longer one delays its return.
pub(super) const LONGEST_UNPROVEN_PAUSE: Duration = Duration::from_secs(2);
/// How long a connection lasts that counts as proved, used or not. A shorter time replaces connections at once that a server
/// keeps closing; a longer one pauses after connections that were merely idle.
pub(super) const PROVEN_AFTER: Duration = Duration::from_secs(10);
/// How long a proved connection lasts that is replaced at once: a server may close each connection after its first answer. A
/// shorter time feeds such a server connections; a longer one delays calls on a lossy network.
pub(super) const STEADY_AFTER: Duration = Duration::from_secs(1);
/// The longest pause after connections that answered and ended soon. They did work, and a caller may wait for the next. A
/// shorter one loads the server; a longer one delays the caller.
pub(super) const LONGEST_BRIEF_PAUSE: Duration = Duration::from_millis(100);
/// How often a continuing outage is logged again. A shorter time fills the log; a longer one makes the outage look over.
pub(super) const OUTAGE_LOGGED_EVERY: Duration = Duration::from_secs(60);
/// How long a client does not repeat a `HELLO` that the server has refused. A shorter time opens two connections more often;
/// a longer one keeps RESP2 after an upgrade of the server.
pub(super) const HELLO_AGAIN_AFTER: Duration = Duration::from_secs(60);
/// How long a client tries a single handshake with a server that has closed the connections of all. A shorter time opens
/// three connections more often; a longer one keeps out a peer that needs the last handshake.
pub(super) const HANDSHAKES_AGAIN_AFTER: Duration = Duration::from_secs(15);

// The master.

/// How often the nodes are asked for the master. A shorter time loads sentinels; a longer one lets two clients lock on
/// different masters for longer after a failover.
pub(super) const MASTER_ASKED_EVERY: Duration = Duration::from_millis(500);
/// The same during a failover: until all clients know the new master, they may lock on different servers. A shorter time
/// loads sentinels in a failover; a longer one prolongs that.
pub(super) const MASTER_ASKED_OFTEN: Duration = Duration::from_millis(100);
/// How long the remaining sentinels have once most have answered: the leader of a failover knows of it first. A shorter time
/// misses the leader; a longer one delays each connection by a dead sentinel.
pub(super) const LATE_SENTINEL_WAIT: Duration = Duration::from_millis(20);
/// How long a node may take to connect and to answer. A shorter time never hears a distant node; a longer one delays the
/// answer of servers that each report themselves.
pub(super) const MASTER_ANSWER_WAIT: Duration = Duration::from_secs(1);
/// How long a silent node is not asked again: each request would open another connection that it must read. A shorter time
/// piles connections up at a stopped node; a longer one misses its return.
pub(super) const SILENT_NODE_REST: Duration = Duration::from_secs(2);
/// How long a connection stays while its server may be the wrong one. A shorter time opens connections in vain; a longer one
/// asks the wrong server for longer.
pub(super) const NODE_CONNECTION_KEPT_FOR: Duration = Duration::from_secs(1);
/// How long a discovered sentinel is kept after its last mention. A shorter time forgets sentinels in an outage of the
/// network; a longer one asks sentinels that were removed.
pub(super) const SENTINEL_KEPT_FOR: Duration = Duration::from_secs(60);
/// How long a node gives no answer until it may have moved to another address. One timeout is shorter, with its
/// [`SILENT_NODE_REST`]. A shorter time counts a slow sentinel twice; a longer one delays a moved one.
pub(super) const NODE_SILENT_AFTER: Duration = Duration::from_secs(5);
/// How long no node reports the latest failover until the client believes nodes that do not know it. Sentinels that were set
/// up anew count epochs from zero, and an operator can return to the old master. A shorter time believes a deposed master; a
/// longer one delays the return.
pub(super) const FAILOVER_FORGOTTEN_AFTER: Duration = Duration::from_secs(10);

// A cluster.

/// How long a node may take to connect, or to answer. Any other node can answer too. A shorter time never hears a distant
/// cluster; a longer one makes each dead node cost more.
pub(super) const CLUSTER_NODE_WAIT: Duration = Duration::from_millis(1500);
/// How often a client asks for the map of the slots. A shorter time loads the nodes with long answers; a longer one delays
/// the discovery of moves that no call has met.
pub(super) const REFRESH_EVERY: Duration = Duration::from_secs(5);
/// The same while some slot has no connection. A shorter time loads a cluster in trouble; a longer one delays the calls of
/// such slots.
pub(super) const REFRESH_SOON: Duration = Duration::from_millis(200);
/// The shortest pause between two questions, however many redirections request one. A shorter one loads the nodes while
/// slots move; a longer one delays calls of moved slots.
pub(super) const REFRESHES_APART: Duration = Duration::from_millis(50);
/// How long further nodes have once one has answered: a silent node must not delay the map. A shorter time trusts one view;
/// a longer one delays the map by a dead node.
pub(super) const LATE_NODE_WAIT: Duration = Duration::from_millis(100);
/// How long no redirection to a node is followed after that node has redirected calls of the slot. A shorter time lets two
/// nodes bounce calls; a longer one delays calls of a slot that moves back.
pub(super) const REDIRECTOR_MUTE: Duration = Duration::from_millis(100);
/// How long an unused connection for a moving slot is kept. A shorter time opens it again for each key; a longer one keeps
/// connections after the move.
pub(super) const ASKING_CONNECTION_KEPT_FOR: Duration = Duration::from_secs(10);

// Replicas and subscriptions.

/// How long a broken connection that waits for replicas may take to be replaced. Another connection kills it then, so that
/// its calls end. A shorter time costs a command; a longer one delays the calls.
pub(super) const REPLACEMENT_WAIT: Duration = Duration::from_millis(500);
/// How long the number of connected replicas is cached. A shorter time costs a command for each call; a longer one has calls
/// wait for a replica that has gone.
pub(super) const REPLICAS_COUNTED_EVERY: Duration = Duration::from_secs(1);
/// How often subscriptions on a cluster are verified: the server ends a subscription whose slot has moved (P-W7). A shorter
/// time loads nodes; a longer one leaves waiters unnotified for longer.
pub(super) const SUBSCRIPTIONS_CHECKED_EVERY: Duration = Duration::from_millis(500);
/// The pause after too many connections in a row that ended with a subscription. Each further pause is twice as long. A
/// shorter one loads a peer without subscriptions; a longer one has waiters poll for longer.
pub(super) const FIRST_UNSUBSCRIBED_PAUSE: Duration = Duration::from_secs(4);
/// The longest of these pauses. A shorter one loads such a peer for ever; a longer one has waiters poll long after the peer
/// has learned to subscribe.
pub(super) const LONGEST_UNSUBSCRIBED_PAUSE: Duration = Duration::from_secs(5 * 60);

// Batches.

/// How long an attempt of a crowd waits for an answer to another operation, whose caller may be a future that is not polled.
/// A shorter time takes more memory; a longer one delays the attempt behind such a future.
pub(super) const CROWD_WAIT: Duration = Duration::from_millis(100);
