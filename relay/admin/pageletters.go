package admin

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/outbox-relay/outbox-relay/internal/operate"
	"github.com/outbox-relay/outbox-relay/internal/pgtext"
	"github.com/outbox-relay/outbox-relay/internal/plural"
)

// mostLetters is how many dead letters a list has.
const mostLetters = 100

// letterList is the page with dead letters.
type letterList struct {
	frame
	// Form is the filter as it was given, Problem what is wrong with it, or with
	// the database.
	Form     letterForm
	Problem  string
	Matching operate.Count
	Letters  []operate.DeadLetter
	Done     string
}

// letterForm is a filter as a form has it.
type letterForm struct {
	Queue, Reason, Key, OlderThan string
	Discarded                     bool
}

// Ages are what a form offers for OlderThan.
func (letterForm) Ages() []string { return []string{"1h", "24h", "168h"} }

func readForm(values url.Values) letterForm {
	return letterForm{
		Queue: values.Get("queue"), Reason: values.Get("reason"), Key: values.Get("key"),
		OlderThan: values.Get("older_than"), Discarded: values.Get("discarded") != "",
	}
}

// readFilter reads what chooses dead letters: an id, or the fields of a form.
func readFilter(values url.Values) (operate.Filter, error) {
	form := readForm(values)
	f := operate.Filter{Queue: form.Queue, Reason: form.Reason, Key: form.Key, Discarded: form.Discarded}
	for _, text := range values["id"] {
		id, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			return f, fmt.Errorf("%q is no message id", text)
		}
		f.IDs = append(f.IDs, id)
		f.Discarded = true
	}
	if form.OlderThan != "" {
		var err error
		if f.OlderThan, err = time.ParseDuration(form.OlderThan); err != nil || f.OlderThan < 0 {
			return f, errors.New("the age is no duration such as 90m")
		}
	}
	return f, nil
}

// showLetters lists dead letters.
func (p *page) showLetters(w http.ResponseWriter, r *http.Request) {
	values := r.URL.Query()
	list := &letterList{frame: p.frame(r), Form: readForm(values), Done: done(values)}
	list.Title = "Dead letters"
	filter, err := readFilter(values)
	if err == nil {
		filter.Limit = mostLetters
		err = p.operate(r, func(ctx context.Context, o *operate.Operator) (err error) {
			if list.Matching, err = o.CountDeadLetters(ctx, filter); err != nil {
				return err
			}
			list.Letters, err = o.DeadLetters(ctx, filter)
			return err
		})
	}
	if err != nil {
		list.Problem = oneLine(pgtext.OneLine(err))
	}
	p.render(w, http.StatusOK, "letters.html", list)
}

// letterPage is the page of one dead letter.
type letterPage struct {
	frame
	ID      int64
	Letter  *operate.DeadLetter
	Problem string
	// Payload is the message's, if it may be shown.
	Payload *operate.Payload
}

// showLetter shows one dead letter.
func (p *page) showLetter(w http.ResponseWriter, r *http.Request) {
	id, err := strconv.ParseInt(r.PathValue("id"), 10, 64)
	if err != nil {
		http.NotFound(w, r)
		return
	}
	view := &letterPage{frame: p.frame(r), ID: id}
	view.Title = fmt.Sprintf("Dead letter %d", id)
	err = p.operate(r, func(ctx context.Context, o *operate.Operator) (err error) {
		if view.Letter, err = o.DeadLetter(ctx, id); err != nil || !p.server.cfg.ShowPayloads || view.Letter.MessageGone {
			return err
		}
		view.Payload, err = o.Payload(ctx, id)
		return err
	})
	status := http.StatusOK
	if err != nil {
		status, view.Letter, view.Problem = http.StatusNotFound, nil, oneLine(pgtext.OneLine(err))
	}
	p.render(w, status, "letter.html", view)
}

// done says what was done before this page came up.
func done(values url.Values) string {
	count, err := strconv.Atoi(values.Get("count"))
	if err != nil || count < 0 {
		return ""
	}
	for _, what := range []act{redrive, discard} {
		if what.Name == values.Get("done") {
			return fmt.Sprintf("%d %s %s %s.", count, plural.Agree(count, "dead letter", "dead letters"), plural.Agree(count, "was", "were"), what.Done)
		}
	}
	for _, what := range []act{pause, resume} {
		if what.Name == values.Get("done") {
			return fmt.Sprintf("Queue %s is %s; the relay sees it within 2 seconds.", values.Get("queue"), what.Done)
		}
	}
	return ""
}
