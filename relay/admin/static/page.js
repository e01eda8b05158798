// Renews the parts of the page that have changed, every two seconds while
// somebody looks. Without this script the page is reloaded instead.
"use strict";
(() => {
  const pause = 2000, patience = 8000;
  const main = document.getElementById("main");
  const stale = document.getElementById("stale");
  const spoken = document.getElementById("spoken");
  if (!main || !main.dataset.live) return;

  // A part that holds a selection stays as it is, so that it can be copied.
  const inUse = (part) => {
    const selection = window.getSelection();
    return selection && !selection.isCollapsed && part.contains(selection.anchorNode);
  };

  function renew(text) {
    const next = new DOMParser().parseFromString(text, "text/html");
    const focused = document.activeElement && document.activeElement.id;
    for (const part of main.querySelectorAll("section[id]")) {
      const fresh = next.getElementById(part.id);
      if (!fresh || fresh.outerHTML === part.outerHTML || inUse(part)) continue;
      if (part.id === "verdict") announce(part, fresh);
      part.replaceWith(fresh);
    }
    const again = focused && document.getElementById(focused);
    if (again && again !== document.activeElement) again.focus({preventScroll: true});
  }

  // What changes every moment is not read out; a change of the verdict is.
  function announce(part, fresh) {
    document.title = fresh.dataset.title;
    if (part.dataset.word !== fresh.dataset.word) spoken.textContent = fresh.dataset.word;
  }

  async function refresh() {
    try {
      const answer = await fetch(main.dataset.live, {signal: AbortSignal.timeout(patience)});
      if (!answer.ok) throw new Error(answer.statusText);
      renew(await answer.text());
      stale.hidden = true;
      document.body.classList.remove("old");
    } catch {
      stale.hidden = false;
      document.body.classList.add("old");
    }
  }

  // What mends a fault goes to the clipboard, or is selected where the browser has
  // none for pages that do not come by TLS. The next renewal takes the word back.
  async function copy(button) {
    const text = button.parentElement.querySelector("pre");
    try {
      await navigator.clipboard.writeText(text.textContent);
      button.textContent = "Copied";
    } catch {
      window.getSelection().selectAllChildren(text);
    }
  }
  main.addEventListener("click", (event) => { if (event.target.matches(".copy")) copy(event.target); });
  document.documentElement.classList.add("script");

  async function watch() {
    for (;;) {
      await new Promise((done) => setTimeout(done, pause));
      if (!document.hidden) await refresh();
    }
  }
  document.addEventListener("visibilitychange", () => { if (!document.hidden) refresh(); });
  watch();
})();
