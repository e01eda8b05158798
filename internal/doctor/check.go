package doctor

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/outbox-relay/outbox-relay/internal/pgtext"
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
		id: "D05", title: "Power of the relay's role", severity: Warn, expected: "no more than it needs",
		needs: []string{"D01"}, run: power,
	},
	{
		id: "D45", title: "Encryption", severity: Warn, expected: "TLS with a verified server, or loopback",
		needs: []string{"D01"}, run: encryption,
	},
	{
		id: "D47", title: "Clock", severity: Warn, expected: "within 1 s of the server's",
		needs: []string{"D01"}, run: clock,
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
		id: "D25", title: "Tables are logged", severity: Fail, expected: "every change of the outbox is in the WAL",
		needs: []string{"D31"}, run: logged,
	},
	{
		id: "D29", title: "Triggers", severity: Warn, expected: "those of the migration, and no other that a relay fires",
		needs: []string{"D31"}, run: triggers,
	},
	{
		id: "D43", title: "Functions are pinned", severity: Fail, expected: "a search_path of their own",
		needs: []string{"D31"}, run: pinned,
	},
	{
		id: "D44", title: "Nothing for PUBLIC", severity: Fail, expected: "rights for named roles only",
		needs: []string{"D31"}, run: public,
	},
	{
		id: "D21", title: "Publication", severity: Fail, expected: "publishes inserts, and nothing else",
		needs: []string{"D01"}, run: publication, wal: true,
	},
	{
		id: "D20", title: "Messages are published", severity: Fail, expected: "the table is in the publication, with all rows and columns",
		needs: []string{"D21", "D25"}, run: membership, wal: true,
	},
	{
		id: "D51", title: "Nothing else is published", severity: Warn, expected: "the table of messages alone",
		needs: []string{"D20"}, run: others, wal: true,
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
		id: "D16", title: "Room for slots", severity: Fail, expected: "two free, or one and the relay's own",
		needs: []string{"D02"}, run: slotRoom, wal: true,
	},
	{
		id: "D17", title: "Room for walsenders", severity: Warn, expected: "two free, or one and the relay's own",
		needs: []string{"D02"}, run: senderRoom, wal: true,
	},
	{
		id: "D14", title: "Limit of kept WAL", severity: Warn, expected: "a limit of at least twice max_wal_size",
		needs: []string{"D02"}, run: keepLimit, wal: true,
	},
	{
		id: "D15", title: "Limit of idle slots", severity: Warn, expected: "none, or at least 1 h",
		needs: []string{"D02"}, run: idleLimit, wal: true,
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
		id: "D11", title: "Slot is safe", severity: Fail, expected: "all its WAL within max_wal_size",
		needs: []string{"D10"}, run: slotRisk, wal: true,
	},
	{
		id: "D13", title: "WAL that the slot keeps", severity: Warn, expected: "less than 1 GiB, and than half of the limit",
		needs: []string{"D10"}, run: keptWAL, wal: true,
	},
	{
		id: "D12", title: "Slot is read", severity: Warn, expected: "by a relay, since less than 10 min ago",
		needs: []string{"D10", "D31"}, run: slotReader, wal: true,
	},
	{
		id: "D19", title: "Position of the slot", severity: Warn, expected: "where the last relay left it",
		needs: []string{"D10", "D31"}, run: slotPosition, wal: true,
	},
	{
		id: "D36", title: "Slot and failover", severity: Warn, expected: "a standby gets the slot, and before it the messages",
		needs: []string{"D10"}, run: failover, wal: true,
	},
	{
		id: "D37", title: "Standbys that hold delivery back", severity: Fail, expected: "those that are named are connected",
		needs: []string{"D02"}, run: standbyGate, wal: true,
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
		id: "D32", title: "Messages without outcome", severity: Warn, expected: "none older than 1 min",
		needs: []string{"D31"}, run: backlog,
	},
	{
		id: "D33", title: "Long transactions", severity: Warn, expected: "no writer is open for more than 5 min, and no relay waits for one",
		needs: []string{"D02"}, run: longWriters,
	},
	{
		id: "D34", title: "Old rows are kept", severity: Warn, expected: "no slot, session or prepared transaction holds vacuum back",
		needs: []string{"D02"}, run: vacuumHolders,
	},
	{
		id: "D35", title: "Transaction numbers", severity: Warn, expected: "the oldest is younger than 1,000,000,000",
		needs: []string{"D02"}, run: wraparound,
	},
	{
		id: "D40", title: "Vacuum keeps up", severity: Warn, expected: "at most a fifth of the rows is dead",
		needs: []string{"D31"}, run: vacuum,
	},
	{
		id: "D41", title: "Storage options", severity: Warn, expected: "autovacuum on, truncation off",
		needs: []string{"D31"}, run: storage,
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
	sql      statements
	safe     bool // see Result.Safe
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
	r.Status, r.Observed, r.Message, r.Remedy, r.SQL = f.status, f.observed, f.message, f.remedy, f.sql.String()
	r.Safe, r.statements = f.safe, f.sql
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
	if ctx.Err() != nil {
		return skip("the time was up: " + oneLine(context.Cause(ctx)))
	}
	ctx, cancel := context.WithTimeoutCause(ctx, timeout, fmt.Errorf("no answer within %v", timeout))
	defer cancel()
	f, err := c.run(ctx, p)
	switch {
	case err == nil:
		return f
	case pgtext.SQLState(err) == "42501":
		return skip(oneLine(err) + "; see D28")
	case ctx.Err() != nil:
		err = context.Cause(ctx)
	}
	return finding{status: Fail, observed: "could not look", message: oneLine(err), remedy: "look again"}
}
