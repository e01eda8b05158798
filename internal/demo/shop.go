package demo

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
)

// The queues of the shop. The orders of a customer are to arrive in order;
// letters run freely.
const (
	ordersQueue  = "orders"
	lettersQueue = "letters"
)

// consumerName is under which name the consumer claims events.
const consumerName = "shop"

// shopTables are the shop's own. The table handled takes an event twice without
// complaint: if the claim did not keep the second one out, it would be seen.
const shopTables = `
	create schema shop;
	create table shop.orders (
		id        text primary key,
		customer  text not null,
		item      text not null,
		quantity  integer not null,
		cents     integer not null,
		placed_at timestamptz not null default now()
	);
	create table shop.handled (
		event      text not null,
		handled_at timestamptz not null default now()
	)`

// openShop makes the shop's tables.
func openShop(ctx context.Context, databaseURL string) error {
	conn, err := pgx.Connect(ctx, databaseURL)
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	if _, err := conn.Exec(ctx, shopTables); err != nil {
		return fmt.Errorf("make the shop's tables: %w", err)
	}
	return nil
}
