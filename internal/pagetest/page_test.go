package pagetest_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/outbox-relay/outbox-relay/internal/pgtest"
	"github.com/outbox-relay/outbox-relay/internal/relaybin"
	"github.com/outbox-relay/outbox-relay/internal/scenario"
	"github.com/outbox-relay/outbox-relay/relay/infrai/emulator"
)

const token = "token-of-the-test-0123"

// start runs a relay whose page can change things, and returns its address.
func start(t *testing.T, w *scenario.World) (p *relaybin.Process, url string) {
	t.Helper()
	w.With(map[string]string{"RELAY_ADMIN_TOKEN": token, "RELAY_PROBE_MAX": "1s"})
	p = relaybin.Run(t, w.Env, "run")
	p.AwaitLog(t, "session began")
	return p, "http://" + p.AwaitLog(t, "admin server listens").Fields["address"].(string)
}

// refuses makes the queue refuse a message once, and returns its id.
func refuses(w *scenario.World, key string) (id int64) {
	w.Fault(emulator.Fault{Route: "queue.publish", Key: key, Status: 422, Count: 1})
	w.Insert(scenario.Message{Key: key})
	return w.Count(`select id from outbox.messages where key = $1`, key)
}

func TestPage(t *testing.T) {
	t.Parallel()
	chrome := browser(t)
	t.Run("renews itself", func(t *testing.T) {
		w := scenario.New(t)
		p, url := start(t, w)
		renewsItself(w, p, newTab(t, chrome, url))
	})
	t.Run("redrives", func(t *testing.T) {
		w := scenario.New(t)
		p, url := start(t, w)
		redrives(w, p, newTab(t, chrome, url))
	})
	t.Run("tells an outage", func(t *testing.T) {
		w := scenario.New(t)
		w.With(map[string]string{"RELAY_SLOT": "outbox_relay", "DATABASE_URL": asRelay(t, w)}) // names that people know
		_, url := start(t, w)
		tellsAnOutage(w, newTab(t, chrome, url))
	})
	t.Run("has the doctor", func(t *testing.T) {
		w := scenario.New(t)
		_, url := start(t, w)
		hasTheDoctor(w, newTab(t, chrome, url))
	})
	t.Run("says what waits", func(t *testing.T) {
		w := scenario.New(t).With(map[string]string{"RELAY_SWEEP_INTERVAL": "10m"})
		w.Exec(`insert into outbox.queues (queue, on_dead_letter, max_in_flight) values ('orders', 'hold', 8)`)
		w.Exec(`insert into outbox.queues (queue, paused, paused_by, paused_reason) values ('mails', true, 'oncall', 'the provider asks for it')`)
		_, url := start(t, w)
		saysWhatWaits(w, newTab(t, chrome, url))
	})
	t.Run("looks well", func(t *testing.T) {
		w := scenario.New(t)
		_, url := start(t, w)
		looksWell(w, newTab(t, chrome, url))
	})
}

// renewsItself: what happens is seen without a reload; so is that the relay is
// gone.
func renewsItself(w *scenario.World, p *relaybin.Process, b *tab) {
	b.t.Helper()
	b.open("/")
	b.sees("#verdict .word", "Ready")
	b.sees("#verdict .sentence", "active since")
	b.sees("#queues", "No queue had a message yet.")
	value[string](b, `document.body.dataset.loaded = "once"`)

	w.Insert(scenario.Batch("m", 12)...)
	b.sees(`#queues [data-label="Dispatched"]`, "12")
	b.sees(`#queues [data-label="Gate"]`, "open")

	closed := w.Fault(emulator.Fault{Route: "queue.publish", Status: 401})
	w.Insert(scenario.Message{Key: "waits"})
	b.sees("#verdict .word", "Not ready")
	b.sees("#verdict .findings", "the endpoint is closed")
	b.sees("#spoken", "Not ready")
	b.sees("#deferred", "endpoint_closed")
	if title := value[string](b, `document.title`); title != "Not ready: "+w.Env["RELAY_SLOT"] {
		b.t.Errorf("the title is %q", title)
	}
	w.Queue.RemoveFault(closed)
	b.sees("#verdict .word", "Ready")
	w.Settle()

	if value[string](b, `document.body.dataset.loaded`) != "once" {
		b.t.Error("the page was loaded again")
	}
	// A machine that is busy for longer than the page waits for an answer makes it say
	// so for a moment.
	pgtest.Eventually(b.t, patience, func() error {
		if value[bool](b, `!document.getElementById("stale").hidden`) {
			return errors.New("the page says that the relay does not answer")
		}
		return nil
	})
	if code, err := p.Stop(b.t.Context()); err != nil || code != 0 {
		b.t.Fatalf("stop: %d, %v", code, err)
	}
	b.sees("#stale", "The relay does not answer.")
}

// hasTheDoctor: a fault of the set-up is there with the SQL that mends it, which can
// be taken along.
func hasTheDoctor(w *scenario.World, b *tab) {
	b.t.Helper()
	w.Exec(`grant select on outbox.messages to public`)
	b.open("/")
	b.sees("#doctor", "1 failed")
	b.sees(`#doctor [data-status="fail"]`, "D44")
	b.sees("#verdict", "The doctor says what is wrong")
	took := value[string](b, `(async () => {
		const part = document.getElementById("copy-D44").parentElement, button = part.querySelector("button");
		button.click();
		for (let n = 0; n < 100 && button.textContent !== "Copied" && window.getSelection().isCollapsed; n++)
			await new Promise((done) => setTimeout(done, 50));
		const sql = part.querySelector("pre").textContent;
		return button.textContent === "Copied" || window.getSelection().toString() === sql ? sql : "nothing";
	})()`)
	w.Exec(took)
	if n := w.Count(`select count(*) from pg_class c, aclexplode(c.relacl) a where c.oid = 'outbox.messages'::regclass and a.grantee = 0`); n != 0 {
		b.t.Errorf("PUBLIC has %d rights after %q", n, took)
	}
}

// redrives: a dead letter goes out again, by the token and not without it.
func redrives(w *scenario.World, p *relaybin.Process, b *tab) {
	b.t.Helper()
	id := refuses(w, "order-7-paid")
	b.open("/")
	letter := fmt.Sprintf("#letter-%d", id)
	b.sees(letter, fmt.Sprint(id))

	b.open(fmt.Sprintf("/dead-letters/%d", id))
	b.sees("main", "order-7-paid")
	b.sees("main", "status 422: SCRIPTED_FAULT")
	if n := value[int](b, `document.querySelectorAll("form[method=post]").length`); n != 0 {
		b.t.Errorf("%d buttons without the token", n)
	}
	forged := `(async () => {
		const form = new URLSearchParams({ids: "` + fmt.Sprint(id) + `", confirm: "yes"});
		return (await fetch("/dead-letters/redrive", {method: "POST", body: form})).status;
	})()`
	if status := value[int](b, forged); status != 401 {
		b.t.Errorf("a redrive without the token is answered with %d", status)
	}

	b.open("/login")
	b.types("#token", "not the token at all")
	b.follow("#sign-in")
	b.sees("main", "That is not the token.")
	b.types("#token", token)
	b.follow("#sign-in")
	b.sees("header", "Sign out")
	if cookie := value[string](b, `document.cookie`); cookie != "" {
		b.t.Error("the script can read the session")
	}

	b.sees(letter, fmt.Sprint(id))
	b.follow(letter)
	b.follow("#redrive")
	b.sees("h1", "Redrive 1 dead letter?")
	if n := w.Count(`select count(*) from outbox.dead_letters`); n != 1 {
		b.t.Errorf("%d dead letters before it is confirmed", n)
	}
	b.follow("#confirm")
	b.sees(".done", "1 dead letter was redriven.")
	line := p.AwaitLog(b.t, "change by an operator")
	if line.Fields["act"] != "redrive" || line.Fields["count"] != 1.0 || line.Fields["remote"] == nil || line.Fields["by"] != "session" {
		b.t.Errorf("the log says %v", line.Fields)
	}
	w.Settle()
	b.open("/")
	b.sees("#dead", "No message needs a person.")

	b.follow("#change-orders")
	b.types("#why", "the shop has closed")
	b.follow("#confirm")
	b.sees(".done", "Queue orders is paused")
	b.sees(`#queues [data-label="Gate"]`, "paused")
	b.sees(`#queues [data-label="Gate"]`, "postgres, on the page: the shop has closed")
	b.sees("#verdict .findings", "postgres, on the page: the shop has closed")
	pgtest.Eventually(b.t, patience, func() error {
		if w.Count(`select count(*) from outbox.queues where paused`) != 1 {
			return fmt.Errorf("the queue is not paused")
		}
		return nil
	})
	b.follow("header button")
	b.sees("header", "Sign in")
}
