package main

import (
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
)

// The exit codes are an API: scripts and service managers decide by them. New
// ones may come; an unknown one is a failure.
const (
	exitStopped      = 0
	exitUnexpected   = 1
	exitUsage        = 2
	exitSchema       = 10
	exitSlotHeld     = 11
	exitSlotLost     = 12
	exitDoctorFailed = 13
)

// exitCodes says what each code means, in the order of the help text.
var exitCodes = []struct {
	code    int
	meaning string
}{
	{exitStopped, "stopped on request, or done"},
	{exitUnexpected, "unexpected error"},
	{exitUsage, "wrong usage or settings"},
	{exitSchema, "the schema is missing, or of another version"},
	{exitSlotHeld, "another relay holds the slot (one-shot verbs; `run` waits)"},
	{exitSlotLost, "the slot is missing, lost or not ours"},
	{exitDoctorFailed, "doctor found problems"},
}

func exitCodeHelp() string {
	var b strings.Builder
	b.WriteString("Exit codes:\n")
	for _, c := range exitCodes {
		fmt.Fprintf(&b, "  %-3d %s\n", c.code, c.meaning)
	}
	return strings.TrimRight(b.String(), "\n")
}

// exitCode is the code that stands for an error.
func exitCode(err error) int {
	var usage *usageError
	switch {
	case err == nil:
		return exitStopped
	case errors.As(err, &usage):
		return exitUsage
	}
	return exitUnexpected
}

// usageError says that the command line is wrong.
type usageError struct{ command, text string }

func (e *usageError) Error() string { return e.text }

// Hint says where to look.
func (e *usageError) Hint() string { return "see `" + e.command + " --help`" }

// report writes an error for people, with what to do about it on a line of its
// own.
func report(w io.Writer, err error) {
	if err == nil {
		return
	}
	fmt.Fprintln(w, "outbox-relay:", strings.ReplaceAll(err.Error(), "\n", "\n  "))
	var hinted interface{ Hint() string }
	if errors.As(err, &hinted) {
		fmt.Fprintln(w, "hint:", hinted.Hint())
	}
}

// quote makes text that somebody else wrote safe for a terminal.
func quote(text string) string { return strconv.Quote(text) }
