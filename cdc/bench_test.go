package cdc_test

import (
	"context"
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"
	"go.uber.org/zap"

	"github.com/outbox-relay/outbox-relay/cdc"
	"github.com/outbox-relay/outbox-relay/internal/pgtest"
)

// benchRows is the backlog, in rows of about 400 bytes of text.
const benchRows = 200_000

// BenchmarkReceive reads the same backlog in turns: with a loop that has nothing
// but pglogrepl and looks into no row, with one that parses the rows with it,
// and with a Source whose consumer resolves everything at once. What counts is
// the ratio: the server sets the pace, and the machine has other things to do.
func BenchmarkReceive(b *testing.B) {
	for _, perTransaction := range []int{1, 10, 1000} {
		b.Run(fmt.Sprintf("rows=%d", perTransaction), func(b *testing.B) {
			db := newBenchDatabase(b, perTransaction)
			var bare, parsed, source meter
			for range b.N {
				bare.run(b, db.bare(b, false))
				source.run(b, db.source(b))
				parsed.run(b, db.bare(b, true))
			}
			bare.report(b, "bare")
			parsed.report(b, "parsed")
			source.report(b, "source")
			b.ReportMetric(bare.elapsed.Seconds()/source.elapsed.Seconds(), "source/bare")
			b.ReportMetric(0, "ns/op")
		})
	}
}

// meter sums up what the rounds of one reader took.
type meter struct {
	rounds       int
	elapsed, cpu time.Duration
}

// round is one reading of the backlog, from a stream that is open already.
type round struct {
	read  func()
	close func() // not measured
}

func (m *meter) run(b *testing.B, r round) {
	begun, used := time.Now(), processorTime(b)
	r.read()
	m.elapsed += time.Since(begun)
	m.cpu += processorTime(b) - used
	m.rounds++
	r.close()
}

func (m *meter) report(b *testing.B, name string) {
	rows := float64(m.rounds) * benchRows
	b.ReportMetric(rows/m.elapsed.Seconds(), name+"-rows/s")
	b.ReportMetric(float64(m.cpu.Nanoseconds())/rows, name+"-cpu-ns/row")
}

// processorTime is what this process has used, in the kernel as well.
func processorTime(b *testing.B) time.Duration {
	b.Helper()
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		b.Fatal(err)
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

// benchDatabase has the backlog, and a slot in front of it that is never read.
type benchDatabase struct {
	config *pgx.ConnConfig
	sql    *pgx.Conn
}

func newBenchDatabase(b *testing.B, perTransaction int) *benchDatabase {
	b.Helper()
	config, err := pgx.ParseConfig(pgtest.Database(b))
	if err != nil {
		b.Fatal(err)
	}
	conn, err := pgx.ConnectConfig(b.Context(), config)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = conn.Close(context.Background()) })
	for _, sql := range []string{
		ddl,
		"select pg_create_logical_replication_slot('bench_' || current_database(), 'pgoutput')",
		`create procedure fill(total int, part int) language plpgsql as $$ begin
			for i in 1 .. total / part loop
				insert into outbox.messages (key, ordering_key, payload)
				select 'k-' || i || '-' || j, 'customer-' || (i % 1000), jsonb_build_object('filler', repeat('x', 370)) from generate_series(1, part) j;
				commit;
			end loop; end $$`,
	} {
		if _, err := conn.PgConn().Exec(b.Context(), sql).ReadAll(); err != nil {
			b.Fatal(err)
		}
	}
	if _, err := conn.Exec(b.Context(), "call fill($1, $2)", benchRows, perTransaction); err != nil {
		b.Fatal(err)
	}
	return &benchDatabase{config: config, sql: conn}
}

// slot is a new slot in front of the backlog.
func (db *benchDatabase) slot(b *testing.B) string {
	b.Helper()
	name := fmt.Sprintf("bench_%d", slots.Add(1))
	if _, err := db.sql.Exec(b.Context(), "select pg_copy_logical_replication_slot('bench_' || current_database(), $1)", name); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { db.drop(b, name) })
	return name
}

// drop keeps a dead slot from costing the next rounds anything.
func (db *benchDatabase) drop(b *testing.B, name string) {
	b.Helper()
	pgtest.Eventually(b, patience, func() error {
		_, err := db.sql.Exec(context.Background(), "select pg_drop_replication_slot($1)", name)
		return err
	})
}

// bare is the smallest possible loop. It confirms nothing and answers nothing.
func (db *benchDatabase) bare(b *testing.B, parse bool) round {
	b.Helper()
	config := db.config.Copy()
	config.RuntimeParams["replication"] = "database"
	config.RuntimeParams["wal_sender_timeout"] = "0"
	conn, err := pgconn.ConnectConfig(b.Context(), &config.Config)
	if err != nil {
		b.Fatal(err)
	}
	err = pglogrepl.StartReplication(b.Context(), conn, db.slot(b), 0, pglogrepl.StartReplicationOptions{
		PluginArgs: []string{"proto_version '1'", "publication_names 'outbox_relay'"},
	})
	if err != nil {
		b.Fatal(err)
	}
	read := func() {
		for rows := 0; rows < benchRows; {
			rows += receiveBare(b, conn, parse)
		}
	}
	return round{read, func() { _ = conn.Close(context.Background()) }}
}

// receiveBare receives one message and returns how many rows it was.
func receiveBare(b *testing.B, conn *pgconn.PgConn, parse bool) int {
	message, err := conn.ReceiveMessage(context.Background())
	if err != nil {
		b.Fatal(err)
	}
	data, ok := message.(*pgproto3.CopyData)
	if !ok || data.Data[0] != pglogrepl.XLogDataByteID {
		return 0
	}
	xlog, err := pglogrepl.ParseXLogData(data.Data[1:])
	if err != nil {
		b.Fatal(err)
	}
	if parse {
		if _, err := pglogrepl.Parse(xlog.WALData); err != nil {
			b.Fatal(err)
		}
	}
	if xlog.WALData[0] == 'I' {
		return 1
	}
	return 0
}

func (db *benchDatabase) source(b *testing.B) round {
	b.Helper()
	config := fastConfig(db.slot(b))
	config.StatusInterval, config.LeaseInterval, config.CheckInterval = 5*time.Second, 2*time.Second, time.Minute
	config.SilenceTimeout, config.WALSenderTimeout = 15*time.Second, 15*time.Second
	s := cdc.New(config, db.config, db.config, zap.NewNop())
	if err := s.Open(b.Context()); err != nil {
		b.Fatal(err)
	}
	return round{func() { readAll(b, s) }, func() {
		if err := s.Close(context.Background()); err != nil {
			b.Error(err)
		}
	}}
}

func readAll(b *testing.B, s *cdc.Source) {
	b.Helper()
	var numbers []uint64
	for number := uint64(0); number < benchRows; {
		rows, err := s.Next(b.Context())
		if err != nil {
			b.Fatal(err)
		}
		numbers = numbers[:0]
		for range rows {
			numbers = append(numbers, number)
			number++
		}
		s.Resolve(numbers)
	}
}
