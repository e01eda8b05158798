package cdc

import (
	"bufio"
	"encoding/hex"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/outbox-relay/outbox-relay/internal/pgtest"
	"github.com/outbox-relay/outbox-relay/outbox"
)

var update = flag.Bool("update", false, "record the streams in testdata from real servers")

// recording makes one of everything that a stream of protocol 1 can hold.
var recording = []string{
	`insert into outbox.messages (key, queue, ordering_key, payload, headers, delay_seconds, priority, deliver_at, created_at)
	 values ('k-1', 'mails', 'customer-7', '{"big": 1234567890123456789012345678901234567890, "f": 1.10, "e": 1e400}',
	         '{"traceparent": "00-1"}', 30, 5, '2030-01-01 00:00:00.5+02', '2026-01-02 03:04:05.678901+00')`,
	`insert into outbox.messages (key, queue, payload, created_at) values ('k-2', 'mails', '{}', 'infinity'),
	 ('k-3', 'mails', '{}', '0044-03-15 12:00:00+00 BC'), ('k-4', 'mails', '{}', '20000-01-01 00:00:00+00')`,
	`insert into outbox.messages (key, queue, payload, deliver_at, created_at) values ('k-5', 'mails', '{}', 'infinity', '-infinity')`,
	`begin; insert into outbox.messages (key, queue, payload) values ('gone', 'mails', '{}'); rollback`,
	`create type outbox.mood as enum ('calm', 'busy')`,
	`alter table outbox.messages add column mood outbox.mood default 'calm', add column tags text[], drop column headers`,
	`insert into outbox.messages (key, queue, ordering_key, payload, tags, created_at)
	 values ('k-6', 'bills', 'ö', '{"text": "line\nbreak \u00e4"}', '{a,b}', '2026-01-02 00:00:00+00')`,
	`update outbox.messages set priority = 1 where key = 'k-6'`,
	`delete from outbox.messages where key = 'k-6'`,
	`truncate outbox.messages`,
	`alter table outbox.messages alter mood type text`,
	`insert into outbox.messages (key, queue, payload, created_at) values ('k-7', 'bills', '{"a": "b"}', '2026-01-02 00:00:00+00')`,
}

// recorded are the rows that the recording's streams hold.
var recorded = []outbox.Row{
	{
		ID: 1, Key: "k-1", Queue: "mails", OrderingKey: "customer-7",
		Payload:      `{"e": 1` + strings.Repeat("0", 400) + `, "f": 1.10, "big": 1234567890123456789012345678901234567890}`,
		Headers:      `{"traceparent": "00-1"}`,
		DelaySeconds: pgtype.Int4{Int32: 30, Valid: true}, Priority: pgtype.Int4{Int32: 5, Valid: true},
		DeliverAt: time.Date(2029, 12, 31, 22, 0, 0, 500e6, time.UTC), CreatedAt: time.Date(2026, 1, 2, 3, 4, 5, 678901e3, time.UTC),
	},
	{ID: 2, Key: "k-2", Queue: "mails", Payload: "{}"},
	{ID: 3, Key: "k-3", Queue: "mails", Payload: "{}"},
	{ID: 4, Key: "k-4", Queue: "mails", Payload: "{}"},
	{ID: 5, Key: "k-5", Queue: "mails", Payload: "{}", DeliverAt: latest},
	{ID: 7, Key: "k-6", Queue: "bills", OrderingKey: "ö", Payload: `{"text": "line\nbreak ä"}`, CreatedAt: time.Date(2026, 1, 2, 0, 0, 0, 0, time.UTC)},
	{ID: 8, Key: "k-7", Queue: "bills", Payload: `{"a": "b"}`, CreatedAt: time.Date(2026, 1, 2, 0, 0, 0, 0, time.UTC)},
}

// recordedStream is what a server sent, one message of the plugin after the
// other.
type recordedStream struct {
	name     string
	messages []message
}

func recordedStreams(t testing.TB) []recordedStream {
	t.Helper()
	names, err := filepath.Glob("testdata/stream-*.hex")
	if err != nil || len(names) == 0 {
		t.Fatalf("no recorded streams: %v", err)
	}
	var streams []recordedStream
	for _, name := range names {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		stream := recordedStream{name: filepath.Base(name)}
		for line := range strings.Lines(string(text)) {
			m, err := hex.DecodeString(strings.TrimSpace(line))
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			stream.messages = append(stream.messages, m)
		}
		streams = append(streams, stream)
	}
	return streams
}

// CDC-09, SCH-01, SCH-07, SCH-10, SCH-13: the streams of real servers hold
// these rows and nothing else.
func TestDecoder_ReadsRecordedStreams(t *testing.T) {
	t.Parallel()
	for _, stream := range recordedStreams(t) {
		t.Run(stream.name, func(t *testing.T) {
			t.Parallel()
			rows, err := feed(newDecoder("outbox"), stream.messages...)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(recorded, rows, cmpopts.IgnoreFields(outbox.Row{}, "XID", "CommittedAt")); diff != "" {
				t.Error(diff)
			}
			for _, row := range rows {
				if row.XID == 0 || row.CommittedAt.Before(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)) {
					t.Errorf("message %d has transaction id %d, committed at %s", row.ID, row.XID, row.CommittedAt)
				}
			}
		})
	}
}

// Today's server still sends what was recorded, up to positions, times and ids.
func TestDecoder_RecordsStream(t *testing.T) {
	t.Parallel()
	url := pgtest.Database(t)
	stream := record(t, url)
	rows, err := feed(newDecoder("outbox"), stream...)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(recorded, rows, cmpopts.IgnoreFields(outbox.Row{}, "XID", "CommittedAt")); diff != "" {
		t.Fatal(diff)
	}
	if *update {
		save(t, url, stream)
	}
}

// record runs the recording and reads its stream.
func record(t *testing.T, url string) []message {
	t.Helper()
	config, err := pgx.ParseConfig(url)
	if err != nil {
		t.Fatal(err)
	}
	conn, err := pgx.ConnectConfig(t.Context(), sqlConfig(config))
	if err != nil {
		t.Fatal(err)
	}
	defer hangUp(conn)
	slot := "recording_" + config.Database
	script := append([]string{
		`create schema outbox`,
		`create table outbox.messages (
			id bigint generated always as identity primary key, key text not null, queue text not null, ordering_key text,
			payload jsonb not null, headers jsonb, delay_seconds integer, priority smallint, deliver_at timestamptz,
			created_at timestamptz not null default now())`,
		`create publication outbox_relay for table outbox.messages`,
		`select pg_create_logical_replication_slot('` + slot + `', 'pgoutput')`,
	}, recording...)
	for _, sql := range script {
		if _, err := conn.PgConn().Exec(t.Context(), sql).ReadAll(); err != nil {
			t.Fatalf("%s: %v", sql, err)
		}
	}
	w, err := dial(t.Context(), streamConfig(config, time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	defer w.close()
	if err := w.start(t.Context(), slot, "outbox_relay"); err != nil {
		t.Fatal(err)
	}
	return receiveUntil(t, w, "k-7")
}

// receiveUntil reads messages until the transaction that holds the text ends.
func receiveUntil(t *testing.T, w *wire, text string) []message {
	t.Helper()
	var messages []message
	seen := false
	for {
		e, err := w.receive(time.Now().Add(time.Minute))
		if err != nil || e.kind == eventNothing {
			t.Fatalf("after %d messages: %v", len(messages), err)
		}
		if e.kind != eventData {
			continue
		}
		m := append(message{}, e.data...)
		messages = append(messages, m)
		seen = seen || strings.Contains(string(m), text)
		if seen && m[0] == 'C' {
			return messages
		}
	}
}

// save writes a recorded stream where the tests find it.
func save(t *testing.T, url string, stream []message) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer hangUp(conn)
	var major string
	if err := conn.QueryRow(t.Context(), "select current_setting('server_version_num')::int / 10000").Scan(&major); err != nil {
		t.Fatal(err)
	}
	file, err := os.Create("testdata/stream-" + major + ".hex")
	if err != nil {
		t.Fatal(err)
	}
	out := bufio.NewWriter(file)
	for _, m := range stream {
		if _, err := out.WriteString(hex.EncodeToString(m) + "\n"); err != nil {
			t.Fatal(err)
		}
	}
	if err := out.Flush(); err != nil {
		t.Fatal(err)
	}
	if err := file.Close(); err != nil {
		t.Fatal(err)
	}
}
