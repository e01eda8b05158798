package pgtest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
)

// standbySlot is the physical slot with which a primary keeps WAL for its
// standby.
const standbySlot = "standby"

// versionFailoverSlots is the first major version in which logical slots can
// follow a failover.
const versionFailoverSlots = 17

// Standby makes a standby that streams from the server, which is stopped for
// that and started again. Where the version has it, the standby keeps copies of
// logical slots that were made for failover, and these slots wait for it. The
// caller closes the standby before the primary.
func (c *Cluster) Standby(ctx context.Context) (*Cluster, error) {
	version, err := serverVersion(c.bin)
	if err != nil {
		return nil, err
	}
	if err := c.exec("select pg_create_physical_replication_slot('" + standbySlot + "', true)"); err != nil {
		return nil, fmt.Errorf("make the standby's slot: %w", err)
	}
	standby, err := c.copyStopped(ctx, (*Cluster).becomeStandby)
	if err != nil {
		return nil, err
	}
	settings := maps.Clone(c.settings)
	if settings == nil {
		settings = map[string]string{}
	}
	follows := maps.Clone(settings)
	if number, _ := strconv.Atoi(version); number >= versionFailoverSlots {
		settings["synchronized_standby_slots"] = standbySlot
		follows["sync_replication_slots"] = "on"
	}
	follows["hot_standby_feedback"] = "on"
	follows["primary_slot_name"] = standbySlot
	follows["primary_conninfo"] = fmt.Sprintf("host=127.0.0.1 port=%d user=postgres dbname=postgres application_name=%s", c.port, standbySlot)
	if err := c.configure(settings); err != nil {
		return nil, errors.Join(err, standby.Close())
	}
	if err := errors.Join(c.Start(ctx), standby.startSomewhere(ctx, follows)); err != nil {
		return nil, errors.Join(err, standby.Close())
	}
	return standby, nil
}

// becomeStandby makes a copy of a data folder the folder of a standby. The slots
// of the original are not its own.
func (c *Cluster) becomeStandby() error {
	slots, err := filepath.Glob(filepath.Join(c.data(), "pg_replslot", "*"))
	if err != nil {
		return err
	}
	for _, slot := range slots {
		if err := os.RemoveAll(slot); err != nil {
			return err
		}
	}
	signal := filepath.Join(c.data(), "standby.signal")
	if err := os.WriteFile(signal, nil, 0o600); err != nil || c.account == nil {
		return err
	}
	return os.Chown(signal, c.account.uid, c.account.gid)
}

// Clone makes a copy of the whole server, slots and all, and starts it beside the
// original, which is stopped for that and started again. It is what a copy of
// a disk or a snapshot of a machine is. The caller closes the clone.
func (c *Cluster) Clone(ctx context.Context) (*Cluster, error) {
	clone, err := c.copyStopped(ctx, func(*Cluster) error { return nil })
	if err != nil {
		return nil, err
	}
	if err := errors.Join(c.Start(ctx), clone.startSomewhere(ctx, c.settings)); err != nil {
		return nil, errors.Join(err, clone.Close())
	}
	return clone, nil
}

// copyStopped stops the server in good order, copies its data folder, and
// prepares the copy.
func (c *Cluster) copyStopped(ctx context.Context, prepare func(*Cluster) error) (*Cluster, error) {
	if err := c.Stop("fast"); err != nil {
		return nil, err
	}
	copied := &Cluster{bin: c.bin, account: c.account}
	if err := copied.makeFolder(); err != nil {
		return nil, err
	}
	command := exec.CommandContext(ctx, "cp", "-a", c.data(), copied.data())
	copied.prepare(command)
	if out, err := command.CombinedOutput(); err != nil {
		return nil, errors.Join(fmt.Errorf("copy the data folder: %w: %s", err, out), copied.Close())
	}
	if err := prepare(copied); err != nil {
		return nil, errors.Join(fmt.Errorf("prepare the copy: %w", err), copied.Close())
	}
	return copied, nil
}

// Promote makes a standby a primary, and returns once it is one.
func (c *Cluster) Promote() error {
	if err := c.exec("select pg_promote(true, 50)"); err != nil {
		return fmt.Errorf("promote: %w", err)
	}
	return nil
}

// NewStandby is [Cluster.Standby] for a test: it is closed at the test's end.
func NewStandby(t TB, primary *Cluster) *Cluster {
	t.Helper()
	standby, err := primary.Standby(context.Background())
	return keep(t, "standby", standby, err)
}

// NewClone is [Cluster.Clone] for a test: it is closed at the test's end.
func NewClone(t TB, original *Cluster) *Cluster {
	t.Helper()
	clone, err := original.Clone(context.Background())
	return keep(t, "clone", clone, err)
}
