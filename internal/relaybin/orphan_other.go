//go:build !linux

package relaybin

import "syscall"

func attributes() *syscall.SysProcAttr { return nil }
