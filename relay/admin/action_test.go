package admin_test

import (
	"context"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"github.com/outbox-relay/outbox-relay/internal/operate"
	"github.com/outbox-relay/outbox-relay/internal/secret"
	"github.com/outbox-relay/outbox-relay/relay"
	"github.com/outbox-relay/outbox-relay/relay/admin"
)

const token = "a-token-of-the-tests"

// paged is a server with the page, and without a database: an act that is allowed
// is counted, and fails there.
type paged struct {
	t    *testing.T
	url  string
	acts atomic.Int64
	logs *observer.ObservedLogs
	http http.Client
}

// servePage runs a server with the page until the test's end.
func servePage(t *testing.T, change func(*admin.Config)) *paged {
	t.Helper()
	p := &paged{t: t}
	// Redirects are answers here.
	p.http.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	cfg := defaults()
	change(cfg)
	core, logs := observer.New(zapcore.DebugLevel)
	p.logs = logs
	look := func(context.Context) (*admin.Look, error) { return nil, context.Canceled }
	s := admin.New(*cfg, idle, look, zap.New(core))
	s.AddPage(admin.Desk{
		Examine: healthy,
		State:   idle, Counts: func() relay.Counts { return relay.Counts{} },
		Operate: func(context.Context, func(context.Context, *operate.Operator) error) error {
			p.acts.Add(1)
			return context.Canceled
		},
	})
	p.url = run(t, s)
	return p
}

func withToken(c *admin.Config) { c.Token = secret.New(token) }

// reply is what was answered, beside the body.
type reply struct {
	StatusCode int
	Header     http.Header
	Cookies    []*http.Cookie
}

// post sends a form, and returns the answer and its body.
func (p *paged) post(path string, form url.Values, header ...string) (reply, string) {
	p.t.Helper()
	r, err := http.NewRequestWithContext(p.t.Context(), http.MethodPost, p.url+path, strings.NewReader(form.Encode()))
	if err != nil {
		p.t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	return p.send(r, header)
}

func (p *paged) get(path string, header ...string) (reply, string) {
	p.t.Helper()
	r, err := http.NewRequestWithContext(p.t.Context(), http.MethodGet, p.url+path, http.NoBody)
	if err != nil {
		p.t.Fatal(err)
	}
	return p.send(r, header)
}

func (p *paged) send(r *http.Request, header []string) (reply, string) {
	p.t.Helper()
	for i := 0; i+1 < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	response, err := p.http.Do(r)
	if err != nil {
		p.t.Fatal(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		p.t.Fatal(err)
	}
	return reply{response.StatusCode, response.Header, response.Cookies()}, string(body)
}

// signIn returns the cookie of a session, and what its forms hold.
func (p *paged) signIn(with string) (cookie, csrf string) {
	p.t.Helper()
	response, body := p.post("/login", url.Values{"token": {with}})
	if response.StatusCode != http.StatusSeeOther || len(response.Cookies) != 1 {
		p.t.Fatalf("sign in: %d %v: %s", response.StatusCode, response.Cookies, body)
	}
	c := response.Cookies[0]
	if !c.HttpOnly || c.SameSite != http.SameSiteStrictMode || c.Path != "/" || strings.Contains(c.Value, with) {
		p.t.Errorf("the cookie is %s", response.Header.Get("Set-Cookie"))
	}
	cookie = c.Name + "=" + c.Value
	_, page := p.get("/", "Cookie", cookie)
	found := regexp.MustCompile(`name="csrf" value="([^"]+)"`).FindStringSubmatch(page)
	if found == nil {
		p.t.Fatalf("no form on the page: %s", page)
	}
	return cookie, found[1]
}

// changes are all addresses that change something.
var changes = []string{"/dead-letters/redrive", "/dead-letters/discard", "/queues/pause", "/queues/resume"}

// form is one that would act at once at path, if it was let through.
func form(path, csrf string) url.Values {
	f := url.Values{"csrf": {csrf}, "queue": {"orders"}, "why": {"obsolete"}, "confirm": {"yes"}}
	if strings.HasPrefix(path, "/dead-letters") {
		f.Set("ids", "1,2")
	}
	return f
}

// Nobody can change anything without a token that is configured, right, and sent by
// the page itself or by a client that is no browser.
func TestPage_RefusesChanges(t *testing.T) {
	t.Parallel()
	p := servePage(t, withToken)
	cookie, csrf := p.signIn(token)
	_, foreign := p.signIn(token)
	none := servePage(t, func(*admin.Config) {})
	p.acts.Store(0)
	bearer := "Bearer " + token
	for _, path := range changes {
		for name, c := range map[string]struct {
			on     *paged
			csrf   string
			header []string
			want   int
		}{
			"no token is configured":         {none, "", []string{"Authorization", bearer}, 403},
			"no credential":                  {p, "", nil, 401},
			"wrong token":                    {p, "", []string{"Authorization", "Bearer not the token at all"}, 401},
			"empty token":                    {p, "", []string{"Authorization", "Bearer "}, 401},
			"another scheme":                 {p, "", []string{"Authorization", "Basic " + token}, 401},
			"a session without its form":     {p, "", []string{"Cookie", cookie}, 403},
			"a session with another's form":  {p, foreign, []string{"Cookie", cookie}, 403},
			"a form without its session":     {p, csrf, nil, 401},
			"a session that was changed":     {p, csrf, []string{"Cookie", cookie + "x"}, 401},
			"from another site":              {p, csrf, []string{"Cookie", cookie, "Sec-Fetch-Site", "cross-site"}, 403},
			"from a sibling":                 {p, csrf, []string{"Cookie", cookie, "Sec-Fetch-Site", "same-site"}, 403},
			"of another origin":              {p, csrf, []string{"Cookie", cookie, "Origin", "http://evil.example"}, 403},
			"the token, from another origin": {p, "", []string{"Authorization", bearer, "Origin", "http://evil.example"}, 403},
		} {
			response, body := c.on.post(path, form(path, c.csrf), c.header...)
			if response.StatusCode != c.want || !strings.Contains(body, "Not done") {
				t.Errorf("%s, %s: %d, want %d: %s", path, name, response.StatusCode, c.want, body)
			}
			if response.Header.Get("Access-Control-Allow-Origin") != "" {
				t.Errorf("%s, %s: another site may read the answer", path, name)
			}
		}
		if response, _ := p.get(path, "Authorization", bearer); response.StatusCode == http.StatusOK {
			t.Errorf("GET %s is %d", path, response.StatusCode)
		}
	}
	if n := p.acts.Load() + none.acts.Load(); n > 0 { // GET /dead-letters/redrive is no id
		t.Errorf("%d acts", n)
	}
	if _, body := none.get("/"); strings.Contains(body, `method="post"`) || strings.Contains(body, "/login") {
		t.Errorf("there are buttons without a token: %s", body)
	}
	if n := p.logs.FilterMessage("change refused").Len(); n < len(changes)*12 {
		t.Errorf("%d lines about refused changes", n)
	}
}

// Who has the token may act, with it or signed in; what comes of it is in the log.
func TestPage_AllowsChanges(t *testing.T) {
	t.Parallel()
	p := servePage(t, withToken)
	cookie, csrf := p.signIn(token)
	for _, path := range changes {
		for by, header := range map[string][]string{
			"token":   {"Authorization", "Bearer " + token},
			"session": {"Cookie", cookie, "Sec-Fetch-Site", "same-origin", "Origin", p.url},
		} {
			before := p.acts.Load()
			response, body := p.post(path, form(path, csrf), header...)
			if response.StatusCode != http.StatusServiceUnavailable || p.acts.Load() != before+1 {
				t.Errorf("%s by %s: %d, %d acts: %s", path, by, response.StatusCode, p.acts.Load()-before, body)
			}
			lines := p.logs.FilterMessage("change by an operator failed").TakeAll()
			if len(lines) != 1 || lines[0].ContextMap()["by"] != by || lines[0].ContextMap()["remote"] == "" {
				t.Errorf("%s by %s: the log says %v", path, by, lines)
			}
			p.logs.TakeAll()
		}
	}
}

// What a form holds is checked before anything is done.
func TestPage_RefusesForms(t *testing.T) {
	t.Parallel()
	p := servePage(t, withToken)
	many := strings.Repeat("1,", 500) + "1"
	for name, c := range map[string]struct {
		path string
		form url.Values
	}{
		"no ids":          {"/dead-letters/redrive", url.Values{"confirm": {"yes"}}},
		"no number":       {"/dead-letters/redrive", url.Values{"confirm": {"yes"}, "ids": {"1,two"}}},
		"too many":        {"/dead-letters/redrive", url.Values{"confirm": {"yes"}, "ids": {many}}},
		"too long":        {"/dead-letters/redrive", url.Values{"confirm": {"yes"}, "ids": {strings.Repeat("1", 40<<10)}}},
		"no reason":       {"/dead-letters/discard", url.Values{"confirm": {"yes"}, "ids": {"1"}, "why": {" \n"}}},
		"long reason":     {"/dead-letters/discard", url.Values{"confirm": {"yes"}, "ids": {"1"}, "why": {strings.Repeat("x", 501)}}},
		"age":             {"/dead-letters/redrive", url.Values{"older_than": {"soon"}}},
		"negative age":    {"/dead-letters/discard", url.Values{"older_than": {"-1h"}}},
		"no id":           {"/dead-letters/redrive", url.Values{"id": {"x"}}},
		"a slip":          {"/dead-letters/redrive", url.Values{"qeue": {"orders"}}},
		"in the address":  {"/dead-letters/discard?queue=orders", nil},
		"another's field": {"/queues/pause", url.Values{"queue": {"orders"}, "reason": {"ticket 8"}, "confirm": {"yes"}}},
	} {
		response, body := p.post(c.path, c.form, "Authorization", "Bearer "+token)
		if response.StatusCode != http.StatusBadRequest || p.acts.Load() != 0 {
			t.Errorf("%s: %d, %d acts: %s", name, response.StatusCode, p.acts.Load(), body)
		}
	}
}

// The token never comes out again, and a wrong one is no way in.
func TestPage_SignIn(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "token")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(token + "\n")
	p := servePage(t, func(c *admin.Config) { c.TokenFile = file })
	for _, wrong := range []string{"", "x", token + "x", token[1:]} {
		if response, _ := p.post("/login", url.Values{"token": {wrong}}); response.StatusCode != http.StatusUnauthorized || len(response.Cookies) != 0 {
			t.Errorf("%q: %d %v", wrong, response.StatusCode, response.Cookies)
		}
	}
	if response, _ := p.post("/login", url.Values{"token": {token}}, "Sec-Fetch-Site", "cross-site"); response.StatusCode != http.StatusForbidden {
		t.Errorf("another site signs in: %d", response.StatusCode)
	}
	cookie, csrf := p.signIn(token)
	signedIn := func() bool {
		_, body := p.get("/", "Cookie", cookie)
		if strings.Contains(body, token) {
			t.Errorf("the page shows the token: %s", body)
		}
		return strings.Contains(body, "Sign out")
	}
	if !signedIn() {
		t.Error("not signed in")
	}
	write("another token altogether")
	if signedIn() {
		t.Error("a session outlives its token")
	}
	if response, _ := p.post(changes[0], form(changes[0], csrf), "Cookie", cookie); response.StatusCode != http.StatusUnauthorized {
		t.Errorf("a session acts after its token is gone: %d", response.StatusCode)
	}
	write("short")
	if response, body := p.post("/login", url.Values{"token": {"short"}}); response.StatusCode != http.StatusForbidden || !strings.Contains(body, "shorter than 16") {
		t.Errorf("a short token: %d: %s", response.StatusCode, body)
	}
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	if response, _ := p.post("/login", url.Values{"token": {token}}); response.StatusCode != http.StatusForbidden {
		t.Errorf("without its file: %d", response.StatusCode)
	}
	for _, line := range p.logs.All() {
		for _, value := range line.ContextMap() {
			if text, _ := value.(string); strings.Contains(text, token) {
				t.Errorf("the log shows the token: %v", line)
			}
		}
	}
}

// Sessions of a process are none of the next one.
func TestPage_SessionsEndWithTheProcess(t *testing.T) {
	t.Parallel()
	first, second := servePage(t, withToken), servePage(t, withToken)
	cookie, _ := first.signIn(token)
	theirs, _ := second.signIn(token)
	_, value, _ := strings.Cut(cookie, "=")
	name, _, _ := strings.Cut(theirs, "=")
	if _, body := second.get("/", "Cookie", name+"="+value); strings.Contains(body, "Sign out") {
		t.Error("another process takes the session")
	}
}

func TestPage_AllowsNothingForeign(t *testing.T) {
	t.Parallel()
	p := servePage(t, withToken)
	for _, path := range []string{"/", "/live", "/login", "/dead-letters", "/dead-letters/1", "/static/page.css", "/static/page.js"} {
		response, body := p.get(path)
		policy := response.Header.Get("Content-Security-Policy")
		if !strings.HasPrefix(policy, "default-src 'none'") || strings.Contains(policy, "unsafe") {
			t.Errorf("%s has the policy %q", path, policy)
		}
		if strings.Contains(body, "http://") || strings.Contains(body, "https://") || strings.Contains(body, " style=") || strings.Contains(body, "<script>") {
			t.Errorf("%s takes something from elsewhere, or has it inside: %s", path, body)
		}
	}
	if _, body := p.get("/"); !strings.Contains(body, `<noscript><meta http-equiv="refresh"`) {
		t.Errorf("without a script the page stays as it was: %s", body)
	}
	if response, _ := p.get("/static/"); response.StatusCode != http.StatusNotFound {
		t.Errorf("the list of files is %d", response.StatusCode)
	}
}
