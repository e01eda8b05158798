package bench

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"golang.org/x/sync/errgroup"
)

// flow is messages that are committed at a fixed rate. Every ordering key has
// one writer, so that its numbers are in commit order.
type flow struct {
	queue   string
	group   string // the first part of its streams' names
	keys    int    // ordering keys
	free    bool   // every second message has none
	timed   bool   // the queue notes how long each took
	rate    int    // messages a second
	each    int    // messages of a transaction
	writers int
	fill    string
}

// tally counts what was committed, by stream.
type tally struct {
	mu      sync.Mutex
	streams map[string]int
	n       int
}

func newTally() *tally { return &tally{streams: map[string]int{}} }

func (t *tally) add(stream string, n int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.streams[stream] += n
	t.n += n
}

func (t *tally) total() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.n
}

func (t *tally) copy() map[string]int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return maps.Clone(t.streams)
}

// run writes until enough is closed, or fails.
func (f flow) run(ctx context.Context, url string, committed *tally, enough <-chan struct{}) error {
	group, ctx := errgroup.WithContext(ctx)
	for w := range f.writers {
		group.Go(func() error { return f.write(ctx, w, url, committed, enough) })
	}
	return group.Wait()
}

// write is one writer: the ordering keys of its own in turn. It keeps to a
// timetable, so that what a slow commit delayed is made good.
func (f flow) write(ctx context.Context, writer int, url string, committed *tally, enough <-chan struct{}) error {
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	interval := time.Second * time.Duration(f.writers*f.each) / time.Duration(f.rate)
	due := time.Now().Add(rand.N(interval))
	timer := time.NewTimer(time.Until(due))
	defer timer.Stop()
	numbers := map[string]int{}
	for i := 0; ; i += f.each {
		select {
		case <-timer.C:
		case <-enough:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
		var b batch
		for j := range f.each {
			stream, orderingKey := f.next(writer, i+j)
			b.add(stream, orderingKey, numbers[stream])
			numbers[stream]++
		}
		if err := f.commit(ctx, conn, b); err != nil {
			return err
		}
		for _, stream := range b.streams {
			committed.add(stream, 1)
		}
		due = due.Add(interval)
		timer.Reset(time.Until(due))
	}
}

// batch is the messages of a transaction.
type batch struct{ streams, keys, orderingKeys []string }

func (b *batch) add(stream, orderingKey string, n int) {
	b.streams = append(b.streams, stream)
	b.keys = append(b.keys, fmt.Sprintf("%s-%d", stream, n))
	b.orderingKeys = append(b.orderingKeys, orderingKey)
}

// next is the stream of the i-th message of a writer, and its ordering key.
func (f flow) next(writer, i int) (stream, orderingKey string) {
	if f.free {
		if i%2 == 1 {
			return fmt.Sprintf("%s.f%d", f.group, writer), ""
		}
		i /= 2
	}
	own := (f.keys - writer + f.writers - 1) / f.writers // keys of this writer
	key := writer + i%own*f.writers
	stream = fmt.Sprintf("%s.k%d", f.group, key)
	return stream, stream
}

func (f flow) commit(ctx context.Context, conn *pgx.Conn, b batch) error {
	at := int64(0)
	if f.timed {
		at = time.Now().UnixMicro()
	}
	_, err := conn.Exec(ctx, `insert into outbox.messages (key, queue, ordering_key, payload)
		select key, $3, nullif(ordering_key, ''), jsonb_build_object('at', $4::bigint, 'fill', $5::text)
		from unnest($1::text[], $2::text[]) with ordinality as t (key, ordering_key, n) order by n`,
		b.keys, b.orderingKeys, f.queue, at, f.fill)
	if err != nil {
		return fmt.Errorf("commit messages: %w", err)
	}
	return nil
}

// burst commits n messages as fast as Postgres takes them, a hundred in a
// transaction, half of them over the ordering keys.
func (f flow) burst(ctx context.Context, url string, committed *tally, n int) error {
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	if _, err := conn.Exec(ctx, `set synchronous_commit = off`); err != nil {
		return err
	}
	const each = 100
	for from := 0; from < n; from += each {
		_, err := conn.Exec(ctx, `insert into outbox.messages (key, queue, ordering_key, payload)
			select case i % 2 when 0 then $1 || '.k' || i / 2 % $4 || '-' || i / 2 / $4 else $1 || '.f0-' || i / 2 end,
				$2, case i % 2 when 0 then $1 || '.k' || i / 2 % $4 end,
				jsonb_build_object('at', 0, 'fill', $3::text)
			from generate_series($5::int, $6::int - 1) i order by i`, f.group, f.queue, f.fill, f.keys, from, min(n, from+each))
		if err != nil {
			return fmt.Errorf("write a burst: %w", err)
		}
	}
	for i := range n {
		stream := f.group + ".f0"
		if i%2 == 0 {
			stream = fmt.Sprintf("%s.k%d", f.group, i/2%f.keys)
		}
		committed.add(stream, 1)
	}
	return nil
}

// filler is text of n characters that does not compress, or a large payload
// would be a small row.
func filler(n int) string {
	const letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_"
	text := make([]byte, n)
	for i := range text {
		text[i] = letters[rand.IntN(len(letters))]
	}
	return string(text)
}
