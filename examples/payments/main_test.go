package main

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/outbox-relay/outbox-relay/examples/internal/drill"
)

func TestMain(m *testing.M) {
	drill.Child(payments)
	goleak.VerifyTestMain(m)
}

func TestPayments(t *testing.T) { drill.Test(t, payments) }
