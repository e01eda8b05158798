//go:build !linux

package child_test

// gone is what cannot be promised here.
func gone(int) bool { return true }
