// Sharing, searching without a new page, and counting what was used.  Everything else works without it.
const { root = "", batch } = document.body.dataset;

function tell(event) {
  const body = JSON.stringify({ event, public_batch_id: batch ?? null });
  fetch(`${root}/api/event`, { method: "POST", headers: { "content-type": "application/json" }, body, keepalive: true }).catch(() => {});
}

for (const button of document.querySelectorAll("[data-copy], [data-print]")) button.hidden = false;
for (const button of document.querySelectorAll("[data-share]")) button.hidden = !navigator.share;

document.addEventListener("click", async (event) => {
  const used = event.target.closest("[data-event], [data-print]");
  if (!used) return;
  if ("print" in used.dataset) {
    print();
    return;
  }
  tell(used.dataset.event);
  if (used.dataset.copy) {
    await navigator.clipboard.writeText(used.dataset.copy);
    const before = used.textContent;
    used.textContent = "Copied";
    setTimeout(() => (used.textContent = before), 2000);
  } else if (used.dataset.share) {
    await navigator.share({ title: used.dataset.title, url: used.dataset.share }).catch(() => {});
  }
});

const form = document.querySelector("[data-search]");
const answer = document.querySelector("[data-answer]");
if (form && answer) {
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    const code = form.code.value.trim();
    answer.textContent = "Looking …";
    try {
      const found = await fetch(`${form.dataset.search}/api/search?code=${encodeURIComponent(code)}`);
      const said = await found.json();
      // A recalled batch is not found and has an id: its page warns.
      if (said.public_batch_id) location.href = `${form.dataset.search}/batch/${encodeURIComponent(said.public_batch_id)}`;
      else if (found.status === 429) answer.textContent = said.error;
      else answer.textContent = `There are no published results for “${code}”. Check the code; a batch that is still being tested is not found here.`;
    } catch {
      form.submit();
    }
  });
}

if (batch) tell("page_view");
