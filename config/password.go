package config

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// usePassword sets where the connection's passwords come from.
func (c *Config) usePassword(connection *pgx.ConnConfig, text string) (err error) {
	if c.DatabasePasswordFile == "" {
		followPassword(connection, passwordOf(text))
		return nil
	}
	if !filepath.IsAbs(c.DatabasePasswordFile) {
		return errors.New("RELAY_DATABASE_PASSWORD_FILE is not an absolute path") // it may be the password itself
	}
	current := passwordIn(c.DatabasePasswordFile)
	if connection.Password, err = current(); err != nil {
		return fmt.Errorf("RELAY_DATABASE_PASSWORD_FILE: %w", err)
	}
	followPassword(connection, current)
	return nil
}

// followPassword has every new connection ask for the password of that moment,
// so that a password can be changed without a restart. When there is none to be
// had, because the file is just being replaced, the last one stays.
//
// The hook is the only place that pgx gives between a configuration and its use.
// It is called with the configuration of this one attempt, which no other
// attempt may share.
func followPassword(connection *pgx.ConnConfig, current func() (string, error)) {
	var last atomic.Pointer[string]
	start := connection.Password
	last.Store(&start)
	connection.AfterNetConnect = func(_ context.Context, c *pgconn.Config, conn net.Conn) (net.Conn, error) {
		if password, err := current(); err == nil {
			last.Store(&password)
		}
		c.Password = *last.Load()
		return conn, nil
	}
}

// passwordOf looks up the password as a restart would: in the connection string,
// the environment and the password file.
func passwordOf(text string) func() (string, error) {
	return func() (string, error) {
		connection, err := parseConnection(text)
		if err != nil {
			return "", err
		}
		if connection.Password == "" {
			return "", errNoPassword
		}
		return connection.Password, nil
	}
}

var errNoPassword = errors.New("no password")

// passwordIn reads a file that holds a password and nothing else. The end of its
// line is not part of it: most editors and echo write one.
func passwordIn(file string) func() (string, error) {
	return func() (string, error) {
		content, err := os.ReadFile(file)
		if err != nil {
			return "", err
		}
		password := strings.TrimRight(string(content), "\r\n")
		if password == "" || strings.ContainsAny(password, "\r\n\x00") {
			return "", fmt.Errorf("%s does not hold a password on one line", file)
		}
		return password, nil
	}
}
