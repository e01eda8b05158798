package main

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/outbox-relay/outbox-relay/examples/internal/drill"
)

func TestMain(m *testing.M) {
	drill.Child(support)
	goleak.VerifyTestMain(m)
}

func TestSupport(t *testing.T) { drill.Test(t, support) }
