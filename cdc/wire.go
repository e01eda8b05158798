package cdc

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync/atomic"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"

	"github.com/outbox-relay/outbox-relay/internal/pgtext"
)

// wire is the replication connection. One goroutine uses it, except for wake.
type wire struct {
	conn     *pgconn.PgConn
	messages *pgproto3.Frontend
	bytes    *bufio.Reader // below messages
	deadline time.Time     // of reads, as set on the connection
	woken    atomic.Bool
}

const (
	// readBuffer is larger than pgx's own 8 KiB, so that a backlog costs fewer
	// system calls.
	readBuffer = 64 << 10
	// writeTimeout ends a session that cannot get a status out.
	writeTimeout = 10 * time.Second
)

// dial opens the replication connection.
func dial(ctx context.Context, config *pgx.ConnConfig) (*wire, error) {
	w := &wire{}
	c := config.Config.Copy()
	c.BuildFrontend = func(in io.Reader, out io.Writer) *pgproto3.Frontend {
		w.bytes = bufio.NewReaderSize(in, readBuffer)
		return pgproto3.NewFrontend(w.bytes, out)
	}
	conn, err := pgconn.ConnectConfig(ctx, c)
	if err != nil {
		return nil, explainConnect("replication", err)
	}
	w.conn, w.messages = conn, conn.Frontend()
	return w, nil
}

// identify asks who the server is, and prepares the session for the stream.
func (w *wire) identify(ctx context.Context) (identity, error) {
	system, err := pglogrepl.IdentifySystem(ctx, w.conn)
	if pgtext.SQLState(err) == codeSyntax {
		return identity{}, &OperatorError{
			kind: ErrPooler, err: err, text: "the replication connection is an ordinary one",
			hint: "a connection pooler seems to have dropped the replication parameter; give the relay a direct address for replication",
		}
	}
	if err != nil {
		return identity{}, fmt.Errorf("identify system: %w", err)
	}
	// Decoding runs in transactions of the server: a transaction_timeout would
	// end the stream in the middle of a large one.
	results, err := w.conn.Exec(ctx, `
		select pg_backend_pid(),
		       case when current_setting('server_version_num')::int >= 170000
		            then set_config('transaction_timeout', '0', false) end`).ReadAll()
	if err != nil {
		return identity{}, fmt.Errorf("prepare the stream: %w", err)
	}
	if len(results) != 1 || len(results[0].Rows) != 1 {
		return identity{}, fmt.Errorf("%w: no backend pid", errMalformed)
	}
	return identity{
		system:   system.SystemID,
		timeline: system.Timeline,
		database: system.DBName,
		pid:      string(results[0].Rows[0][0]),
		flushed:  lsn(system.XLogPos),
	}, nil
}

// start begins the stream at the slot's own position.
func (w *wire) start(ctx context.Context, slot, publication string) error {
	names := quoteLiteral(pgx.Identifier{publication}.Sanitize())
	err := pglogrepl.StartReplication(ctx, w.conn, pgx.Identifier{slot}.Sanitize(), 0, pglogrepl.StartReplicationOptions{
		PluginArgs: []string{"proto_version '1'", "publication_names " + names},
	})
	if err != nil {
		return fmt.Errorf("start replication: %w", err)
	}
	return nil
}

// event is what was received.
type event struct {
	kind   eventKind
	data   []byte    // eventData: valid until the next receive
	end    lsn       // eventKeepalive: all WAL before it was sent
	sent   time.Time // eventData, eventKeepalive: by the server's clock
	reply  bool      // eventKeepalive: the server wants a status at once
	notice *pgconn.Notice
}

type eventKind int

const (
	eventNothing eventKind = iota // the deadline passed, or wake was called
	eventData
	eventKeepalive
	eventNotice
	eventEnd // the server ends the stream
)

// receive waits for the next message until the deadline, or until wake. It
// keeps a message that arrived in part for the next call.
func (w *wire) receive(deadline time.Time) (event, error) {
	if !deadline.Equal(w.deadline) {
		if err := w.conn.Conn().SetReadDeadline(deadline); err != nil {
			return event{}, fmt.Errorf("set a deadline for reading: %w", err)
		}
		w.deadline = deadline
	}
	// After the deadline was set, so that a wake in between is not lost: it
	// either is seen here, or its own deadline comes later than ours.
	if w.woken.Swap(false) {
		w.deadline = time.Time{}
		return event{}, nil
	}
	message, err := w.messages.Receive()
	if errors.Is(err, os.ErrDeadlineExceeded) {
		w.deadline = time.Time{}
		w.woken.Store(false)
		return event{}, nil
	}
	if err != nil {
		return event{}, fmt.Errorf("read the stream: %w", err)
	}
	return interpret(message)
}

// interpret makes an event of a message.
func interpret(message pgproto3.BackendMessage) (event, error) {
	switch m := message.(type) {
	case *pgproto3.CopyData:
		return interpretCopy(m.Data)
	case *pgproto3.NoticeResponse:
		notice := pgconn.Notice(*pgconn.ErrorResponseToPgError((*pgproto3.ErrorResponse)(m)))
		return event{kind: eventNotice, notice: &notice}, nil
	case *pgproto3.ErrorResponse:
		return event{}, fmt.Errorf("stream: %w", pgconn.ErrorResponseToPgError(m))
	case *pgproto3.CopyDone, *pgproto3.CommandComplete, *pgproto3.ReadyForQuery:
		return event{kind: eventEnd}, nil
	case *pgproto3.ParameterStatus, *pgproto3.NotificationResponse:
		return event{}, nil
	default:
		return event{}, fmt.Errorf("%w: unexpected %T", errMalformed, message)
	}
}

func interpretCopy(data []byte) (event, error) {
	if len(data) == 0 {
		return event{}, fmt.Errorf("%w: empty copy data", errMalformed)
	}
	switch data[0] {
	case pglogrepl.XLogDataByteID:
		xlog, err := pglogrepl.ParseXLogData(data[1:])
		if err != nil {
			return event{}, fmt.Errorf("%w: %w", errMalformed, err)
		}
		return event{kind: eventData, data: xlog.WALData, sent: xlog.ServerTime}, nil
	case pglogrepl.PrimaryKeepaliveMessageByteID:
		alive, err := pglogrepl.ParsePrimaryKeepaliveMessage(data[1:])
		if err != nil {
			return event{}, fmt.Errorf("%w: %w", errMalformed, err)
		}
		return event{kind: eventKeepalive, end: lsn(alive.ServerWALEnd), sent: alive.ServerTime, reply: alive.ReplyRequested}, nil
	default:
		return event{}, fmt.Errorf("%w: unknown copy data %q", errMalformed, data[0])
	}
}

// buffered is how many bytes can be read without waiting. They may be less
// than a message.
func (w *wire) buffered() int {
	return w.messages.ReadBufferLen() + w.bytes.Buffered()
}

// wake ends a receive that waits, or the next one. It is safe for concurrent
// use.
func (w *wire) wake() {
	w.woken.Store(true)
	// An error means that the connection is closed, which ends the read, too.
	_ = w.conn.Conn().SetReadDeadline(time.Unix(1, 0))
}

// report sends a standby status. All three positions are the same: pglogrepl
// puts the write position in the place of a flush or apply position of zero,
// which would confirm what was only read.
func (w *wire) report(confirmed lsn, askReply bool) error {
	if err := w.conn.Conn().SetWriteDeadline(time.Now().Add(writeTimeout)); err != nil {
		return fmt.Errorf("set a deadline for writing: %w", err)
	}
	position := pglogrepl.LSN(confirmed)
	err := pglogrepl.SendStandbyStatusUpdate(context.Background(), w.conn, pglogrepl.StandbyStatusUpdate{
		WALWritePosition: position,
		WALFlushPosition: position,
		WALApplyPosition: position,
		ReplyRequested:   askReply,
	})
	if err != nil {
		return fmt.Errorf("send the standby status: %w", err)
	}
	return nil
}

// finish ends the stream in good order: once it returns nil, the server has
// taken the last status and let the slot go. It gives up when ctx ends.
func (w *wire) finish(ctx context.Context) error {
	defer context.AfterFunc(ctx, w.interrupt)()
	w.messages.Send(&pgproto3.CopyDone{})
	if err := w.messages.Flush(); err != nil {
		return fmt.Errorf("end the stream: %w", err)
	}
	for {
		if err := w.conn.Conn().SetReadDeadline(time.Time{}); err != nil {
			return fmt.Errorf("end the stream: %w", err)
		}
		// The deadline that was just removed may have been the one that ctx set.
		if ctx.Err() != nil {
			return fmt.Errorf("end the stream: %w", ctx.Err())
		}
		message, err := w.messages.Receive()
		if errors.Is(err, os.ErrDeadlineExceeded) && ctx.Err() == nil {
			continue // a wake that came late: who asks for the end asks first and wakes then
		}
		if err != nil {
			return fmt.Errorf("end the stream: %w", errors.Join(ctx.Err(), err))
		}
		switch m := message.(type) {
		case *pgproto3.ErrorResponse:
			return fmt.Errorf("end the stream: %w", pgconn.ErrorResponseToPgError(m))
		case *pgproto3.ReadyForQuery:
			return nil
		}
	}
}

// interrupt ends all that waits on the connection, for good.
func (w *wire) interrupt() {
	_ = w.conn.Conn().SetDeadline(time.Unix(1, 0)) // fails on a closed connection, where nothing waits
}

// close drops the connection. After finish the server loses nothing by it.
func (w *wire) close() {
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	_ = w.conn.Close(ctx) // nothing depends on how well it goes
	select {
	case <-w.conn.CleanupDone():
	case <-ctx.Done():
	}
}

// closeTimeout bounds a polite goodbye to the server.
const closeTimeout = time.Second

// quoteLiteral quotes text for a replication command, which knows no escapes
// but the doubled quote.
func quoteLiteral(text string) string {
	quoted := []byte{'\''}
	for i := range len(text) {
		if text[i] == '\'' {
			quoted = append(quoted, '\'')
		}
		quoted = append(quoted, text[i])
	}
	return string(append(quoted, '\''))
}
