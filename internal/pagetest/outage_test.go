package pagetest_test

import (
	"bytes"
	"cmp"
	"context"
	"flag"
	"fmt"
	"image"
	"image/color"
	"image/png"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"github.com/outbox-relay/outbox-relay/internal/scenario"
	"github.com/outbox-relay/outbox-relay/relay/infrai/emulator"
	"github.com/outbox-relay/outbox-relay/schema"
)

// docs/page.md has pictures that this test takes:
//
//	go test ./internal/pagetest -run 'TestPage/tells' -timeout=20m -page.outage=10m -page.pictures=../../docs/images
var (
	outageFor = flag.Duration("page.outage", time.Second, "how long the queue is down, and well before and after, there at most ninety seconds")
	pictures  = flag.String("page.pictures", "", "the `folder` for pictures of the page")
)

// mostPicture is how large a picture may be, in bytes.
const mostPicture = 200_000

// tellsAnOutage: before, during and after, the page says what is going on.
func tellsAnOutage(w *scenario.World, b *tab) {
	b.t.Helper()
	w.Exec(`alter system set max_slot_wal_keep_size = '10GB'`)
	w.Exec(`select pg_reload_conf()`)
	b.screen(1100, 800)
	b.open("/")
	calm := min(*outageFor, 90*time.Second)

	load(w, calm)
	b.sees("#verdict .word", "Ready")
	b.sees("#doctor", "passed")
	b.picture("page-before.png")

	down := w.Fault(emulator.Fault{Route: "queue.publish", Status: 503})
	load(w, *outageFor)
	load(w, time.Second) // there is something that cannot go out
	b.sees("#queues .note", "The endpoint is closed")
	b.sees("#verdict .word", "Not ready")
	b.picture("page-outage.png")

	w.Queue.RemoveFault(down)
	refuses(w, "order-4711-paid") // one of them has a fault of its own
	load(w, calm)
	b.sees("#dead", "refused")
	b.sees("#deferred", "No message waits in the table.")
	b.sees("#verdict .word", "Ready")
	b.picture("page-after.png")
}

// asRelay makes the role that is printed for the relay, and returns the database's
// address for it.
func asRelay(t *testing.T, w *scenario.World) string {
	t.Helper()
	var grants strings.Builder
	err := schema.Grants(&grants, schema.GrantsConfig{Schema: "outbox", Database: w.Conn.Config().Database, Relay: schema.DefaultRelay})
	if err != nil {
		t.Fatal(err)
	}
	w.Exec(grants.String())
	t.Cleanup(func() {
		w.Exec(`drop owned by ` + schema.DefaultRelay)
		w.Exec(`drop role ` + schema.DefaultRelay)
	})
	return strings.Replace(w.URL, "postgres@", schema.DefaultRelay+"@", 1)
}

// load writes sixty messages a second for a while.
func load(w *scenario.World, d time.Duration) {
	began := time.Now()
	ctx, cancel := context.WithTimeout(context.Background(), d)
	defer cancel()
	ticker := time.NewTicker(50 * time.Millisecond)
	defer ticker.Stop()
	for n := 0; ; n++ {
		select {
		case <-ticker.C:
			w.Insert(scenario.Batch(fmt.Sprintf("order-%d-%d", began.UnixMilli(), n), 3, "customer-1", "customer-2", "")...)
		case <-ctx.Done():
			return
		}
	}
}

// picture takes one of the whole page, once it shows what is so now, if pictures
// are wanted.
func (b *tab) picture(name string) {
	b.t.Helper()
	if *pictures == "" {
		return
	}
	value[bool](b, `new Promise((done) => new MutationObserver((_, o) => { o.disconnect(); done(true); }).observe(document.getElementById("main"), {childList: true}))`)
	taken, err := png.Decode(bytes.NewReader(run(b, chromedp.FullScreenshot(100))))
	if err != nil {
		b.t.Fatalf("%s: %v", name, err)
	}
	var small bytes.Buffer // the browser is in a hurry
	encoder := png.Encoder{CompressionLevel: png.BestCompression}
	if err := encoder.Encode(&small, fewColours(taken)); err != nil {
		b.t.Fatalf("%s: %v", name, err)
	}
	if small.Len() > mostPicture {
		b.t.Errorf("%s has %d bytes, want up to %d", name, small.Len(), mostPicture)
	}
	if err := os.WriteFile(filepath.Join(*pictures, name), small.Bytes(), 0o644); err != nil {
		b.t.Fatal(err)
	}
}

// fewColours is a picture with the 256 colours that it uses most: enough for text
// and lines, and a third of the bytes.
func fewColours(picture image.Image) *image.Paletted {
	uses := map[color.Color]int{}
	each(picture, func(x, y int) { uses[picture.At(x, y)]++ })
	often := slices.SortedFunc(maps.Keys(uses), func(a, b color.Color) int { return cmp.Compare(uses[b], uses[a]) })
	few := image.NewPaletted(picture.Bounds(), often[:min(len(often), 256)])
	nearest := make(map[color.Color]uint8, len(often))
	for _, c := range often {
		nearest[c] = uint8(few.Palette.Index(c))
	}
	each(picture, func(x, y int) { few.SetColorIndex(x, y, nearest[picture.At(x, y)]) })
	return few
}

// each visits all points of a picture.
func each(picture image.Image, visit func(x, y int)) {
	b := picture.Bounds()
	for y := b.Min.Y; y < b.Max.Y; y++ {
		for x := b.Min.X; x < b.Max.X; x++ {
			visit(x, y)
		}
	}
}
