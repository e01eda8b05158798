package main

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/outbox-relay/outbox-relay/internal/pgtest"
)

// fill writes seven messages: 1 to 3 are dead letters, and the message of 3 is
// gone; 4 waits for a retry, 5 behind it; 6 and 7 are scheduled.
func fill(t *testing.T, r *rig) *pgx.Conn {
	t.Helper()
	conn := pgtest.Connect(t, r.url)
	for _, sql := range []string{
		`insert into outbox.messages (key, queue, ordering_key, payload)
			select 'k' || n, 'orders', 'a', '{"secret":"payload"}' from generate_series(1, 7) n`,
		`insert into outbox.dead_letters (message_id, attempts, last_status, reason, last_error)
			select n, 2, 422, 'refused', 'no such' || chr(27) || '[31m field' from generate_series(1, 3) n`,
		`delete from outbox.messages where id = 3`,
		`insert into outbox.deferred (message_id, queue, ordering_key, reason, not_before) values
			(4, 'orders', 'a', 'transient', now() + interval '1 hour'), (5, 'orders', 'a', 'held', null),
			(6, 'orders', null, 'scheduled', now() + interval '1 day'), (7, 'orders', null, 'scheduled', now() + interval '1 day')`,
	} {
		if _, err := conn.Exec(t.Context(), sql); err != nil {
			t.Fatalf("%s: %v", sql, err)
		}
	}
	return conn
}

// rows counts the rows of a table that match.
func rows(t *testing.T, conn *pgx.Conn, from string) (n int) {
	t.Helper()
	if err := conn.QueryRow(t.Context(), `select count(*) from outbox.`+from).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

func TestDeadLetters_ListAndShow(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	expectCode(t, r.settings, exitStopped, []string{"dead-letters", "list"}, "0 dead letters match")
	fill(t, r)
	for _, c := range []struct {
		args  []string
		texts []string
	}{
		{[]string{"list"}, []string{"3 dead letters match", "k1", "orders", "refused", "422", `\x1b`}},
		{[]string{"list", "--limit", "1"}, []string{"3 dead letters match", "the first 1 are listed"}},
		{[]string{"list", "--key", "k2"}, []string{"1 dead letter matches", "k2"}},
		{[]string{"list", "--older-than", "1h"}, []string{"0 dead letters match"}},
		{[]string{"show", "1"}, []string{"k1", "last status        422", "refused", "attempts           2; the queue refused it for good", "waiting behind it  0", "dead-letters redrive 1 sends it again"}},
		{[]string{"show", "3"}, []string{"there is nothing to redrive"}},
	} {
		got := expectCode(t, r.settings, exitStopped, append([]string{"dead-letters"}, c.args...), c.texts...)
		if strings.Contains(got.out, "payload") || strings.Contains(got.out, "\x1b") {
			t.Errorf("%v writes a payload or control characters:\n%s", c.args, got.out)
		}
	}
	got := expectCode(t, r.settings, exitStopped, []string{"dead-letters", "list", "2", "--json"})
	var list deadLetterList
	if err := json.Unmarshal([]byte(got.out), &list); err != nil {
		t.Fatal(err)
	}
	if list.SchemaVersion != 1 || list.Matching.Count != 1 || len(list.DeadLetters) != 1 || list.DeadLetters[0].Key != "k2" {
		t.Errorf("list is %+v", list)
	}
	got = expectCode(t, r.settings, exitStopped, []string{"dead-letters", "show", "1", "--json"})
	var one deadLetterDocument
	if err := json.Unmarshal([]byte(got.out), &one); err != nil || one.SchemaVersion != 1 || one.MessageID != 1 {
		t.Errorf("document is %+v, %v", one, err)
	}
	expectCode(t, r.settings, exitUnexpected, []string{"dead-letters", "show", "4"}, "message 4 is no dead letter")
}

func TestDeadLetters_Redrive(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	conn := fill(t, r)
	redrive := func(args ...string) []string { return append([]string{"dead-letters", "redrive"}, args...) }

	expectCode(t, r.settings, exitStopped, redrive("--queue", "orders"), "2 dead letters match", "nothing was changed")
	expectCode(t, r.settings, exitStopped, redrive("--reason", "refused", "--limit", "1"), "1 dead letter matches", "nothing was changed")
	if n := rows(t, conn, "dead_letters"); n != 3 {
		t.Errorf("%d dead letters after a dry run, want 3", n)
	}
	expectCode(t, r.settings, exitUnexpected, redrive("3"), "message 3 was deleted by the application: there is nothing to redrive")
	expectCode(t, r.settings, exitUnexpected, redrive("--key", "k4"), "0 dead letters match", "what was named is not there")
	expectCode(t, r.settings, exitStopped, redrive("--key", "k2"), "1 dead letter matches", "1 message redriven")
	expectCode(t, r.settings, exitStopped, redrive("--yes"), "2 dead letters match", "1 message was deleted by the application", "1 message redriven")
	if dead, redriven := rows(t, conn, "dead_letters"), rows(t, conn, "deferred where reason = 'redriven'"); dead != 1 || redriven != 2 {
		t.Errorf("%d dead letters and %d redriven, want 1 and 2", dead, redriven)
	}
}

func TestDeadLetters_Discard(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	conn := fill(t, r)
	discard := func(args ...string) []string {
		return append([]string{"dead-letters", "discard", "--why", "a test"}, args...)
	}

	expectCode(t, r.settings, exitUsage, []string{"dead-letters", "discard", "1"}, "--why is missing")
	expectCode(t, r.settings, exitStopped, discard(), "3 dead letters match", "nothing was changed")
	if n := rows(t, conn, "dead_letters where reason = 'discarded'"); n != 0 {
		t.Errorf("%d discarded by a dry run", n)
	}
	expectCode(t, r.settings, exitStopped, discard("1", "3", "--yes"), "2 dead letters match", "2 dead letters discarded")
	expectCode(t, r.settings, exitStopped, []string{"dead-letters", "list"}, "1 dead letter matches")
	expectCode(t, r.settings, exitStopped, []string{"dead-letters", "list", "--include-discarded"}, "3 dead letters match", "a test (was refused")
	expectCode(t, r.settings, exitUnexpected, []string{"dead-letters", "redrive", "1"}, "0 dead letters match")
	expectCode(t, r.settings, exitStopped, []string{"dead-letters", "redrive", "1", "--include-discarded"}, "1 message redriven")
}

func TestDeferred_EndsTheWait(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	conn := fill(t, r)
	deferred := func(args ...string) []string { return append([]string{"deferred"}, args...) }

	expectCode(t, r.settings, exitStopped, deferred("list"), "4 deferred messages match", "scheduled", "transient", "held")
	got := expectCode(t, r.settings, exitStopped, deferred("list", "--reason", "held", "--json"))
	var list deferredList
	if err := json.Unmarshal([]byte(got.out), &list); err != nil {
		t.Fatal(err)
	}
	if list.SchemaVersion != 1 || list.Matching.Count != 1 || len(list.Deferred) != 1 || list.Deferred[0].MessageID != 5 {
		t.Errorf("list is %+v", list)
	}
	got = expectCode(t, r.settings, exitStopped, deferred("keys", "--json"))
	var keys keyBacklogs
	if err := json.Unmarshal([]byte(got.out), &keys); err != nil || keys.SchemaVersion != 1 || len(keys.Keys) == 0 || keys.Keys[0].Queue != "orders" {
		t.Errorf("keys are %+v, %v", keys, err)
	}
	expectCode(t, r.settings, exitStopped, deferred("keys", "--queue", "orders", "--limit", "1"), "ORDERING KEY", "orders")
	expectCode(t, r.settings, exitStopped, deferred("keys", "--queue", "none"), "no message is deferred")
	expectCode(t, r.settings, exitStopped, deferred("release"), "2 messages wait for deliver_at", "nothing was changed")
	expectCode(t, r.settings, exitUnexpected, deferred("release", "4"), "0 messages wait for deliver_at", "message 4 is transient, not before")
	expectCode(t, r.settings, exitUnexpected, deferred("retry-now", "5"), "0 messages wait for a retry", "message 5 (held) goes as soon as")
	expectCode(t, r.settings, exitStopped, deferred("retry-now", "--key", "k4"), "1 message is due")
	expectCode(t, r.settings, exitStopped, deferred("release", "6"), "1 message is due")
	expectCode(t, r.settings, exitStopped, deferred("release", "--yes"), "1 message waits for deliver_at", "1 message is due")
	if n := rows(t, conn, "deferred where not_before <= now()"); n != 3 {
		t.Errorf("%d are due, want 3", n)
	}
}

func TestQueues(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	conn := fill(t, r)
	queues := func(args ...string) []string { return append([]string{"queues"}, args...) }

	expectCode(t, r.settings, exitStopped, queues("list"), "1 queue has settings or deferred messages", "orders  false   key       default        no bound  default       continue        none      4         -")
	expectCode(t, r.settings, exitStopped, queues("pause", "orders"), "paused           true, since ", "Z by postgres\n", "stops sending to it, and keeps its messages in the table, within 2 seconds")
	expectCode(t, r.settings, exitStopped, queues("pause", "orders", "--why", "ticket 8"), "was paused already since ", "Z by postgres\n", "Z by postgres: ticket 8\n")
	expectCode(t, r.settings, exitStopped, queues("list"), "orders  true", "by postgres: ticket 8")
	expectCode(t, r.settings, exitStopped, queues("show", "orders", "--json"), `"paused_by": "postgres"`, `"paused_reason": "ticket 8"`, `"paused_at": "2`)
	expectCode(t, r.settings, exitUsage, queues("pause", "orders", "--why", "two\nlines"), "the reason of a pause is one line of at most 200 characters")
	expectCode(t, r.settings, exitStopped, queues("resume", "orders"), "was paused since ", "by postgres: ticket 8\n", "paused           false\n", "sends what is deferred, in order, within 2 seconds")
	expectCode(t, r.settings, exitStopped, queues("resume", "orders"), "was not paused")
	expectCode(t, r.settings, exitStopped, queues("set", "mails", "max_in_flight=3", "max_attempts=9"), "max_in_flight    3", "goes by this within 2 seconds")
	expectCode(t, r.settings, exitStopped, queues("show", "mails"), "max_attempts     9")
	got := expectCode(t, r.settings, exitStopped, queues("show", "mails", "--json"))
	var one queueDocument
	if err := json.Unmarshal([]byte(got.out), &one); err != nil || one.SchemaVersion != 1 || one.MaxInFlight == nil || *one.MaxInFlight != 3 {
		t.Errorf("document is %+v, %v", one, err)
	}
	got = expectCode(t, r.settings, exitStopped, queues("list", "--json"))
	var list queueList
	if err := json.Unmarshal([]byte(got.out), &list); err != nil || list.SchemaVersion != 1 || len(list.Queues) != 2 {
		t.Errorf("list is %+v, %v", list, err)
	}
	expectCode(t, r.settings, exitStopped, queues("set", "orders", "rate_per_second=5"), "rate_per_second  5")
	expectCode(t, r.settings, exitUsage, queues("set", "orders", "envelope=xml"), `envelope is "xml", want none or cloudevents`)
	expectCode(t, r.settings, exitStopped, queues("set", "mails", "envelope=cloudevents"), "envelope         cloudevents, no relay has seen that yet")
	if _, err := conn.Exec(t.Context(), `insert into outbox.envelopes (queue, first_message, envelope, source, type) values ('mails', 17, 'cloudevents', '/shop', 'mail')`); err != nil {
		t.Fatal(err)
	}
	expectCode(t, r.settings, exitStopped, queues("show", "mails"), "envelope         cloudevents, from message 17 on")
	expectCode(t, r.settings, exitStopped, queues("set", "mails", "envelope=default"), "envelope         none, no relay has seen that yet")
	expectCode(t, r.settings, exitUsage, queues("set", "orders", "max_in_flight=0"), "max_in_flight must be at least 1")
	expectCode(t, r.settings, exitUsage, queues("set", "orders"), "want a queue and at least one")
	expectCode(t, r.settings, exitUsage, queues("pause"), "want one argument, a queue, got 0")
}

func TestOperatorVerbs_WrongUsage(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"dead-letters"}, "needs a verb"},
		{[]string{"deferred"}, "needs a verb"},
		{[]string{"queues"}, "needs a verb"},
		{[]string{"dead-letters", "show"}, "want one argument, a message id"},
		{[]string{"dead-letters", "show", "k1"}, `"k1" is no message id; a key goes into --key`},
		{[]string{"dead-letters", "list", "--limit", "-1"}, "--limit is -1"},
		{[]string{"deferred", "list", "--older-than", "-1h"}, "a duration is negative"},
		{[]string{"deferred", "keys", "--limit", "0"}, "--limit is 0, want 1 or more"},
		{[]string{"dead-letters", "list", "--older-than", "yesterday"}, "yesterday"},
	} {
		expectCode(t, nil, exitUsage, c.args, c.want)
	}
}

// Whoever may make functions in this database cannot have them run with the
// rights of the operator.
func TestDeadLetters_RedriveCallsNoFunctionOfOthers(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	conn := fill(t, r)
	_, err := conn.Exec(t.Context(), `create function public.hashtextextended(text, int) returns bigint language plpgsql as 'begin raise exception ''called''; end'`)
	if err != nil {
		t.Fatal(err)
	}
	expectCode(t, r.settings, exitStopped, []string{"dead-letters", "redrive", "1"}, "1 message redriven")
}
