package pagetest_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	cdplog "github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"

	"github.com/outbox-relay/outbox-relay/internal/pgtest"
)

const (
	// startPatience is how long Chromium may take to start on a busy machine,
	// patience how long a test waits for what must be seen. Both only end broken
	// tests.
	startPatience = 2 * time.Minute
	patience      = time.Minute
)

// chromium is the program, by the names that it has.
func chromium(t *testing.T) string {
	t.Helper()
	if path := os.Getenv("OUTBOX_CHROMIUM"); path != "" {
		return path
	}
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome", "google-chrome-stable"} {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	t.Fatal("no Chromium: install the package chromium, or say in OUTBOX_CHROMIUM where it is")
	return ""
}

// browser is a headless Chromium until the test's end.
func browser(t *testing.T) context.Context {
	t.Helper()
	options := append(chromedp.DefaultExecAllocatorOptions[:],
		chromedp.ExecPath(chromium(t)), chromedp.WSURLReadTimeout(startPatience),
		chromedp.NoSandbox, // its sandbox needs rights that containers do not have
		chromedp.DisableGPU, chromedp.Flag("disable-dev-shm-usage", true), chromedp.UserDataDir(t.TempDir()))
	allocator, release := chromedp.NewExecAllocator(context.Background(), options...)
	ctx, closeBrowser := chromedp.NewContext(allocator)
	t.Cleanup(func() {
		closeBrowser()
		release() // and waits until the process is gone
	})
	if err := chromedp.Do(ctx); err != nil {
		t.Fatalf("start Chromium: %v", err)
	}
	return ctx
}

// tab is a page of the browser.
type tab struct {
	t   *testing.T
	ctx context.Context
	url string
}

// newTab opens a tab for the relay at this address. What the page's own policy
// refuses, and every error of its script, fails the test.
func newTab(t *testing.T, browser context.Context, url string) *tab {
	t.Helper()
	ctx, closeTab := chromedp.NewContext(browser)
	t.Cleanup(closeTab)
	err := chromedp.Listen(ctx, func(event any) {
		switch e := event.(type) {
		case *runtime.EventExceptionThrown:
			t.Errorf("the script failed: %s", e.ExceptionDetails.Text)
		case *cdplog.EventEntryAdded:
			if e.Entry.Source != cdplog.EntrySourceNetwork {
				t.Errorf("the browser says: %s: %s", e.Entry.Source, e.Entry.Text)
			}
		}
	})
	if err != nil {
		t.Fatalf("open a tab: %v", err)
	}
	return &tab{t: t, ctx: ctx, url: url}
}

// do does something on the page.
func (b *tab) do(actions ...chromedp.Action[chromedp.Void]) {
	b.t.Helper()
	run(b, chromedp.Steps(actions...))
}

// run is do for what has a result.
func run[T any](b *tab, action chromedp.Action[T]) T {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, patience)
	defer cancel()
	result, err := chromedp.Run(ctx, action)
	if err != nil {
		b.t.Fatalf("browser: %v", err)
	}
	return result
}

// open goes to a page.
func (b *tab) open(path string) {
	b.t.Helper()
	b.do(chromedp.Navigate(b.url + path))
}

// value is what an expression of the page is.
func value[T any](b *tab, expression string) T {
	b.t.Helper()
	return run(b, chromedp.Evaluate[T](expression, chromedp.EvalAwaitPromise))
}

// types fills in a field.
func (b *tab) types(selector, text string) {
	b.t.Helper()
	b.do(chromedp.SendKeys(chromedp.CSS(selector), text))
}

// sees waits until a part of the page has this text.
func (b *tab) sees(selector, text string) {
	b.t.Helper()
	pgtest.Eventually(b.t, patience, func() error {
		got := value[string](b, fmt.Sprintf(`document.querySelector(%q)?.innerText ?? "nothing"`, selector))
		if !strings.Contains(got, text) {
			return fmt.Errorf("%s is %q, want %q in it", selector, got, text)
		}
		return nil
	})
}

// follow clicks, and waits until another page has come.
func (b *tab) follow(selector string) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, patience)
	defer cancel()
	if _, err := chromedp.RunResponse(ctx, chromedp.Click(chromedp.CSS(selector))); err != nil {
		b.t.Fatalf("click %s: %v", selector, err)
	}
}

// screen makes the window so large, as of a phone or of a desk.
func (b *tab) screen(width, height int64) {
	b.t.Helper()
	b.do(chromedp.EmulateViewport(width, height))
}

// scheme makes the browser prefer light or dark.
func (b *tab) scheme(name string) {
	b.t.Helper()
	features := []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: name}}
	if _, err := chromedp.Call(b.ctx, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: features}); err != nil {
		b.t.Fatalf("prefer %s: %v", name, err)
	}
}
