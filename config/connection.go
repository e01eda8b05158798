package config

import (
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"regexp"
	"strings"

	"github.com/jackc/pgx/v5"
)

// parseConnection parses a connection string. Its error holds no part of the
// string that could belong to a password, so it says nothing that pgx says:
// pgx quotes the string and the piece that it did not understand, and with a
// wrong quote or an unescaped character that piece is the password.
func parseConnection(text string) (*pgx.ConnConfig, error) {
	connection, err := pgx.ParseConfig(text)
	if err != nil {
		return nil, fmt.Errorf("%s%s", cause(text, err), describe(text))
	}
	if isURL(text) && strings.Contains(connection.Host+connection.Database, "@") {
		return nil, fmt.Errorf("%s%s", escapeHint, describe(text))
	}
	for option := range connection.RuntimeParams {
		// What pgx takes for the name of an option, although it is the beginning of a
		// URL that went wrong: the connection would lead to the default server.
		if !optionName.MatchString(option) {
			return nil, fmt.Errorf("%s%s", notPairs, describe(text))
		}
	}
	for option := range connection.RuntimeParams {
		if strings.HasPrefix(option, "pool_") { // meant for pgxpool in the application; the server would refuse it
			delete(connection.RuntimeParams, option)
		}
	}
	return connection, nil
}

const notPairs = "neither postgres://... nor key=value pairs; a value with spaces or quotes needs quotes"

const escapeHint = "not a connection URL: write % : / @ ? # in the user name and the password as %25 %3A %2F %40 %3F %23"

// causes are our words for what pgx complains about. The first match counts.
var causes = []struct{ complaint, words string }{
	{"failed to parse as URL", escapeHint},
	{"failed to parse as keyword/value", notPairs},
	{"invalid port", "the port is not a number from 1 to 65535"},
	{"could not match", "the numbers of hosts and of ports differ"},
	{"sslmode is invalid", "sslmode is none of disable, allow, prefer, require, verify-ca and verify-full"},
	{"sslcertmode", "sslcertmode is none of disable, allow and require"},
	{"both \"sslcert\"", "sslcert and sslkey are only useful together"},
	{"failed to configure TLS", "the TLS settings cannot be used"},
	{"connect_timeout", "connect_timeout is not a number of seconds"},
	{"target_session_attrs", "target_session_attrs is none of any, read-write, read-only, primary, standby and prefer-standby"},
	{"channel_binding", "channel_binding is none of disable, prefer and require"},
	{"require_auth", "require_auth is not a list of authentication methods"},
	{"protocol_version", "min_protocol_version and max_protocol_version do not fit"},
	{"read service", "the service is not in the service file"},
}

func cause(text string, err error) string {
	if scheme, _, ok := strings.Cut(text, "://"); ok && !isURL(text) && !strings.Contains(scheme, "=") {
		return "the URL does not begin with postgres:// or postgresql://"
	}
	// What follows the quoted string is pgx's complaint.
	complaint := err.Error()
	complaint = complaint[strings.LastIndex(complaint, "`: ")+1:]
	words := "not a connection string"
	for _, c := range causes {
		if strings.Contains(complaint, c.complaint) {
			words = c.words
			break
		}
	}
	var file *fs.PathError
	if errors.As(err, &file) && plainPath.MatchString(file.Path) {
		words += fmt.Sprintf(": %s %s: %v", file.Op, file.Path, file.Err)
	}
	return words
}

func isURL(text string) bool {
	return strings.HasPrefix(text, "postgres://") || strings.HasPrefix(text, "postgresql://")
}

var (
	optionName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_.]*$`)
	plainPath  = regexp.MustCompile(`^[A-Za-z0-9._/-]+$`)
	plainName  = regexp.MustCompile(`^[A-Za-z0-9._-]+$`)
	plainHosts = regexp.MustCompile(`^[A-Za-z0-9._,:\[\]-]+$`)
)

// describe says which server a broken connection string means, as far as that
// can be told for certain: a piece is shown only where no password can stand.
func describe(text string) string {
	var parts []string
	show := func(name, value string, plain *regexp.Regexp) {
		if plain.MatchString(value) {
			parts = append(parts, name+" "+value)
		}
	}
	if isURL(text) {
		user, host, database := describeURL(text)
		show("user", user, plainName)
		show("host", host, plainHosts)
		show("database", database, plainName)
	} else {
		for pair := range strings.FieldsSeq(beforePassword(text)) {
			switch name, value, _ := strings.Cut(pair, "="); name {
			case "host", "port", "user", "dbname":
				show(name, value, plainHosts)
			}
		}
	}
	if parts == nil {
		return ""
	}
	return " (" + strings.Join(parts, ", ") + ")"
}

// describeURL takes everything up to the last @ for user and password, even
// what would end them in a well-formed URL. An @ that may be part of an option
// tells nothing, nor does a database without a host: both may be a password's
// end.
func describeURL(text string) (user, host, database string) {
	_, rest, _ := strings.Cut(text, "://")
	at := strings.LastIndexByte(rest, '@')
	if at < 0 || strings.Contains(rest[:at], "?") {
		return "", "", ""
	}
	user, _, _ = strings.Cut(rest[:at], ":")
	rest, _, _ = strings.Cut(rest[at+1:], "?")
	host, database, _ = strings.Cut(rest, "/")
	if host == "" {
		return user, "", ""
	}
	return user, host, database
}

// beforePassword is the part of a key=value string in which nothing is quoted
// and nothing can be a password.
func beforePassword(text string) string {
	if i := strings.IndexAny(text, `'"\`); i >= 0 {
		text = text[:i]
	}
	if i := strings.Index(strings.ToLower(text), "pass"); i >= 0 {
		text = text[:i]
	}
	return text
}

// plaintextHost returns a host that the connection may reach without TLS,
// although it is another machine.
func plaintextHost(c *pgx.ConnConfig) string {
	if c.TLSConfig == nil && !thisMachine(c.Host) {
		return c.Host
	}
	for _, other := range c.Fallbacks {
		if other.TLSConfig == nil && !thisMachine(other.Host) {
			return other.Host
		}
	}
	return ""
}

// thisMachine reports whether a host is a socket in a folder or a name or an
// address of the loopback interface.
func thisMachine(host string) bool {
	if strings.HasPrefix(host, "/") || host == "localhost" || strings.HasSuffix(host, ".localhost") {
		return true
	}
	address, err := netip.ParseAddr(host)
	return err == nil && address.IsLoopback()
}

// checkPooler looks whether the replication connection would lead to a
// connection pooler. The names of such hosts are certain; the ports are only
// usual, and a warning is all they are worth.
func checkPooler(variable string, c *pgx.ConnConfig) (warning string, err error) {
	type address struct {
		host string
		port uint16
	}
	addresses := []address{{c.Host, c.Port}}
	for _, other := range c.Fallbacks {
		addresses = append(addresses, address{other.Host, other.Port})
	}
	for _, a := range addresses {
		if strings.Contains(a.host, "pooler.") || strings.Contains(a.host, "-pooler") {
			return "", fmt.Errorf("%s leads to %s, which is a connection pooler: "+
				"set RELAY_REPLICATION_URL to the direct address of the server, poolers do not pass replication connections on", variable, a.host)
		}
		if a.port == 6432 || a.port == 6543 {
			warning = fmt.Sprintf("%s uses port %d, which is usually a connection pooler's; replication needs the direct address of the server",
				variable, a.port)
		}
	}
	return warning, nil
}
