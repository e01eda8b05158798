package doctor

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/outbox-relay/outbox-relay/internal/infraiadmin"
	"github.com/outbox-relay/outbox-relay/internal/pgtext"
	"github.com/outbox-relay/outbox-relay/relay/infrai"
)

// queueAnswers asks what can be asked without publishing: whether the queue
// describes the request that the relay sends, whether it takes the key, and
// whether the queues are there that messages are for.
func queueAnswers(ctx context.Context, p *patient) (finding, error) {
	if p.cfg.LeaveQueue {
		return skip("the queue is not asked now; `outbox-relay doctor` asks"), nil
	}
	if err := p.cfg.QueueSettings; err != nil {
		return finding{
			status: Fail, observed: "the settings of the queue are wrong", message: oneLine(err),
			remedy: "set INFRAI_API_KEY or INFRAI_API_KEY_FILE, and INFRAI_BASE_URL if it is not the public queue",
		}, nil
	}
	queue, err := newQueueClient(p.cfg.Queue)
	if err != nil {
		return finding{}, err
	}
	defer queue.Close()
	doubts, f := discover(ctx, queue)
	if f != nil {
		return *f, nil
	}
	names, err := p.queuesInUse(ctx)
	if err != nil {
		return finding{}, err
	}
	missing, f := lookUp(ctx, queue, names)
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
	switch pgtext.SQLState(err) {
	case "42501", "42P01", "3F000": // D28 and D31 say so
		return nil, nil
	}
	return names, err
}

// queueTimeout bounds one request: the queue is asked several times.
const queueTimeout = 5 * time.Second

// newQueueClient asks what changes nothing.
func newQueueClient(cfg infrai.Config) (*infraiadmin.Client, error) {
	cfg.RequestTimeout = queueTimeout
	return infraiadmin.New(cfg)
}

// discover reads the description of publishing, which needs no key, and returns
// what does not fit what the relay sends. At run time nothing depends on it.
func discover(ctx context.Context, queue *infraiadmin.Client) (doubts []string, f *finding) {
	const publish = "queue.publish"
	described, err := queue.Capability(ctx, publish)
	problem, known := errors.AsType[*infraiadmin.Error](err)
	switch {
	case err == nil:
		call, _ := infraiadmin.CallOf(publish) // the relay makes it
		call.Requests = call.Requests[:1]      // fields that few messages use are no reason for a warning
		return described.Doubts(call), nil
	case known && problem.Problem == infraiadmin.Unreadable && problem.Status == 0:
		return []string{publish + ": " + problem.Err.Error()}, nil
	case known && problem.Status != 0:
		return nil, &finding{
			status: Fail, observed: "discovery answers " + problem.Answer(), message: queue.Host() + " does not answer as an Infrai queue",
			remedy: "check INFRAI_BASE_URL; if it is right, wait and look again",
		}
	}
	return nil, notAnswered(err)
}

// lookUp asks for each queue and returns those that do not exist. Without any
// name it asks whether the key is taken.
func lookUp(ctx context.Context, queue *infraiadmin.Client, names []string) (missing []string, f *finding) {
	if len(names) == 0 {
		if err := queue.CheckKey(ctx); err != nil {
			return nil, notAnswered(err)
		}
	}
	for _, name := range names {
		exists, err := queue.Exists(ctx, name)
		switch {
		case err != nil:
			return nil, notAnswered(err)
		case !exists:
			missing = append(missing, name)
		}
	}
	return missing, nil
}

// notAnswered is what a question means that was not answered.
func notAnswered(err error) *finding {
	problem, known := errors.AsType[*infraiadmin.Error](err)
	if !known {
		return &finding{status: Fail, observed: "not asked", message: oneLine(err), remedy: "look again"}
	}
	f := &finding{status: Fail, observed: problem.Answer(), message: problem.Meaning(), remedy: problem.Hint()}
	if problem.Problem == infraiadmin.TooMany {
		f.status = Warn
	}
	if f.observed == "" {
		f.observed = oneLine(problem.Err)
	}
	return f
}
