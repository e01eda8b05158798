package relaybin

import "syscall"

// attributes make the program end with the thread that started it, so that a
// test binary which is killed leaves nothing behind.
func attributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}
