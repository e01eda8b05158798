package pgtext

import (
	"errors"

	"github.com/jackc/pgx/v5/pgconn"
)

// NoLogin reports whether a server refused a connection because it has no such
// role, or does not let it log in. The code is the same as that of a pg_hba.conf
// that refuses, and the text is in the server's language.
func NoLogin(err error) bool {
	refused, ok := errors.AsType[*pgconn.PgError](err)
	return ok && refused.Code == "28000" && refused.Routine == "InitializeSessionUserId" // invalid_authorization_specification
}

// LetLogIn is what to do about such a refusal, and empty for every other error.
// The role is quoted.
func LetLogIn(err error, role string) string {
	if !NoLogin(err) {
		return ""
	}
	return "there is no role " + role + ", or it may not log in: `outbox-relay grants print --part roles` prints what makes it; " +
		"alter role " + role + " login"
}

// CheckPassword is what to do about a password that is refused. The role is
// quoted.
func CheckPassword(role string) string {
	return "check the password of role " + role + "; the server says the same of a role that is not there"
}
