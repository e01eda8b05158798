package outbox

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// The limits of a claim. The table has the same ones as constraints.
const (
	MaxConsumerBytes = 255
	MaxEventIDBytes  = 1024
)

// ErrNoClaim says that there is no claim to complete: it was never taken, or
// has been removed after it expired.
var ErrNoClaim = errors.New("no such claim")

// Claim records, as part of the caller's transaction, that a consumer handles an
// event. It returns true to exactly one of all callers, however many there are
// at once: that one goes on and does in the same transaction what the event is
// for. The others get false, and leave the event alone. If the transaction rolls
// back, the claim never existed.
//
// The name of the consumer keeps apart those that handle the same events for
// different ends. After the retention, which begins with the transaction, the
// claim expires at the microsecond and may be taken again; choose more than an
// event can come late, than somebody may want to replay, and by far more than the
// transaction lasts.
//
// A claim of the same event that has not committed makes the caller wait for its
// transaction. Who claims several events in one transaction does so in the same
// order everywhere, or two of them can deadlock (SQLSTATE 40P01). In isolation
// repeatable read or serializable the loser gets a serialization failure (SQLSTATE
// 40001) if the winner committed after the loser's snapshot: repeat the
// transaction. A [LimitError] means that nothing was sent to the server. After any
// other error the transaction can only be rolled back.
func Claim(ctx context.Context, tx pgx.Tx, consumer, eventID string, retention time.Duration) (bool, error) {
	return standard.Claim(ctx, tx, consumer, eventID, retention)
}

// ClaimSQL is [Claim] for a transaction of database/sql, with whichever driver.
func ClaimSQL(ctx context.Context, tx *sql.Tx, consumer, eventID string, retention time.Duration) (bool, error) {
	return standard.ClaimSQL(ctx, tx, consumer, eventID, retention)
}

// Complete stores with a claim what a repeat of the event should be answered
// with, encoded by [encoding/json]. It belongs into the transaction that took the
// claim. A later call replaces the result. It returns [ErrNoClaim] if there is no
// such claim.
func Complete(ctx context.Context, tx pgx.Tx, consumer, eventID string, result any) error {
	return standard.Complete(ctx, tx, consumer, eventID, result)
}

// CompleteSQL is [Complete] for a transaction of database/sql.
func CompleteSQL(ctx context.Context, tx *sql.Tx, consumer, eventID string, result any) error {
	return standard.CompleteSQL(ctx, tx, consumer, eventID, result)
}

// Result reads what was stored with a claim into a value, as [json.Unmarshal]
// does, and reports whether there was something: not for a claim that has none,
// that has expired, or that is not there.
func Result(ctx context.Context, tx pgx.Tx, consumer, eventID string, into any) (bool, error) {
	return standard.Result(ctx, tx, consumer, eventID, into)
}

// ResultSQL is [Result] for a transaction of database/sql.
func ResultSQL(ctx context.Context, tx *sql.Tx, consumer, eventID string, into any) (bool, error) {
	return standard.ResultSQL(ctx, tx, consumer, eventID, into)
}

// claimStatements are those of one schema.
type claimStatements struct{ claim, complete, result string }

func newClaimStatements(schema string) claimStatements {
	claims := pgx.Identifier{schema, "claims"}.Sanitize()
	return claimStatements{
		claim:    fmt.Sprintf(`select %s($1, $2, make_interval(secs => $3))`, pgx.Identifier{schema, "claim"}.Sanitize()),
		complete: fmt.Sprintf(`update %s set result = $3::text::jsonb where consumer = $1 and event_id = $2`, claims),
		result:   fmt.Sprintf(`select result::text from %s where consumer = $1 and event_id = $2 and expires_at > now()`, claims),
	}
}

// Claim is the function [Claim] for this schema.
func (o *Outbox) Claim(ctx context.Context, tx pgx.Tx, consumer, eventID string, retention time.Duration) (won bool, err error) {
	if err := checkClaim(consumer, eventID, retention); err != nil {
		return false, claimError("claim", consumer, eventID, err)
	}
	err = tx.QueryRow(ctx, o.claims.claim, consumer, eventID, retention.Seconds()).Scan(&won)
	return won, claimError("claim", consumer, eventID, err)
}

// ClaimSQL is the function [ClaimSQL] for this schema.
func (o *Outbox) ClaimSQL(ctx context.Context, tx *sql.Tx, consumer, eventID string, retention time.Duration) (won bool, err error) {
	if err := checkClaim(consumer, eventID, retention); err != nil {
		return false, claimError("claim", consumer, eventID, err)
	}
	err = tx.QueryRowContext(ctx, o.claims.claim, consumer, eventID, retention.Seconds()).Scan(&won)
	return won, claimError("claim", consumer, eventID, err)
}

// Complete is the function [Complete] for this schema.
func (o *Outbox) Complete(ctx context.Context, tx pgx.Tx, consumer, eventID string, result any) error {
	text, err := encodeResult(result)
	if err != nil {
		return claimError("complete", consumer, eventID, err)
	}
	tag, err := tx.Exec(ctx, o.claims.complete, consumer, eventID, text)
	if err == nil && tag.RowsAffected() == 0 {
		err = ErrNoClaim
	}
	return claimError("complete", consumer, eventID, err)
}

// CompleteSQL is the function [CompleteSQL] for this schema.
func (o *Outbox) CompleteSQL(ctx context.Context, tx *sql.Tx, consumer, eventID string, result any) error {
	text, err := encodeResult(result)
	if err != nil {
		return claimError("complete", consumer, eventID, err)
	}
	done, err := tx.ExecContext(ctx, o.claims.complete, consumer, eventID, text)
	if err != nil {
		return claimError("complete", consumer, eventID, err)
	}
	n, err := done.RowsAffected()
	if err == nil && n == 0 {
		err = ErrNoClaim
	}
	return claimError("complete", consumer, eventID, err)
}

// Result is the function [Result] for this schema.
func (o *Outbox) Result(ctx context.Context, tx pgx.Tx, consumer, eventID string, into any) (bool, error) {
	var text *string
	err := tx.QueryRow(ctx, o.claims.result, consumer, eventID).Scan(&text)
	if errors.Is(err, pgx.ErrNoRows) {
		return false, nil
	}
	return decodeResult(text, into, consumer, eventID, err)
}

// ResultSQL is the function [ResultSQL] for this schema.
func (o *Outbox) ResultSQL(ctx context.Context, tx *sql.Tx, consumer, eventID string, into any) (bool, error) {
	var text *string
	err := tx.QueryRowContext(ctx, o.claims.result, consumer, eventID).Scan(&text)
	if errors.Is(err, sql.ErrNoRows) {
		return false, nil
	}
	return decodeResult(text, into, consumer, eventID, err)
}

func decodeResult(text *string, into any, consumer, eventID string, err error) (bool, error) {
	if err != nil || text == nil {
		return false, claimError("result of", consumer, eventID, err)
	}
	err = json.Unmarshal([]byte(*text), into)
	return err == nil, claimError("result of", consumer, eventID, err)
}

// encodeResult returns text, which every driver sends as it is.
func encodeResult(result any) (string, error) {
	text, err := json.Marshal(result)
	if err != nil {
		return "", fmt.Errorf("encode the result: %w", err)
	}
	return string(text), nil
}

func checkClaim(consumer, eventID string, retention time.Duration) error {
	for _, part := range []struct {
		field, text string
		most        int
	}{{"consumer", consumer, MaxConsumerBytes}, {"event_id", eventID, MaxEventIDBytes}} {
		if n := len(part.text); n == 0 || n > part.most || !storable(part.text) {
			return &LimitError{part.field, fmt.Sprintf("1 to %d bytes of UTF-8 without NUL", part.most), fmt.Sprintf("%d bytes", n)}
		}
	}
	if retention < time.Microsecond {
		return &LimitError{"retention", "a positive time", retention.String()}
	}
	return nil
}

func claimError(act, consumer, eventID string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s %s for %s: %w", act, quote(eventID), quote(consumer), withRemedy(err))
}
