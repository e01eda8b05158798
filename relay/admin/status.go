package admin

import (
	"errors"
	"net/http"
	"time"

	"github.com/outbox-relay/outbox-relay/internal/status"
	"github.com/outbox-relay/outbox-relay/relay"
)

// Status is the answer of /status.
type Status struct {
	// Version is [Version].
	Version int `json:"version"`
	// Live and Ready are the answers of /livez and /readyz.
	Live  Verdict `json:"live"`
	Ready Verdict `json:"ready"`
	// Relay is what the process knows of itself.
	Relay relay.State `json:"relay"`
	// Requests is what became of those of the last minute, by queue.
	Requests []Requests `json:"requests"`
	// DeferredPace is how the deferred messages became more or fewer lately; nil if
	// that is not known.
	DeferredPace *status.Pace `json:"deferred_pace"`
	// Database is what the tables and the slot say.
	Database Database `json:"database"`
}

// Database is a look at the database, a few seconds old at most.
type Database struct {
	At time.Time `json:"at"`
	// Report is what `outbox-relay status --json` prints; nil if Error says why not.
	Report *status.Report `json:"report"`
	Error  string         `json:"error"`

	look *Look // nil without a report
}

// errNotAsked is why there is no report for who wants none.
var errNotAsked = errors.New("the question was for the relay alone")

// status answers everything at once, for people and for programs. It is always
// 200: what is wrong is in it. With database=off it asks nobody.
func (s *Server) status(state func() relay.State) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		database := Database{At: time.Now(), Error: errNotAsked.Error()}
		if r.URL.Query().Get("database") != "off" {
			database = s.database(r)
		}
		now := state()
		writeJSON(w, http.StatusOK, Status{
			Version: Version, Live: Live(&s.cfg, &now), Ready: s.readyAfter(&now, &database), Relay: now,
			Requests: s.requests.lately(), DeferredPace: s.history.pace(now.At), Database: database,
		})
	}
}

func (s *Server) database(r *http.Request) Database {
	seen, err := s.lookout.get(r.Context(), s.life)
	if err != nil {
		return Database{At: time.Now(), Error: oneLine(err.Error())}
	}
	if seen.err != nil {
		return Database{At: seen.began, Error: oneLine(seen.err.Error())}
	}
	look := seen.report.(*Look)
	return Database{At: seen.began, Report: look.Report, look: look}
}
