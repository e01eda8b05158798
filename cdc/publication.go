package cdc

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/outbox-relay/outbox-relay/internal/hint"
)

// publication is what the catalog says about our publication and the table.
type publication struct {
	exists    bool
	allTables bool
	inserts   bool
	more      bool // also updates, deletes or truncates
	viaRoot   bool
	tableKind string // relkind; empty if there is no such table
	unlogged  bool
	child     []string // schema and name of a table that inherits from it, other than a partition
	payload   string   // the type of the payload, without its domain; empty if there is no such column
	contains  bool     // the table, by its own name
	filter    string   // the row filter
	columns   []string // what is published of each row; nil where servers have no column lists
	has       []string // the columns of the table
}

// selectPublication reads the catalog; it takes no lock beyond that of reading
// it. Row filters and column lists exist from version 15 on, hence the JSON.
const selectPublication = `
	select p.pubname is not null, coalesce(p.puballtables, false), coalesce(p.pubinsert, false),
	       coalesce(p.pubupdate or p.pubdelete or p.pubtruncate, false), coalesce(p.pubviaroot, false),
	       coalesce(c.relkind::text, ''), coalesce(c.relpersistence <> 'p', false),
	       (select array[kn.nspname::text, k.relname::text]
	        from pg_catalog.pg_inherits i join pg_catalog.pg_class k on k.oid = i.inhrelid join pg_catalog.pg_namespace kn on kn.oid = k.relnamespace
	        where i.inhparent = c.oid and c.relkind = 'r' order by k.oid limit 1),
	       coalesce((select coalesce(base.typname, t.typname)::text
	        from pg_catalog.pg_attribute a join pg_catalog.pg_type t on t.oid = a.atttypid left join pg_catalog.pg_type base on base.oid = t.typbasetype
	        where a.attrelid = c.oid and a.attname = 'payload' and not a.attisdropped), ''),
	       t.pubname is not null,
	       coalesce(pg_catalog.to_jsonb(t) ->> 'rowfilter', ''),
	       case when pg_catalog.to_jsonb(t) -> 'attnames' is null then null
	            else array(select pg_catalog.jsonb_array_elements_text(pg_catalog.to_jsonb(t) -> 'attnames')) end,
	       array(select a.attname::text from pg_catalog.pg_attribute a
	             where a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped)
	from (values (1)) one
	left join pg_catalog.pg_publication p on p.pubname = $1
	left join pg_catalog.pg_namespace n on n.nspname = $2
	left join pg_catalog.pg_class c on c.relnamespace = n.oid and c.relname = $3
	left join pg_catalog.pg_publication_tables t
	       on t.pubname = $1 and t.schemaname = $2 and t.tablename = $3`

func inspectPublication(ctx context.Context, conn *pgx.Conn, name, schema string) (publication, error) {
	var p publication
	err := conn.QueryRow(ctx, selectPublication, name, schema, tableName).Scan(
		&p.exists, &p.allTables, &p.inserts, &p.more, &p.viaRoot, &p.tableKind, &p.unlogged, &p.child, &p.payload,
		&p.contains, &p.filter, &p.columns, &p.has)
	if err != nil {
		return publication{}, fmt.Errorf("inspect publication %q: %w", name, err)
	}
	return p, nil
}

// check returns what keeps messages from being published, all at once, each
// with the statement that cures it.
func (p publication) check(name, schema string) error {
	table := pgx.Identifier{schema, tableName}.Sanitize()
	quoted := pgx.Identifier{name}.Sanitize()
	switch {
	case p.tableKind == "":
		return unfit(ErrTable, fmt.Sprintf("table %s does not exist", table), "run: outbox-relay migrate")
	case p.tableKind != "r" && p.tableKind != "p":
		return unfit(ErrTable, fmt.Sprintf("%s is not a table", table), "run: outbox-relay migrate")
	case !p.exists:
		return unfit(ErrPublication, fmt.Sprintf("publication %q does not exist", name),
			fmt.Sprintf("create publication %s for table %s with (publish = 'insert')", quoted, table))
	}
	problems := p.checkTable(table)
	if !p.inserts {
		problems = append(problems, unfit(ErrPublication, fmt.Sprintf("publication %q lacks inserts of %s", name, table),
			fmt.Sprintf("alter publication %s set (publish = 'insert')", quoted)))
	}
	if p.tableKind == "p" && !p.viaRoot {
		problems = append(problems, unfit(ErrPublication, fmt.Sprintf("publication %q names the partitions of %s, not the table", name, table),
			fmt.Sprintf("alter publication %s set (publish_via_partition_root = true)", quoted)))
	} else if !p.contains {
		problems = append(problems, unfit(ErrPublication, fmt.Sprintf("publication %q lacks inserts of %s", name, table),
			fmt.Sprintf("alter publication %s add table %s", quoted, table)))
	}
	if left := p.leftOut(needed); len(left) > 0 {
		problems = append(problems, unfit(ErrPublication,
			fmt.Sprintf("publication %q leaves out column %s of %s", name, strings.Join(left, ", "), table),
			fmt.Sprintf("alter publication %s set table %s", quoted, table)))
	}
	return joinOperator(problems)
}

func unfit(kind error, text, hint string) error {
	return &OperatorError{kind: kind, text: text, hint: hint}
}

// checkTable returns what is wrong with the table itself.
func (p publication) checkTable(table string) (problems []error) {
	if p.unlogged {
		problems = append(problems, unfit(ErrTable, fmt.Sprintf("table %s is not logged: nothing of it reaches the WAL", table),
			fmt.Sprintf("alter table %s set logged", table)))
	}
	if len(p.child) > 0 {
		// Its rows are among those of the table, but the stream shows them under
		// another name, if at all, and nothing keeps their numbers apart.
		child := pgx.Identifier(p.child).Sanitize()
		problems = append(problems, unfit(ErrTable, fmt.Sprintf("table %s inherits from %s: its rows do not come as messages", child, table),
			fmt.Sprintf("alter table %s no inherit %s", child, table)))
	}
	switch p.payload {
	case "", "json", "jsonb", "text", "varchar":
	default:
		problems = append(problems, unfit(ErrTable, fmt.Sprintf("column \"payload\" of %s has type %s, needs jsonb", table, p.payload),
			"give the column its type back: alter table "+table+" alter payload type jsonb using ..."))
	}
	return problems
}

// leftOut are those of the columns that the table has and the publication's
// column list does not.
func (p publication) leftOut(columns []column) []string {
	if !p.contains || p.columns == nil {
		return nil
	}
	return namesOf(columns, func(name string) bool {
		return slices.Contains(p.has, name) && !slices.Contains(p.columns, name)
	})
}

func namesOf(columns []column, wanted func(name string) bool) []string {
	var names []string
	for _, c := range columns {
		if wanted(columnNames[c]) {
			names = append(names, columnNames[c])
		}
	}
	return names
}

// doubts are what a person should know although messages are published.
func (p publication) doubts(name string) []string {
	var doubts []string
	if p.allTables {
		doubts = append(doubts, fmt.Sprintf("publication %q is for all tables: the server decodes them all for nothing", name))
	}
	if p.more {
		doubts = append(doubts, fmt.Sprintf("publication %q publishes more than inserts: updates and deletes are ignored, "+
			"and fail for the application on tables without a primary key", name))
	}
	if p.filter != "" {
		doubts = append(doubts, fmt.Sprintf("publication %q has a row filter, and the sweep has to find what it leaves out: %s", name, p.filter))
	}
	if left := p.leftOut(optional); len(left) > 0 {
		doubts = append(doubts, fmt.Sprintf("publication %q leaves out column %s", name, strings.Join(left, ", ")))
	}
	// Not a reason to refuse: what is still in the WAL may well have them.
	missing := namesOf(needed, func(name string) bool { return !slices.Contains(p.has, name) })
	if len(missing) > 0 {
		doubts = append(doubts, fmt.Sprintf("the table has no column %s: the stream stops before the first message without it", strings.Join(missing, ", ")))
	}
	return doubts
}

// joinOperator makes one error of several. Its hint is all of their hints.
func joinOperator(problems []error) error {
	switch len(problems) {
	case 0:
		return nil
	case 1:
		return problems[0]
	}
	var texts, hints []string
	for _, problem := range problems {
		texts = append(texts, problem.Error())
		hints = append(hints, hint.Of(problem))
	}
	first, _ := errors.AsType[*OperatorError](problems[0])
	return &OperatorError{kind: first.kind, text: strings.Join(texts, "; "), hint: strings.Join(hints, "; ")}
}
