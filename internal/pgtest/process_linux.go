package pgtest

import (
	"errors"
	"fmt"
	"os"
	"os/user"
	"strconv"
	"strings"
	"syscall"
)

// account is the user and group that a server runs as.
type account struct{ uid, gid int }

// serverAccount is the account for servers if this process is root, and nil for
// everybody else.
func serverAccount() (*account, error) {
	if os.Geteuid() != 0 {
		return nil, nil
	}
	for _, name := range []string{"postgres", "nobody"} {
		found, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, uidErr := strconv.Atoi(found.Uid)
		gid, gidErr := strconv.Atoi(found.Gid)
		if err := errors.Join(uidErr, gidErr); err != nil {
			return nil, fmt.Errorf("look up user %s: %w", name, err)
		}
		return &account{uid: uid, gid: gid}, nil
	}
	return nil, errors.New("postgres refuses to run as root, and there is no user postgres or nobody")
}

// attributes make a child run as the account and end with this process:
// SIGQUIT is Postgres's immediate shutdown, which takes its children along.
func attributes(as *account) *syscall.SysProcAttr {
	attr := &syscall.SysProcAttr{Pdeathsig: syscall.SIGQUIT}
	if as != nil {
		attr.Credential = &syscall.Credential{Uid: uint32(as.uid), Gid: uint32(as.gid)}
	}
	return attr
}

// children lists the processes that a server has started. Each of them leads a
// process group of its own, so a signal to the server's group misses them.
func children(pid int) []int {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%[1]d/children", pid))
	if err != nil {
		return nil
	}
	var pids []int
	for field := range strings.FieldsSeq(string(text)) {
		if child, err := strconv.Atoi(field); err == nil {
			pids = append(pids, child)
		}
	}
	return pids
}

// alive reports whether a process is there. One that has ended and whom nobody
// has asked how is not: it holds nothing any more.
func alive(pid int) bool {
	state := state(pid)
	return state != "" && state != "Z"
}

// stopped reports whether a SIGSTOP has reached a process.
func stopped(pid int) bool { return state(pid) == "T" }

// state is the letter for what a process does; empty if it is not there.
func state(pid int) string {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return ""
	}
	_, rest, _ := strings.Cut(string(text), ") ") // the name before may hold anything but this
	letter, _, _ := strings.Cut(rest, " ")
	return letter
}
