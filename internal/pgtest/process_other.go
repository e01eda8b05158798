//go:build !linux

package pgtest

import (
	"errors"
	"os"
	"syscall"
)

// account is the user and group that a server runs as.
type account struct{ uid, gid int }

// serverAccount refuses root: only on Linux can a server run as another user.
func serverAccount() (*account, error) {
	if os.Geteuid() == 0 {
		return nil, errors.New("postgres refuses to run as root")
	}
	return nil, nil
}

func attributes(*account) *syscall.SysProcAttr { return nil }

// children is unknown here; they notice the death of their server themselves.
func children(int) []int { return nil }

func alive(int) bool { return false }

func stopped(int) bool { return true }
