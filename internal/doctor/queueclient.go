package doctor

import (
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/outbox-relay/outbox-relay/relay/infrai"
)

// queueClient asks the queue questions that change nothing.
type queueClient struct {
	http *http.Client
	cfg  infrai.Config
}

func newQueueClient(cfg infrai.Config) *queueClient {
	return &queueClient{
		cfg: cfg,
		http: &http.Client{
			Transport: http.DefaultTransport.(*http.Transport).Clone(),
			Timeout:   5 * time.Second,
			// The key must not travel to another address.
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
	}
}

// key is the API key of now.
func (q *queueClient) key() (string, error) {
	if q.cfg.APIKeyFile == "" {
		return q.cfg.APIKey.Reveal(), nil
	}
	content, err := os.ReadFile(q.cfg.APIKeyFile)
	return strings.TrimSpace(string(content)), err
}

// host is where the queue is, without what could be secret.
func (q *queueClient) host() string {
	u, err := url.Parse(q.cfg.BaseURL)
	if err != nil {
		return "INFRAI_BASE_URL"
	}
	return u.Host
}

// local reports whether the queue should be on this machine.
func (q *queueClient) local() bool {
	u, err := url.Parse(q.cfg.BaseURL)
	return err == nil && (u.Hostname() == "localhost" || net.ParseIP(u.Hostname()).IsLoopback())
}

// answer is a response whose body was read.
type answer struct {
	status int
	body   []byte
}

// get asks for a path, with the key unless that is empty.
func (q *queueClient) get(ctx context.Context, path string, key string) (*answer, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.TrimSuffix(q.cfg.BaseURL, "/")+path, nil)
	if err != nil {
		return nil, err
	}
	if key != "" {
		request.Header.Set("Authorization", "Bearer "+key)
	}
	response, err := q.http.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	const most = 1 << 20 // a description of one call is a few KiB
	body, err := io.ReadAll(io.LimitReader(response.Body, most))
	if err != nil {
		return nil, err
	}
	return &answer{status: response.StatusCode, body: body}, nil
}

// text is the status and the code that the queue gives. Its message is left out:
// it could repeat the key.
func (a *answer) text() string {
	var envelope struct {
		Error struct{ Code string }
	}
	text := strconv.Itoa(a.status)
	if json.Unmarshal(a.body, &envelope) == nil && codeText.MatchString(envelope.Error.Code) {
		text += " " + envelope.Error.Code
	}
	return text
}

// codeText is what the codes of the queue look like.
var codeText = regexp.MustCompile(`^[A-Z0-9_]{1,64}$`)
