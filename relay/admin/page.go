package admin

import (
	"bytes"
	"context"
	"embed"
	"html/template"
	"net/http"
	"time"

	"go.uber.org/zap"

	"github.com/outbox-relay/outbox-relay/internal/doctor"
	"github.com/outbox-relay/outbox-relay/internal/operate"
	"github.com/outbox-relay/outbox-relay/relay"
)

// Desk is what the page for people needs beside the state of the relay.
type Desk struct {
	// State and Counts are the relay's own.
	State  func() relay.State
	Counts func() relay.Counts
	// Key is where messages go, and by which key; nil if nobody knows.
	Key func() Key
	// Operate connects to the database, lets do act there, and closes the
	// connection again.
	Operate func(ctx context.Context, do func(context.Context, *operate.Operator) error) error
	// Examine makes the doctor's checks.
	Examine func(context.Context) *doctor.Report
}

// Key is the key that requests carry, without the key, and where they go.
type Key struct {
	Service string
	// File is where it was read, empty if the environment gave it; Since when it was
	// read first, and Trouble why the file cannot be read now.
	File    string
	Since   time.Time
	Trouble string
}

//go:embed templates static
var files embed.FS

// page is the page for people, and what it remembers.
type page struct {
	Desk
	server    *Server
	log       *zap.Logger
	templates *template.Template
	health    healthLog // of record alone
	visits    lookout   // those of the doctor
	keys      *keyring
	places    chan struct{} // for those who work in the database, who are few at a time
}

// mostPlaces is how many requests may work in the database at a time, beside the
// looks.
const mostPlaces = 2

// AddPage adds the page for people at /. It is for the time before Run.
func (s *Server) AddPage(desk Desk) {
	p := &page{
		Desk: desk, server: s, log: s.log.Named("page"),
		keys: newKeyring(&s.cfg), places: make(chan struct{}, mostPlaces),
		templates: template.Must(template.New("").Funcs(formats).ParseFS(files, "templates/*.html")),
	}
	p.visits = lookout{look: p.examine, age: p.untilVisit, timeout: visitTimeout}
	s.Handle("GET /static/{name}", guarded(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		http.ServeFileFS(w, r, files, "static/"+r.PathValue("name"))
	})))
	s.Handle("GET /{$}", guarded(http.HandlerFunc(p.show)))
	s.Handle("GET /live", guarded(http.HandlerFunc(p.showLive)))
	s.Handle("GET /dead-letters", guarded(http.HandlerFunc(p.showLetters)))
	s.Handle("GET /dead-letters/{id}", guarded(http.HandlerFunc(p.showLetter)))
	p.addActions()
	s.background = append(s.background, p.record)
}

// policy lets the page use what comes from this server, and nothing else: no
// script and no style in the text, and no other site around it.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
	"form-action 'self'; base-uri 'none'; frame-ancestors 'none'"

// guarded tells the browser what it must not do with an answer.
func guarded(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Security-Policy", policy)
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("Cross-Origin-Opener-Policy", "same-origin")
		h.Set("Cross-Origin-Resource-Policy", "same-origin")
		next.ServeHTTP(w, r)
	})
}

// show answers with the whole page, showLive with the part of it that changes.
func (p *page) show(w http.ResponseWriter, r *http.Request) {
	p.render(w, http.StatusOK, "overview.html", p.overview(r))
}

func (p *page) showLive(w http.ResponseWriter, r *http.Request) {
	p.render(w, http.StatusOK, "live", p.overview(r))
}

// render writes a template, or that it went wrong and nothing of it.
func (p *page) render(w http.ResponseWriter, status int, name string, view any) {
	var text bytes.Buffer
	if err := p.templates.ExecuteTemplate(&text, name, view); err != nil {
		p.log.Error("the page cannot be made", zap.String("template", name), zap.Error(err))
		http.Error(w, "the page cannot be made; the log says why", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(status)
	_, _ = w.Write(text.Bytes())
}

// record takes a sample for the charts in regular intervals until ctx ends.
func (p *page) record(ctx context.Context) {
	defer p.visits.tasks.Wait()
	ticker := time.NewTicker(sampleEvery)
	defer ticker.Stop()
	for {
		p.sample(time.Now())
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
	}
}
