package emulator

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"time"

	"go.uber.org/zap"
)

// controlPrefix is where the emulator's own routes begin.
const controlPrefix = "/_emulator/"

// controlRoutes are the emulator's own routes. They need no key.
func (s *Server) controlRoutes() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /_emulator/healthz", func(w http.ResponseWriter, _ *http.Request) { writeJSON(w, map[string]bool{"ok": true}) })
	mux.HandleFunc("GET /_emulator/counters", func(w http.ResponseWriter, _ *http.Request) { writeJSON(w, s.Counters()) })
	mux.HandleFunc("GET /_emulator/clock", func(w http.ResponseWriter, _ *http.Request) { s.writeClock(w) })
	mux.HandleFunc("POST /_emulator/clock", s.moveClock)
	mux.HandleFunc("GET /_emulator/settings", func(w http.ResponseWriter, _ *http.Request) { s.writeSettings(w) })
	mux.HandleFunc("PUT /_emulator/settings", s.changeSettings)
	mux.HandleFunc("GET /_emulator/faults", func(w http.ResponseWriter, _ *http.Request) { writeJSON(w, map[string][]Fault{"faults": s.Faults()}) })
	mux.HandleFunc("POST /_emulator/faults", s.addFaults)
	mux.HandleFunc("DELETE /_emulator/faults", s.clearFaults)
	mux.HandleFunc("DELETE /_emulator/faults/{id}", s.removeFault)
	mux.HandleFunc("GET /_emulator/journal", s.readJournal)
	mux.HandleFunc("POST /_emulator/deliveries", s.addDeliveries)
	return mux
}

func (s *Server) writeClock(w http.ResponseWriter) {
	writeJSON(w, map[string]any{
		"now": s.clock.Now().UTC().Format(time.RFC3339Nano), "offset": s.clock.Offset().String(), "frozen": s.clock.Frozen(),
	})
}

// moveClock moves the clock, freezes it, or both.
func (s *Server) moveClock(w http.ResponseWriter, r *http.Request) {
	var move struct {
		Advance string `json:"advance"`
		Freeze  bool   `json:"freeze"`
	}
	if !readJSON(w, r, &move) {
		return
	}
	var d time.Duration
	var err error
	if move.Advance != "" || !move.Freeze {
		d, err = time.ParseDuration(move.Advance)
	}
	if err == nil {
		err = s.clock.Advance(d)
	}
	if err != nil {
		complain(w, err)
		return
	}
	if move.Freeze {
		s.clock.Freeze()
	}
	s.log.Info("clock moved", zap.Duration("by", d), zap.Duration("offset", s.clock.Offset()), zap.Bool("frozen", s.clock.Frozen()))
	s.writeClock(w)
}

func (s *Server) writeSettings(w http.ResponseWriter) {
	settings := s.Settings()
	writeJSON(w, settings.Get())
}

// changeSettings takes some settings by name, as text or numbers; the others
// stay.
func (s *Server) changeSettings(w http.ResponseWriter, r *http.Request) {
	var changes map[string]any
	if !readJSON(w, r, &changes) {
		return
	}
	settings := s.Settings()
	var errs []error
	for name, value := range changes {
		errs = append(errs, settings.Set(name, fmt.Sprint(value)))
	}
	if err := errors.Join(append(errs, s.SetSettings(settings))...); err != nil {
		complain(w, err)
		return
	}
	s.log.Info("settings changed", zap.Any("settings", changes))
	s.writeSettings(w)
}

// addFaults takes one fault, or several as an array.
func (s *Server) addFaults(w http.ResponseWriter, r *http.Request) {
	list, ok := readSome[Fault](w, r)
	if !ok {
		return
	}
	ids := make([]uint64, len(list))
	for i, f := range list {
		ids[i], _ = s.AddFault(f)
	}
	s.log.Info("faults added", zap.Uint64s("ids", ids))
	writeJSON(w, map[string][]uint64{"ids": ids})
}

func (s *Server) clearFaults(w http.ResponseWriter, _ *http.Request) {
	s.ClearFaults()
	s.log.Info("faults cleared")
	writeJSON(w, map[string][]Fault{"faults": {}})
}

func (s *Server) removeFault(w http.ResponseWriter, r *http.Request) {
	id, err := strconv.ParseUint(r.PathValue("id"), 10, 64)
	if err != nil || !s.RemoveFault(id) {
		http.Error(w, "no such fault", http.StatusNotFound)
		return
	}
	s.log.Info("fault removed", zap.Uint64("id", id))
	writeJSON(w, map[string][]Fault{"faults": s.Faults()})
}

// journalPage is how many entries a read of the journal returns unless told.
const journalPage = 1000

// readJournal returns a page of the journal. With first above after+1, the
// entries in between are forgotten.
func (s *Server) readJournal(w http.ResponseWriter, r *http.Request) {
	after, errAfter := strconv.ParseUint(firstNonEmpty(r.FormValue("after"), "0"), 10, 64)
	most, errLimit := strconv.Atoi(firstNonEmpty(r.FormValue("limit"), strconv.Itoa(journalPage)))
	if err := errors.Join(errAfter, errLimit); err != nil || most < 1 {
		complain(w, errors.New("after and limit are numbers, limit at least 1"))
		return
	}
	page := struct {
		Entries []Entry `json:"entries"`
		Next    uint64  `json:"next"`
		Last    uint64  `json:"last"`
	}{Entries: s.journal.Entries(after, most), Next: after, Last: s.journal.Last()}
	if n := len(page.Entries); n > 0 {
		page.Next = page.Entries[n-1].Number
	} else {
		page.Entries = []Entry{}
	}
	writeJSON(w, page)
}

// validator is what can say what is wrong with it.
type validator[T any] interface {
	*T
	Validate() error
}

// readSome reads one value that is valid, or several as an array.
func readSome[T any, P validator[T]](w http.ResponseWriter, r *http.Request) (list []T, ok bool) {
	var raw json.RawMessage
	if !readJSON(w, r, &raw) {
		return nil, false
	}
	list = make([]T, 1)
	target := any(&list[0])
	if bytes.HasPrefix(raw, []byte("[")) {
		target = &list
	}
	err := strictUnmarshal(raw, target)
	for i := range list {
		err = errors.Join(err, P(&list[i]).Validate())
	}
	if err != nil {
		complain(w, err)
		return nil, false
	}
	return list, true
}

func writeJSON(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	_ = enc.Encode(v) // a client that has gone needs no answer
}

func readJSON(w http.ResponseWriter, r *http.Request, v any) bool {
	const most = 1 << 20
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, most))
	if err == nil {
		err = strictUnmarshal(body, v)
	}
	if err != nil {
		complain(w, err)
	}
	return err == nil
}

// strictUnmarshal refuses fields that v does not have, because a misspelt
// setting would be silently nothing.
func strictUnmarshal(b []byte, v any) error {
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	d.UseNumber()
	return d.Decode(v)
}

func complain(w http.ResponseWriter, err error) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusBadRequest)
	_ = json.NewEncoder(w).Encode(map[string]string{"error": err.Error()})
}
