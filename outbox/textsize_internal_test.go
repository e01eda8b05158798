package outbox

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"pgregory.net/rapid"

	"github.com/outbox-relay/outbox-relay/internal/pgtest"
)

func TestTextSize(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		text string
		want int
	}{
		{`{}`, 2},
		{`{"a":1,"b":[true,null]}`, len(`{"a": 1, "b": [true, null]}`)},
		{`{"a":-0}`, len(`{"a": 0}`)},
		{`{"a":-0.00}`, len(`{"a": 0.00}`)},
		{`{"a":-1.50E+2}`, len(`{"a": -150}`)},
		{`{"a":15e-1}`, len(`{"a": 1.5}`)},
		{`{"a":0.0015e2}`, len(`{"a": 0.15}`)},
		{`{"a":0.015e2}`, len(`{"a": 1.5}`)},
		{`{"a":1e3}`, len(`{"a": 1000}`)},
		{`{"a":"\/\u0041\u00fc\u0001\u000a\ud83d\ude00"}`, len("{\"a\": \"/A\u00fc\\u0001\\n\U0001F600\"}")},
		{`{"a":"\ufffd"}`, len("{\"a\": \"\ufffd\"}")},
	} {
		if got, err := textSize([]byte(test.text)); got != test.want || err != nil {
			t.Errorf("%s: got %d, %v; want %d", test.text, got, err, test.want)
		}
	}
}

// TestTextSize_IsWhatPostgresPrints compares the count with a real server, for
// any JSON text: the same size, or both refuse it.
func TestTextSize_IsWhatPostgresPrints(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	conn, err := pgx.Connect(ctx, pgtest.Database(t))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(ctx) }()

	rapid.Check(t, func(t *rapid.T) {
		text := jsonObject(3).Draw(t, "text")
		// What marshalPayload does, but always with the slow way.
		compact, err := json.Marshal(json.RawMessage(text))
		if err != nil {
			t.Fatalf("the generator made no JSON: %v", err)
		}
		got, goErr := textSize(compact)
		if goErr == nil {
			got, goErr = textSize(lastOfRepeatedNames(compact))
		}
		var want int
		sqlErr := conn.QueryRow(ctx, "select octet_length($1::text::jsonb::text)", text).Scan(&want)
		if refused := new(pgconn.PgError); sqlErr != nil && !errors.As(sqlErr, &refused) {
			t.Fatal(sqlErr)
		}
		if (goErr == nil) != (sqlErr == nil) || goErr == nil && got != want {
			t.Fatalf("Go says %d, %v; Postgres says %d, %v", got, goErr, want, sqlErr)
		}
	})
}

// jsonObject makes the text of an object: few names, so that some repeat, every
// kind of escape and every form of number.
func jsonObject(depth int) *rapid.Generator[string] {
	return rapid.Custom(func(t *rapid.T) string {
		var members []string
		for range rapid.IntRange(0, 4).Draw(t, "members") {
			name := rapid.SampledFrom([]string{`"a"`, `"\u0061"`, `"b"`, `"\"\n"`, `""`, `"ü"`}).Draw(t, "name")
			members = append(members, name+rapid.SampledFrom([]string{":", " : "}).Draw(t, "colon")+jsonValue(depth).Draw(t, "value"))
		}
		return "{" + strings.Join(members, ",") + "}"
	})
}

func jsonValue(depth int) *rapid.Generator[string] {
	kinds := []*rapid.Generator[string]{
		rapid.SampledFrom([]string{"true", "false", "null", "[]", "[ ]"}),
		jsonNumber(),
		jsonString(),
	}
	if depth > 0 {
		kinds = append(kinds, rapid.Deferred(func() *rapid.Generator[string] { return jsonObject(depth - 1) }))
		kinds = append(kinds, rapid.Custom(func(t *rapid.T) string {
			return "[" + strings.Join(rapid.SliceOfN(jsonValue(depth-1), 0, 3).Draw(t, "elements"), ", ") + "]"
		}))
	}
	return rapid.OneOf(kinds...)
}

func jsonNumber() *rapid.Generator[string] {
	return rapid.Custom(func(t *rapid.T) string {
		integer := rapid.StringMatching(`-?(0|[1-9][0-9]{0,20})`).Draw(t, "integer")
		fraction := rapid.StringMatching(`(\.[0-9]{1,20})?`).Draw(t, "fraction")
		exponent := ""
		if rapid.Bool().Draw(t, "has exponent") {
			e := rapid.OneOf(
				rapid.IntRange(-30, 30), rapid.IntRange(-16_420, -16_350), rapid.IntRange(131_040, 131_090),
			).Draw(t, "exponent")
			exponent = fmt.Sprintf(rapid.SampledFrom([]string{"e%d", "E%+d", "e%+04d"}).Draw(t, "form"), e)
		}
		return integer + fraction + exponent
	})
}

func jsonString() *rapid.Generator[string] {
	piece := rapid.OneOf(
		rapid.SampledFrom([]string{
			`\"`, `\\`, `\/`, `\b`, `\f`, `\n`, `\r`, `\t`, `\u0000`, `\u001f`, `\u007f`, `\u0080`, `\u07ff`, `\u0800`,
			`\uFFFD`, `\uffff`, `\ud83d\ude00`, `\ud83d`, `\ude00`, `<`, `&`, "\u2028", "\x7f", "\U0001F600", "\ufffd",
		}),
		rapid.StringMatching(`[ -!#-\[\]-~]{0,5}`),
		rapid.StringMatching(`\\u[0-9a-fA-F]{4}`),
	)
	return rapid.Custom(func(t *rapid.T) string {
		return `"` + strings.Join(rapid.SliceOfN(piece, 0, 4).Draw(t, "pieces"), "") + `"`
	})
}
