package demo

import "syscall"

// attributes make a child end with the thread that started it, and keep a
// terminal's Ctrl-C from it: the demo ends its children itself.
func attributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
}
