package cdc

import (
	"errors"
	"fmt"
	"io"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"
	"pgregory.net/rapid"

	"github.com/outbox-relay/outbox-relay/internal/hint"
)

func TestLSN_ReadsWhatItPrints(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		want := lsn(rapid.Uint64().Draw(t, "position"))
		if got, err := parseLSN(want.String()); got != want || err != nil {
			t.Fatalf("%s was read as %s, %v", want, got, err)
		}
	})
	for _, text := range []string{"", "/", "1", "1/", "1/2/3", "100000000/0", "g/0", "-1/0", " 1/0"} {
		if got, err := parseLSN(text); err == nil {
			t.Errorf("%q was read as %s", text, got)
		}
	}
}

// OUT-06: what a server does that wants to stop, and what it does not.
func TestSpin(t *testing.T) {
	t.Parallel()
	begun := time.Now()
	turns := func(n int, gap time.Duration, at func(i int) lsn) bool {
		var s spin
		seen := false
		for i := range n {
			seen = s.turn(at(i), begun.Add(time.Duration(i)*gap)) || seen
		}
		return seen
	}
	same := func(int) lsn { return 7 }
	moving := func(i int) lsn { return lsn(i) }
	if !turns(spinCount, time.Millisecond, same) {
		t.Error("a burst at one position was not seen")
	}
	if turns(spinCount-1, time.Millisecond, same) {
		t.Error("a shorter burst was taken for it")
	}
	if turns(1000, time.Millisecond, moving) {
		t.Error("requests at moving positions were taken for it")
	}
	if turns(1000, time.Second/10, same) {
		t.Error("ten requests a second were taken for it")
	}
}

func TestRemedyFor(t *testing.T) {
	t.Parallel()
	server := func(code string) error { return fmt.Errorf("somewhere: %w", &pgconn.PgError{Code: code}) }
	tests := map[string]struct {
		err  error
		want remedy
	}{
		"connection reset":       {errors.New("connection reset by peer"), retry},
		"administrator":          {server("57P01"), retry},
		"starting up":            {server("57P03"), retry},
		"too many connections":   {server("53300"), retry},
		"not the primary":        {fmt.Errorf("%w: db1", errNotPrimary), retry},
		"all slots used":         {server(codeAllSlotsUsed), retrySlowly},
		"a column is missing":    {&ColumnError{Column: "key"}, retrySlowly},
		"publication gap":        {&GapError{err: server(codeUndefinedObject)}, retrySlowly},
		"slot in use":            {fmt.Errorf("%w: %w", errSlotBusy, server(codeInUse)), standBy},
		"server stops":           {fmt.Errorf("%w: %w", errServerStopping, server("57P03")), pause},
		"no such publication":    {&OperatorError{kind: ErrPublication}, askOperator},
		"wrong password":         {explainConnect("database", server(codePassword)), askOperator},
		"no right to replicate":  {explainConnect("replication", server(codePrivilege)), askOperator},
		"refused by pg_hba.conf": {explainConnect("replication", server(codeAuthorization)), askOperator},
		"no right on a table":    {fmt.Errorf("announce: %w", server(codePrivilege)), askOperator},
		"no such database":       {explainConnect("database", server(codeNoDatabase)), askOperator},
		"other protocol error":   {explainConnect("database", server(codeProtocolViolation)), retry},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := remedyFor(test.err); got != test.want {
				t.Errorf("remedy %d, want %d", got, test.want)
			}
			if test.want == askOperator && hint.Of(test.err) == "" && name != "no such publication" && name != "no right on a table" {
				t.Error("no hint")
			}
		})
	}
}

func TestOperatorError_LeadsToItsCauses(t *testing.T) {
	t.Parallel()
	cause := &pgconn.PgError{Severity: "FATAL", Code: codePrivilege, Message: "permission denied"}
	err := explainConnect("replication", cause)
	if !errors.Is(err, ErrPrivilege) || !errors.Is(err, cause) {
		t.Errorf("%v leads neither to ErrPrivilege nor to the server's error", err)
	}
	if want := "missing privilege: connect replication: FATAL: permission denied (SQLSTATE 42501)"; err.Error() != want {
		t.Errorf("text %q, want %q", err, want)
	}
}

// A server that is at work for longer than the timeouts allow gets the time it
// needs, once it is clear that it would begin again every time.
func TestSource_Learn(t *testing.T) {
	t.Parallel()
	nowhere, err := pgx.ParseConfig("postgres://127.0.0.1")
	if err != nil {
		t.Fatal(err)
	}
	s := New(Config{RetryMin: time.Second, RetryMax: time.Minute}, nowhere, nowhere, zap.NewNop())
	session := func(err error, confirmed lsn) *session {
		last := &session{err: err, start: 10, begun: time.Now()}
		last.confirmed.Store(uint64(confirmed))
		return last
	}
	for i, step := range []struct {
		err       error
		confirmed lsn
		want      int
	}{
		{errSilent, 11, 1},
		{fmt.Errorf("%w: for 15 s", errSilent), 10, 2},
		{fmt.Errorf("read the stream: %w", io.ErrUnexpectedEOF), 10, 4},
		{errors.New("connection reset"), 10, 4},
		{errSilent, 10, 8},
		{errSilent, 10, 16},
		{errSilent, 10, 32},
		{errSilent, 10, 32},
		{errors.New("connection reset"), 12, 1},
	} {
		s.learn(session(step.err, step.confirmed))
		if s.patience != step.want {
			t.Errorf("step %d: patience %d, want %d", i, s.patience, step.want)
		}
	}
}

// The server repeats a notice at every row; the log does not.
func TestNoticeLog_WritesTheSameOnce(t *testing.T) {
	t.Parallel()
	core, lines := observer.New(zapcore.DebugLevel)
	var n noticeLog
	first := &pgconn.Notice{Code: "55000", Message: "one", Detail: "Failing row contains (PII-123).", Where: "PII-123"}
	for range 100 {
		n.write(zap.New(core), first, 1)
	}
	n.write(zap.New(core), &pgconn.Notice{Code: "55000", Message: "two"}, 2)
	var got []any
	for _, line := range lines.All() {
		got = append(got, line.ContextMap()[fieldText])
		for key, value := range line.ContextMap() {
			if text, ok := value.(string); ok && (text == first.Detail || text == first.Where) {
				t.Errorf("field %s quotes what may be a row", key)
			}
		}
	}
	if diff := cmp.Diff([]any{"one", "two"}, got); diff != "" {
		t.Error(diff)
	}
}

// SEC-04: what is around the messages of the plugin can be malformed as well.
func TestInterpret_RefusesMalformedMessages(t *testing.T) {
	t.Parallel()
	for name, data := range map[string]string{
		"nothing": "", "unknown": "z", "short data": "w1234567", "short keepalive": "k1234567", "long keepalive": "k" + string(make([]byte, 18)),
	} {
		if _, err := interpret(&pgproto3.CopyData{Data: []byte(data)}); !errors.Is(err, errMalformed) {
			t.Errorf("%s: %v, want errMalformed", name, err)
		}
	}
	if _, err := interpret(&pgproto3.RowDescription{}); !errors.Is(err, errMalformed) {
		t.Errorf("a row description: %v, want errMalformed", err)
	}
}

func TestQuoteLiteral(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		`plain`: `'plain'`, `it's`: `'it''s'`, `back\slash`: `'back\slash'`, `"MyPub"`: `'"MyPub"'`, ``: `''`,
	} {
		if got := quoteLiteral(text); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}

func TestInbox(t *testing.T) {
	t.Parallel()
	var in inbox
	in.add([]uint64{1, 2})
	in.add([]uint64{3})
	got := in.swap(nil)
	if diff := cmp.Diff([]uint64{1, 2, 3}, got); diff != "" {
		t.Error(diff)
	}
	in.add([]uint64{4})
	in.close()
	in.add([]uint64{5})
	if got := in.swap(got); len(got) != 0 {
		t.Errorf("%v after close", got)
	}
}

// While a slot is being made, the server does not know its plugin yet.
func TestSlot_RequireOurs_BeingMade(t *testing.T) {
	t.Parallel()
	s := slot{exists: true, kind: "logical", database: "app", holder: "4711"}
	if err := s.requireOurs("ours", "app"); err != nil {
		t.Errorf("another relay makes it: %v", err)
	}
	s.holder = ""
	if err := s.requireOurs("ours", "app"); !errors.Is(err, ErrSlotForeign) {
		t.Errorf("of no plugin: %v", err)
	}
}
