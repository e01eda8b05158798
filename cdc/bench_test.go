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
const benchRows = 300_000

// BenchmarkReceive reads the same backlog with a Source, whose consumer resolves
// everything at once, and with a loop that has nothing but pglogrepl: one that
// parses nothing, and one that parses with it.
func BenchmarkReceive(b *testing.B) {
	for _, perTransaction := range []int{1, 10, 1000} {
		b.Run(fmt.Sprintf("rows=%d", perTransaction), func(b *testing.B) {
			url := benchDatabase(b, perTransaction)
			b.Run("bare", func(b *testing.B) { benchBare(b, url, false) })
			b.Run("parsed", func(b *testing.B) { benchBare(b, url, true) })
			b.Run("source", func(b *testing.B) { benchSource(b, url) })
		})
	}
}

func benchDatabase(b *testing.B, perTransaction int) string {
	b.Helper()
	url := pgtest.Database(b)
	conn, err := pgx.Connect(b.Context(), url)
	if err != nil {
		b.Fatal(err)
	}
	defer conn.Close(context.Background())
	for _, sql := range []string{
		ddl,
		"select pg_create_logical_replication_slot('bench', 'pgoutput')",
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
	return url
}

// report gives the rate, and the processor time of this process, which says
// more on a machine that has other things to do.
func report(b *testing.B, elapsed, cpu time.Duration) {
	rows := float64(b.N) * benchRows
	b.ReportMetric(rows/elapsed.Seconds(), "rows/s")
	b.ReportMetric(float64(cpu.Nanoseconds())/rows, "cpu-ns/row")
	b.ReportMetric(0, "ns/op")
}

func processorTime(b *testing.B) time.Duration {
	b.Helper()
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		b.Fatal(err)
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

// benchBare confirms nothing, so that each round reads the same.
func benchBare(b *testing.B, url string, parse bool) {
	config, err := pgx.ParseConfig(url)
	if err != nil {
		b.Fatal(err)
	}
	config.RuntimeParams["replication"] = "database"
	config.RuntimeParams["wal_sender_timeout"] = "0" // nothing answers it
	var elapsed, cpu time.Duration
	for range b.N {
		slot := copySlot(b, url)
		conn, err := pgconn.ConnectConfig(b.Context(), &config.Config)
		if err != nil {
			b.Fatal(err)
		}
		err = pglogrepl.StartReplication(b.Context(), conn, slot, 0, pglogrepl.StartReplicationOptions{
			PluginArgs: []string{"proto_version '1'", "publication_names 'outbox_relay'"},
		})
		if err != nil {
			b.Fatal(err)
		}
		begun, used := time.Now(), processorTime(b)
		ctx, cancel := context.WithTimeout(b.Context(), 5*time.Minute)
		for rows := 0; rows < benchRows; {
			rows += receiveBare(b, ctx, conn, parse)
		}
		cancel()
		elapsed, cpu = elapsed+time.Since(begun), cpu+processorTime(b)-used
		_ = conn.Conn().Close()
	}
	report(b, elapsed, cpu)
}

// receiveBare receives one message and returns how many rows it was.
func receiveBare(b *testing.B, ctx context.Context, conn *pgconn.PgConn, parse bool) int {
	message, err := conn.ReceiveMessage(ctx)
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

// benchSource confirms what it resolves, so each round has a slot of its own.
func benchSource(b *testing.B, url string) {
	config, err := pgx.ParseConfig(url)
	if err != nil {
		b.Fatal(err)
	}
	var elapsed, cpu time.Duration
	for range b.N {
		slot := copySlot(b, url)
		s := cdc.New(fastConfig(slot), config, config, zap.NewNop())
		if err := s.Open(b.Context()); err != nil {
			b.Fatal(err)
		}
		begun, used := time.Now(), processorTime(b)
		readAll(b, s)
		elapsed, cpu = elapsed+time.Since(begun), cpu+processorTime(b)-used
		if err := s.Close(b.Context()); err != nil {
			b.Fatal(err)
		}
	}
	report(b, elapsed, cpu)
}

func readAll(b *testing.B, s *cdc.Source) {
	b.Helper()
	var number uint64
	var numbers []uint64
	for number < benchRows {
		rows, _, err := s.Next(b.Context())
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

// copySlot makes another slot at the place of the first.
func copySlot(b *testing.B, url string) string {
	b.Helper()
	conn, err := pgx.Connect(b.Context(), url)
	if err != nil {
		b.Fatal(err)
	}
	defer conn.Close(context.Background())
	name := fmt.Sprintf("bench_%d", slots.Add(1))
	if _, err := conn.Exec(b.Context(), "select pg_copy_logical_replication_slot('bench', $1)", name); err != nil {
		b.Fatal(err)
	}
	return name
}
