package schema_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/outbox-relay/outbox-relay/internal/pgtest"
)

// Each limit is a constraint with a name of its own, exact to the character.
// APP-07: a missing key, queue or payload is refused at the insert.
func TestMessages_Limits(t *testing.T) {
	t.Parallel()
	conn := connect(t, pgtest.Migrated(t))
	text := strings.Repeat
	// object is a payload of n bytes, as Postgres prints it.
	object := func(n int) string { return `{"a": "` + text("x", n-9) + `"}` }

	const notNull = "not null" // no constraint, SQLSTATE 23502
	for _, test := range []struct {
		column string
		value  any
		want   string // name of the constraint; empty for a good value
	}{
		{"key", nil, notNull},
		{"key", "", "messages_key_valid"},
		{"key", "!", ""},
		{"key", "~", ""},
		{"key", text("k", 128), ""},
		{"key", text("k", 129), "messages_key_valid"},
		{"key", "with space", "messages_key_valid"},
		{"key", "tab\t", "messages_key_valid"},
		{"key", "line\n", "messages_key_valid"},
		{"key", "\r\ninjected: 1", "messages_key_valid"},
		{"key", "schlüssel", "messages_key_valid"},
		{"key", "delete\x7f", "messages_key_valid"},
		{"queue", nil, notNull},
		{"queue", "", "messages_queue_valid"},
		{"queue", "0", ""},
		{"queue", text("q", 63), ""},
		{"queue", text("q", 64), "messages_queue_valid"},
		{"queue", "a-b_c", ""},
		{"queue", "-a", "messages_queue_valid"},
		{"queue", "_a", "messages_queue_valid"},
		{"queue", "Orders", "messages_queue_valid"},
		{"queue", "orders\n", "messages_queue_valid"},
		{"queue", "a.b", "messages_queue_valid"},
		{"queue", "\u00e4b", "messages_queue_valid"},
		{"ordering_key", nil, ""},
		{"ordering_key", "", "messages_ordering_key_length"},
		{"ordering_key", text("\u20ac", 255), ""},
		{"ordering_key", text("k", 256), "messages_ordering_key_length"},
		{"payload", nil, notNull},
		{"payload", `{}`, ""},
		{"payload", `null`, "messages_payload_object"},
		{"payload", `[]`, "messages_payload_object"},
		{"payload", `"text"`, "messages_payload_object"},
		{"payload", `1`, "messages_payload_object"},
		{"payload", object(256_000), ""},
		{"payload", object(256_001), "messages_payload_size"},
		{"payload", `{"a": 1e130000, "b": 1e130000}`, "messages_payload_size"},
		{"headers", nil, ""},
		{"headers", `{}`, ""},
		{"headers", `{"traceparent": "00-ab", "": ""}`, ""},
		{"headers", `null`, "messages_headers_valid"},
		{"headers", `[]`, "messages_headers_valid"},
		{"headers", `["text"]`, "messages_headers_valid"},
		{"headers", `"text"`, "messages_headers_valid"},
		{"headers", `{"a": 1}`, "messages_headers_valid"},
		{"headers", `{"a": null}`, "messages_headers_valid"},
		{"headers", `{"a": ["text"]}`, "messages_headers_valid"},
		{"headers", `{"a": {"b": "text"}}`, "messages_headers_valid"},
		{"headers", `{"a": "text", "b": true}`, "messages_headers_valid"},
		{"headers", object(16_384), ""},
		{"headers", object(16_385), "messages_headers_size"},
		{"delay_seconds", nil, ""},
		{"delay_seconds", 0, ""},
		{"delay_seconds", 604_800, ""},
		{"delay_seconds", 604_801, "messages_delay_seconds_range"},
		{"delay_seconds", -1, "messages_delay_seconds_range"},
		{"priority", 0, ""},
		{"priority", 9, ""},
		{"priority", 10, "messages_priority_range"},
		{"priority", -1, "messages_priority_range"},
		{"deliver_at", nil, ""},
		{"deliver_at", "0001-01-01 00:00:00+00", ""},
		{"deliver_at", "9999-12-31 23:59:59.999999+00", ""},
		{"deliver_at", "10000-01-01 00:00:00+00", "messages_deliver_at_range"},
		{"deliver_at", "infinity", "messages_deliver_at_range"},
		{"deliver_at", "-infinity", "messages_deliver_at_range"},
		{"deliver_at", "0044-03-15 12:00:00+00 BC", "messages_deliver_at_range"},
		{"created_at", "infinity", ""},
		{"created_at", nil, notNull},
	} {
		row := map[string]any{"key": "k", "queue": "q", "payload": "{}"}
		row[test.column] = test.value
		columns, places, values := "", "", []any{}
		for column, value := range row {
			columns += ", " + column
			values = append(values, value)
			places += fmt.Sprintf(", $%d", len(values))
		}
		tx, err := conn.Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		_, err = tx.Exec(t.Context(), `insert into outbox.messages (`+columns[2:]+`) values (`+places[2:]+`)`, values...)
		got := refused(err).ConstraintName
		if refused(err).Code == "23502" {
			got = notNull
		}
		if got != test.want || (err == nil) != (test.want == "") {
			t.Errorf("%s = %.40q: refused by %q (%v), want %q", test.column, fmt.Sprint(test.value), got, err, test.want)
		}
		if err := tx.Rollback(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}

// APP-04: the same key twice.
func TestMessages_KeysAreUnique(t *testing.T) {
	t.Parallel()
	conn := connect(t, pgtest.Migrated(t))
	exec(t, conn, `insert into outbox.messages (key, queue, payload) values ('k', 'a', '{}')`)
	_, err := conn.Exec(t.Context(), `insert into outbox.messages (key, queue, payload) values ('k', 'b', '{}')`)
	if got := refused(err).ConstraintName; got != "messages_key_unique" {
		t.Errorf("refused by %q (%v), want messages_key_unique", got, err)
	}
	// Once the first row is purged, the key is free.
	exec(t, conn, `delete from outbox.messages`)
	exec(t, conn, `insert into outbox.messages (key, queue, payload) values ('k', 'b', '{}')`)
}

func TestMessages_NobodyChoosesTheID(t *testing.T) {
	t.Parallel()
	conn := connect(t, pgtest.Migrated(t))
	_, err := conn.Exec(t.Context(), `insert into outbox.messages (id, key, queue, payload) values (7, 'k', 'a', '{}')`)
	if got := refused(err).Code; got != "428C9" {
		t.Errorf("got %v, want SQLSTATE 428C9", err)
	}
}

func TestMessages_AreNeverUpdated(t *testing.T) {
	t.Parallel()
	conn := connect(t, pgtest.Migrated(t))
	exec(t, conn, `insert into outbox.messages (key, queue, payload) values ('k', 'a', '{}')`)
	for _, sql := range []string{
		`update outbox.messages set payload = '{"other": 1}'`,
		`update outbox.messages set key = key`,
		`insert into outbox.messages (key, queue, payload) values ('k', 'a', '{}') on conflict (key) do update set queue = 'b'`,
	} {
		_, err := conn.Exec(t.Context(), sql)
		if r := refused(err); r.Code != "OR002" || r.Message != "table outbox.messages is never updated" || r.Hint == "" {
			t.Errorf("%s: got %v, want SQLSTATE OR002 and a hint", sql, err)
		}
	}
	if got := query[string](t, conn, `select key || queue || payload from outbox.messages`); got != "ka{}" {
		t.Errorf("the row is %s", got)
	}
	exec(t, conn, `update outbox.messages set queue = 'b' where false`)
	exec(t, conn, `delete from outbox.messages`)
}

func TestQueues_Limits(t *testing.T) {
	t.Parallel()
	conn := connect(t, pgtest.Migrated(t))
	exec(t, conn, `insert into outbox.queues (queue) values ('orders')`)
	got := query[string](t, conn, `select to_jsonb(q)::text from outbox.queues q`)
	if want := `{"queue": "orders", "paused": false, "envelope": "none", "ordering": "key", "paused_at": null, "paused_by": null, ` +
		`"max_attempts": null, "max_in_flight": null, "paused_reason": null, "on_dead_letter": "continue", "rate_per_second": null}`; got != want {
		t.Errorf("defaults\ngot  %s\nwant %s", got, want)
	}
	for set, want := range map[string]string{
		"queue = 'Orders'":          "queues_queue_valid",
		"ordering = 'none'":         "queues_ordering_known",
		"max_in_flight = 0":         "queues_max_in_flight_positive",
		"rate_per_second = 0":       "queues_rate_per_second_positive",
		"rate_per_second = 'NaN'":   "queues_rate_per_second_positive",
		"max_attempts = 0":          "queues_max_attempts_positive",
		"on_dead_letter = 'ignore'": "queues_on_dead_letter_known",
		"envelope = 'xml'":          "queues_envelope_known",

		"paused = true, paused_at = 'infinity'":                                                        "queues_paused_at_range",
		"paused = true, paused_by = ''":                                                                "queues_paused_by_length",
		"paused = true, paused_by = repeat('x', 201)":                                                  "queues_paused_by_length",
		"paused = true, paused_reason = ''":                                                            "queues_paused_reason_valid",
		"paused = true, paused_reason = repeat('x', 201)":                                              "queues_paused_reason_valid",
		"paused = true, paused_reason = E'two\\nlines'":                                                "queues_paused_reason_valid",
		"paused = true, paused_reason = E'red\\x1b[31m'":                                               "queues_paused_reason_valid",
		"paused = true, paused_reason = repeat(U&'\\00e4', 200)":                                       "",
		"ordering = 'queue', on_dead_letter = 'hold', envelope = 'cloudevents', rate_per_second = 0.5": "",
	} {
		_, err := conn.Exec(t.Context(), `update outbox.queues set `+set)
		if got := refused(err).ConstraintName; got != want || (err == nil) != (want == "") {
			t.Errorf("%s: refused by %q (%v), want %q", set, got, err, want)
		}
	}
}

func TestMessageStatus(t *testing.T) {
	t.Parallel()
	conn := connect(t, pgtest.Migrated(t))
	exec(t, conn, `
		insert into outbox.messages (key, queue, ordering_key, payload)
		select k, 'orders', 'o-' || k, '{"secret": 1}' from unnest('{waiting,dispatched,deferred,dead,both,withdrawn}'::text[]) k;
		insert into outbox.dispatched (message_id, dispatched_at, attempts) select id, '2031-01-01 00:00+00', 1 from outbox.messages where key in ('dispatched', 'both');
		insert into outbox.deferred (message_id, deferred_at, queue, reason, attempts) select id, '2031-01-02 00:00+00', queue, 'transient', 2 from outbox.messages where key in ('deferred', 'withdrawn');
		insert into outbox.dead_letters (message_id, died_at, reason, attempts) select id, '2031-01-03 00:00+00', 'refused', 3 from outbox.messages where key in ('dead', 'both');
		delete from outbox.messages where key = 'withdrawn'`)
	got := query[[]string](t, conn, `select array_agg(concat_ws(' ', key, queue, ordering_key, state, outcome_at at time zone 'UTC', attempts, reason)
		order by message_id) from outbox.message_status`)
	want := []string{
		"waiting orders o-waiting waiting",
		"dispatched orders o-dispatched dispatched 2031-01-01 00:00:00 1",
		"deferred orders o-deferred deferred 2031-01-02 00:00:00 2 transient",
		"dead orders o-dead dead 2031-01-03 00:00:00 3 refused",
		// Cannot be, and does not count as two.
		"both orders o-both dispatched 2031-01-01 00:00:00 1",
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	columns := query[string](t, conn, `select string_agg(column_name, ' ' order by ordinal_position)
		from information_schema.columns where table_schema = 'outbox' and table_name = 'message_status'`)
	if want := "message_id key queue ordering_key state created_at outcome_at attempts reason"; columns != want {
		t.Errorf("columns %s, want %s", columns, want)
	}
}
