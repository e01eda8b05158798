package cdc_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/outbox-relay/outbox-relay/cdc"
	"github.com/outbox-relay/outbox-relay/internal/pgtest"
)

// announcing counts the announcements of a Source.
func announcing(s *cdc.Source) *int {
	var n int
	s.BeforeCreate(nil, func(context.Context) error { n++; return nil })
	return &n
}

// operatorError expects an error for a person.
func operatorError(t *testing.T, err, kind error) *cdc.OperatorError {
	t.Helper()
	var operator *cdc.OperatorError
	if !errors.Is(err, kind) || !errors.As(err, &operator) {
		t.Fatalf("error %v, want %v", err, kind)
	}
	return operator
}

func (r *rig) slotExists() bool {
	r.t.Helper()
	return value[bool](r, "select exists (select from pg_replication_slots where slot_name = $1)", r.config.Slot)
}

func TestSource_MakeSlot_AheadOfTime(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	s := r.source()
	announced := announcing(s)
	for i, want := range []bool{true, false} {
		made, err := s.MakeSlot(t.Context())
		if err != nil || made != want {
			t.Fatalf("call %d: made %t, %v, want %t", i, made, err, want)
		}
	}
	if *announced != 1 {
		t.Errorf("%d announcements, want 1", *announced)
	}
	if r.version() >= 170000 && !value[bool](r, "select failover from pg_replication_slots where slot_name = $1", r.config.Slot) {
		t.Error("the slot would not survive a failover")
	}
	// What is written from now on comes through it.
	r.insert("after the slot")
	another := r.source()
	r.open(another)
	r.consume(another, nil).wants("after the slot")
}

// Nothing is made for which the publication is not there first, or which cannot
// be announced.
func TestSource_MakeSlot_NeedsPublicationAndAnnouncement(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	s := r.source()
	silent := errors.New("nobody hears")
	s.BeforeCreate(nil, func(context.Context) error { return silent })
	if _, err := s.MakeSlot(t.Context()); !errors.Is(err, silent) {
		t.Errorf("without announcement: %v", err)
	}
	r.exec("drop publication outbox_relay")
	_, err := s.MakeSlot(t.Context())
	wantText(t, operatorError(t, err, cdc.ErrPublication).Hint(), "create publication")
	if r.slotExists() {
		t.Error("a slot was made")
	}
}

// It waits for open transactions as Open does, says for which, and ends when it
// is asked to.
func TestSource_MakeSlot_SaysWhatItWaitsFor(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	writer := r.connect()
	if _, err := writer.Exec(t.Context(), "begin; select pg_current_xact_id()"); err != nil {
		t.Fatal(err)
	}
	s := r.source(func(c *cdc.Config) { c.SlotTimeout = 300 * time.Millisecond })
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		_, err := s.MakeSlot(ctx)
		ended <- err
	}()
	r.eventually("the log says what the slot waits for", func() bool {
		return len(r.logged("slot creation waits for an open transaction")) > 0
	})
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("ended with %v", err)
	}
	r.eventually("no slot is left", func() bool { return !r.slotExists() })
}

func TestSource_RemakeSlot(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	streaming := r.source()
	r.open(streaming)
	s := r.source()
	announced := announcing(s)

	// Not while somebody streams.
	_, err := s.CheckRemake(t.Context())
	wantText(t, operatorError(t, err, cdc.ErrSlotHeld).Error(), "held by pid "+fmt.Sprint(r.holder()))
	wantText(t, operatorError(t, s.RemakeSlot(t.Context()), cdc.ErrSlotHeld).Error(), "held by pid")
	if *announced != 0 {
		t.Errorf("%d announcements of what was refused", *announced)
	}
	r.close(streaming)

	r.insert("only in the table")
	before := value[string](r, "select restart_lsn::text from pg_replication_slots where slot_name = $1", r.config.Slot)
	if exists, err := s.CheckRemake(t.Context()); err != nil || !exists {
		t.Fatalf("check: exists %t, %v", exists, err)
	}
	if err := s.RemakeSlot(t.Context()); err != nil {
		t.Fatal(err)
	}
	if *announced == 0 {
		t.Error("the new slot was not announced")
	}
	if !value[bool](r, "select restart_lsn > $1::pg_lsn from pg_replication_slots where slot_name = $2", before, r.config.Slot) {
		t.Error("the slot is the old one")
	}
	r.insert("through the new slot")
	r.open(streaming)
	r.consume(streaming, nil).wants("through the new slot")
}

// Who may not announce drops nothing.
func TestSource_RemakeSlot_AnnouncesFirst(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	s := r.source()
	if _, err := s.MakeSlot(t.Context()); err != nil {
		t.Fatal(err)
	}
	silent := errors.New("nobody hears")
	s.BeforeCreate(nil, func(context.Context) error { return silent })
	_, dropErr := s.DropSlot(t.Context())
	for what, err := range map[string]error{"remake": s.RemakeSlot(t.Context()), "drop": dropErr} {
		if !errors.Is(err, silent) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if !r.slotExists() {
		t.Error("the slot was dropped")
	}
}

func TestSource_DropSlot(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	streaming := r.source()
	r.open(streaming)
	s := r.source()
	_, err := s.DropSlot(t.Context())
	wantText(t, operatorError(t, err, cdc.ErrSlotHeld).Hint(), "stop the relay")
	_, err = s.CheckDrop(t.Context())
	wantText(t, operatorError(t, err, cdc.ErrSlotHeld).Hint(), "stop the relay")
	r.close(streaming)

	// The publication may be gone: what is removed need not work.
	for i, want := range []bool{true, false} {
		if dropped, err := s.DropPublication(t.Context()); err != nil || dropped != want {
			t.Errorf("publication, call %d: dropped %t, %v, want %t", i, dropped, err, want)
		}
		if exists, err := s.CheckDrop(t.Context()); err != nil || exists != want {
			t.Errorf("check, call %d: exists %t, %v, want %t", i, exists, err, want)
		}
		if dropped, err := s.DropSlot(t.Context()); err != nil || dropped != want {
			t.Errorf("slot, call %d: dropped %t, %v, want %t", i, dropped, err, want)
		}
	}
	if r.slotExists() {
		t.Error("the slot is there")
	}
}

// OPS-05: what belongs to somebody else is not touched by hand either.
func TestSource_ByHand_DoesNotTouchAForeignSlot(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.exec("select pg_create_logical_replication_slot($1, 'test_decoding')", r.config.Slot)
	s := r.source()
	_, makeErr := s.MakeSlot(t.Context())
	_, dropErr := s.DropSlot(t.Context())
	for what, err := range map[string]error{"make": makeErr, "remake": s.RemakeSlot(t.Context()), "drop": dropErr} {
		if !errors.Is(err, cdc.ErrSlotForeign) {
			t.Errorf("%s: %v, want ErrSlotForeign", what, err)
		}
	}
	if !r.slotExists() {
		t.Error("it was dropped")
	}
}

// A hint names the role that lacks a right, as SQL writes it.
func TestSource_ByHand_NamesTheRole(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	role := `No "right" ` + r.config.Slot // roles are of the cluster; the name is free
	quoted := value[string](r, "select quote_ident($1)", role)
	r.exec("create role " + quoted + " login")
	r.exec("grant usage on schema outbox to " + quoted)
	r.exec("grant select on outbox.messages to " + quoted)
	r.atEnd("drop owned by " + quoted + "; drop role " + quoted)
	config := r.parse(r.url)
	config.User = role
	s := cdc.New(r.config, config, config, r.log)

	_, err := s.MakeSlot(t.Context())
	wantText(t, operatorError(t, err, cdc.ErrPrivilege).Hint(), "alter role "+quoted+" replication", "grant rds_replication to "+quoted)
	_, err = s.DropPublication(t.Context())
	wantText(t, operatorError(t, err, cdc.ErrPrivilege).Hint(), `drop publication "outbox_relay"`)
	if _, err := r.source().MakeSlot(t.Context()); err != nil {
		t.Fatal(err)
	}
	_, err = s.DropSlot(t.Context())
	wantText(t, operatorError(t, err, cdc.ErrPrivilege).Hint(), "alter role "+quoted+" replication")

	database := r.parse(r.url).Database
	r.exec("revoke connect on database " + database + " from public")
	_, err = s.MakeSlot(t.Context())
	hint := operatorError(t, err, cdc.ErrPrivilege).Hint()
	wantText(t, hint, `grant connect on database "`+database+`" to `+quoted)
	if strings.Contains(hint, "<") {
		t.Errorf("the hint has a placeholder: %s", hint)
	}
}

// Of several servers it is the primary that was promoted last, also if an old one
// comes first and still takes writes.
func TestSource_ByHand_ActsOnTheNewestPrimary(t *testing.T) {
	t.Parallel()
	left := pgtest.New(t)
	promoted := pgtest.NewStandby(t, left)
	r := rigOn(t, left)
	r.eventually("the standby has replayed it", func() bool {
		conn, err := pgx.Connect(t.Context(), strings.Replace(r.url, fmt.Sprint(left.Port()), fmt.Sprint(promoted.Port()), 1))
		if err != nil {
			return false
		}
		defer conn.Close(t.Context())
		var there bool
		return conn.QueryRow(t.Context(), "select exists (select from pg_publication)").Scan(&there) == nil && there
	})
	if err := promoted.Promote(); err != nil {
		t.Fatal(err)
	}
	oldFirst := strings.Replace(r.url, fmt.Sprintf("127.0.0.1:%d", left.Port()), fmt.Sprintf("127.0.0.1:%d,127.0.0.1:%d", left.Port(), promoted.Port()), 1)
	patient := func(c *cdc.Config) { c.ConnectTimeout = patience } // who does not answer in a third of it has no say
	made, err := r.sourceTo(oldFirst, oldFirst, patient).MakeSlot(t.Context())
	if err != nil || !made {
		t.Fatalf("made %t, %v", made, err)
	}
	if r.slotExists() {
		t.Error("the slot was made on the server that was left behind")
	}
	if dropped, err := r.sourceTo(oldFirst, oldFirst, patient).DropSlot(t.Context()); err != nil || !dropped {
		t.Errorf("dropped %t, %v", dropped, err)
	}
}
