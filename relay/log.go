package relay

// Field keys of log lines, the same words as in SQL and metrics.
const (
	keySlot        = "slot"
	keyEpoch       = "epoch"
	keyQueue       = "queue"
	keyOrderingKey = "ordering_key"
	keyMessageID   = "message_id"
	keyKey         = "key"
	keyAttempt     = "attempt"
	keyReason      = "reason"
	keyStatus      = "status"
	keyElapsed     = "elapsed"
	keyMessages    = "messages"
	keyPosition    = "lsn"
	keyRecorded    = "recorded_lsn"
	keySystem      = "system"
	keyTimeline    = "timeline"

	keyTimelineBefore = "timeline_before"

	keyLeft = "left_in_hand"

	keyHint = "hint"
	keyWait = "wait"
)
