// Follows what the page shows: one stream, from which regions are replaced. It stops while nobody looks.
let source;

function follow() {
  const regions = [...document.querySelectorAll("[data-region]")];
  const query = new URLSearchParams({
    view: location.pathname + location.search,
    seen: regions.map((each) => `${each.id}.${each.dataset.v}`).join(","),
  });
  source = new EventSource(`/page/events?${query}`);
  source.addEventListener("region", (event) => replace(JSON.parse(event.data)));
  source.addEventListener("open", () => { document.getElementById("live").hidden = false; });
  source.addEventListener("error", () => { document.getElementById("live").hidden = true; });
}

function replace({ id, v, html }) {
  const region = document.getElementById(id);
  const focused = region.contains(document.activeElement) ? mark(document.activeElement) : null;
  const scrolled = [...region.querySelectorAll(".wide, .log")].map((each) => [each.scrollLeft, each.scrollTop, atEnd(each)]);
  region.innerHTML = html;
  region.dataset.v = v;
  [...region.querySelectorAll(".wide, .log")].forEach((each, k) => {
    const [left, top, end] = scrolled[k] ?? [0, 0, true];
    each.scrollTo(left, end && "end" in each.dataset ? each.scrollHeight : top);
  });
  if (focused) region.querySelector(focused)?.focus({ preventScroll: true });
}

// Names an element that can have the focus, so that it is found again among what replaces it.
function mark(element) {
  const named = ["href", "aria-label", "name"].find((each) => element.hasAttribute(each));
  return element.tagName + (named ? `[${named}="${CSS.escape(element.getAttribute(named))}"]` : "");
}

function atEnd(element) {
  return element.scrollTop + element.clientHeight >= element.scrollHeight - 8;
}

function look() {
  source?.close();
  if (document.visibilityState === "visible") follow();
}

document.querySelectorAll("[data-end]").forEach((each) => each.scrollTo(0, each.scrollHeight));
document.addEventListener("visibilitychange", look);
addEventListener("pagehide", () => source?.close());
addEventListener("pageshow", look);
