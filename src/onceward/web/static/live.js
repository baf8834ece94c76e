// Live pages: a stream says that something has changed, and the page fetches itself and exchanges its marked parts.
import { showTimes } from "./times.js";

const marker = document.querySelector("[data-live-marker]");
// Between two fetches of one page.
const REST = 1000;
let fetching = false;
let wanted = false;
let lastFetch = 0;
let staleSince = null;

function say(state) {
  if (!marker) return;
  marker.dataset.state = state;
  if (state === "connected") {
    staleSince = null;
    marker.lastElementChild.textContent = "Live";
    marker.title = "This page changes by itself.";
  } else if (state === "stale") {
    staleSince ??= new Date();
    const at = staleSince.toLocaleTimeString([], { hour: "2-digit", minute: "2-digit" });
    marker.lastElementChild.textContent = `Stale since ${at}`;
    marker.title = "The connection is lost. What you see may be old; it is tried again.";
  }
}

// Whoever is typing or choosing inside a part keeps it as it is, also while they look elsewhere: what was typed is theirs.
// A form that came back with what is wrong stays, too.
const isTyped = (field) => field.type !== "hidden" && field.value !== field.defaultValue;
const inUse = (part) =>
  (part.contains(document.activeElement) && document.activeElement.matches("input, textarea, select")) ||
  [...part.querySelectorAll("input, textarea")].some(isTyped) ||
  part.querySelector('[aria-invalid="true"]') !== null;

function exchange(page) {
  for (const part of document.querySelectorAll("[data-live]")) {
    const fresh = page.querySelector(`[data-live="${CSS.escape(part.dataset.live)}"]`);
    if (!fresh || fresh.isEqualNode(part.served ?? part) || inUse(part)) continue;
    const open = new Map([...part.querySelectorAll("details[id]")].map((each) => [each.id, each.open]));
    const served = fresh.cloneNode(true);
    const before = new Map([...part.querySelectorAll("[data-glow]")].map((each) => [each.dataset.glow, each.textContent]));
    const focused = part.contains(document.activeElement) ? document.activeElement.getAttribute("href") : null;
    const { scrollTop } = part;
    part.replaceWith(fresh);
    fresh.scrollTop = scrollTop;
    fresh.served = served;
    for (const each of fresh.querySelectorAll("details[id]")) if (open.has(each.id)) each.open = open.get(each.id);
    for (const each of fresh.querySelectorAll("[data-glow]")) {
      const old = before.get(each.dataset.glow);
      if (old !== undefined && old !== each.textContent) each.classList.add("glow");
    }
    for (const hidden of fresh.querySelectorAll("[data-needs-script]")) hidden.hidden = false;
    if (focused) fresh.querySelector(`a[href="${CSS.escape(focused)}"]`)?.focus({ preventScroll: true });
  }
  showTimes();
}

async function refresh() {
  if (fetching || document.visibilityState !== "visible") {
    wanted = true;
    return;
  }
  fetching = true;
  wanted = false;
  try {
    const rest = lastFetch + REST - Date.now();
    if (rest > 0) await new Promise((done) => setTimeout(done, rest));
    lastFetch = Date.now();
    const answer = await fetch(location.href, { headers: { "x-onceward-live": "1" }, redirect: "error" });
    if (answer.ok) {
      exchange(new DOMParser().parseFromString(await answer.text(), "text/html"));
      say("connected");
    }
  } catch {
    say("stale");
  } finally {
    fetching = false;
    if (wanted) refresh();
  }
}

export function followLive() {
  if (!marker || !document.querySelector("[data-live]")) return;
  for (const part of document.querySelectorAll("[data-live]")) part.served = part.cloneNode(true);
  const stream = new EventSource("/live");
  stream.addEventListener("open", () => say("connected"));
  stream.addEventListener("changed", refresh);
  stream.addEventListener("stale", () => say("stale"));
  stream.addEventListener("error", () => say("stale"));
  // A job that runs changes in ways that no stream tells: its steps, its progress.
  setInterval(() => document.querySelector("[data-live-often]") && refresh(), 2000);
  document.addEventListener("visibilitychange", () => wanted && refresh());
  addEventListener("pagehide", () => stream.close());
}
