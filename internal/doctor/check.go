package doctor

import (
	"context"
	"fmt"
	"strings"
	"time"
)

// check is one question. The worst answer is severity.
type check struct {
	id, title string
	severity  Status
	expected  string
	// needs are checks without which this one says nothing.
	needs []string
	// wal and poll are for checks of one mode only: the first are skipped in
	// poll mode, the others do not appear without it.
	wal, poll bool
	// run looks. An error means that it could not.
	run func(context.Context, *patient) (finding, error)
}

// checks are in the order in which to mend: the server, then what the schema
// gives, then the slot, which must be younger than the publication, then the
// queue.
var checks = []check{
	{
		id: "D01", title: "Postgres answers", severity: Fail, expected: "Postgres 14 or later",
		run: serverVersion,
	},
	{
		id: "D02", title: "Server takes writes", severity: Fail, expected: "a primary, sessions not read-only",
		needs: []string{"D01"}, run: writable,
	},
	{
		id: "D03", title: "WAL level", severity: Fail, expected: "logical",
		needs: []string{"D01"}, run: walLevel, wal: true,
	},
	{
		id: "D04", title: "Role may replicate", severity: Fail, expected: "a role with REPLICATION",
		needs: []string{"D01"}, run: mayReplicate, wal: true,
	},
	{
		id: "D06", title: "Replication connection", severity: Fail, expected: "a walsender of the database answers",
		needs: []string{"D01"}, run: replicationOpens, wal: true,
	},
	{
		id: "D28", title: "Grants of the relay", severity: Fail, expected: "every right that the relay uses",
		needs: []string{"D01"}, run: grants,
	},
	{
		id: "D31", title: "Schema version", severity: Fail,
		needs: []string{"D01"}, run: schemaVersion,
	},
	{
		id: "D26", title: "Row security", severity: Fail, expected: "the relay sees every row",
		needs: []string{"D31"}, run: rowSecurity,
	},
	{
		id: "D27", title: "Unique keys", severity: Fail, expected: "every key has a valid unique index",
		needs: []string{"D31"}, run: keys,
	},
	{
		id: "D21", title: "Publication", severity: Fail, expected: "publishes inserts, and nothing else",
		needs: []string{"D01"}, run: publication, wal: true,
	},
	{
		id: "D20", title: "Messages are published", severity: Fail, expected: "the table is in the publication, with all rows and columns",
		needs: []string{"D21", "D31"}, run: membership, wal: true,
	},
	{
		id: "D22", title: "Numbers of messages", severity: Fail, expected: "new ones are higher than those with outcomes",
		needs: []string{"D31"}, run: numbers,
	},
	{
		id: "D46", title: "Cluster of the relay", severity: Fail, expected: "the one that it was on last",
		needs: []string{"D02", "D31"}, run: sameCluster,
	},
	{
		id: "D09", title: "Slot", severity: Fail, expected: "a logical slot of pgoutput in this database",
		needs: []string{"D02"}, run: slotKind, wal: true,
	},
	{
		id: "D10", title: "Slot is usable", severity: Fail, expected: "its WAL is there",
		needs: []string{"D09"}, run: slotUsable, wal: true,
	},
	{
		id: "D24", title: "Slot is younger than its publication", severity: Fail, expected: "the next changes can be read",
		needs: []string{"D03", "D04", "D21", "D09", "D10"}, run: slotAge, wal: true,
	},
	{
		id: "D39", title: "Slots of earlier names", severity: Warn, expected: "none: nobody reads their WAL",
		needs: []string{"D31"}, run: leftovers,
	},
	{
		id: "D49", title: "Reading the table", severity: Fail, expected: "the primary with no pooler before it, numbers in their order",
		needs: []string{"D31"}, run: readsTable, poll: true,
	},
	{
		id: "D50", title: "Slot of before", severity: Warn, expected: "none: nobody reads its WAL",
		needs: []string{"D01"}, run: slotOfBefore, poll: true,
	},
	{
		id: "D48", title: "Queue", severity: Fail, expected: "reachable, key accepted, queues exist",
		run: queueAnswers,
	},
}

// finding is the answer of a check.
type finding struct {
	status   Status
	observed string
	expected string // replaces that of the check
	message  string
	remedy   string
	sql      string
}

func pass(observed string) finding { return finding{status: Pass, observed: observed} }

func skip(reason string) finding { return finding{status: Skip, message: reason} }

// timeout bounds each check; a server that does not answer is a finding too.
const timeout = 15 * time.Second

// examine runs a check unless one that it needs has failed.
func (c *check) examine(ctx context.Context, p *patient, so *Report) Result {
	r := Result{
		ID: c.id, Title: c.title, Severity: c.severity, Expected: c.expected,
		Docs: "docs/doctor.md#" + strings.ToLower(c.id),
	}
	f := c.finding(ctx, p, so)
	r.Status, r.Observed, r.Message, r.Remedy, r.SQL = f.status, f.observed, f.message, f.remedy, f.sql
	if f.expected != "" {
		r.Expected = f.expected
	}
	return r
}

func (c *check) finding(ctx context.Context, p *patient, so *Report) finding {
	if c.wal && p.cfg.Poll != nil {
		return skip("RELAY_MODE=poll needs no logical replication")
	}
	for _, id := range c.needs {
		switch so.status(id) {
		case Fail:
			return skip(id + " failed")
		case Skip:
			return skip(id + " was skipped")
		case Pass, Warn:
		}
	}
	ctx, cancel := context.WithTimeoutCause(ctx, timeout, fmt.Errorf("no answer within %v", timeout))
	defer cancel()
	f, err := c.run(ctx, p)
	switch {
	case err == nil:
		return f
	case sqlState(err) == "42501":
		return skip(oneLine(err) + "; see D28")
	}
	return finding{status: Fail, observed: "could not look", message: oneLine(err), remedy: "look again"}
}
