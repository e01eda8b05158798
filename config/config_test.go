package config_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/sethvargo/go-envconfig"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"github.com/outbox-relay/outbox-relay/config"
)

// enough is the smallest environment that is right.
var enough = map[string]string{
	"DATABASE_URL":   "postgres://app:pw@127.0.0.1:5433/orders",
	"INFRAI_API_KEY": "ifr_key",
}

// with is the smallest environment with changes; an empty value removes a
// variable.
func with(changes map[string]string) envconfig.Lookuper {
	environment := maps.Clone(enough)
	maps.Copy(environment, changes)
	return envconfig.MapLookuper(environment)
}

func load(t *testing.T, changes map[string]string, parts ...config.Part) *config.Config {
	t.Helper()
	c, err := config.Load(t.Context(), with(changes), parts...)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// problems loads an environment that is wrong.
func problems(t *testing.T, changes map[string]string, parts ...config.Part) []string {
	t.Helper()
	_, err := config.Load(t.Context(), with(changes), parts...)
	var wrong *config.Error
	if !errors.As(err, &wrong) {
		t.Fatalf("got %v, want a *config.Error", err)
	}
	var texts []string
	for _, problem := range wrong.Problems {
		texts = append(texts, problem.Error())
	}
	return texts
}

func TestLoad_Defaults(t *testing.T) {
	t.Parallel()
	c := load(t, nil)
	if c.Schema != "outbox" || c.CDC.Schema != "outbox" || c.Relay.Schema != "outbox" {
		t.Errorf("schema: %q, %q, %q", c.Schema, c.CDC.Schema, c.Relay.Schema)
	}
	if c.CDC.Slot == "" || c.Relay.Slot != c.CDC.Slot {
		t.Errorf("slot: %q, %q", c.CDC.Slot, c.Relay.Slot)
	}
	if c.Log.Level != zapcore.InfoLevel || c.Log.Format != config.FormatAuto {
		t.Errorf("log: %v, %q", c.Log.Level, c.Log.Format)
	}
	for name, got := range map[string]string{
		"database":    fmt.Sprint(c.Database().Host, c.Database().Port, c.Database().Database, c.Database().Password),
		"replication": fmt.Sprint(c.Replication().Host, c.Replication().Port, c.Replication().Database, c.Replication().Password),
	} {
		if got != fmt.Sprint("127.0.0.1", 5433, "orders", "pw") {
			t.Errorf("%s: %s", name, got)
		}
	}
	if c.Warnings() != nil {
		t.Errorf("warnings: %q", c.Warnings())
	}
}

func TestLoad_ReadsEveryPackage(t *testing.T) {
	t.Parallel()
	c := load(t, map[string]string{
		"RELAY_REPLICATION_URL": "host=/run/postgresql user=repl dbname=orders",
		"RELAY_SCHEMA":          "Sales",
		"RELAY_LOG_LEVEL":       "debug",
		"RELAY_LOG_FORMAT":      "json",
		"RELAY_SLOT":            "sales",
		"RELAY_MAX_IN_FLIGHT":   "17",
		"RELAY_DRAIN_TIMEOUT":   "3s",
		"INFRAI_BASE_URL":       "http://localhost:9000",
	})
	if c.Replication().Host != "/run/postgresql" || c.Replication().User != "repl" || c.Database().User != "app" {
		t.Errorf("replication: %s at %s", c.Replication().User, c.Replication().Host)
	}
	if c.Relay.Schema != "Sales" || c.CDC.Slot != "sales" || c.Relay.Slot != "sales" || c.Relay.MaxInFlight != 17 || c.Relay.DrainTimeout != 3*time.Second {
		t.Errorf("packages: %+v, %+v", c.CDC, c.Relay)
	}
	if c.Infrai.APIKey.Reveal() != "ifr_key" || c.Infrai.BaseURL != "http://localhost:9000" {
		t.Errorf("infrai: %+v", c.Infrai)
	}
	if c.Log.Level != zapcore.DebugLevel || c.Log.Format != config.FormatJSON {
		t.Errorf("log: %v, %q", c.Log.Level, c.Log.Format)
	}
}

func TestLoad_EmptyCountsAsNotSet(t *testing.T) {
	t.Parallel()
	c := load(t, map[string]string{"RELAY_SCHEMA": "", "RELAY_MAX_IN_FLIGHT": "", "RELAY_REPLICATION_URL": ""})
	if c.Schema != "outbox" || c.Relay.MaxInFlight == 0 {
		t.Errorf("schema %q, in flight %d", c.Schema, c.Relay.MaxInFlight)
	}
}

func TestLoad_ConnectionsAreTheCallers(t *testing.T) {
	t.Parallel()
	c := load(t, nil)
	c.Database().RuntimeParams["application_name"] = "changed"
	if got := c.Database().RuntimeParams["application_name"]; got == "changed" {
		t.Error("a change reaches the next caller")
	}
}

func TestLoad_OnlyTheNamedPartsAreNeeded(t *testing.T) {
	t.Parallel()
	none := map[string]string{"DATABASE_URL": "", "INFRAI_API_KEY": "", "RELAY_MAX_IN_FLIGHT": "0"}
	if got := problems(t, none, config.Database); len(got) != 1 || !strings.HasPrefix(got[0], "DATABASE_URL is not set: want") {
		t.Errorf("database: %q", got)
	}
	c := load(t, map[string]string{"INFRAI_API_KEY": ""}, config.Database)
	if c.Database() == nil || c.Replication() != nil {
		t.Error("the part database connects the database and nothing else")
	}
	c = load(t, map[string]string{"DATABASE_URL": "", "INFRAI_API_KEY": "", "RELAY_SCHEMA": "Sales"}, config.Names)
	if c.Database() != nil || c.CDC.Schema != "Sales" {
		t.Error("the part names needs no connection")
	}
	if got := problems(t, map[string]string{"RELAY_SCHEMA": strings.Repeat("s", 64)}, config.Names); len(got) != 1 {
		t.Errorf("names: %q", got)
	}
	c = load(t, map[string]string{"DATABASE_URL": ""}, config.Queue)
	if c.Database() != nil {
		t.Error("the part queue has no database")
	}
	// What is set must be readable, whoever needs it.
	if got := problems(t, map[string]string{"RELAY_MAX_IN_FLIGHT": "x"}, config.Queue); len(got) != 1 {
		t.Errorf("unreadable: %q", got)
	}
}

func TestLoad_ReportsEverythingAtOnce(t *testing.T) {
	t.Parallel()
	got := problems(t, map[string]string{
		"DATABASE_URL":             "",
		"RELAY_ALLOW_INSECURE_TLS": "yes please",
		"RELAY_SCHEMA":             strings.Repeat("s", 64),
		"RELAY_LOG_LEVEL":          "loud",
		"RELAY_LOG_FORMAT":         "xml",
		"RELAY_SLOT":               "My-Slot",
		"RELAY_STATUS_INTERVAL":    "5",
		"RELAY_MAX_IN_FLIGHT":      "many",
		"RELAY_OUTCOME_BATCH":      "0",
		"RELAY_TRUST_WINDOW":       "15s",
		"RELAY_SILENCE_TIMEOUT":    "6s",
		"INFRAI_API_KEY":           "",
		"INFRAI_REQUEST_TIMEOUT":   "0s",
		"INFRAI_BASE_URL":          "https://user:S3cr@queue.example/?token=S3cr",
	})
	want := []string{
		`RELAY_ALLOW_INSECURE_TLS is "yes please": want true or false`,
		`RELAY_LOG_LEVEL is "loud": want debug, info, warn or error`,
		`RELAY_STATUS_INTERVAL is "5": want a duration such as 500ms, 10s or 5m`,
		`RELAY_MAX_IN_FLIGHT is "many": want a whole number`,
		`RELAY_LOG_FORMAT is "xml": want json, console or auto`,
		`RELAY_SCHEMA is "` + strings.Repeat("s", 64) + `": want a name of 1 to 63 bytes`,
		`DATABASE_URL is not set: want a connection string such as postgres://outbox_relay@db.example:5432/app?sslmode=verify-full`,
		`RELAY_SLOT is "My-Slot": slot names have 1 to 63 characters of a-z 0-9 _`,
		`RELAY_SILENCE_TIMEOUT is 6s: want at least twice RELAY_STATUS_INTERVAL (10s)`,
		`RELAY_OUTCOME_BATCH is 0, want at least 1`,
		`RELAY_TRUST_WINDOW is 15s: want less than RELAY_WAL_SENDER_TIMEOUT (15s)`,
		`INFRAI_BASE_URL holds a user or a password, want none; the key belongs into INFRAI_API_KEY`,
		`INFRAI_API_KEY or INFRAI_API_KEY_FILE is needed`,
		`INFRAI_REQUEST_TIMEOUT is 0s, want at least 10ms`,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("problems (-want +got):\n%s", diff)
	}
}

func TestLoad_TLS(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		url string
		ok  bool
	}{
		{"postgres://app@db.example/orders?sslmode=verify-full", true},
		{"postgres://app@db.example/orders?sslmode=require", true},
		{"postgres://app@db.example/orders?sslmode=prefer", false},
		{"postgres://app@db.example/orders?sslmode=allow", false},
		{"postgres://app@db.example/orders?sslmode=disable", false},
		{"postgres://app@db.example/orders", false},
		{"host=db.example sslmode=disable", false},
		{"postgres://app@localhost,db.example/orders?sslmode=disable", false},
		{"postgres://app@10.0.0.1/orders?sslmode=disable", false},
		{"postgres://app@localhost/orders?sslmode=disable", true},
		{"postgres://app@db.localhost/orders", true},
		{"postgres://app@127.8.0.1/orders", true},
		{"postgres://app@[::1]/orders", true},
		{"host=/run/postgresql sslmode=disable", true},
	} {
		for _, variable := range []string{"DATABASE_URL", "RELAY_REPLICATION_URL"} {
			_, err := config.Load(t.Context(), with(map[string]string{variable: test.url}))
			switch {
			case test.ok && err != nil:
				t.Errorf("%s=%s: %v", variable, test.url, err)
			case !test.ok && (err == nil || !strings.HasPrefix(err.Error(), variable+" lets a connection to ")):
				t.Errorf("%s=%s: %v", variable, test.url, err)
			}
			load(t, map[string]string{variable: test.url, "RELAY_ALLOW_INSECURE_TLS": "true"})
		}
	}
}

func TestLoad_Poolers(t *testing.T) {
	t.Parallel()
	const insecure = "RELAY_ALLOW_INSECURE_TLS"
	for _, host := range []string{"aws-0-eu.pooler.cloud.example", "ep-cool-1-pooler.region.example"} {
		url := "postgres://app@" + host + "/orders"
		got := problems(t, map[string]string{insecure: "true", "DATABASE_URL": url})
		want := "DATABASE_URL leads to " + host + ", which is a connection pooler: set RELAY_REPLICATION_URL to the direct address of the server, " +
			"poolers do not pass replication connections on"
		if diff := cmp.Diff([]string{want}, got); diff != "" {
			t.Errorf("problems (-want +got):\n%s", diff)
		}
		// SQL goes through a pooler well.
		load(t, map[string]string{insecure: "true", "DATABASE_URL": url}, config.Database)
		load(t, map[string]string{insecure: "true", "DATABASE_URL": url, "RELAY_REPLICATION_URL": enough["DATABASE_URL"]})
	}
	for _, port := range []string{"6432", "6543"} {
		c := load(t, map[string]string{"RELAY_REPLICATION_URL": "postgres://app@127.0.0.1:" + port + "/orders"})
		want := []string{"RELAY_REPLICATION_URL uses port " + port + ", which is usually a connection pooler's; replication needs the direct address of the server"}
		if diff := cmp.Diff(want, c.Warnings()); diff != "" {
			t.Errorf("warnings (-want +got):\n%s", diff)
		}
	}
}

func TestLoad_DropsOptionsOfPools(t *testing.T) {
	t.Parallel()
	c := load(t, map[string]string{"DATABASE_URL": "postgres://app@localhost/orders?pool_max_conns=9&statement_timeout=5s"})
	if diff := cmp.Diff(map[string]string{"statement_timeout": "5s"}, c.Database().RuntimeParams); diff != "" {
		t.Errorf("parameters (-want +got):\n%s", diff)
	}
}

// SEC-01: no part of a password is in an error, whatever is wrong with the
// connection string, and the error still says which server was meant.
func TestLoad_NoSecretInErrors(t *testing.T) {
	t.Parallel()
	const secret = `S3cr%zz:@/pw`
	for _, test := range []struct{ name, url, want string }{
		{
			"unescaped in a URL", "postgres://app:" + secret + "@db.example:5432/orders?sslmode=verify-full",
			"not a connection URL: write % : / @ ? # in the user name and the password as %25 %3A %2F %40 %3F %23 (user app, host db.example:5432, database orders)",
		},
		{
			"unescaped in a URL, without %", "postgres://app:S3cr:@/pw@db.example:5432/orders",
			"not a connection URL: write % : / @ ? # in the user name and the password as %25 %3A %2F %40 %3F %23 (user app, host db.example:5432, database orders)",
		},
		{
			"unescaped in a URL, with @", "postgres://app:S3cr@pw@localhost/orders",
			"not a connection URL: write % : / @ ? # in the user name and the password as %25 %3A %2F %40 %3F %23 (user app, host localhost, database orders)",
		},
		{
			"unescaped in a URL, with /", "postgres://app:S3cr/pw@localhost/orders",
			"the port is not a number from 1 to 65535 (user app, host localhost, database orders)",
		},
		{"URL that ends with the password", "postgres://app:" + secret, "not a connection URL: write % : / @ ? # in the user name and the password as %25 %3A %2F %40 %3F %23 (user app)"},
		{"URL with ? in the password", "postgres://app:12/S3cr?pw@localhost/orders", "not a connection URL: write % : / @ ? # in the user name and the password as %25 %3A %2F %40 %3F %23"},
		{"URL with a password option", "postgres://localhost:x/orders?password=S3cr@pw", "the port is not a number from 1 to 65535"},
		{"another scheme", "jdbc:postgresql://app:" + secret + "@db.example/orders", "the URL does not begin with postgres:// or postgresql://"},
		{"wrong port in a URL", "postgres://app:S3cr-pw@db.example:99999/orders", "the port is not a number from 1 to 65535 (user app, host db.example:99999, database orders)"},
		{"wrong port", "host=db.example port=54321x user=app dbname=orders password=" + secret, "the port is not a number from 1 to 65535 (host db.example, port 54321x, user app, dbname orders)"},
		{"password first", "password=" + secret + " host=db.example port=0", "the port is not a number from 1 to 65535"},
		{"missing quote", "host=db.example user=app password='" + secret + " dbname=orders", "neither postgres://... nor key=value pairs; a value with spaces or quotes needs quotes (host db.example, user app)"},
		{"space in the password", "host=db.example password=x S3cr%zz dbname=orders", "neither postgres://... nor key=value pairs; a value with spaces or quotes needs quotes (host db.example)"},
		{"space in the password, like a pair", "password=x host=S3cr port=S3cr ", "the port is not a number from 1 to 65535"},
		{"quoted host", "host='S3cr password=x' port=y", "the port is not a number from 1 to 65535"},
		{"URL without its slashes", "postgres:30409//app:" + secret + "@db.example/orders?sslmode=require", "neither postgres://... nor key=value pairs; a value with spaces or quotes needs quotes"},
		{"only the password", secret, "neither postgres://... nor key=value pairs; a value with spaces or quotes needs quotes"},
		{"unknown sslmode", "host=db.example password=" + secret + " sslmode=S3cr", "sslmode is none of disable, allow, prefer, require, verify-ca and verify-full (host db.example)"},
		{"unknown option value", "postgres://app:S3cr@db.example/orders?target_session_attrs=S3cr", "target_session_attrs is none of any, read-write, read-only, primary, standby and prefer-standby (user app, host db.example, database orders)"},
		{"hosts and ports", "host=a,b port=1,2,3 password=" + secret, "the numbers of hosts and of ports differ (host a,b, port 1,2,3)"},
		{"no CA file", "postgres://app:S3cr@db.example/orders?sslmode=verify-full&sslrootcert=/no/such/ca.pem", "the TLS settings cannot be used: open /no/such/ca.pem: no such file or directory (user app, host db.example, database orders)"},
		{"password in a path", "host=db.example sslmode=verify-full sslrootcert=/ca.pem&password=S3cr", "the TLS settings cannot be used (host db.example)"},
		{"NUL", "host=db.example password=S3cr\x00", "neither postgres://... nor key=value pairs; a value with spaces or quotes needs quotes (host db.example)"},
	} {
		for _, variable := range []string{"DATABASE_URL", "RELAY_REPLICATION_URL"} {
			got := problems(t, map[string]string{variable: test.url})
			if diff := cmp.Diff([]string{variable + ": " + test.want}, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", test.name, diff)
			}
			for _, part := range []string{"S3cr", "%zz", "/pw", "@pw"} {
				if strings.Contains(strings.Join(got, ""), part) {
					t.Errorf("%s: %q holds %q", test.name, got, part)
				}
			}
		}
	}
}

// SEC-01: nor is a secret in anything that prints a Config.
func TestConfig_PrintsNoSecrets(t *testing.T) {
	t.Parallel()
	c := load(t, map[string]string{
		"DATABASE_URL":          "postgres://app:S3cr1@localhost/orders",
		"RELAY_REPLICATION_URL": "host=localhost user=app password=S3cr2",
		"INFRAI_API_KEY":        "S3cr3",
	})
	if c.Database().Password != "S3cr1" || c.Replication().Password != "S3cr2" {
		t.Fatal("the passwords did not arrive")
	}
	core, logs := observer.New(zapcore.DebugLevel)
	zap.New(core).Info("settings", zap.Any("config", c), zap.Reflect("again", *c))
	printed := fmt.Sprintf("%v %+v %#v %v %+v", c, c, c, *c, *c)
	for _, value := range []any{c, logs.All()[0].ContextMap()} {
		text, err := json.Marshal(value)
		if err != nil {
			t.Fatal(err)
		}
		printed += string(text)
	}
	if strings.Contains(printed, "S3cr") {
		t.Errorf("a secret is in %s", printed)
	}
}

func TestRead(t *testing.T) {
	t.Parallel()
	var own struct {
		Listen string     `env:"DEMO_LISTEN, default=127.0.0.1:0"`
		Orders int        `env:"DEMO_ORDERS, default=100"`
		Log    config.Log `env:", prefix=DEMO_LOG_"`
	}
	err := config.Read(t.Context(), envconfig.MapLookuper(map[string]string{"DEMO_ORDERS": "7"}), &own)
	if err != nil || own.Listen != "127.0.0.1:0" || own.Orders != 7 || own.Log.Level != zapcore.InfoLevel {
		t.Errorf("%+v, %v", own, err)
	}
	err = config.Read(t.Context(), envconfig.MapLookuper(map[string]string{"DEMO_ORDERS": "x", "DEMO_LOG_FORMAT": "y"}), &own)
	want := "2 settings are wrong:\nDEMO_ORDERS is \"x\": want a whole number\nDEMO_LOG_FORMAT is \"y\": want json, console or auto"
	if err == nil || err.Error() != want {
		t.Errorf("got %v", err)
	}
}
