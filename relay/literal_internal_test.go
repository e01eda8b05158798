package relay

import (
	"context"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
	"pgregory.net/rapid"

	"github.com/outbox-relay/outbox-relay/internal/pgtest"
)

func TestLiterally_ArrivesAsItWas(t *testing.T) {
	t.Parallel()
	conn := connectTo(t, "")
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.OneOf(rapid.StringMatching(`[ '"\\{},;$0-9eENUL\n\t-]*`), rapid.StringOf(rapid.Rune().Filter(func(r rune) bool { return r != 0 })))
		texts := rapid.SliceOf(rapid.Ptr(text, true)).Draw(t, "texts")
		ids := rapid.SliceOf(rapid.Int64()).Draw(t, "ids")
		statuses := rapid.SliceOf(rapid.Ptr(rapid.Int32(), true)).Draw(t, "statuses")
		moments := make([]*time.Time, len(ids))
		for i, id := range ids {
			if id%2 == 0 {
				at := time.UnixMicro(id % 4e15).UTC()
				moments[i] = &at
			}
		}
		name := text.Draw(t, "name")
		sql, err := literally(conn, []statement{{
			`create temporary table arrived as select $1::text as name, $2::bigint as id, $3::bigint[] as ids, $4::text[] as texts, $5::int[] as statuses, $6::timestamptz[] as moments`,
			[]any{name, int64(-7), ids, texts, statuses, moments},
		}, {`analyze`, nil}})
		if err != nil {
			t.Fatal(err)
		}
		if err := conn.PgConn().Exec(t.Context(), sql).Close(); err != nil {
			t.Fatalf("%v in\n%s", err, sql)
		}
		var got struct {
			name     string
			id       int64
			ids      []int64
			texts    []*string
			statuses []*int32
			moments  []*time.Time
		}
		err = conn.QueryRow(t.Context(), `select * from arrived`).Scan(&got.name, &got.id, &got.ids, &got.texts, &got.statuses, &got.moments)
		if err != nil {
			t.Fatal(err)
		}
		for want, got := range map[any]any{&name: &got.name, &ids: &got.ids, &texts: &got.texts, &statuses: &got.statuses, &moments: &got.moments} {
			if diff := cmp.Diff(want, got, cmp.Comparer(func(a, b time.Time) bool { return a.Equal(b) })); diff != "" {
				t.Errorf("arrived otherwise:\n%s", diff)
			}
		}
		if got.id != -7 {
			t.Errorf("number %d", got.id)
		}
		if _, err := conn.Exec(t.Context(), `drop table arrived`); err != nil {
			t.Fatal(err)
		}
	})
}

// Where a backslash is an escape, a text could end its own quotes.
func TestLiterally_RefusesBackslashEscapes(t *testing.T) {
	t.Parallel()
	conn := connectTo(t, "off")
	if sql, err := literally(conn, []statement{{`select $1`, []any{`\`}}}); err == nil {
		t.Errorf("wrote %s", sql)
	}
}

func connectTo(t *testing.T, conforming string) *pgx.Conn {
	t.Helper()
	config, err := pgx.ParseConfig(pgtest.Database(t))
	if err != nil {
		t.Fatal(err)
	}
	if conforming != "" {
		config.RuntimeParams["standard_conforming_strings"] = conforming
	}
	conn, err := pgx.ConnectConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.WithoutCancel(t.Context())) })
	return conn
}
