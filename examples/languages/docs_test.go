package main

import (
	"context"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"github.com/outbox-relay/outbox-relay/internal/pgtest"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// The page shows what run.sh runs, to the letter.
func TestDocs_ShowTheExamples(t *testing.T) {
	t.Parallel()
	page := read(t, "../../docs/languages.md")
	for file, language := range map[string]string{
		"psql/outbox.sql": "sql", "python/outbox.py": "python", "node/outbox.js": "js",
		"java/Outbox.java": "java", "ruby/outbox.rb": "ruby", "php/outbox.php": "php",
	} {
		if !strings.Contains(page, "```"+language+"\n"+read(t, file)+"```\n") {
			t.Errorf("docs/languages.md does not have %s", file)
		}
	}
}

// The functions as every language calls them, without psql: statement by
// statement, with what psql would print.
func TestSQL_DoesWhatItSays(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	conn := connect(t)
	var printed strings.Builder
	var refused []string
	for _, statement := range statements(read(t, "psql/outbox.sql")) {
		results, err := conn.PgConn().Exec(ctx, statement).ReadAll()
		if err != nil {
			refused = append(refused, err.Error())
			continue
		}
		for _, result := range results {
			for _, row := range result.Rows {
				printed.WriteString(string(row[0]) + "\n")
			}
		}
	}
	if diff := cmp.Diff(read(t, "psql/expected.txt"), printed.String()); diff != "" {
		t.Errorf("printed (-want +got):\n%s", diff)
	}
	if len(refused) != 1 || !strings.Contains(refused[0], "messages_payload_size") || !strings.Contains(refused[0], "23514") {
		t.Errorf("refused: %q, want the one that is too large", refused)
	}
	if err := judge(ctx, conn); err != nil {
		t.Error(err)
	}
}

// A program that does not do its work is found out.
func TestPlay_FindsOutALiar(t *testing.T) {
	t.Parallel()
	echo, err := exec.LookPath("echo")
	if err != nil {
		t.Fatal(err)
	}
	for _, expected := range []string{"expected.txt", "psql/expected.txt"} {
		if err := play(t.Context(), expected, []string{echo, "placed"}); err == nil || !strings.Contains(err.Error(), "printed") {
			t.Errorf("%s: %v, want that it printed something else", expected, err)
		}
	}
	cat, err := exec.LookPath("cat")
	if err != nil {
		t.Fatal(err)
	}
	err = play(t.Context(), "expected.txt", []string{cat, "expected.txt"})
	if err == nil || !strings.Contains(err.Error(), "left 0 orders") {
		t.Errorf("%v, want that it left nothing", err)
	}
}

// statements are those of a script, whose ends are at the ends of lines.
func statements(script string) []string {
	var found []string
	for statement := range strings.SplitAfterSeq(script, ";\n") {
		if strings.TrimSpace(statement) != "" {
			found = append(found, statement)
		}
	}
	return found
}

// connect opens a connection to a fresh database with the outbox and the tables
// of the example.
func connect(t *testing.T) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), pgtest.Migrated(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	if _, err := conn.Exec(t.Context(), tables); err != nil {
		t.Fatal(err)
	}
	return conn
}

func read(t *testing.T, file string) string {
	t.Helper()
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}
