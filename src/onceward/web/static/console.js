// What makes the pages pleasant.  Everything works without it.
import { followLive } from "./live.js";
import { handleKeys } from "./keys.js";
import { showTimes } from "./times.js";

// The style sheet follows the system; the switch sets a cookie that the server reads, so that no page flashes.
function switchTheme() {
  const root = document.documentElement;
  const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  root.dataset.theme = dark ? "light" : "dark";
  document.cookie = `onceward-theme=${root.dataset.theme}; path=/; max-age=31536000; samesite=lax`;
}

async function copy(button) {
  await navigator.clipboard.writeText(button.dataset.copy);
  button.classList.add("copied");
  const label = button.getAttribute("aria-label");
  button.setAttribute("aria-label", "Copied");
  setTimeout(() => {
    button.classList.remove("copied");
    button.setAttribute("aria-label", label);
  }, 1500);
}

document.addEventListener("click", (event) => {
  const target = event.target.closest("[data-copy], [data-theme-switch], [data-dialog], [data-close], [data-dismiss]");
  if (!target) return;
  if (target.dataset.copy) copy(target);
  else if ("themeSwitch" in target.dataset) switchTheme();
  else if (target.dataset.dialog) document.getElementById(target.dataset.dialog)?.showModal();
  else if ("close" in target.dataset) target.closest("dialog")?.close();
  else if ("dismiss" in target.dataset) target.closest(".toast")?.remove();
});

// What is too large to be sent is said where it was typed: the server could not give it back.
document.addEventListener("input", (event) => {
  const area = event.target;
  const most = area.form?.dataset.mostSent;
  if (!most || area.tagName !== "TEXTAREA") return;
  // As it is sent.
  const size = new URLSearchParams(new FormData(area.form)).toString().length;
  const shown = (bytes) => `${Math.ceil(bytes / 1024).toLocaleString("en")} KiB`;
  area.setCustomValidity(size > most ? `This is ${shown(size)} when it is sent, and a form may have ${shown(most)}.` : "");
});

// A form is sent once.
document.addEventListener("submit", (event) => {
  const button = event.submitter;
  if (event.target.method === "post" && button) setTimeout(() => (button.disabled = true));
});
addEventListener("pageshow", () => {
  for (const button of document.querySelectorAll("form button[disabled]")) button.disabled = false;
});

// A choice that filters does so at once.
document.addEventListener("change", (event) => {
  if (event.target.matches("[data-submits]")) event.target.form.requestSubmit();
});

// The preview of a schedule follows what is typed.
const preview = document.querySelector("[data-preview]");
if (preview) {
  let waiting;
  preview.addEventListener("input", (event) => {
    if (!event.target.matches("[name=spec], [name=zone]")) return;
    clearTimeout(waiting);
    waiting = setTimeout(async () => {
      const body = new URLSearchParams(new FormData(preview));
      body.set("preview", "1");
      const answer = await fetch(preview.action || location.href, { method: "POST", body });
      const page = new DOMParser().parseFromString(await answer.text(), "text/html");
      const fresh = page.getElementById("coming");
      if (fresh) document.getElementById("coming").replaceWith(fresh);
      showTimes();
    }, 250);
  });
}

for (const hidden of document.querySelectorAll("[data-needs-script]")) hidden.hidden = false;
// A page that is come back to shows itself, and not the menu that led away from it.
addEventListener("pageshow", () => {
  const box = document.getElementById("nav-box");
  if (box) box.checked = false;
});
document.querySelector(".nav [aria-current]")?.scrollIntoView({ block: "nearest" });
showTimes();
handleKeys();
followLive();
