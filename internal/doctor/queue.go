package doctor

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"strings"

	"github.com/jackc/pgx/v5"
)

// queueAnswers asks what can be asked without publishing: whether the queue
// describes the request that the relay sends, whether it takes the key, and
// whether the queues are there that messages are for.
func queueAnswers(ctx context.Context, p *patient) (finding, error) {
	if err := p.cfg.QueueSettings; err != nil {
		return finding{
			status: Fail, observed: "the settings of the queue are wrong", message: oneLine(err),
			remedy: "set INFRAI_API_KEY or INFRAI_API_KEY_FILE, and INFRAI_BASE_URL if it is not the public queue",
		}, nil
	}
	doubts, f := p.queue.discover(ctx)
	if f != nil {
		return *f, nil
	}
	names, err := p.queuesInUse(ctx)
	if err != nil {
		return finding{}, err
	}
	missing, f := p.queue.lookUp(ctx, names)
	switch {
	case f != nil:
		return *f, nil
	case len(missing) > 0:
		return finding{
			status: Fail, observed: "missing: " + strings.Join(missing, ", "),
			message: "queue " + strings.Join(missing, ", ") + " does not exist; publishing does not create it",
			remedy:  "create it with `outbox-relay queues provision` or POST /v1/queue/create; its messages wait until then",
		}, nil
	case len(doubts) > 0:
		return finding{
			status: Warn, observed: strings.Join(doubts, "; "),
			message: "the queue describes its API differently from what the relay sends",
			remedy:  "look for a newer version of the relay; messages may be refused",
		}, nil
	}
	observed := "reachable, key accepted"
	if len(names) > 0 {
		observed += ", has " + strings.Join(names, ", ")
	}
	return pass(observed), nil
}

// mostQueues bounds the requests of one visit.
const mostQueues = 20

// queuesInUse are the queues of the newest messages: none without a database
// and a table that the role may read.
func (p *patient) queuesInUse(ctx context.Context) ([]string, error) {
	if p.conn == nil {
		return nil, nil
	}
	rows, _ := p.conn.Query(ctx, p.in(`
		select distinct queue from (select queue from outbox.messages order by id desc limit 1000) newest
		where queue is not null order by queue limit $1`), mostQueues) // CollectRows returns its error
	names, err := pgx.CollectRows(rows, pgx.RowTo[string])
	switch sqlState(err) {
	case "42501", "42P01", "3F000": // D28 and D31 say so
		return nil, nil
	}
	return names, err
}

// discover reads the description of publishing, which needs no key, and returns
// what does not fit what the relay sends.
func (q *queueClient) discover(ctx context.Context) (doubts []string, f *finding) {
	answer, err := q.get(ctx, "/v1/discovery/queue.publish", "")
	if err != nil {
		remedy := "check INFRAI_BASE_URL, name resolution, proxy and firewall"
		if q.local() {
			remedy = "start the queue there, for example with `outbox-relay emulator`, or check INFRAI_BASE_URL"
		}
		return nil, &finding{
			status: Fail, observed: networkText(err), message: "cannot reach the queue at " + q.host(), remedy: remedy,
		}
	}
	if answer.status/100 != 2 {
		return nil, &finding{
			status: Fail, observed: "discovery answers " + answer.text(), message: q.host() + " does not answer as an Infrai queue",
			remedy: "check INFRAI_BASE_URL; if it is right, wait and look again",
		}
	}
	return publishDoubts(answer.body), nil
}

// lookUp asks for each queue and returns those that do not exist. Without any
// name it asks for the list, to see whether the key is taken.
func (q *queueClient) lookUp(ctx context.Context, names []string) (missing []string, f *finding) {
	key, err := q.key()
	if err != nil {
		return nil, &finding{
			status: Fail, observed: "no API key", message: oneLine(err),
			remedy: "set INFRAI_API_KEY_FILE to a file that the relay can read",
		}
	}
	paths := []string{"/v1/queue/list"}
	if len(names) > 0 {
		paths = paths[:0]
	}
	for _, name := range names {
		paths = append(paths, "/v1/queue/get/"+url.PathEscape(name))
	}
	for i, path := range paths {
		answer, err := q.get(ctx, path, key)
		if err != nil {
			return nil, &finding{
				status: Fail, observed: networkText(err), message: "cannot reach the queue at " + q.host(),
				remedy: "check proxy and firewall",
			}
		}
		switch f := answer.refusal(); {
		case f != nil:
			return nil, f
		case answer.status == http.StatusNotFound && len(names) > 0:
			missing = append(missing, names[i])
		}
	}
	return missing, nil
}

// refusal is what an answer says about the key or the service; nil if it is
// about one queue.
func (a *answer) refusal() *finding {
	f := &finding{status: Fail, observed: a.text()}
	switch {
	case a.status/100 == 2, a.status == http.StatusNotFound:
		return nil
	case a.status == http.StatusUnauthorized, a.status == http.StatusForbidden:
		f.message = "API key refused"
		f.remedy = "set INFRAI_API_KEY (or the file) to a key of the project with the right to use queues"
	case a.status == http.StatusPaymentRequired:
		f.message = "the account has no credit: nothing can be published"
		f.remedy = "top up the account"
	case a.status == http.StatusTooManyRequests:
		f.status = Warn
		f.message = "the queue asks to wait: too many requests"
		f.remedy = "look again in a minute"
	case a.status/100 == 3:
		f.message = "the queue redirects; the relay does not take its key elsewhere"
		f.remedy = "set INFRAI_BASE_URL to the final address"
	default:
		f.message = "the queue does not answer as expected"
		f.remedy = "wait and look again"
	}
	return f
}

// networkText is the cause of a failed request without the URL, which says
// nothing new.
func networkText(err error) string {
	if requestErr, ok := errors.AsType[*url.Error](err); ok {
		err = requestErr.Err
	}
	return oneLine(err)
}
