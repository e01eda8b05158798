package vital

import "time"

// Doing is what a source of messages is doing.
type Doing string

// What a source can be doing.
const (
	Closed     Doing = "closed"     // nothing
	Connecting Doing = "connecting" // it looks for the server and for what it reads there
	Standby    Doing = "standby"    // it waits while another relay reads
	Streaming  Doing = "streaming"  // it reads
	Held       Doing = "held"       // it waits for a person: the server is another one than before
)

// Condition is the state of a source of messages at one moment.
type Condition struct {
	Doing Doing
	Since time.Time
	// Turned is when the loop that reads came by last; zero without one. It comes
	// by within seconds, whatever the server does.
	Turned time.Time
	// Trouble is what keeps messages from coming, or will; nil if all is well.
	Trouble *Trouble
	// Doubts is what a person should mend although messages come, or most of them;
	// empty if there is nothing.
	Doubts string
	// Holder says in Standby who reads, for people, and HolderPID which process of the
	// server that is; 0 if it is not known.
	Holder    string
	HolderPID int
	// HolderHeard is when the server heard from the holder last, as far as it
	// tells; zero if it does not.
	HolderHeard time.Time
}
