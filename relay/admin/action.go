package admin

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"go.uber.org/zap"

	"github.com/outbox-relay/outbox-relay/internal/operate"
	"github.com/outbox-relay/outbox-relay/internal/paused"
	"github.com/outbox-relay/outbox-relay/internal/pgtext"
)

const (
	// mostAtOnce is how many dead letters one act may change.
	mostAtOnce = 500
	// formBytes bounds what a form may send: the ids of as many.
	formBytes = 32 << 10
	// actTimeout bounds an act. A redrive waits a second after each 100 messages.
	actTimeout = 25 * time.Second
	// mostWhy is how long the reason of a discard may be.
	mostWhy = 500
)

// addActions adds what changes something. All of it is POST, asks for the token,
// tells first what it would do, and leaves a line in the log.
func (p *page) addActions() {
	s := p.server
	s.Handle("GET /login", guarded(http.HandlerFunc(p.showLogin)))
	s.Handle("POST /login", guarded(p.fromHere(p.login)))
	s.Handle("POST /logout", guarded(p.fromHere(p.logout)))
	s.Handle("POST /dead-letters/redrive", guarded(p.fromHere(p.allowed(p.only(letterFields, p.changeLetters(redrive))))))
	s.Handle("POST /dead-letters/discard", guarded(p.fromHere(p.allowed(p.only(letterFields, p.changeLetters(discard))))))
	s.Handle("POST /queues/pause", guarded(p.fromHere(p.allowed(p.only(queueFields, p.changeQueue(pause))))))
	s.Handle("POST /queues/resume", guarded(p.fromHere(p.allowed(p.only(queueFields, p.changeQueue(resume))))))
}

// What a form may have.
var (
	letterFields = []string{"confirm", "csrf", "discarded", "id", "ids", "key", "older_than", "queue", "reason", "why"}
	queueFields  = []string{"confirm", "csrf", "queue", "why"}
)

// only refuses what is not in known, and fields in the address: a filter with a slip
// in its name would choose every dead letter.
func (p *page) only(known []string, next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if r.URL.RawQuery != "" {
			p.refuse(w, r, http.StatusBadRequest, "the address has a query: fields belong into the form")
			return
		}
		for _, name := range slices.Sorted(maps.Keys(r.PostForm)) {
			if !slices.Contains(known, name) {
				p.refuse(w, r, http.StatusBadRequest, fmt.Sprintf("there is no field %q; there are %s", name, strings.Join(known, ", ")))
				return
			}
		}
		next(w, r)
	}
}

// act is something that an operator can do.
type act struct {
	// Name is in the log and in the address, Verb on the button, Done what it is
	// called afterwards.
	Name, Verb, Done string
	// Means is what will happen.
	Means string
	// Grave acts cannot be taken back.
	Grave bool
	// WantsWhy asks for a reason, TakesWhy lets one give it.
	WantsWhy, TakesWhy bool
}

var (
	redrive = act{Name: "redrive", Verb: "Redrive", Done: "redriven", Means: "They go out again with the same key and the same bytes, " +
		"100 a second at most. What the queue refused for a reason of its own, it will refuse again."}
	discard = act{Name: "discard", Verb: "Discard", Done: "discarded", Grave: true, WantsWhy: true, Means: "They will not be sent. " +
		"They stay on record with your reason, and no longer count as something that needs a person."}
	pause = act{Name: "pause", Verb: "Pause", Done: "paused", TakesWhy: true, Means: "The relay stops sending to it within 2 seconds. " +
		"Its messages wait in the table, in order, and the slot goes on."}
	resume = act{Name: "resume", Verb: "Resume", Done: "resumed", Means: "The relay sends to it again within 2 seconds, first what has waited."}
)

// confirmation is the page between asking for an act and the act.
type confirmation struct {
	frame
	Act act
	// Count is how many it will change, Matching how many there are of them.
	Count    int
	Matching operate.Count
	IDs      string
	Letters  []operate.DeadLetter
	// Gone counts those whose message was deleted: they cannot be redriven.
	Gone  int
	Queue *operate.Queue
	// Problem says what was wrong with the form.
	Problem string
}

// Pause is what is known of the pause of the queue.
func (c *confirmation) Pause() string { return c.Queue.Told(clock) }

// planned is the answer to machines: what an act would do, or did.
type planned struct {
	Act      string        `json:"act"`
	Done     bool          `json:"done"`
	Count    int           `json:"count"`
	Matching operate.Count `json:"matching"`
	Queue    string        `json:"queue,omitempty"`
}

// changeLetters redrives or discards dead letters. Without confirm it counts them
// and asks; confirmed, it changes those that were counted, by their ids.
func (p *page) changeLetters(what act) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if r.PostForm.Get("confirm") == "yes" {
			p.doLetters(w, r, what)
			return
		}
		filter, err := readFilter(r.PostForm)
		if err != nil {
			p.refuse(w, r, http.StatusBadRequest, err.Error())
			return
		}
		filter.Limit = mostAtOnce
		c := &confirmation{frame: p.frame(r), Act: what}
		err = p.operate(r, func(ctx context.Context, o *operate.Operator) (err error) {
			return p.plan(ctx, o, c, filter)
		})
		if err != nil {
			p.fail(w, r, err)
			return
		}
		c.Title = what.Verb + " dead letters"
		if wantsJSON(r) {
			writeJSON(w, http.StatusOK, planned{Act: what.Name, Count: c.Count, Matching: c.Matching})
			return
		}
		p.render(w, http.StatusOK, "confirm.html", c)
	}
}

// plan finds out what an act would change.
func (p *page) plan(ctx context.Context, o *operate.Operator, c *confirmation, filter operate.Filter) (err error) {
	if c.Matching, err = o.CountDeadLetters(ctx, filter); err != nil {
		return err
	}
	ids, gone, err := o.DeadLetterIDs(ctx, filter)
	if err != nil {
		return err
	}
	if c.Act.Name == discard.Name {
		ids = append(ids, gone...)
	} else {
		c.Gone = len(gone)
	}
	c.Count, c.IDs = len(ids), joinIDs(ids)
	if len(ids) == 0 {
		return nil
	}
	c.Letters, err = o.DeadLetters(ctx, operate.Filter{IDs: ids, Limit: fewLetters, Discarded: true})
	return err
}

// doLetters changes dead letters that were counted before.
func (p *page) doLetters(w http.ResponseWriter, r *http.Request, what act) {
	ids, err := splitIDs(r.PostForm.Get("ids"))
	why := oneLine(r.PostForm.Get("why"))
	switch {
	case err != nil:
		p.refuse(w, r, http.StatusBadRequest, err.Error())
		return
	case what.WantsWhy && (why == "" || len(why) > mostWhy):
		p.refuse(w, r, http.StatusBadRequest, fmt.Sprintf("a reason of 1 to %d characters is needed", mostWhy))
		return
	}
	var done int
	err = p.operate(r, func(ctx context.Context, o *operate.Operator) (err error) {
		if what.Name == discard.Name {
			done, err = o.Discard(ctx, ids, why)
			return err
		}
		done, err = o.Redrive(ctx, ids, func(int) {})
		return err
	})
	p.audit(r, what, done, err, zap.Int("asked", len(ids)), zap.Int64("first_id", ids[0]), zap.Int64("last_id", ids[len(ids)-1]), zap.String("why", why))
	p.conclude(w, r, what, done, "", err)
}

// changeQueue pauses or resumes a queue.
func (p *page) changeQueue(what act) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		name := r.PostForm.Get("queue")
		if r.PostForm.Get("confirm") != "yes" {
			p.askQueue(w, r, what, name)
			return
		}
		why := oneLine(r.PostForm.Get("why"))
		var was *paused.Note
		err := p.operate(r, func(ctx context.Context, o *operate.Operator) (err error) {
			if what.Name == pause.Name {
				was, err = o.PauseQueue(ctx, name, operate.Pause{Reason: why, Through: throughPage})
				return err
			}
			was, err = o.ResumeQueue(ctx, name)
			return err
		})
		done := 1
		if err != nil {
			done = 0
		}
		about := []zap.Field{zap.String("queue", name), zap.String("why", why)}
		if was != nil {
			about = append(about, zap.Object("was", was))
		}
		p.audit(r, what, done, err, about...)
		p.conclude(w, r, what, done, name, err)
	}
}

// throughPage is by which way a pause came that a button made: the role is that of
// the relay.
const throughPage = "on the page"

func (p *page) askQueue(w http.ResponseWriter, r *http.Request, what act, name string) {
	c := &confirmation{frame: p.frame(r), Act: what, Count: 1}
	err := p.operate(r, func(ctx context.Context, o *operate.Operator) (err error) {
		c.Queue, err = o.Queue(ctx, name)
		return err
	})
	if err != nil {
		p.fail(w, r, err)
		return
	}
	c.Title = what.Verb + " queue " + name
	if wantsJSON(r) {
		writeJSON(w, http.StatusOK, planned{Act: what.Name, Count: 1, Queue: name, Matching: c.Queue.Deferred})
		return
	}
	p.render(w, http.StatusOK, "confirm.html", c)
}

// operate lets do act in the database. What was begun goes on if the client
// leaves.
func (p *page) operate(r *http.Request, do func(context.Context, *operate.Operator) error) error {
	ctx, cancel := context.WithTimeout(p.server.life, actTimeout)
	defer cancel()
	select {
	case p.places <- struct{}{}:
		defer func() { <-p.places }()
	case <-r.Context().Done():
		return r.Context().Err()
	}
	return p.Operate(ctx, do)
}

// audit writes down who changed what.
func (p *page) audit(r *http.Request, what act, done int, err error, about ...zap.Field) {
	fields := append([]zap.Field{
		zap.String("act", what.Name), zap.Int("count", done), zap.String("remote", r.RemoteAddr), zap.String("by", credential(r)),
	}, about...)
	if err != nil {
		p.log.Warn("change by an operator failed", append(fields, zap.String("error", pgtext.OneLine(err)))...)
		return
	}
	p.log.Info("change by an operator", fields...)
}

// conclude answers after an act: people go back to where they were.
func (p *page) conclude(w http.ResponseWriter, r *http.Request, what act, done int, queue string, err error) {
	switch {
	case err != nil:
		p.fail(w, r, err)
	case wantsJSON(r):
		writeJSON(w, http.StatusOK, planned{Act: what.Name, Done: true, Count: done, Queue: queue})
	default:
		back := "/dead-letters?"
		if queue != "" {
			back = "/?"
		}
		query := url.Values{"done": {what.Name}, "count": {strconv.Itoa(done)}}
		if queue != "" {
			query.Set("queue", queue)
		}
		http.Redirect(w, r, back+query.Encode(), http.StatusSeeOther)
	}
}

// fail answers that the database did not do it.
func (p *page) fail(w http.ResponseWriter, r *http.Request, err error) {
	status := http.StatusServiceUnavailable
	if _, ok := errors.AsType[*operate.InvalidError](err); ok {
		status = http.StatusBadRequest
	}
	why := pgtext.OneLine(err)
	if refused, ok := errors.AsType[*pgconn.PgError](err); ok && refused.Code == insufficientPrivilege {
		why += `. The relay acts with its own role: "outbox-relay grants print --part rights" prints its rights`
	}
	p.refuse(w, r, status, why)
}

// insufficientPrivilege is the SQLSTATE of what a role may not do.
const insufficientPrivilege = "42501"

// joinIDs and splitIDs carry ids through a form.
func joinIDs(ids []int64) string {
	texts := make([]string, len(ids))
	for i, id := range ids {
		texts[i] = strconv.FormatInt(id, 10)
	}
	return strings.Join(texts, ",")
}

func splitIDs(text string) ([]int64, error) {
	texts := strings.Split(text, ",")
	if len(texts) > mostAtOnce {
		return nil, fmt.Errorf("%d messages at once, want at most %d", len(texts), mostAtOnce)
	}
	ids := make([]int64, len(texts))
	for i, text := range texts {
		id, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			return nil, fmt.Errorf("%q is no message id", text)
		}
		ids[i] = id
	}
	return ids, nil
}
