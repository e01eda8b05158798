package admin

// session is what the page knows of who looks at it.
type session struct {
	// Changes says that a token is set, so that changes are possible at all.
	Changes bool
	// SignedIn says that the token was given, CSRF is what its forms must hold.
	SignedIn bool
	CSRF     string
}
