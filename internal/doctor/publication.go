package doctor

import (
	"context"
	"errors"
	"strings"

	"github.com/jackc/pgx/v5"
)

// publication looks at what the publication publishes.
func publication(ctx context.Context, p *patient) (finding, error) {
	name := ident(p.cfg.Publication)
	var all, insert, update, del, truncate bool
	err := p.conn.QueryRow(ctx, `
		select puballtables, pubinsert, pubupdate, pubdelete, pubtruncate from pg_publication where pubname = $1`,
		p.cfg.Publication).Scan(&all, &insert, &update, &del, &truncate)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return p.publicationMissing(ctx)
	case err != nil:
		return finding{}, err
	}
	published := actions(insert, update, del, truncate)
	f := finding{
		status: Warn, observed: "publishes " + published,
		remedy: "as the owner of the publication",
		sql:    script("alter publication " + name + " set (publish = 'insert')"), safe: true,
	}
	switch {
	case !insert:
		f.status = Fail
		f.message = "publication " + name + " does not publish inserts: no message reaches the relay"
		f.remedy += "; then restart the relay, which takes the messages that were written meanwhile from the table"
		f.sql = script("alter publication "+name+" set (publish = 'insert')", p.reconcile())
	case update || del || truncate:
		f.message = "publication " + name + " publishes more than inserts: the server decodes it for nothing, and " +
			"a table without primary key would refuse updates and deletes"
	case all:
		f.message = "publication " + name + " is for all tables: every insert of the database is decoded for nothing"
		f.remedy = "set RELAY_PUBLICATION to a publication for the table of messages alone"
		f.sql, f.safe = nil, false
	default:
		return pass("publishes inserts"), nil
	}
	return f, nil
}

func actions(insert, update, del, truncate bool) string {
	var names []string
	for _, a := range []struct {
		name      string
		published bool
	}{{"inserts", insert}, {"updates", update}, {"deletes", del}, {"truncates", truncate}} {
		if a.published {
			names = append(names, a.name)
		}
	}
	if len(names) == 0 {
		return "nothing"
	}
	return strings.Join(names, ", ")
}

// publicationMissing tells how to make it. A slot that is older than its
// publication cannot get past the WAL that was written before: the server looks
// the publication up as of each record.
func (p *patient) publicationMissing(ctx context.Context) (finding, error) {
	there, err := p.exists(ctx, "messages")
	if err != nil {
		return finding{}, err
	}
	if !there {
		return skip("there is no table to publish; see D31"), nil
	}
	f := finding{
		status: Fail, observed: "does not exist",
		message: "publication " + ident(p.cfg.Publication) + " does not exist: no message reaches the relay",
		remedy:  "as the owner of the table, with CREATE on the database",
	}
	list := []string{
		"create publication " + ident(p.cfg.Publication) + " for table " + p.table("messages") + " with (publish = 'insert', publish_via_partition_root = true)",
	}
	s, err := p.readSlot(ctx)
	if err != nil {
		return finding{}, err
	}
	if s != nil && s.foreign(p) == "" {
		f.remedy += ". The slot is older than the new publication and cannot be used any more: stop the relay before; " +
			"the next start takes the messages that were written meanwhile from the table"
		list = append(list, p.remakeSlot()...)
	}
	f.sql, f.safe = script(list...), len(list) == 1 // a slot is only dropped by a person
	return f, nil
}

// reconcile is the statement that lets the next start of the relay look through
// the table for messages that the WAL did not show.
func (p *patient) reconcile() string {
	return "update " + p.table("relays") + " set reconciled_at = null where slot = " + literal(p.cfg.Slot)
}
