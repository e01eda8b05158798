package judge

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/outbox-relay/outbox-relay/internal/waits"
)

// hurtRelays kills, stops and freezes relays: the one that holds the slot, and
// the one that waits for it.
func (r *run) hurtRelays(ctx context.Context) {
	acts := []act{r.freeze, r.freeze, r.freezeLong}
	if r.mood.mortal {
		acts = append(acts, r.kill, r.kill, r.stop, r.stop, r.killBoth)
	}
	r.hurt(ctx, relaysKind, &r.peace.infrastructure, 6*time.Second, 20*time.Second, acts)
}

// victim is the place of a relay: of two times out of three the active one.
func (r *run) victim(ctx context.Context, dice *rand.Rand) (place int, what string) {
	wantActive, fallback := dice.IntN(3) > 0, dice.IntN(2)
	active, ok := r.activePlace(ctx)
	switch {
	case !ok:
		return fallback, "a relay"
	case wantActive:
		return active, "the active relay"
	}
	return 1 - active, "the standby"
}

// activePlace is the place of the relay that holds the slot, as the table says.
func (r *run) activePlace(ctx context.Context) (place int, ok bool) {
	var holder string
	err := r.ask(ctx, func(ctx context.Context, conn *pgx.Conn) error {
		return conn.QueryRow(ctx, `select coalesce(holder, '') from outbox.relays where slot = $1`, slot).Scan(&holder)
	})
	if err != nil {
		return 0, false
	}
	return r.placeOf(holder)
}

// placeOf is the place of a relay by its name in the table, which ends with its
// process id.
func (r *run) placeOf(holder string) (place int, ok bool) {
	pid, err := strconv.Atoi(holder[strings.LastIndexByte(holder, ':')+1:])
	for place := range r.relays.running {
		if err == nil && r.relays.at(place).PID() == pid {
			return place, true
		}
	}
	return 0, false
}

// again starts the relay of a place after a while.
func (r *run) again(ctx context.Context, place int, after time.Duration) {
	waits.Sleep(ctx, after)
	if err := r.relays.start(place); err != nil {
		r.report.violate("judge", "%v", err)
	}
}

func (r *run) kill(ctx context.Context, dice *rand.Rand) {
	place, what := r.victim(ctx, dice)
	pause := between(dice, 0, 2*time.Second)
	end := r.history.begin(disturbance{parts: processes, name: "relay killed", detail: fmt.Sprintf("%s, place %d", what, place)})
	defer end()
	r.relays.kill(place)
	r.again(ctx, place, pause)
}

func (r *run) stop(ctx context.Context, dice *rand.Rand) {
	place, what := r.victim(ctx, dice)
	pause := between(dice, 0, 2*time.Second)
	end := r.history.begin(disturbance{parts: processes, name: "relay stopped", detail: fmt.Sprintf("%s, place %d", what, place)})
	defer end()
	r.relays.stop(ctx, place)
	r.again(ctx, place, pause)
}

func (r *run) killBoth(ctx context.Context, dice *rand.Rand) {
	pauses := []time.Duration{between(dice, 0, 2*time.Second), between(dice, 0, 2*time.Second)}
	end := r.history.begin(disturbance{parts: processes, name: "both relays killed"})
	defer end()
	r.relays.kill(0)
	r.relays.kill(1)
	r.again(ctx, 0, pauses[0])
	r.again(ctx, 1, pauses[1])
}

func (r *run) freeze(ctx context.Context, dice *rand.Rand) {
	r.freezeFor(ctx, dice, time.Second, 12*time.Second)
}

// freezeLong is longer than any trust window.
func (r *run) freezeLong(ctx context.Context, dice *rand.Rand) {
	r.freezeFor(ctx, dice, 12*time.Second, 20*time.Second)
}

func (r *run) freezeFor(ctx context.Context, dice *rand.Rand, least, most time.Duration) {
	place, what := r.victim(ctx, dice)
	d := disturbance{parts: processes | suspended, name: "relay frozen", detail: fmt.Sprintf("%s, place %d, for", what, place)}
	r.lasting(ctx, d, between(dice, least, most),
		func() { _ = r.relays.at(place).Signal(syscall.SIGSTOP) },
		func() { _ = r.relays.at(place).Signal(syscall.SIGCONT) })
}
