package admin

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/outbox-relay/outbox-relay/internal/operate"
	"github.com/outbox-relay/outbox-relay/internal/paused"
	"github.com/outbox-relay/outbox-relay/internal/pgtext"
	"github.com/outbox-relay/outbox-relay/internal/plural"
	"github.com/outbox-relay/outbox-relay/internal/status"
	"github.com/outbox-relay/outbox-relay/relay"
)

const (
	// mostRows is how many queues the page lists.
	mostRows = 100
	// fewLetters is how many dead letters the first page lists.
	fewLetters = 10
)

// frame is what all pages have.
type frame struct {
	Title string
	// Live says that the page is about this moment and renews itself.
	Live bool
	// At is when it was made.
	At time.Time
	// Slot and Program say whose page it is.
	Slot, Program string
	session
}

// overview is the first page.
type overview struct {
	frame
	// Level is good, idle, warn or bad, Word the same for people, and Sentence how
	// the relay is doing.
	Level, Word, Sentence string
	// Aside is what Postgres says beside it, where that is not the sentence.
	Aside    string
	Reasons  []Finding
	Warnings []Finding

	State  relay.State
	Report *status.Report
	// Trouble says why there is no report, Asked when the look began at it.
	Trouble string
	Asked   time.Time
	// Done says what was done before this page came up.
	Done   string
	Charts []chart
	Queues []queueRow
	// MoreQueues counts those that are not listed.
	MoreQueues int
	// Board is what only the page wants to know of the database, BoardTrouble why it
	// is not known.
	Board        *Look
	BoardTrouble string
	Checkup      *checkup
	Headroom     *headroom
	Pace         *status.Pace
	Key          *Key // nil if nobody knows
}

// headroom is how much of the WAL that a slot may keep is left.
type headroom struct{ Kept, Limit int64 }

// High is where it becomes little.
func (h *headroom) High() int64 { return h.Limit / 2 }

// queueRow is a queue as the relay sees it, and as the table does.
type queueRow struct {
	Name   string
	Paused bool
	Pause  paused.Note
	State  *relay.QueueState // nil if the relay had nothing for it
	// Settings are those that differ from the default.
	Settings []string
	// Unseen counts messages without outcome that the relay does not have.
	Unseen int64
	// Deferred counts the messages that wait in the table.
	Deferred operate.Count
	// Dead counts the keys that wait behind a dead letter until a person decides,
	// Failed those behind a message that is tried again.
	Dead, Failed int
	// Word and Level say how it is doing.
	Word, Level string
	// Text is why, for people.
	Text string
	// LastSuccess is how long ago it answered.
	LastSuccess string
	Dispatched  uint64
	// Requests are those of the last minute; nil without any.
	Requests *Requests
}

func (p *page) overview(r *http.Request) *overview {
	database := p.server.database(r)
	state := p.State()
	verdict := p.server.readyAfter(&state, &database)
	o := &overview{
		frame: p.frame(r), State: state, Trouble: database.Error, Asked: database.At, Done: done(r.URL.Query()),
		Reasons: verdict.Reasons, Warnings: verdict.Warnings,
	}
	o.Live = true
	o.Report = database.Report
	o.Charts = charts(p.server.history.until(state.At, o.Report), state.At)
	if o.Report == nil || o.Report.Deferred.Count > 0 { // which is newer than the history
		o.Pace = p.server.history.pace(state.At)
	}
	o.setBoard(&database)
	o.Checkup = p.checkup(state.Since)
	o.listQueues(p.Counts(), p.server.requests.lately())
	o.judge(&verdict, !database.At.Before(state.Since))
	if o.Report != nil && o.Report.Slot != nil && o.Report.Slot.RetainedBytes != nil && o.Report.Slot.LimitBytes != nil {
		o.Headroom = &headroom{Kept: *o.Report.Slot.RetainedBytes, Limit: *o.Report.Slot.LimitBytes}
	}
	if p.Key != nil {
		o.Key = new(p.Key())
	}
	o.Title = o.Word + ": " + state.Slot
	return o
}

func (p *page) frame(r *http.Request) frame {
	state := p.State()
	return frame{At: state.At, Slot: state.Slot, Program: state.Program, session: p.who(r)}
}

// judge puts the verdict in words. A report that is older than the phase speaks of
// the time before.
func (o *overview) judge(v *Verdict, fresh bool) {
	switch {
	case !v.OK:
		o.Level, o.Word = "bad", "Not ready"
	case len(v.Warnings) > 0 && v.Phase == relay.Standby:
		o.Level, o.Word = "warn", "Standby, with warnings"
	case len(v.Warnings) > 0:
		o.Level, o.Word = "warn", "Ready, with warnings"
	case v.Phase == relay.Standby:
		o.Level, o.Word = "idle", "Standby"
	default:
		o.Level, o.Word = "good", "Ready"
	}
	o.Sentence = string(v.Phase) + " since " + clock(v.Since)
	active := v.Phase == relay.Active || v.Phase == relay.Careful
	switch {
	case o.Report != nil && active && fresh:
		o.Sentence = o.Report.Summary
	case o.Report != nil && active:
	case o.Report != nil:
		o.Aside = "Postgres says: " + o.Report.Summary
	case o.Trouble != "":
		o.Aside = "Postgres cannot be asked: " + o.Trouble
	}
}

// setBoard takes over what is for the page alone.
func (o *overview) setBoard(d *Database) {
	switch {
	case d.look == nil:
		o.Board, o.BoardTrouble = new(Look), d.Error
	case d.look.Trouble != nil:
		o.Board, o.BoardTrouble = new(Look), oneLine(pgtext.OneLine(d.look.Trouble))
	default:
		o.Board = d.look
	}
}

// listQueues puts together what the relay and the table know of each queue.
func (o *overview) listQueues(counts relay.Counts, requests []Requests) {
	rows := map[string]*queueRow{}
	row := func(name string) *queueRow {
		if rows[name] == nil {
			rows[name] = &queueRow{Name: name}
		}
		return rows[name]
	}
	for i := range o.State.Router.Queues {
		q := &o.State.Router.Queues[i]
		r := row(q.Name)
		r.State, r.Paused, r.Pause = q, q.Paused, q.Note
		if q.LastSuccess != nil {
			r.LastSuccess = seconds(max(0, o.State.At.Sub(*q.LastSuccess).Seconds())) + " ago"
		}
	}
	for i := range o.Board.Queues {
		q := &o.Board.Queues[i]
		r := row(q.Queue)
		r.Paused, r.Pause, r.Deferred = q.Paused, q.Note, q.Deferred
		r.Settings = q.Differing()
	}
	if o.Report != nil && o.Report.Unseen != nil {
		for _, q := range o.Report.Unseen.Queues {
			row(q.Queue).Unseen = q.Count
		}
	}
	for i := range counts.Queues {
		if r := rows[counts.Queues[i].Name]; r != nil {
			r.Dispatched = counts.Queues[i].Dispatched
		}
	}
	for i := range requests {
		if r := rows[requests[i].Queue]; r != nil {
			r.Requests = &requests[i]
		}
	}
	for _, r := range rows {
		r.hold(o.Report, o.State.Router.Endpoint.Closed)
		r.judge(o.State.At, o.State.Router.Endpoint.Closed)
		o.Queues = append(o.Queues, *r)
	}
	slices.SortFunc(o.Queues, func(a, b queueRow) int { return strings.Compare(a.Name, b.Name) })
	if o.MoreQueues = len(o.Queues) - mostRows; o.MoreQueues > 0 {
		o.Queues = o.Queues[:mostRows]
	}
}

// hold says behind what keys wait on their own. While nothing goes to the queue,
// others fail as well, and only who waits for a person is told of.
func (r *queueRow) hold(report *status.Report, endpointClosed bool) {
	s := r.State
	if s == nil {
		return
	}
	r.Dead = deadHeads(report, s)
	if !r.Paused && !s.Gate.Closed && !endpointClosed {
		r.Failed = s.HeldLanes - r.Dead
	}
}

// judge says how a queue is doing.
func (r *queueRow) judge(now time.Time, endpointClosed bool) {
	switch s := r.State; {
	case r.Paused:
		r.Level, r.Word = "warn", "paused"
		r.Text = r.Pause.Told(clock)
	case s != nil && s.Gate.Closed:
		r.Level, r.Word, r.Text = "bad", "closed", s.Gate.Why()
	case s != nil && endpointClosed:
		r.Level, r.Word, r.Text = "bad", "waiting", "the endpoint is closed"
	case s != nil && s.RatePerSecond > 0 && (s.Hold != "" || rateBound(s)):
		r.Level, r.Word = "warn", "bounded"
		r.Text = fmt.Sprintf("more waits than rate_per_second=%g lets go", s.RatePerSecond)
	case s != nil && s.Hold == "draining":
		r.Level, r.Word, r.Text = "warn", "draining", "the backlog goes out, new messages behind it"
	case s != nil && s.Hold != "":
		r.Level, r.Word, r.Text = "warn", "held", "messages wait in the table, new ones behind them"
	case s == nil:
		r.Level, r.Word = "idle", "quiet"
	case s.HeldLanes > 0:
		r.Level, r.Word = "warn", plural.Of(s.HeldLanes, "key held", "keys held")
	case hot(s, now):
		r.Level, r.Word = "warn", plural.Of(s.DrainingLanes, "key behind", "keys behind")
		r.Text = "messages of a key go one after the other, and more come"
	default:
		r.Level, r.Word = "good", "open"
	}
}

// Number makes a number of what the relay counts.
func (r *queueRow) Number() int64 { return int64(r.Dispatched) }
