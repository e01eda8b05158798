package outbox_test

import (
	"context"
	"encoding/json"
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/outbox-relay/outbox-relay/internal/pgtest"
	"github.com/outbox-relay/outbox-relay/outbox"
)

// columns are the values of a message as a plain INSERT in SQL passes them,
// without this package in between.
type columns struct {
	key, queue, payload    string
	orderingKey, headers   *string
	delaySeconds, priority *int64
	deliverAt              *string
}

// TestLimits_GoAndSQLAgree puts each edge value into a message and into a plain
// INSERT: both accept it or both refuse it.
func TestLimits_GoAndSQLAgree(t *testing.T) {
	t.Parallel()
	url := pgtest.Migrated(t)

	type edge struct {
		name  string
		good  bool
		field string // of the LimitError
		goes  func(*outbox.Message)
		sql   func(*columns)
	}
	var edges []edge
	both := func(good bool, field, name string, goes func(*outbox.Message), sql func(*columns)) {
		edges = append(edges, edge{field + " " + name, good, field, goes, sql})
	}
	key := func(good bool, name, value string) {
		both(good, "key", name, func(m *outbox.Message) { m.Key = value }, func(c *columns) { c.key = value })
	}
	queue := func(good bool, name, value string) {
		both(good, "queue", name, func(m *outbox.Message) { m.Queue = value }, func(c *columns) { c.queue = value })
	}
	ordering := func(good bool, name, value string) {
		both(good, "ordering_key", name, func(m *outbox.Message) { m.OrderingKey = value }, func(c *columns) { c.orderingKey = &value })
	}
	payload := func(good bool, name, value string) {
		both(good, "payload", name,
			func(m *outbox.Message) { m.Payload = json.RawMessage(value) }, func(c *columns) { c.payload = value })
	}
	header := func(good bool, name, field, value string) {
		both(good, "headers", name,
			func(m *outbox.Message) { m.Headers = map[string]string{field: value} },
			func(c *columns) { c.headers = new(rawObject(field, value)) })
	}
	delay := func(good bool, name string, value time.Duration) {
		both(good, "delay_seconds", name,
			func(m *outbox.Message) { m.Delay = value }, func(c *columns) { c.delaySeconds = new(int64(value / time.Second)) })
	}
	priority := func(good bool, name string, value int64) {
		both(good, "priority", name,
			func(m *outbox.Message) { m.Priority = new(int(value)) }, func(c *columns) { c.priority = &value })
	}

	deliverAt := func(good bool, name string, value time.Time) {
		both(good, "deliver_at", name, func(m *outbox.Message) { m.DeliverAt = value },
			func(c *columns) { c.deliverAt = new(value.Format("2006-01-02 15:04:05.999999Z07:00:00")) })
	}

	key(false, "empty", "")
	key(true, "of 1", "!")
	key(true, "of 128", strings.Repeat("~", 128))
	key(false, "of 129", strings.Repeat("k", 129))
	key(false, "with a space", "a b")
	key(false, "with a trailing line feed", "ab\n")
	key(false, "with a tab", "a\tb")
	key(false, "with DEL", "a\x7f")
	key(false, "with an umlaut", "schl\u00fcssel")
	key(false, "with NUL", "a\x00")
	key(false, "with invalid UTF-8", "a\xff")
	key(true, "with punctuation", `a:b/c?d=e&f#"'\<>%`)

	queue(false, "empty", "")
	queue(true, "of 1", "0")
	queue(true, "of 63", strings.Repeat("q", 63))
	queue(false, "of 64", strings.Repeat("q", 64))
	queue(false, "with a leading dash", "-a")
	queue(false, "with a leading underscore", "_a")
	queue(true, "with dash and underscore", "a-_")
	queue(false, "with a capital", "Orders")
	queue(false, "with a dot", "a.b")
	queue(false, "with a line feed at the end", "a\n")
	queue(false, "with an umlaut", "\u00e4")
	queue(false, "with NUL", "a\x00")

	ordering(true, "of 1", " ")
	ordering(true, "of 255", strings.Repeat("o", 255))
	ordering(true, "of 255 wide characters", strings.Repeat("\U0001F600", 255))
	ordering(false, "of 256", strings.Repeat("o", 256))
	ordering(true, "with line feeds", "a\r\nb")
	ordering(true, "with U+FFFD", "a\ufffdb")
	ordering(false, "with NUL", "a\x00")
	ordering(false, "with invalid UTF-8", "a\xc3")

	payload(true, "empty object", `{}`)
	payload(false, "null", `null`)
	payload(false, "array", `[{}]`)
	payload(false, "string", `"{}"`)
	payload(false, "number", `17`)
	payload(false, "boolean", `true`)
	payload(true, "of 256000 bytes", sized(256_000))
	payload(false, "of 256001 bytes", sized(256_001))
	payload(true, "of 256000 bytes, multi-byte", `{"p": "`+strings.Repeat("\u00fc", 127_995)+`1"}`)
	payload(false, "of 256001 bytes, multi-byte", `{"p": "`+strings.Repeat("\u00fc", 127_996)+`"}`)
	payload(true, "short without spaces, of 256000 with them", `{"p":[`+strings.Repeat("1,", 85_330)+`1]}`)
	payload(false, "short without spaces, of 256001 with them", `{"p":[`+strings.Repeat("1,", 85_330)+`10]}`)
	payload(true, "long as written, short as printed", `{"p":"`+strings.Repeat(`\u0041`, 200_000)+`"}`)
	payload(true, "short as written, of 256000 as printed", `{"p":[`+strings.Repeat("1e9999,", 25)+`1,1e5937]}`)
	payload(false, "short as written, of 256001 as printed", `{"p":[`+strings.Repeat("1e9999,", 25)+`1,1e5938]}`)
	payload(true, "repeated names, the last one short", `{"p":`+sized(255_000)+`,"p":`+sized(255_000)+`,"\u0070":1}`)
	payload(false, "repeated names, the last one long", `{"p":1,"p":`+sized(256_000)+`}`)
	payload(false, "NUL in a string", `{"a":"x\u0000"}`)
	payload(false, "NUL in a name", `{"a\u0000":1}`)
	payload(true, "an escaped backslash before u0000", `{"a":"\\u0000"}`)
	payload(true, "a surrogate pair", `{"a":"\ud83d\ude00"}`)
	payload(false, "a high surrogate alone", `{"a":"\ud83d"}`)
	payload(false, "a high surrogate before text", `{"a":"\ud83dx"}`)
	payload(false, "a high surrogate before another escape", `{"a":"\ud83d\n12345"}`)
	payload(false, "two high surrogates", `{"a":"\ud83d\ud83d"}`)
	payload(false, "a low surrogate alone", `{"a":"\ude00"}`)
	payload(true, "U+FFFD escaped", `{"a":"\ufffd"}`)
	payload(true, "U+FFFD", "{\"a\":\"\ufffd\"}")
	payload(false, "invalid UTF-8", "{\"a\":\"\xff\"}")
	payload(true, "131072 digits", `{"a":1e131071}`)
	payload(false, "131073 digits", `{"a":1e131072}`)
	payload(true, "16383 digits after the point", `{"a":1e-16383}`)
	payload(false, "16384 digits after the point", `{"a":1e-16384}`)
	payload(true, "zero with a large exponent", `{"a":0e200000}`)
	payload(false, "an exponent beyond int", `{"a":1e99999999999999999999}`)
	payload(false, "a negative exponent beyond int", `{"a":1e-99999999999999999999}`)

	header(true, "text", "x-a", "b")
	header(true, "line feeds and quotes", "x\"\n", "1\r\n\"")
	header(true, "empty", "", "")
	header(false, "NUL in a value", "x", "a\x00")
	header(false, "NUL in a name", "x\x00", "a")
	header(false, "invalid UTF-8 in a value", "x", "\xff")
	header(false, "invalid UTF-8 in a name", "\xff", "x")
	header(true, "of 16384 bytes", "x", strings.Repeat("<", 16_384-9))
	header(false, "of 16385 bytes", "x", strings.Repeat("<", 16_385-9))

	delay(true, "0", 0)
	delay(true, "1 s", time.Second)
	delay(true, "7 days", 604_800*time.Second)
	delay(false, "7 days and 1 s", 604_801*time.Second)
	delay(false, "-1 s", -time.Second)

	priority(false, "-1", -1)
	priority(true, "0", 0)
	priority(true, "9", 9)
	priority(false, "10", 10)
	priority(false, "2^31", math.MaxInt32+1)

	deliverAt(true, "of the year 1", time.Date(1, 1, 1, 0, 0, 1, 0, time.UTC))
	deliverAt(true, "at the end of 9999", time.Date(9999, 12, 31, 23, 59, 59, 999_999_000, time.UTC))
	deliverAt(true, "in the last microsecond of 9999", time.Date(9999, 12, 31, 23, 59, 59, 999_999_999, time.UTC))
	deliverAt(false, "of the year 10000", time.Date(10_000, 1, 1, 0, 0, 0, 0, time.UTC))
	deliverAt(false, "of the year 10000 in UTC", time.Date(9999, 12, 31, 23, 59, 59, 0, time.FixedZone("", -60)))

	conn := connect(t, url)
	for _, e := range edges {
		m := message("k")
		e.goes(&m)
		goErr := m.Validate()
		var limit *outbox.LimitError
		switch {
		case e.good && goErr != nil:
			t.Errorf("%s: Go refuses: %v", e.name, goErr)
		case !e.good && !errors.As(goErr, &limit):
			t.Errorf("%s: Go says %v, want a LimitError", e.name, goErr)
		case !e.good && limit.Field != e.field:
			t.Errorf("%s: Go blames %s", e.name, limit.Field)
		}

		c := columns{key: "k", queue: "orders", payload: "{}"}
		e.sql(&c)
		if sqlErr := plainInsert(conn, c); e.good != (sqlErr == nil) {
			t.Errorf("%s: SQL says %v, want accepted = %v", e.name, sqlErr, e.good)
		}
		if e.good {
			tx := begin(t, conn)
			if _, err := outbox.Enqueue(t.Context(), tx, m); err != nil {
				t.Errorf("%s: Enqueue: %v", e.name, err)
			}
			if err := tx.Rollback(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// plainInsert writes a row and rolls it back. The values go in text format, so
// that the server and nobody else looks at them.
func plainInsert(conn *pgx.Conn, c columns) error {
	ctx := context.Background()
	tx, err := conn.Begin(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback(ctx) }()
	_, err = tx.Exec(ctx, `insert into outbox.messages
		(key, queue, ordering_key, payload, headers, delay_seconds, priority, deliver_at)
		values ($1, $2, $3, $4::text::jsonb, $5::text::jsonb, $6::bigint, $7::bigint, $8::text::timestamptz)`,
		c.key, c.queue, c.orderingKey, c.payload, c.headers, c.delaySeconds, c.priority, c.deliverAt)
	if refused := new(pgconn.PgError); err != nil && !errors.As(err, &refused) {
		panic(err) // the test is broken, not the value
	}
	return err
}

// sized is an object whose text as Postgres prints it has n bytes.
func sized(n int) string {
	return `{"p": "` + strings.Repeat("x", n-len(`{"p": ""}`)) + `"}`
}

// rawObject is a JSON object with one member, written by hand because
// encoding/json would repair its text.
func rawObject(name, value string) string {
	escape := strings.NewReplacer(`"`, `\"`, "\n", `\n`, "\r", `\r`, "\x00", `\u0000`).Replace
	return `{"` + escape(name) + `":"` + escape(value) + `"}`
}

func TestMessage_Validate_ReportsAllAtOnce(t *testing.T) {
	t.Parallel()
	m := outbox.Message{
		Key: strings.Repeat("k", 200), Queue: "Orders", OrderingKey: "\x00", Payload: []byte("PII-123"),
		Headers: map[string]string{"x": "PII-123\x00"}, Delay: 1500 * time.Millisecond, Priority: new(10),
		DeliverAt: time.Date(10_000, 1, 1, 0, 0, 0, 0, time.UTC),
	}
	err := m.Validate()
	want := strings.TrimSpace(`
key must be 1 to 128 printable ASCII characters without spaces, got 200 characters
queue must be 1 to 63 characters of a-z, 0-9, _ and -, the first one a letter or a digit, got "Orders"
ordering_key must be at most 255 characters of UTF-8 without NUL, got "\x00"
payload must be a JSON object, got []byte, which encoding/json writes as a base64 string; use json.RawMessage for JSON that is ready
headers must be text of UTF-8 without NUL, got something else in "x"
delay_seconds must be 0 to 604800, in whole seconds, got 1.5s
priority must be 0 to 9, got 10
deliver_at must be in the years 1 to 9999, got 10000-01-01T00:00:00Z`)
	if err == nil || err.Error() != want {
		t.Errorf("got\n%v\nwant\n%s", err, want)
	}
}

type money struct{ cents int64 }

func (m money) MarshalJSON() ([]byte, error) {
	if m.cents < 0 {
		return nil, errors.New("negative amount")
	}
	return json.Marshal(map[string]int64{"cents": m.cents})
}

func TestMessage_Validate_Payloads(t *testing.T) {
	t.Parallel()
	m := message("k")
	for _, good := range []any{
		struct{}{}, map[string]int{}, &struct{ A int }{1}, money{5}, &money{5}, json.RawMessage(" {\n} "),
	} {
		m.Payload = good
		if err := m.Validate(); err != nil {
			t.Errorf("%#v: %v", good, err)
		}
	}
	for _, bad := range []any{nil, json.RawMessage(nil), json.RawMessage("{"), "{}", 1, []int{1}, (*money)(nil), money{-1}, make(chan int)} {
		m.Payload = bad
		if m.Validate() == nil {
			t.Errorf("%#v: accepted", bad)
		}
	}
}

func TestEnqueue_NamesTheMessageThatBreaksALimit(t *testing.T) {
	t.Parallel()
	bad := message("second")
	bad.Queue = ""
	_, err := outbox.Enqueue(t.Context(), nil, message("first"), bad) // no transaction is needed to refuse
	const want = "enqueue 2 messages: message 1: queue must be 1 to 63 characters of a-z, 0-9, _ and -, the first one a letter or a digit, got none"
	if err == nil || err.Error() != want {
		t.Errorf("got  %v\nwant %s", err, want)
	}
}
