package pagetest_test

import (
	"fmt"
	"strings"

	"github.com/outbox-relay/outbox-relay/internal/scenario"
	"github.com/outbox-relay/outbox-relay/relay/infrai/emulator"
)

// looksWell: on a phone and on a desk, light and dark, nothing has to be pushed
// aside, every text can be read, and every field has a name.
func looksWell(w *scenario.World, b *tab) {
	b.t.Helper()
	w.Fault(emulator.Fault{Route: "queue.publish", Queue: scenario.QueueName, KeyPrefix: "closed", Status: 401})
	id := refuses(w, strings.Repeat("k", 128))
	w.Insert(scenario.Message{Key: "m"})
	w.Insert(scenario.Message{Key: "closed", OrderingKey: strings.Repeat("o", 200)})
	b.open("/login")
	b.types("#token", token)
	b.follow("#sign-in")
	for _, path := range []string{"/", "/dead-letters", fmt.Sprintf("/dead-letters/%d", id), "/login"} {
		b.open(path)
		if path == "/" {
			b.sees("#dead", fmt.Sprint(id))
			b.sees("#verdict .word", "Not ready")
			b.sees("#doctor", "passed")
		}
		b.looksWell(path)
	}

	b.open("/")
	b.follow("#change-orders")
	b.looksWell("the question whether to pause")
	b.types("#why", strings.Repeat("why", 66))
	b.follow("#confirm")
	b.sees("#verdict .findings", "on the page: whywhy")
	b.looksWell("the page with a pause")
	b.follow("#change-orders")
	b.looksWell("the question whether to resume")
}

// looksWell looks at what is on the screen.
func (b *tab) looksWell(what string) {
	b.t.Helper()
	for _, width := range []int64{360, 1280} {
		b.screen(width, 800)
		if wide := value[int64](b, `document.documentElement.scrollWidth`); wide > width {
			b.t.Errorf("%s is %d wide on a screen of %d", what, wide, width)
		}
	}
	for _, scheme := range []string{"light", "dark"} {
		b.scheme(scheme)
		for _, problem := range value[[]string](b, unreadable) {
			b.t.Errorf("%s, %s: %s", what, scheme, problem)
		}
		ground := value[int](b, `Number(getComputedStyle(document.body).backgroundColor.match(/\d+/)[0])`)
		if dark := ground < 64; dark != (scheme == "dark") {
			b.t.Errorf("%s, %s: the ground is %d", what, scheme, ground)
		}
	}
	if headings := value[int](b, `document.querySelectorAll("h1").length`); headings != 1 {
		b.t.Errorf("%s has %d first headings", what, headings)
	}
	if n := value[int](b, `[...document.querySelectorAll("input:not([type=hidden]), select")].filter((f) => !f.labels.length).length`); n != 0 {
		b.t.Errorf("%s has %d fields without a name", what, n)
	}
}

// unreadable lists the texts with less contrast to what is behind them than WCAG's
// level AA asks for.
const unreadable = `(() => {
	const parts = (color) => color.match(/[\d.]+/g).map(Number);
	const luminance = (color) => {
		const [r, g, b] = parts(color).slice(0, 3).map((c) => c / 255).map((c) => c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
		return 0.2126 * r + 0.7152 * g + 0.0722 * b;
	};
	const behind = (e) => {
		for (; e; e = e.parentElement) {
			const color = getComputedStyle(e).backgroundColor, alpha = parts(color)[3];
			if (alpha === undefined || alpha > 0) return color;
		}
		return "rgb(255, 255, 255)";
	};
	const found = new Set();
	const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
	while (texts.nextNode()) {
		const text = texts.currentNode.data.trim(), e = texts.currentNode.parentElement;
		if (!text || !e.checkVisibility()) continue;
		const [light, dark] = [luminance(getComputedStyle(e).color), luminance(behind(e))].sort((a, b) => b - a);
		const contrast = (light + 0.05) / (dark + 0.05);
		if (contrast < 4.5) found.add(text.slice(0, 40) + " has a contrast of " + contrast.toFixed(2));
	}
	return [...found];
})()`
