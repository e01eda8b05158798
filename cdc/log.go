package cdc

// The keys of log fields.
const (
	fieldApplication = "application"
	fieldClient      = "client"
	fieldCode        = "sqlstate"
	fieldConfirmed   = "confirmed"
	fieldCreated     = "created"
	fieldElapsed     = "elapsed"
	fieldHint        = "hint"
	fieldHolder      = "holder_pid"
	fieldLSN         = "lsn"
	fieldPID         = "pid"
	fieldReason      = "reason"
	fieldSince       = "since"
	fieldSlot        = "slot"
	fieldSystem      = "system"
	fieldText        = "text"
	fieldTimeline    = "timeline"
	fieldTransaction = "transaction"
	fieldWait        = "wait"
)
