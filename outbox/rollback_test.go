package outbox_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
	"golang.org/x/sync/errgroup"

	"github.com/outbox-relay/outbox-relay/internal/pgtest"
	"github.com/outbox-relay/outbox-relay/outbox"
)

// APP-01: rolled back work leaves nothing, whichever way it was rolled back.
func TestEnqueue_RollbacksAndSavepoints(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	url := pgtest.Migrated(t)
	conn := connect(t, url)
	enqueue := func(tx pgx.Tx, key string) {
		t.Helper()
		if _, err := outbox.Enqueue(ctx, tx, message(key)); err != nil {
			t.Fatal(err)
		}
	}

	tx := begin(t, conn)
	enqueue(tx, "rolled-back")
	if err := tx.Rollback(ctx); err != nil {
		t.Fatal(err)
	}

	tx = begin(t, conn)
	enqueue(tx, "before-savepoint")
	for _, keep := range []bool{true, false} {
		savepoint, err := tx.Begin(ctx)
		if err != nil {
			t.Fatal(err)
		}
		enqueue(savepoint, fmt.Sprintf("in-savepoint-kept-%v", keep))
		if keep {
			err = savepoint.Commit(ctx)
		} else {
			err = savepoint.Rollback(ctx)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	// The key of the savepoint that was rolled back is free again.
	enqueue(tx, "in-savepoint-kept-false")
	commit(t, tx)

	// A connection that is lost in mid-transaction.
	lost := connect(t, url)
	enqueue(begin(t, lost), "connection-lost")
	if err := lost.PgConn().Conn().Close(); err != nil {
		t.Fatal(err)
	}

	want := []string{"before-savepoint", "in-savepoint-kept-true", "in-savepoint-kept-false"}
	if diff := cmp.Diff(want, keys(t, url)); diff != "" {
		t.Errorf("committed keys (-want +got):\n%s", diff)
	}
}

// APP-01: whatever ten writers roll back, the table holds exactly what they
// committed.
func TestEnqueue_ExactlyWhatWasCommitted(t *testing.T) {
	t.Parallel()
	url := pgtest.Migrated(t)
	const writers, rounds = 10, 100
	committed := make(chan string, 2*writers*rounds)
	var group errgroup.Group
	for writer := range writers {
		conn := connect(t, url)
		random := rand.New(rand.NewPCG(1, uint64(writer)))
		group.Go(func() error {
			for round := range rounds {
				if err := mixedRound(t.Context(), conn, random, fmt.Sprintf("w%d-r%d", writer, round), committed); err != nil {
					return err
				}
			}
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		t.Fatal(err)
	}
	close(committed)
	var want []string
	for key := range committed {
		want = append(want, key)
	}
	got := keys(t, url)
	slices.Sort(got)
	slices.Sort(want)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("keys (-want +got):\n%s", diff)
	}
}

// mixedRound is a transaction with a message of its own and one in a savepoint,
// either of which may be rolled back, by the client or by an exception in
// PL/pgSQL. It reports the keys that it committed.
func mixedRound(ctx context.Context, conn *pgx.Conn, random *rand.Rand, key string, committed chan<- string) error {
	tx, err := conn.Begin(ctx)
	if err != nil {
		return err
	}
	written := []string{key}
	if _, err := outbox.Enqueue(ctx, tx, message(key)); err != nil {
		return err
	}
	inner := key + "-inner"
	switch random.IntN(3) {
	case 0:
		_, err = tx.Exec(ctx, `do $$ begin
			insert into outbox.messages (key, queue, payload) values ('`+inner+`', 'orders', '{}');
			perform 1 / 0;
		exception when division_by_zero then null; end $$`)
	case 1:
		err = pgx.BeginFunc(ctx, tx, func(savepoint pgx.Tx) error {
			_, err := outbox.Enqueue(ctx, savepoint, message(inner))
			return err
		})
		written = append(written, inner)
	case 2:
		var savepoint pgx.Tx
		if savepoint, err = tx.Begin(ctx); err != nil {
			return err
		}
		if _, err = outbox.Enqueue(ctx, savepoint, message(inner)); err != nil {
			return err
		}
		err = savepoint.Rollback(ctx)
	}
	if err != nil {
		return err
	}
	if random.IntN(3) == 0 {
		return tx.Rollback(ctx)
	}
	if err := tx.Commit(ctx); err != nil {
		return err
	}
	for _, key := range written {
		committed <- key
	}
	return nil
}
