package cdc

// The keys of log fields.
const (
	fieldApplication = "application"
	fieldVersion     = "server_version"
	fieldClient      = "client"
	fieldCode        = "sqlstate"
	fieldCreated     = "created"
	fieldElapsed     = "elapsed"
	fieldHint        = "hint"
	fieldHolder      = "holder_pid"
	fieldLSN         = "lsn"
	fieldPID         = "pid"
	fieldPublication = "publication"
	fieldReason      = "reason"
	fieldRetained    = "retained_bytes"
	fieldSince       = "since"
	fieldSlot        = "slot"
	fieldStatus      = "wal_status"
	fieldSystem      = "system"
	fieldText        = "text"
	fieldTimeline    = "timeline"
	fieldTransaction = "transaction"
	fieldWait        = "wait"
)
