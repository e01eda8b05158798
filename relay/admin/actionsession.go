package admin

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"time"

	"go.uber.org/zap"
)

const (
	// sessionAge is how long who has signed in need not do so again.
	sessionAge = 8 * time.Hour
	// leastToken is how long a token must be, so that nobody finds it by trying.
	leastToken = 16
	tokenBytes = 4096
)

// session is what the page knows of who looks at it.
type session struct {
	// Changes says that a token is set, so that changes are possible at all.
	Changes bool
	// SignedIn says that the token was given, CSRF is what its forms must hold.
	SignedIn bool
	CSRF     string
}

// keyring makes sessions, and knows its own. A session is a moment at which it
// ends, and a seal that only this process can make, and only as long as the token
// is the same: nothing has to be remembered, and a new token ends all sessions.
type keyring struct {
	cfg    *Config
	secret [32]byte
}

func newKeyring(cfg *Config) *keyring {
	k := &keyring{cfg: cfg}
	_, _ = rand.Read(k.secret[:]) // never fails
	return k
}

// errNoToken says that nothing can be changed here.
var errNoToken = errors.New("changes are off: RELAY_ADMIN_TOKEN_FILE is not set")

// token is what an operator must know. A file is read every time, so that it can
// be changed while the relay runs.
func (k *keyring) token() (string, error) {
	token := k.cfg.Token.Reveal()
	if k.cfg.TokenFile != "" {
		text, err := readStart(k.cfg.TokenFile)
		if err != nil {
			return "", fmt.Errorf("changes are off: RELAY_ADMIN_TOKEN_FILE: %w", err)
		}
		token = strings.TrimSpace(text)
	} else if token == "" {
		return "", errNoToken
	}
	if len(token) < leastToken {
		return "", fmt.Errorf("changes are off: the token is shorter than %d characters", leastToken)
	}
	return token, nil
}

// readStart reads a small file.
func readStart(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer func() { _ = f.Close() }()
	text, err := io.ReadAll(io.LimitReader(f, tokenBytes))
	return string(text), err
}

// knows reports whether this is the token, in a time that does not depend on how
// much of it is right.
func knows(token, given string) bool {
	want, got := sha256.Sum256([]byte(token)), sha256.Sum256([]byte(given))
	return subtle.ConstantTimeCompare(want[:], got[:]) == 1
}

// seal proves that a text comes from this process, under this token.
func (k *keyring) seal(token, use string, text []byte) []byte {
	key := hmac.New(sha256.New, k.secret[:])
	key.Write([]byte(token))
	mac := hmac.New(sha256.New, key.Sum(nil))
	mac.Write([]byte(use + "\x00"))
	mac.Write(text)
	return mac.Sum(nil)
}

var encoding = base64.RawURLEncoding

// issue makes a session that lasts until then.
func (k *keyring) issue(token string, until time.Time) string {
	var text [24]byte
	binary.BigEndian.PutUint64(text[:8], uint64(until.Unix()))
	_, _ = rand.Read(text[8:]) // no two sessions are the same
	return encoding.EncodeToString(append(text[:], k.seal(token, "session", text[:])...))
}

// valid reports whether a session is one of ours and has not ended.
func (k *keyring) valid(token, session string, now time.Time) bool {
	raw, err := encoding.DecodeString(session)
	if err != nil || len(raw) != 24+sha256.Size {
		return false
	}
	text, seal := raw[:24], raw[24:]
	return hmac.Equal(seal, k.seal(token, "session", text)) && now.Unix() < int64(binary.BigEndian.Uint64(text[:8]))
}

// csrf is what the forms of a session hold: another site can send the cookie, and
// cannot read this.
func (k *keyring) csrf(token, session string) string {
	return encoding.EncodeToString(k.seal(token, "csrf", []byte(session)))
}

// cookie is the name of the cookie. Cookies are shared by all ports of a machine,
// on which other relays may listen.
func (p *page) cookie() string {
	address := p.server.Addr()
	return "outbox-relay-" + address[strings.LastIndexByte(address, ':')+1:]
}

// who is the session of a request.
func (p *page) who(r *http.Request) session {
	token, err := p.keys.token()
	if err != nil {
		return session{}
	}
	cookie, err := r.Cookie(p.cookie())
	if err != nil || !p.keys.valid(token, cookie.Value, time.Now()) {
		return session{Changes: true}
	}
	return session{Changes: true, SignedIn: true, CSRF: p.keys.csrf(token, cookie.Value)}
}

// fromHere lets forms through that this page has made, and clients that are no
// browsers.
func (p *page) fromHere(next http.HandlerFunc) http.Handler {
	var foreign http.CrossOriginProtection // by Sec-Fetch-Site, or else by Origin and Host
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := foreign.Check(r); err != nil {
			p.refuse(w, r, http.StatusForbidden, "the request comes from another site")
			return
		}
		r.Body = http.MaxBytesReader(w, r.Body, formBytes)
		if err := r.ParseForm(); err != nil {
			p.refuse(w, r, http.StatusBadRequest, "the form cannot be read")
			return
		}
		_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(actTimeout + writeTimeout))
		next(w, r)
	})
}

// allowed lets those act who have the token, or a session and a form of it.
func (p *page) allowed(next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		token, err := p.keys.token()
		if err != nil {
			p.refuse(w, r, http.StatusForbidden, err.Error())
			return
		}
		if given, ok := bearer(r); ok {
			if !knows(token, given) {
				p.refuse(w, r, http.StatusUnauthorized, "the token is not the right one")
				return
			}
			next(w, r)
			return
		}
		s := p.who(r)
		switch form := r.PostForm.Get("csrf"); {
		case !s.SignedIn:
			p.refuse(w, r, http.StatusUnauthorized, "nobody is signed in, or the session has ended")
		case subtle.ConstantTimeCompare([]byte(form), []byte(s.CSRF)) != 1:
			p.refuse(w, r, http.StatusForbidden, "the form does not belong to this session: load the page again")
		default:
			next(w, r)
		}
	}
}

func bearer(r *http.Request) (token string, ok bool) {
	scheme, token, ok := strings.Cut(r.Header.Get("Authorization"), " ")
	return strings.TrimSpace(token), ok && strings.EqualFold(scheme, "Bearer")
}

// credential says by what somebody was allowed to act.
func credential(r *http.Request) string {
	if _, ok := bearer(r); ok {
		return "token"
	}
	return "session"
}

// refuse says no, and writes it down.
func (p *page) refuse(w http.ResponseWriter, r *http.Request, status int, why string) {
	p.log.Warn("change refused", zap.String("path", r.URL.Path), zap.String("remote", r.RemoteAddr), zap.String("reason", why), zap.Int("status", status))
	if status == http.StatusUnauthorized {
		w.Header().Set("WWW-Authenticate", `Bearer realm="outbox-relay"`)
	}
	if wantsJSON(r) {
		writeJSON(w, status, map[string]string{"error": why})
		return
	}
	f := p.frame(r)
	f.Title = "Not done"
	p.render(w, status, "refused.html", refusal{frame: f, Why: why, SignIn: status == http.StatusUnauthorized})
}

// refusal is the page that says no.
type refusal struct {
	frame
	Why    string
	SignIn bool
}

// showLogin asks for the token.
func (p *page) showLogin(w http.ResponseWriter, r *http.Request) {
	f := p.frame(r)
	f.Title = "Sign in"
	p.render(w, http.StatusOK, "login.html", refusal{frame: f})
}

// login turns the token into a session.
func (p *page) login(w http.ResponseWriter, r *http.Request) {
	token, err := p.keys.token()
	if err != nil {
		p.refuse(w, r, http.StatusForbidden, err.Error())
		return
	}
	if !knows(token, strings.TrimSpace(r.PostForm.Get("token"))) {
		p.log.Warn("change refused", zap.String("path", r.URL.Path), zap.String("remote", r.RemoteAddr), zap.String("reason", "wrong token"), zap.Int("status", http.StatusUnauthorized))
		f := p.frame(r)
		f.Title = "Sign in"
		p.render(w, http.StatusUnauthorized, "login.html", refusal{frame: f, Why: "That is not the token."})
		return
	}
	p.log.Info("operator signed in", zap.String("remote", r.RemoteAddr))
	until := time.Now().Add(sessionAge)
	p.setCookie(w, r, p.keys.issue(token, until), until)
	http.Redirect(w, r, "/", http.StatusSeeOther)
}

func (p *page) logout(w http.ResponseWriter, r *http.Request) {
	p.setCookie(w, r, "", time.Unix(1, 0))
	http.Redirect(w, r, "/", http.StatusSeeOther)
}

// setCookie gives the browser a session. A proxy that speaks TLS says so.
func (p *page) setCookie(w http.ResponseWriter, r *http.Request, value string, until time.Time) {
	http.SetCookie(w, &http.Cookie{
		Name: p.cookie(), Value: value, Path: "/", Expires: until, HttpOnly: true, SameSite: http.SameSiteStrictMode,
		Secure: r.Header.Get("X-Forwarded-Proto") == "https",
	})
}
