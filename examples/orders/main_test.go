package main

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/outbox-relay/outbox-relay/examples/internal/drill"
)

func TestMain(m *testing.M) {
	drill.Child(orders)
	goleak.VerifyTestMain(m)
}

func TestOrders(t *testing.T) { drill.Test(t, orders) }
