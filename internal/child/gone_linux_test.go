package child_test

import (
	"fmt"
	"os"
	"strings"
)

// gone reports whether a process has ended. Nobody may have asked yet how.
func gone(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err != nil || strings.Contains(string(stat), ") Z ")
}
