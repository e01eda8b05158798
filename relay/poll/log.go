package poll

// The keys of log fields.
const (
	fieldApplication = "application"
	fieldElapsed     = "elapsed"
	fieldHint        = "hint"
	fieldHolder      = "holder_pid"
	fieldPID         = "pid"
	fieldRole        = "role"
	fieldSince       = "since"
	fieldSlot        = "slot"
	fieldState       = "state"
	fieldSystem      = "system"
	fieldTransaction = "transaction"
	fieldWait        = "wait"
)
