// Keys: g and a letter goes to a page, j and k walk through a list, o opens, / searches, ? tells all of them.
const typing = (target) => target.closest("input, textarea, select, [contenteditable]");
let before = "";
let position = -1;

function walk(step) {
  const lines = [...document.querySelectorAll("[data-line]")];
  if (!lines.length) return;
  const current = lines.findIndex((line) => line.matches(".here, [aria-current]"));
  position = Math.min(Math.max((position < 0 ? current : position) + step, 0), lines.length - 1);
  for (const line of lines) line.classList.remove("here");
  const line = lines[position];
  line.classList.add("here");
  const link = line.matches("a") ? line : line.querySelector("a[href]");
  link?.focus({ preventScroll: true });
  line.scrollIntoView({ block: "nearest" });
  // In the inbox, walking opens.
  if (line.matches("a[data-line]") && position !== current) line.click();
}

export function handleKeys() {
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || typing(event.target) || document.querySelector("dialog[open]")) return;
    const key = event.key;
    if (before === "g") {
      before = "";
      const link = document.querySelector(`[data-go="${CSS.escape(key)}"]`);
      if (link) link.click();
      return;
    }
    before = key === "g" ? "g" : "";
    const action = document.querySelector(`[data-key="${CSS.escape(key)}"]`);
    if (action) {
      event.preventDefault();
      action.click();
    } else if (key === "j" || key === "k") walk(key === "j" ? 1 : -1);
    else if (key === "/") {
      const search = document.querySelector("[data-search]");
      if (!search) return;
      event.preventDefault();
      search.focus();
    } else if (key === "?") document.getElementById("keys")?.showModal();
  });
}
