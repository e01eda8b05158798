package cdc

import (
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"go.uber.org/zap"
)

// noticeInterval is how often the same notice is written to the log.
const noticeInterval = time.Minute

// noticeLog writes the notices that the server puts into the stream to the
// log. A server can repeat a notice at every row; the log is spared that.
type noticeLog struct {
	last   string
	lastAt time.Time
}

// write leaves out what could quote a row: the detail and the context. It
// reports whether the notice is a new one.
func (n *noticeLog) write(log *zap.Logger, notice *pgconn.Notice, position lsn) bool {
	now := time.Now()
	if notice.Message == n.last && now.Sub(n.lastAt) < noticeInterval {
		return false
	}
	n.last, n.lastAt = notice.Message, now
	write := log.Warn
	if skipsPublication(notice) {
		write = log.Error
	}
	write("notice of the server",
		zap.String(fieldCode, notice.Code), zap.String(fieldText, notice.Message),
		zap.String(fieldHint, notice.Hint), zap.Stringer(fieldLSN, position))
	return true
}

// skipsPublication reports whether the server says that it passes over changes
// because the publication did not exist when they were written. Servers from 18
// on say it in this way and go on; the messages are found in the table. The
// text is in the language of the server, the name of its routine is not.
func skipsPublication(notice *pgconn.Notice) bool {
	return notice.Code == codeObjectNotReady && notice.Routine == "LoadPublications"
}
