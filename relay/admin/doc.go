// Package admin answers questions about a running relay over HTTP: whether it is
// alive, whether it is ready, and how it is doing.
//
// # Alive
//
// /livez asks whether a restart of this process would help. It is red only when a
// loop of the process is stuck: it has been at one piece of work for longer than
// any piece may take, and does not wait for Postgres or for the queue. Everything
// else is worse after a restart than before it, or the same.
//
// # Ready
//
// /readyz asks whether messages get through, or would if there were some. It is
// red for everything that keeps all messages of the relay, or of a queue, from
// their way, and says what that is. A relay that has nothing to do is ready, and
// so is a standby which could take over. What concerns single messages is a
// warning: the relay does its work, and a person has something to do.
//
// Both are decided from what the relay knows of itself ([relay.State]): neither
// asks Postgres or the queue, so no probe can hang, and none adds to the load of a
// server that is in trouble.
//
// # How it is doing
//
// /status has all of that, and what the tables and the slot say, as JSON. It asks
// the database, but never more than once in some seconds, however many ask.
package admin
