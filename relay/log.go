package relay

import "go.uber.org/zap"

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

// troubleFields are an error and, if anybody knows, what a person can do about it.
func troubleFields(err error) []zap.Field {
	fields := []zap.Field{zap.Error(err)}
	if text := hintOf(err); text != "" {
		fields = append(fields, zap.String(keyHint, text))
	}
	return fields
}
