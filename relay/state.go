package relay

import (
	"time"

	"github.com/outbox-relay/outbox-relay/internal/hint"
	"github.com/outbox-relay/outbox-relay/internal/pgtext"
	"github.com/outbox-relay/outbox-relay/internal/vital"
)

// StateVersion is the version of the JSON form of [State]. It changes when a
// reader would break.
const StateVersion = 1

// Phase says where a relay is.
type Phase string

// The phases.
const (
	Starting     Phase = "starting"     // it has not moved messages yet, and is about to
	Standby      Phase = "standby"      // another relay has the slot
	Active       Phase = "active"       // it moves messages
	Careful      Phase = "careful"      // it moves them one at a time, after it has died again and again
	Holding      Phase = "holding"      // the server is another one than before; a person decides
	Reconnecting Phase = "reconnecting" // it has lost the stream and takes it again
	Stopping     Phase = "stopping"     // it was asked to stop
)

// State is what a relay knows of itself at one moment. What does not apply is nil,
// empty or 0.
type State struct {
	// Version is [StateVersion].
	Version int       `json:"version"`
	At      time.Time `json:"at"`
	// Started is when the relay was made, Holder which process it is, and Program
	// which version.
	Started time.Time `json:"started"`
	Holder  string    `json:"holder"`
	Program string    `json:"program"`
	Slot    string    `json:"slot"`
	Polls   bool      `json:"polls"`
	// System is the system identifier of the server that it is on; empty until it
	// has asked for the stream of one.
	System string `json:"system"`

	Phase Phase     `json:"phase"`
	Since time.Time `json:"since"`
	// Reason is why it is in this phase, as far as that is not a matter of course,
	// and Hint what a person can do about it.
	Reason string `json:"reason"`
	Hint   string `json:"hint"`

	// Step is what Run is at, for people, StepSince since when.
	Step      string    `json:"step"`
	StepSince time.Time `json:"step_since"`

	// Sessions counts how often it had the stream. Epoch is the number of the
	// session among those of all relays, Interrupted how the last one ended that
	// did not end in a stop.
	Sessions    uint64   `json:"sessions"`
	Epoch       int64    `json:"epoch"`
	Interrupted *Trouble `json:"interrupted"`
	// SlotMoved says that the session began where somebody else had moved the slot
	// to: the stream does not show what is before.
	SlotMoved bool `json:"slot_moved"`

	Source SourceState `json:"source"`
	Router RouterState `json:"router"`
	Writer WriterState `json:"writer"`
	Totals Totals      `json:"totals"`
	// Sweep is nil without a session, and where the table is polled: there every
	// look is one.
	Sweep *SweepState `json:"sweep"`

	// Loops are what works beside each other while a session lasts, Database the
	// connections for it.
	Loops    []LoopState `json:"loops"`
	Database []LoopState `json:"database"`
}

// Trouble is an error, and when it came first.
type Trouble struct {
	Text  string    `json:"text"`
	Hint  string    `json:"hint"`
	Since time.Time `json:"since"`
}

// SourceState is where messages come from.
type SourceState struct {
	Doing vital.Doing `json:"doing"`
	Since time.Time   `json:"since"`
	// Trouble is what keeps messages from coming, or will.
	Trouble *Trouble `json:"trouble"`
	// Doubts is what a person should mend although messages come, or most of them.
	Doubts string `json:"doubts"`
	// SlotHolder says in standby who has the slot, HolderHeard when the server
	// heard from that one last, if it tells.
	SlotHolder  string     `json:"slot_holder"`
	HolderHeard *time.Time `json:"holder_heard"`
	// HolderPID is the process of the server that the holder has; 0 if it is not known.
	HolderPID int `json:"holder_pid"`
	// LastWord is when the server confirmed last that the stream is ours. Nothing
	// is sent while it is older than Config.TrustWindow.
	LastWord *time.Time `json:"last_word"`
	// Position is the confirmed flush.
	Position string `json:"position"`
	// Turned is when the loop came by that reads the stream.
	Turned *time.Time `json:"turned"`
}

// LoopState is a loop of the relay, or a connection that loops work with.
type LoopState struct {
	Name string `json:"name"`
	// Busy is since when it has been at one piece of work; nil while it waits for
	// the next.
	Busy *time.Time `json:"busy"`
	// Turned is when it came by last.
	Turned *time.Time `json:"turned"`
	// Trouble is what has kept it from its work since it last went well.
	Trouble *Trouble `json:"trouble"`
	// Connection is the one for which a loop may have to wait for long.
	Connection string `json:"connection,omitempty"`
}

// WriterState is what makes outcomes durable.
type WriterState struct {
	// Pending counts the outcomes that wait for it, Trouble is why it cannot write
	// them. Nothing new is taken in meanwhile.
	Pending int      `json:"pending"`
	Trouble *Trouble `json:"trouble"`
}

// Totals counts messages since the relay was made, by what became of them.
type Totals struct {
	Dispatched  uint64 `json:"dispatched"`
	Deferred    uint64 `json:"deferred"`
	DeadLetters uint64 `json:"dead_letters"`
	Withdrawn   uint64 `json:"withdrawn"`
	// Recovered counts those that the stream did not show.
	Recovered uint64 `json:"recovered"`

	LastOutcome    *time.Time `json:"last_outcome"`
	LastDeadLetter *time.Time `json:"last_dead_letter"`
	LastRecovered  *time.Time `json:"last_recovered"`
}

// State returns what the relay knows of itself. It asks nobody, holds nothing up,
// and may be called at any time from any goroutine.
func (r *Relay) State() State {
	source := r.source.Condition()
	s := State{
		Version: StateVersion, At: time.Now(),
		Started: r.started, Holder: r.cfg.Holder, Program: r.cfg.Version, Slot: r.cfg.Slot, Polls: r.cfg.Polls, System: r.dialer.stream.at().system,
		Sessions: r.sessions.Load(), Interrupted: troubleOf(r.interrupted.Load()),
		Source: r.sourceState(&source), Totals: r.totals.state(),
		Router: RouterState{Queues: []QueueState{}}, Loops: []LoopState{},
	}
	var err error
	s.Phase, s.Since, err = r.phase(&source)
	if err != nil {
		s.Reason, s.Hint = err.Error(), hintOf(err)
	}
	step := r.step.Load()
	s.Step, s.StepSince = step.name, step.since
	for _, store := range r.stores() {
		s.Database = append(s.Database, loopOf(store.name, "", &store.pulse))
	}
	if session := r.session.Load(); session != nil {
		session.describe(&s)
	}
	return s
}

func (r *Relay) sourceState(c *Condition) SourceState {
	return SourceState{
		Doing: c.Doing, Since: c.Since, Trouble: troubleOf(c.Trouble), Doubts: c.Doubts,
		SlotHolder: c.Holder, HolderHeard: orNullTime(c.HolderHeard), HolderPID: c.HolderPID,
		LastWord: orNullTime(r.source.LastWord()), Position: r.source.Position(), Turned: orNullTime(c.Turned),
	}
}

// describe adds what is known of a session while it lasts.
func (s *session) describe(to *State) {
	to.Epoch, to.SlotMoved = s.writer.epoch, s.moved
	if !to.Polls {
		to.Sweep = s.sweeps.read()
	}
	to.Writer = WriterState{Pending: s.writer.waiting(), Trouble: troubleOf(s.writer.pulse.Trouble())}
	to.Loops = []LoopState{
		loopOf("intake", "reading", &s.pulses.intake),
		loopOf("writer", "", &s.writer.pulse), // no attempt to write takes long
		loopOf("clock", "", &s.pulses.clock),
		loopOf("loader", "loading", &s.pulses.loader),
		loopOf("settings", "loading", &s.pulses.settings),
		loopOf("sweep", "sweeping", &s.pulses.sweep),
		loopOf("retention", "sweeping", &s.pulses.retention),
	}
	to.Router = s.routerState(to.At)
}

func loopOf(name, connection string, p *vital.Pulse) LoopState {
	return LoopState{
		Name: name, Busy: orNullTime(p.Busy()), Turned: orNullTime(p.Turned()),
		Trouble: troubleOf(p.Trouble()), Connection: connection,
	}
}

func troubleOf(t *vital.Trouble) *Trouble {
	if t == nil {
		return nil
	}
	return &Trouble{Text: t.Err.Error(), Hint: hintOf(t.Err), Since: t.Since}
}

// hintOf is what a person can do about an error; empty if nobody knows.
func hintOf(err error) string {
	if text := hint.Of(err); text != "" {
		return text
	}
	if pgtext.SQLState(err) == sqlstateLockTimeout {
		return lockHint(err)
	}
	return ""
}

// lockHint says how to find who has the lock that a statement of the relay waited for,
// and in which function, if a trigger of somebody else called one: then it may be on a
// table that is none of the outbox. Between two attempts nobody waits for the lock, so
// what is told is who can have it: a transaction that is older than the wait.
func lockHint(err error) string {
	text := "somebody holds a lock that the statement needs"
	if at := pgtext.Function(err); at != "" {
		text += " in " + at
	}
	return text + "; it is one of these transactions: select pid, usename, application_name, state, xact_start, left(query, 100) " +
		"from pg_stat_activity where xact_start < now() - interval '5 s' order by xact_start (as the relay's role, or one with pg_read_all_stats)"
}
