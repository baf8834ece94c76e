// What makes the pages of a person pleasant.  Everything works without it.

const TRIES = 3;

for (const element of document.querySelectorAll("[data-needs-script]")) element.hidden = false;
for (const element of document.querySelectorAll("[data-without-script]")) element.hidden = true;

// ------------------------------------------------------------ uploads

const form = document.querySelector("[data-upload]");

function line(file) {
  const item = document.createElement("li");
  const name = document.createElement("span");
  name.className = "send-name";
  name.textContent = file.name;
  const state = document.createElement("span");
  state.textContent = "Waiting";
  const progress = document.createElement("progress");
  progress.max = 1;
  progress.value = 0;
  progress.setAttribute("aria-label", `Upload of ${file.name}`);
  item.append(name, state, progress);
  form.querySelector("[data-sending]").append(item);
  return { item, state, progress };
}

// Without a key the contents are the key: a file whose answer was lost, or that is chosen again, is not there twice.
function send(file, shown, tried = 1) {
  return new Promise((done) => {
    const query = new URLSearchParams({ profile_id: form.dataset.profile, filename: file.name || "photo.jpg" });
    const request = new XMLHttpRequest();
    request.open("POST", `/records/upload?${query}`);
    request.setRequestHeader("Accept", "application/json");
    request.setRequestHeader("Content-Type", "application/octet-stream");
    request.upload.addEventListener("progress", (event) => {
      if (!event.lengthComputable) return;
      shown.progress.value = event.loaded / event.total;
      shown.state.textContent = `${Math.round((event.loaded / event.total) * 100)} %`;
    });
    request.addEventListener("load", () => {
      let answer = null;
      try { answer = JSON.parse(request.responseText); } catch { /* told below */ }
      if (request.status === 503 && tried < TRIES) { setTimeout(() => send(file, shown, tried + 1).then(done), 2000 * tried); return; }
      finish(shown, answer?.success ? null : answer?.error?.message ?? "It did not work. Try again.", answer);
      done();
    });
    request.addEventListener("error", () => {
      if (tried < TRIES) { shown.state.textContent = "Trying again"; setTimeout(() => send(file, shown, tried + 1).then(done), 2000 * tried); return; }
      finish(shown, "The connection was lost. Try again.");
      done();
    });
    request.send(file);
  });
}

function finish(shown, trouble, answer) {
  shown.progress.remove();
  shown.state.className = trouble ? "trouble" : "";
  shown.state.textContent = trouble ?? (answer.duplicate ? "Already here" : "Uploaded");
  if (!trouble) { refresh(); setTimeout(() => shown.item.remove(), 4000); }
}

async function take(files) {
  const waiting = [...files].map((file) => [file, line(file)]);
  for (const [file, shown] of waiting) {
    if (file.size > Number(form.dataset.most)) finish(shown, `Larger than ${Math.floor(form.dataset.most / 1024 / 1024)} MB.`);
    else await send(file, shown);
  }
}

if (form) {
  form.classList.add("with-script");
  // Without scripts a form carries one file.
  form.querySelector("#file").multiple = true;
  for (const input of form.querySelectorAll("input[type=file]")) {
    input.addEventListener("change", () => { take(input.files); input.value = ""; });
  }
  form.addEventListener("submit", (event) => event.preventDefault());
  for (const name of ["dragenter", "dragover"]) {
    form.addEventListener(name, (event) => { event.preventDefault(); form.classList.add("drop-over"); });
  }
  for (const name of ["dragleave", "drop"]) {
    form.addEventListener(name, (event) => { event.preventDefault(); form.classList.remove("drop-over"); });
  }
  form.addEventListener("drop", (event) => take(event.dataTransfer.files));
}

// ------------------------------------------------------------ what became of it

let asking = null;

async function refresh() {
  const list = document.querySelector("[data-files]");
  if (!list) return;
  clearTimeout(asking);
  const answer = await fetch(`/records/files${location.search}`).catch(() => null);
  if (answer?.ok) {
    const made = new DOMParser().parseFromString(await answer.text(), "text/html").querySelector("[data-files]");
    if (made && made.innerHTML !== list.innerHTML) list.replaceWith(made);
  }
  const open = Number(document.querySelector("[data-files]")?.dataset.open);
  if (open) asking = setTimeout(refresh, 1000);
}

if (Number(document.querySelector("[data-files]")?.dataset.open)) asking = setTimeout(refresh, 1000);
if (document.querySelector("[data-wait]")) setTimeout(() => location.reload(), 1500);

// ------------------------------------------------------------ a fact and its place

document.addEventListener("click", (event) => {
  const fact = event.target.closest("[data-fact]");
  if (!fact || event.metaKey || event.ctrlKey) return;
  event.preventDefault();
  for (const other of document.querySelectorAll("[data-fact][aria-current]")) other.removeAttribute("aria-current");
  for (const word of document.querySelectorAll(".word-chosen")) word.classList.remove("word-chosen");
  fact.setAttribute("aria-current", "true");
  let first = null;
  for (let number = Number(fact.dataset.first); number <= Number(fact.dataset.last); number += 1) {
    const word = document.querySelector(`[data-word="${fact.dataset.page}-${number}"]`);
    word?.classList.add("word-chosen");
    first ??= word;
  }
  const still = matchMedia("(prefers-reduced-motion: reduce)").matches;
  first?.scrollIntoView({ block: "center", behavior: still ? "auto" : "smooth" });
  history.replaceState(null, "", fact.getAttribute("href"));
});
