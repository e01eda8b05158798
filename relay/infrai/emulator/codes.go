package emulator

import (
	"errors"

	"github.com/go-json-experiment/json/jsontext"
)

// The codes of refusals. Only QUEUE_NOT_FOUND and INSUFFICIENT_CREDIT are known
// of the real queue; the others follow its pattern.
const (
	codeInvalidJSON     = "INVALID_JSON"
	codeInvalidArgument = "INVALID_ARGUMENT"
	codeKeyMismatch     = "IDEMPOTENCY_KEY_MISMATCH"
	codeKeyConflict     = "IDEMPOTENCY_CONFLICT"
	codeKeyInFlight     = "IDEMPOTENCY_IN_FLIGHT"
	codeTooLarge        = "PAYLOAD_TOO_LARGE"
	codeUnauthorized    = "UNAUTHORIZED"
	codeRateLimited     = "RATE_LIMITED"
	codeQueueNotFound   = "QUEUE_NOT_FOUND"
	codeQueueExists     = "QUEUE_ALREADY_EXISTS"
	codeQueueInUse      = "QUEUE_IN_USE"
	codeMessageNotFound = "MESSAGE_NOT_FOUND"
	codeWebhookNotFound = "WEBHOOK_NOT_FOUND"
	codeRouteNotFound   = "ROUTE_NOT_FOUND"
	codeWrongMethod     = "METHOD_NOT_ALLOWED"
)

var (
	errNotObject = errors.New("the body is not a JSON object")
	errTrailing  = errors.New("there is something behind the JSON object")
	errNotArray  = errors.New("not a JSON array")
)

// plain takes the library's name out of a syntax error.
func plain(err error) error {
	var syntax *jsontext.SyntacticError
	if errors.As(err, &syntax) && syntax.Err != nil {
		return syntax.Err
	}
	return err
}
