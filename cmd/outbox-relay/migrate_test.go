package main

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/outbox-relay/outbox-relay/internal/pgtest"
	"github.com/outbox-relay/outbox-relay/schema"
)

func TestMigrate(t *testing.T) {
	t.Parallel()
	environment := settings{"DATABASE_URL": pgtest.Database(t)}
	expectCode(t, environment, exitSchema, []string{"migrate", "status"}, "pending", "migrate up")
	expectCode(t, environment, exitSchema, []string{"status"}, "version 0", fmt.Sprintf("version %d", schema.Version), "migrate up")
	expectCode(t, environment, exitStopped, []string{"migrate", "up"}, "applied 0001")
	expectCode(t, environment, exitStopped, []string{"migrate", "up"}, "up to date")
	expectCode(t, environment, exitStopped, []string{"migrate", "status"}, "applied 2")

	r := expectCode(t, environment, exitStopped, []string{"migrate", "status", "--json"})
	var list migrationList
	if err := json.Unmarshal([]byte(r.out), &list); err != nil {
		t.Fatal(err)
	}
	if list.SchemaVersion != 1 || list.Schema != "outbox" || len(list.Migrations) != int(schema.Version) {
		t.Errorf("got %+v", list)
	}
}

// A DBA applies what is printed; the program is content with it.
func TestMigratePrint_AppliedByHand(t *testing.T) {
	t.Parallel()
	url := pgtest.Database(t)
	environment := settings{"DATABASE_URL": url, "RELAY_SCHEMA": "events", "RELAY_PUBLICATION": "events_pub"}
	r := expectCode(t, environment, exitStopped, []string{"migrate", "print"})
	sql(t, url, r.out)
	expectCode(t, environment, exitStopped, []string{"migrate", "status"})
	expectCode(t, environment, exitStopped, []string{"migrate", "up"}, "up to date")

	r = expectCode(t, environment, exitStopped, []string{"migrate", "print", "--after", fmt.Sprint(schema.Version)})
	if strings.Contains(r.out, "create") {
		t.Errorf("prints what is applied: %s", r.out)
	}
}

func TestGrantsPrint(t *testing.T) {
	t.Parallel()
	environment := settings{"DATABASE_URL": "postgres://somebody@127.0.0.1/Shop"}
	expectCode(t, environment, exitStopped, []string{"grants", "print", "--role-relay", "Relay 7", "--role-owner", ""},
		`database "Shop"`, `alter role "Relay 7" replication`, `"outbox_app"`)
	r := expectCode(t, environment, exitStopped, []string{"grants", "print", "--vendor", "rds", "--part", "roles"}, "grant rds_replication to")
	if strings.Contains(r.out, "on \"outbox\".messages") {
		t.Errorf("prints rights too: %s", r.out)
	}
}
