// When the counter has taken the code, the page says so by itself.
const EVERY = 5000;

async function look() {
  if (!document.hidden) {
    try {
      const answer = await fetch(location.pathname, { headers: { accept: "application/json" }, cache: "no-store" });
      const found = await answer.json();
      if (answer.status === 400 || found.used_at) return location.reload();
    } catch {
      // No connection: the code on the screen is good all the same.
    }
  }
  setTimeout(look, EVERY);
}

setTimeout(look, EVERY);
